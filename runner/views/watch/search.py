"""Free text in commands: of turns as they come, and of a journal's earlier turns from the disk.

Commands are not kept in memory, so a search reads the journal once, in a thread, looking at the bytes first
and reading as JSON only what may hold the text.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from runner.engines.base import TrajectoryKey
from runner.events import TurnDone
from runner.views.watch.rows import Row, command_of
from runner.views.watch.tail import Located, parse_line

_TURN = b'"type":"turn"'


@dataclass
class TextSearch:
    """One text that is looked for, whatever its case, and the turns whose command holds it.

    A hit names the attempt too: what an abandoned attempt did is no part of the trajectory.
    """

    text: str
    hits: set[tuple[TrajectoryKey, int]] = field(default_factory=set)
    searched_journal: bool = False
    """Whether the turns from before the search began were looked at."""

    def see(self, turn: TurnDone) -> None:
        """Look at one turn."""
        command = command_of(turn)
        if command is not None and self.text.casefold() in command.casefold():
            self.hits.add((turn.key, turn.attempt))

    def matches(self, row: Row) -> bool:
        """Say whether a trajectory's id, question, answers or commands hold the text."""
        if (row.key, row.attempt) in self.hits:
            return True
        wanted = self.text.casefold()
        key, problem = row.key, row.problem
        texts = (f"{key}", problem.question, problem.gold, row.prediction, row.doing)
        return any(wanted in text.casefold() for text in texts)


def search_journal(
    path: Path, text: str, until_offset: int, is_stale: Callable[[], bool]
) -> set[tuple[TrajectoryKey, int]]:
    """Return the turns in the first `until_offset` bytes whose command holds `text`.

    Gives up early where `is_stale` says that nobody wants the answer any more.
    """
    search = TextSearch(text)
    raw_text = json.dumps(text)[1:-1].encode("ascii").lower() if text.isascii() else b""
    position = 0
    with path.open("rb") as file:
        for line, raw in enumerate(file, start=1):
            position += len(raw)
            if position > until_offset or is_stale():
                break
            if _TURN in raw and raw_text in raw.lower():
                found = parse_line(raw, line, 0)
                if isinstance(found, Located) and isinstance(found.event, TurnDone):
                    search.see(found.event)
    return search.hits
