"""The recorded calls of the original's functions, and the hashes of the prompt they belong to."""

import hashlib
import json
from pathlib import Path

import pytest

from runner.conformance.functions import FUNCTIONS, check_functions
from runner.protocol.observation import TRUNCATION_MARKER, format_exec_error, format_result, format_timeout
from runner.protocol.prompt import ProtocolPack, initial_messages

PROTOCOL = Path(__file__).resolve().parents[3] / "shared" / "protocol"
RECORDED_CALLS = 8_879

SYSTEM_PROMPT_SHA256 = "aed339572cb4696b1061c4816670b7c480b34ca37c3880c5c1dd7b8c14d9da44"
USER_TEMPLATE_SHA256 = "411025ebc44bbea3e9ba01d3d30264c12223f359008b253e0ad4a9bf520e39a3"


def given(name: str) -> Path:
    path = PROTOCOL / name
    if not path.exists():
        pytest.skip(f"{name} is not part of the repository and is not in ../shared/protocol")
    return path


def test_every_recorded_call_has_the_recorded_result() -> None:
    report = check_functions(given("function_vectors.jsonl"))

    assert "\n".join(report.lines()) == f"{RECORDED_CALLS} passed, 0 failed"


def test_the_recorded_calls_name_no_function_that_is_missing_here() -> None:
    lines = given("function_vectors.jsonl").read_text(encoding="utf-8").split("\n")

    assert {json.loads(line)["function"] for line in lines if line} <= set(FUNCTIONS)


def test_the_pack_s_prompts_have_the_report_s_hashes() -> None:
    pack = ProtocolPack.from_mapping(
        json.loads(given("protocol.json").read_text(encoding="utf-8")), "protocol.json"
    )

    system, user = initial_messages(pack, "{question}")

    assert hashlib.sha256(system["content"].encode()).hexdigest() == SYSTEM_PROMPT_SHA256
    assert hashlib.sha256(user["content"].encode()).hexdigest() == USER_TEMPLATE_SHA256


def test_the_wire_format_in_code_is_the_recorded_one() -> None:
    recorded = json.loads(given("protocol.json").read_text(encoding="utf-8"))

    assert format_timeout(20) == recorded["timeout_template"].format(seconds=20)
    assert format_result("", "", -15) == recorded["no_output_template"].format(code=-15)
    assert format_exec_error("why") == recorded["exec_error_template"].format(error="why")
    assert recorded["truncation_marker"] == TRUNCATION_MARKER
