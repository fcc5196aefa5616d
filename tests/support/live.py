"""A live state with something in every panel, and a terminal that shows frames."""

from collections.abc import Iterable
from typing import Any

import pyte

from runner.engines.base import TrajectoryKey
from runner.events import DatasetRecord, ProblemRecord, ToolRecord, TrajectoryStarted, TurnKind
from runner.views.live_state import LiveState
from runner.views.panels import View
from runner.views.phases import Phase, PhaseState
from support.engine_events import engine_down, sample, use
from support.events import retried, run_started, terminated, turn

NOW = 1000.0
GIB = 1 << 30
PREFIX = b"eval-1  | "


def tool(**changes: Any) -> ToolRecord:
    """How a command went."""
    values: dict[str, Any] = {
        "exit_code": 0,
        "timed_out": False,
        "limits": (),
        "wall_s": 0.1,
        "cpu_s": 0.1,
        "throttled_s": 0.0,
        "peak_memory_bytes": 1,
        "stdout_bytes": 1,
        "stderr_bytes": 0,
    }
    return ToolRecord(**values | changes)


def records(names: Iterable[str], ids: Iterable[str], answer: str = "42") -> tuple[DatasetRecord, ...]:
    """Data sets of these names, each with problems of these ids."""
    problems = tuple(
        ProblemRecord(id=one, row_index=row, question="?", answer=answer) for row, one in enumerate(ids)
    )
    return tuple(
        DatasetRecord(name=name, path="p", sha256="0" * 64, base_seed=1, problems=problems) for name in names
    )


def starts(dataset: str, problem_id: str, *, sample: int = 0, at: float = 0.0) -> TrajectoryStarted:
    """A trajectory begins."""
    return TrajectoryStarted(
        dataset=dataset, problem_id=problem_id, sample=sample, row_index=0, seed=1, at=at
    )


def acts(key: TrajectoryKey, command: str, *, number: int = 0, **changes: Any) -> Any:
    """A turn with a command."""
    return turn(
        number=number,
        dataset=key.dataset,
        problem_id=key.problem_id,
        sample=key.sample,
        kind=TurnKind.ACTION,
        action={"name": "bash", "arguments": {"command": command}},
        **{"tool": tool(), "tool_s": 0.2} | changes,
    )


def busy_state(
    *, running: int = 20, ended: int = 30, engines: int = 2, text: str = "echo hello", ids: str = "p"
) -> LiveState:
    """A run of two data sets in the middle; `text` stands wherever a model or a server writes."""
    state = LiveState()
    names = [f"{ids}{number}" for number in range(running + ended)]
    sets = ("dapo", "aime")
    state.apply(
        run_started(
            at=0.0,
            samples=4,
            profile={"limits": {"max_turns": 50}},
            datasets=records(sets, names, answer=text),
        )
    )
    for number, name in enumerate(names):
        key = TrajectoryKey(sets[number % 2], name, 0)
        state.apply(starts(key.dataset, name, at=float(number)))
        limits = ("time",) if number % 7 == 0 else ()
        state.apply(
            acts(key, text, engine=f"engine-{number % max(engines, 1)}", tool=tool(limits=limits), at=NOW - 5)
        )
        if number < ended:
            state.apply(
                terminated(
                    name, dataset=key.dataset, prediction=text, score=float(number % 2), at=NOW - 100 + number
                )
            )
        elif number % 3 == 0:
            state.note_command(f"{key}:1", text)
    last = sets[(len(names) - 1) % 2]
    retry = retried(names[-1], cause=f"EngineUnavailableError: {text}")
    state.apply(retry.model_copy(update={"dataset": last}))
    if engines:
        state.apply(engine_down("engine-0", at=NOW - 20, cause=text))
        stats = {
            "kv_cache_usage": 0.4,
            "gpu_memory_used_bytes": 71 * GIB,
            "gpu_memory_total_bytes": 80 * GIB,
            "gpu_utilization": 0.97,
        }
        uses = [use(f"engine-{number}", running=9, stats=stats) for number in range(engines)]
        state.apply(sample(*uses, at=NOW - 1, queued=3))
    return state


def view_of(state: LiveState, **changes: Any) -> View:
    """Everything a frame shows of `state`."""
    values: dict[str, Any] = {
        "state": state,
        "phase": PhaseState(Phase.RUNNING, 0.0),
        "now": NOW,
        "title": "final4-20261202-014512-3f9a",
        "journal": "results/final4-20261202-014512-3f9a/journal.jsonl",
        "watch_hint": "docker compose exec eval recount watch",
    }
    return View(**values | changes)


class Screen:
    """A terminal emulator that gets what Compose would print: a prefix before every line."""

    def __init__(self, columns: int, rows: int, *, prefix: bytes = PREFIX) -> None:
        """An empty terminal, or `prefix` less where there is no Compose."""
        self._screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.ByteStream(self._screen)
        self._prefix = prefix
        self._at_line_begin = True

    def feed(self, data: bytes) -> None:
        """Print `data` line by line, as Compose does."""
        for line in data.splitlines(keepends=True):
            if self._at_line_begin:
                self._stream.feed(self._prefix)
            self._stream.feed(line.replace(b"\n", b"\r\n"))
            self._at_line_begin = line.endswith(b"\n")

    def feed_raw(self, data: bytes) -> None:
        """Print `data` as it comes from a real terminal."""
        self._stream.feed(data)

    def resize(self, columns: int, rows: int) -> None:
        """Change the terminal's size; nobody is told."""
        self._screen.resize(lines=rows, columns=columns)

    @property
    def rows(self) -> list[str]:
        """What is seen, row by row."""
        return [row.rstrip() for row in self._screen.display]

    @property
    def text(self) -> str:
        """What is seen."""
        return "\n".join(self.rows)

    def cells(self, row: int, column: int, count: int) -> str:
        """What stands at places of a row, whatever is wide before them."""
        line = self._screen.buffer[row]
        return "".join(line[place].data[:1] for place in range(column, column + count))

    @property
    def scrolled_out(self) -> list[str]:
        """What has left at the top."""
        return [
            "".join(line[column].data for column in range(self._screen.columns)).rstrip()
            for line in self._screen.history.top
        ]

    @property
    def autowrap(self) -> bool:
        """Whether text that reaches the right edge goes on in the next row."""
        return pyte.modes.DECAWM in self._screen.mode

    @property
    def cursor_row(self) -> int:
        """Where the cursor is, from 0."""
        return int(self._screen.cursor.y)

    @property
    def colors(self) -> set[str]:
        """The foreground colours on the screen."""
        return {cell.fg for row in self._screen.buffer.values() for cell in row.values()}
