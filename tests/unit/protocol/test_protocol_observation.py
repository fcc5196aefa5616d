"""The wire format of a tool result, and what never becomes a process."""

import subprocess

import pytest

from runner.protocol.observation import (
    MAX_SCRIPT_BYTES,
    SCRIPT_PREFIX,
    exec_error_of,
    format_exec_error,
    format_result,
    format_timeout,
    script_for,
    truncate_observation,
    universal_newlines,
)


@pytest.mark.parametrize(
    ("stdout", "stderr", "exit_code", "text"),
    [
        ("2\n", "", 0, "2\n\n[exit_code] 0"),
        ("a", "b", 1, "a\n[stderr]\nb\n[exit_code] 1"),
        ("", "b\n", 1, "[stderr]\nb\n\n[exit_code] 1"),
        (" ", "", 0, " \n[exit_code] 0"),
        ("", "", -15, "Bash exited with code -15 and no output."),
    ],
)
def test_a_result_is_its_streams_and_its_exit_code(
    stdout: str, stderr: str, exit_code: int, text: str
) -> None:
    assert format_result(stdout, stderr, exit_code) == text


def test_a_time_out_is_worded_in_seconds_with_one_decimal() -> None:
    assert format_timeout(20) == "Bash timed out after 20.0s."


def test_every_kind_of_line_end_becomes_a_newline() -> None:
    assert universal_newlines("a\r\nb\rc\n\r\r\n") == "a\nb\nc\n\n\n"


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "ab\n...[truncated]...\nef"),
        ("abcdef", 0, "a\n...[truncated]...\nf"),
        ("", -1, "\n...[truncated]...\n"),
    ],
)
def test_a_long_observation_keeps_both_ends(text: str, limit: int, kept: str) -> None:
    assert truncate_observation(text, limit) == kept


def test_the_script_sets_the_address_space_limit_first() -> None:
    assert script_for("echo 1") == "ulimit -v 8388608; echo 1"


LONGEST = "#" * (MAX_SCRIPT_BYTES - len(SCRIPT_PREFIX))


@pytest.mark.parametrize(
    "command",
    [
        "true",
        "a\0b",
        "\ud800",
        "\ud800\0",
        "é\ud83d\ude00x",
        "true \udc80",
        "\udc80\udfff\0",
        LONGEST,
        LONGEST + "#",
    ],
)
def test_a_command_is_refused_when_and_as_subprocess_refuses_it(command: str) -> None:
    refused = None
    try:
        subprocess.run(script_for(command), shell=True, executable="/bin/bash", check=False)  # noqa: S602
    except (OSError, ValueError) as error:
        refused = str(error)

    assert exec_error_of(command) == refused


def test_the_error_line_holds_python_s_message() -> None:
    message = exec_error_of("a\ud800")

    assert message is not None
    assert format_exec_error(message) == (
        "[ERROR] Failed to execute command: "
        "'utf-8' codec can't encode character '\\ud800' in position 20: surrogates not allowed"
    )
