"""What a profile, a resume and a command line know of kinds of engines."""

from pathlib import Path
from typing import Literal

import pytest
from support.builders import write_profile

from runner.engines.base import Engine
from runner.engines.kind import EngineKind, EngineOptions, EngineSection, RunFacts
from runner.engines.registry import KINDS, MODULES, kinds_in_words
from runner.errors import UserError
from runner.fingerprint import changed_settings, compare_engines
from runner.profile import load_profile


class _Settings(EngineSection):
    kind: Literal["parrot"]
    model: str


def _build(settings: _Settings, run: RunFacts) -> Engine:
    raise NotImplementedError


PARROT = EngineKind(_Settings, _build)


def test_every_registered_module_has_a_kind_of_its_own() -> None:
    assert list(KINDS) == ["scripted", "openai", "vllm"]
    assert len(MODULES) == len(KINDS)


def test_kinds_are_named_for_a_person() -> None:
    assert kinds_in_words() == "vllm, openai or scripted"


def test_every_harmless_setting_is_a_setting() -> None:
    for kind in KINDS.values():
        settings = set(kind.settings.model_fields)
        assert kind.harmless_settings <= settings
        assert kind.scaling <= settings


def test_a_profile_of_no_kind_is_told_which_there_are(tmp_path: Path) -> None:
    profile = write_profile(tmp_path, {"kind": "invented"})

    with pytest.raises(UserError, match="expected tags: 'scripted', 'openai', 'vllm'"):
        load_profile(str(profile))


def test_without_a_rule_of_its_own_a_kind_takes_the_options_that_were_given() -> None:
    assert PARROT.section(EngineOptions()) == {"kind": "parrot"}
    assert PARROT.section(EngineOptions("m", ("http://a",))) == {
        "kind": "parrot",
        "model": "m",
        "base_urls": ["http://a"],
    }


def test_without_servers_a_kind_has_none_to_be_asked() -> None:
    assert PARROT.servers(_Settings(kind="parrot", model="m")) == {}


def test_what_is_harmless_of_one_kind_is_not_of_another() -> None:
    bundled = {"engine": {"kind": "vllm", "model": "m"}}

    # `attempts` is openai's.
    assert changed_settings(bundled, {"engine": {"kind": "vllm", "model": "m", "attempts": 2}})
    assert not changed_settings(bundled, {"engine": {"kind": "vllm", "model": "m", "engines": 2}})


def test_of_an_engine_that_no_profile_can_name_nothing_is_known_to_be_harmless() -> None:
    then, now = {"kind": "invented", "engines": 4}, {"kind": "invented", "engines": 8}

    assert compare_engines(then, now).refused
    assert not compare_engines(then | {"kind": "vllm"}, now | {"kind": "vllm"}).refused
