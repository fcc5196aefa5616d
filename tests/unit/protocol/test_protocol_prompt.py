"""Reading a protocol pack and making messages of it."""

from typing import Any

import pytest

from runner.protocol.prompt import PackError, ProtocolPack, initial_messages, observation_message

PACK: dict[str, Any] = {
    "system_prompt": "Solve {it}.",
    "user_prompt_template": "{question} {name}",
    "observation_template": "{name}: {text} {question}",
    "format_check_name": "form",
    "answer_before_bash_warning": "bash first",
    "no_action_warning": "act",
    "blocked_command_observation": "no",
    "unknown_action_template": "{name}? {text}",
    "empty_command_observation": "nothing",
    "stop": ["Result:"],
    "licence": "ignored",
}


def pack(**changes: object) -> ProtocolPack:
    return ProtocolPack.from_mapping({**PACK, **changes}, "a.json")


def test_braces_in_questions_names_and_results_are_text() -> None:
    assert initial_messages(pack(), r"{question} {0} \1 {name}") == [
        {"role": "system", "content": "Solve {it}."},
        {"role": "user", "content": r"{question} {0} \1 {name} {name}"},
    ]
    assert observation_message(pack(), "{text}", "{name}") == {
        "role": "user",
        "content": "{text}: {name} {question}",
    }
    assert pack().unknown_action("{name}") == "{name}? {text}"


def test_the_stop_strings_are_the_pack_s() -> None:
    assert pack().stop == ("Result:",)


@pytest.mark.parametrize("key", sorted(set(PACK) - {"licence"}))
def test_a_missing_or_wrongly_typed_key_is_named(key: str) -> None:
    missing = {name: value for name, value in PACK.items() if name != key}

    with pytest.raises(PackError, match=rf"^a\.json: `{key}` is missing$"):
        ProtocolPack.from_mapping(missing, "a.json")
    with pytest.raises(PackError, match=rf"^a\.json: `{key}` is a int, not a"):
        pack(**{key: 5})
    with pytest.raises(PackError, match=rf"^a\.json: `{key}` is null, not a"):
        pack(**{key: None})


@pytest.mark.parametrize("stop", [[""], [1], [None]])
def test_a_stop_string_that_no_text_holds_is_refused(stop: object) -> None:
    with pytest.raises(PackError, match="`stop` holds"):
        pack(stop=stop)


@pytest.mark.parametrize("key", ["user_prompt_template", "observation_template"])
def test_a_template_without_its_placeholder_is_refused(key: str) -> None:
    with pytest.raises(PackError, match=f"`{key}` does not contain"):
        pack(**{key: "plain"})


def test_a_pack_that_is_no_object_is_refused() -> None:
    with pytest.raises(PackError, match=r"^a\.json: a protocol pack is an object"):
        ProtocolPack.from_mapping(["x"], "a.json")
