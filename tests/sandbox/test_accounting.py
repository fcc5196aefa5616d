"""Control group files as kernels write them, versions 1 and 2, and as broken ones might."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sandbox.accounting import Accounting, account, keyed

V2 = "/sys/fs/cgroup"
V2_BEFORE = {
    f"{V2}/cpu.stat": "usage_usec 2000\nuser_usec 1500\nsystem_usec 500\nnr_periods 0\nnr_throttled 0\n"
    "throttled_usec 100\n",
    f"{V2}/memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
    f"{V2}/pids.events": "max 1\n",
}
V2_AFTER = {
    f"{V2}/cpu.stat": "usage_usec 1502000\nuser_usec 1501500\nsystem_usec 500\nnr_periods 9\nnr_throttled 3\n"
    "throttled_usec 250100\n",
    f"{V2}/memory.events": "low 0\nhigh 0\nmax 41\noom 2\noom_kill 2\noom_group_kill 0\n",
    f"{V2}/memory.peak": "73400320\n",
    f"{V2}/pids.events": "max 4\n",
}
V1_BEFORE = {
    f"{V2}/cpuacct/cpuacct.usage": "3000000\n",
    f"{V2}/cpu/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
    f"{V2}/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
    f"{V2}/pids/pids.events": "max 0\n",
}
V1_AFTER = {
    f"{V2}/cpuacct/cpuacct.usage": "1503000000\n",
    f"{V2}/cpu/cpu.stat": "nr_periods 12\nnr_throttled 4\nthrottled_time 250000000\n",
    f"{V2}/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    f"{V2}/memory/memory.max_usage_in_bytes": "2147483648\n",
    f"{V2}/pids/pids.events": "max 7\n",
}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(V2_BEFORE, V2_AFTER, Accounting(1.5, 0.25, 73400320, 2, 3), id="version 2"),
        pytest.param(V1_BEFORE, V1_AFTER, Accounting(1.5, 0.25, 2147483648, 1, 7), id="version 1"),
        pytest.param({}, {}, Accounting(None, None, None, None, None), id="no files"),
        pytest.param(V2_AFTER, V2_BEFORE, Accounting(0.0, 0.0, None, 0, 0), id="counters that fell"),
        pytest.param(
            {},
            {f"{V2}/memory.peak": "max\n", f"{V2}/cpu.stat": "\n\nusage_usec\nusage_usec x\n"},
            Accounting(None, None, None, None, None),
            id="nonsense",
        ),
    ],
)
def test_counters_are_read_over_the_commands_time(
    before: Mapping[str, str], after: Mapping[str, str], expected: Accounting
) -> None:
    assert account(before, after) == expected


def test_only_numbers_are_values() -> None:
    assert keyed("a 1\nb -2\nc 3 4\n d 5 \ne \u0663\n") == {"a": 1, "d": 5}
