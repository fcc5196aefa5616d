"""What the commands of a run ran into, counted: where the sandbox differs from the original's host. Pure.

Isolation must not change the score. Whether it did shows here: a module that was importable there, a network
that was there, a kill by a limit of ours, a time-out while the command waited for a processor. What a command
printed is the model's to forge, so these are counts to look at, never a verdict.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from runner.clean import clean_text
from runner.events import ToolRecord, TurnDone

LITTLE_CPU = 0.1
"""Share of its wall time below which a command that timed out was waiting: asleep, or starved."""
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^'\n]{1,80})'")
_NO_NETWORK = re.compile(
    r"Network is unreachable|Temporary failure in name resolution|Could not resolve host"
    r"|Name or service not known|Cannot assign requested address"
)


def tool_counts(turns: Iterable[TurnDone]) -> dict[str, Any]:
    """Count the actions of `turns` and what they ran into. Times in seconds."""
    ran = [(turn.tool, turn.observation or "") for turn in turns if turn.tool is not None]
    tools = [tool for tool, _ in ran]
    timed_out = [tool for tool in tools if tool.timed_out]
    modules = Counter(name for _, text in ran for name in _missing_modules(text))
    return {
        "actions": len(tools),
        "timed_out": len(timed_out),
        "timed_out_waiting": sum(1 for tool in timed_out if _waited(tool)),
        "limits": dict(Counter(limit for tool in tools for limit in tool.limits)),
        "nonzero_exit": sum(1 for tool in tools if tool.exit_code not in {0, None}),
        "missing_modules": dict(modules),
        "refused_network": sum(1 for _, text in ran if _NO_NETWORK.search(text)),
        "wall_s": round(sum(tool.wall_s for tool in tools), 3),
        "cpu_s": round(sum(tool.cpu_s or 0.0 for tool in tools), 3),
        "throttled_s": round(sum(tool.throttled_s or 0.0 for tool in tools), 3),
        "peak_memory_bytes": max((tool.peak_memory_bytes or 0 for tool in tools), default=0),
    }


def _missing_modules(text: str) -> set[str]:
    """One action counts once for each module, by its top-level name."""
    found = (name.split(".")[0] for name in _MISSING_MODULE.findall(text))
    return {clean_text(name, keep_lines=False, limit_chars=80) for name in found}


def _waited(tool: ToolRecord) -> bool:
    return tool.cpu_s is not None and tool.cpu_s < LITTLE_CPU * tool.wall_s
