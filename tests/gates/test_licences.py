"""The list of licences is in step with the locks, and nothing in it came in unseen."""

import pytest

from tools.licences import (
    ALLOWED,
    LIST,
    UNKNOWN,
    faults,
    installed,
    licence_of,
    lock_texts,
    permitted,
    read_list,
    read_locks,
)

LOCKED = read_locks(lock_texts())
TEXT = LIST.read_text(encoding="utf-8")


def test_every_locked_package_is_listed_with_the_licence_that_it_says() -> None:
    here = installed(LOCKED)
    assert len(here) > 40
    assert faults(LOCKED, TEXT, here) == []


def test_a_package_that_is_not_listed_is_found() -> None:
    more = read_locks({**lock_texts(), "core": "left-pad==1.0.0 \\\n    --hash=sha256:00\n"})
    assert "left-pad is locked and not in the list" in faults(more, TEXT, {})


def test_a_line_that_no_lock_needs_is_found() -> None:
    assert faults(LOCKED, f"{TEXT}left-pad  MIT  core\n", {}) == ["left-pad is in the list and in no lock"]


def test_a_licence_that_changed_with_an_upgrade_is_found() -> None:
    found = faults(LOCKED, TEXT, {"anyio": "AGPL-3.0-only"})
    assert found == ["anyio is listed as MIT and says AGPL-3.0-only"]


def test_copyleft_is_a_fault_until_somebody_says_why_not() -> None:
    assert permitted("anyio", "MIT OR GPL-3.0")
    assert not permitted("anyio", "MIT AND GPL-3.0")
    assert not permitted("anyio", UNKNOWN)
    assert permitted("pyte", "LGPL-3.0")
    assert not permitted("pyte", "GPL-3.0"), "allowed was another licence"
    text = TEXT.replace("h11  ", "h11 x", 1).replace("\nanyio  ", "\nanyio  GPL-3.0  x  ", 1)
    assert any(fault.startswith("anyio: GPL-3.0 is not permissive") for fault in faults(LOCKED, text, {}))


def test_what_is_allowed_by_name_says_why() -> None:
    assert all(len(reason) > 20 for _, reason in ALLOWED.values())
    assert ALLOWED.keys() <= read_list(TEXT).keys()


@pytest.mark.parametrize(
    ("said", "licence"),
    [
        (("MIT AND PSF-2.0", [], "whatever"), "MIT AND PSF-2.0"),
        ((None, ["License :: OSI Approved :: BSD License"], "BSD-3-Clause"), "BSD-3-Clause"),
        ((None, ["License :: OSI Approved :: MIT License"], "UNKNOWN"), "MIT"),
        ((None, ["License :: OSI Approved :: BSD License"], "Copyright (c) 2001\nall of it"), "BSD"),
        ((None, ["License :: Other/Proprietary License"], "Apache 2.0"), "proprietary"),
        (("LicenseRef-NVIDIA-Proprietary", [], None), "proprietary"),
        ((None, ["License :: OSI Approved"], "ISC"), "ISC"),
        ((None, [], None), UNKNOWN),
    ],
)
def test_a_licence_is_read_from_wherever_a_package_says_it(
    said: tuple[str | None, list[str], str | None], licence: str
) -> None:
    assert licence_of(*said) == licence
