"""Faults that a process is told to have: a switch is a file, on for as long as it exists.

The harness turns them on and off; the processes under test look before each thing that could fail. Files,
since they survive the death of either side.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path


class Switch(str, Enum):
    """What can be broken inside a process."""

    ENGINE_0_DEAD = "engine-0-dead"
    ENGINE_1_DEAD = "engine-1-dead"
    ENGINE_0_HANGS = "engine-0-hangs"
    ENGINE_1_HANGS = "engine-1-hangs"
    DISK_FULL = "disk-full"
    DAEMON_DOWN = "daemon-down"
    DAEMON_HANGS = "daemon-hangs"
    CONTAINERS_DIE = "containers-die"


class Switches:
    """All switches of one schedule."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def turn(self, switch: Switch, *, on: bool) -> None:
        """Turn a switch on or off."""
        path = self._directory / switch.value
        if on:
            path.touch()
        else:
            path.unlink(missing_ok=True)

    def is_on(self, switch: Switch) -> bool:
        """Whether it is on just now."""
        return (self._directory / switch.value).exists()

    def all_off(self) -> None:
        """Mend everything."""
        for switch in Switch:
            self.turn(switch, on=False)
