"""What commands ran into is counted, and text that a model wrote cannot do more than count."""

from support.events import turn

from runner.events import ToolRecord
from runner.results.tools import tool_counts


def tool(
    exit_code: int | None = 0, *limits: str, wall_s: float = 1.0, cpu_s: float | None = 0.5
) -> ToolRecord:
    return ToolRecord(
        exit_code=exit_code,
        timed_out=exit_code is None,
        limits=limits,
        wall_s=wall_s,
        cpu_s=cpu_s,
        throttled_s=0.25,
        peak_memory_bytes=1000,
        stdout_bytes=0,
        stderr_bytes=0,
    )


def test_actions_limits_and_resources_are_counted_once_each() -> None:
    tools = [
        tool(),
        tool(3, "memory"),
        tool(-9, "memory", "processes"),
        tool(None, "time"),
        tool(None, "output"),
        None,  # a turn without a command
    ]
    assert tool_counts(turn(number=at, tool=one) for at, one in enumerate(tools)) == {
        "actions": 5,
        "timed_out": 2,
        "timed_out_waiting": 0,
        "limits": {"memory": 2, "processes": 1, "time": 1, "output": 1},
        "nonzero_exit": 2,
        "missing_modules": {},
        "refused_network": 0,
        "wall_s": 5.0,
        "cpu_s": 2.5,
        "throttled_s": 1.25,
        "peak_memory_bytes": 1000,
    }


def test_a_time_out_without_processor_time_was_waiting() -> None:
    tools = [tool(None, "time", wall_s=20.0, cpu_s=cpu_s) for cpu_s in (0.1, 1.9, 2.1, 19.0, None)]
    assert tool_counts(turn(tool=one) for one in tools)["timed_out_waiting"] == 2


def test_modules_that_were_missing_are_counted_by_their_top_level_name_once_an_action() -> None:
    says = "ModuleNotFoundError: No module named '{}'\n"
    texts = [
        says.format("cvxpy.atoms") + says.format("cvxpy"),
        says.format("ortools"),
        says.format("cvxpy"),
        "fine",
    ]
    counts = tool_counts(turn(tool=tool(1), observation=text) for text in texts)
    assert counts["missing_modules"] == {"cvxpy": 2, "ortools": 1}


def test_refused_network_is_counted() -> None:
    texts = [
        "curl: (6) Could not resolve host: example.org",
        "OSError: [Errno 101] Network is unreachable",
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
        "no network needed",
    ]
    assert tool_counts(turn(tool=tool(1), observation=text) for text in texts)["refused_network"] == 3


def test_what_a_model_says_without_a_command_is_not_counted() -> None:
    said = turn(tool=None, observation="ModuleNotFoundError: No module named 'x'")
    assert tool_counts([said])["missing_modules"] == {}


def test_a_hostile_module_name_is_cleaned() -> None:
    said = turn(tool=tool(1), observation="ModuleNotFoundError: No module named '\x1b[31mred\x07'")
    (name,) = tool_counts([said])["missing_modules"]
    assert "\x1b" not in name
    assert "\x07" not in name
