"""The display of a run: told of events and phases it draws frames or writes lines, and disturbs nothing.

Drawing and writing are done by a thread of its own, so that a terminal that stands still (a paused one, a
full pipe) holds up neither trajectories nor the end of the run. The run's thread only takes notes.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from typing_extensions import Self

from runner.clean import clean_text
from runner.engines.reports import ReplicaReport, ReplicaUp
from runner.events import Event, RunContinued, RunEnded, RunPaused, RunStarted
from runner.logs import LOG_NAME, RunLog
from runner.views.cells import Row
from runner.views.choice import Ui
from runner.views.frames import FrameWriter
from runner.views.lines import LinesView, log_line, note_line, phase_line, progress_lines
from runner.views.live_parts import ErrorClass, ErrorNote
from runner.views.live_state import LiveState
from runner.views.panels import ASCII_GLYPHS, Glyphs, View
from runner.views.phases import AT_WORK, Phase, PhaseState
from runner.views.screen import Size, compose
from runner.views.terminal import Terminal

FRAME_INTERVAL_S = 0.5
"""Twice a second is as fast as a person reads, and four times would be 115 MB of container log an hour."""
MOST_FRAME_INTERVAL_S = 5.0
CPU_SHARE = 0.03
"""Of one core, at most: a frame that costs more is followed by a longer wait."""
FIRST_FRAME_S = 0.4
"""A run that cannot start says so on a screen that nothing was drawn on."""
PROGRESS_INTERVAL_S = 30.0
PHASE_LINE_INTERVAL_S = 10.0
"""Between two steps of one phase: several files may be fetched at once, and turn by turn."""
CLOSE_TIMEOUT_S = 5.0
"""How long the end of a run waits for a terminal to take the last lines."""
KEPT_LINES = 1000
"""Lines that wait for a slow terminal; of more the oldest are left out, and how many is said."""
_KEPT_LOG_ERRORS = 5

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Labels:
    """What a display says of the run that no event tells."""

    title: str
    journal: str = ""
    watch_hint: str = ""


@dataclass
class _Pending:
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    left_out: int = 0

    def add(self, line: str) -> None:
        self.left_out += len(self.lines) == KEPT_LINES
        self.lines.append(line)


class Display:
    """Shows a run from entering to leaving it. All methods may be called from any thread."""

    def __init__(
        self,
        ui: Ui,
        labels: Labels,
        *,
        terminal: Terminal | None,
        write_line: Callable[[str], None],
        color: bool = True,
        glyphs: Glyphs | None = None,
        log: RunLog | None = None,
    ) -> None:
        """`ui` is never `AUTO`. Frames need a `terminal`; lines go there too, or else to `write_line`."""
        self.ui = Ui.LINES if ui is Ui.FRAMES and terminal is None else ui
        self._labels, self._terminal, self._log = labels, terminal, log
        self._write_line = write_line
        self._glyphs = glyphs or Glyphs()
        self._frames = FrameWriter(color=color, encoding="ascii" if self._glyphs is ASCII_GLYPHS else "utf-8")
        self._state = LiveState()
        # Not a line yet: what cannot start says so alone.
        self._phase = PhaseState(Phase.CHECKING, time.time(), "the sandbox opens")
        self._phase_line_at = 0.0
        self._lines = LinesView(self._add_line)
        self._log_errors: deque[ErrorNote] = deque(maxlen=_KEPT_LOG_ERRORS)
        self._engines_up = 0
        self._briefing: tuple[str, ...] = ()
        # Guards everything below and the state: the run's thread writes it, the display's reads it. Held for
        # no input or output.
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._pending = _Pending()
        self._leaving = False
        self._broken = False
        self._thread = threading.Thread(target=self._work, name="recount-display", daemon=True)

    def __enter__(self) -> Self:
        """Begin to show."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show what is left and stop; a terminal that takes nothing is waited for only so long."""
        with self._wake:
            self._leaving = True
            self._wake.notify()
        self._thread.join(CLOSE_TIMEOUT_S)

    def __call__(self, event: Event) -> None:
        """Take in an event of the run."""
        with self._lock:
            try:
                self._take(event)
            except Exception:
                # A display that is wrong about an event is no reason to lose a run.
                logger.exception("cannot show an event")

    def catch_up(self, events: Iterable[Event]) -> None:
        """Take in the earlier parts of a run that goes on: they count, and are not told again."""
        with self._lock:
            for event in events:
                self._lines.catch_up(event)
                self._state.apply(event)

    def _take(self, event: Event) -> None:
        self._lines(event)
        self._state.apply(event)
        if isinstance(event, RunStarted):
            self._set_phase(PhaseState(Phase.RUNNING, event.at))
        elif isinstance(event, RunPaused):
            why = f"{event.failures} failures in a row of the {event.fault.value}"
            self._set_phase(PhaseState(Phase.PAUSED, event.at, why))
        elif isinstance(event, RunContinued):
            self._set_phase(PhaseState(Phase.RUNNING, event.at))
        elif isinstance(event, RunEnded):
            self._set_phase(PhaseState(Phase.ENDING, event.at, "closing engines and sandbox"))

    def phase(
        self,
        phase: Phase,
        detail: str = "",
        *,
        done: float | None = None,
        total: float | None = None,
        in_bytes: bool = False,
    ) -> None:
        """Say what the run as a whole is at, as often as it moves; `done` of `total` draw a bar.

        A line is a phase that begins; steps of one make a line now and then.
        """
        with self._lock:
            now, same = time.time(), self._phase.phase is phase
            new = PhaseState(phase, self._phase.since if same else now, detail, done, total, in_bytes)
            due = now - self._phase_line_at >= PHASE_LINE_INTERVAL_S and self._phase.detail != detail
            if same and not due:
                self._phase = new
            else:
                self._set_phase(new)

    def _set_phase(self, new: PhaseState) -> None:
        self._phase, self._phase_line_at = new, time.time()
        self._add_line(phase_line(new))

    def note(self, text: str) -> None:
        """Say something a person should know: a retry of a download, a file put aside."""
        with self._lock:
            self._state.note_error(time.time(), ErrorClass.NOTE, "", text)
            self._add_line(note_line(text))

    def brief(self, lines: Sequence[str]) -> None:
        """Say what is to be known of the run before it begins; lines keep their columns."""
        with self._lock:
            self._briefing = tuple(clean_text(line, keep_lines=False) for line in lines)
            for line in self._briefing:
                if line.strip():
                    self._add_line(line)

    def note_command(self, workspace_id: str, script: str | None) -> None:
        """Take note that a command begins (its script) or ended (None)."""
        with self._lock:
            self._state.note_command(workspace_id, script)

    def note_engine(self, report: ReplicaReport) -> None:
        """Take note of an engine before the run has begun, which no event tells then."""
        with self._lock:
            if self._phase.phase in AT_WORK:
                return
            if isinstance(report, ReplicaUp):
                self._engines_up += 1
                detail = f"engines that serve: {self._engines_up}"
                self._set_phase(PhaseState(Phase.STARTING, self._phase.since, detail))
            else:
                self._state.note_error(time.time(), ErrorClass.ENGINE, report.name, report.cause)

    def stopping(self, signal_name: str) -> None:
        """A signal stops the run: from here on lines, which survive whatever Compose does to the screen."""
        with self._wake:
            if self.ui is Ui.FRAMES:
                self.ui = Ui.LINES
            running = len(self._state.running)
            self._add_line(f"stopping signal={signal_name} running={running} note=a-second-one-ends-at-once")
            self._wake.notify()

    def _add_line(self, line: str) -> None:
        if self.ui is Ui.LINES:
            self._pending.add(line)
            self._wake.notify()

    # What follows is the display's own thread.

    def _work(self) -> None:
        try:
            self._show()
        except Exception:
            logger.exception("the display ended")

    def _show(self) -> None:
        now = time.monotonic()
        next_frame, next_progress, next_log = now + FIRST_FRAME_S, now + PROGRESS_INTERVAL_S, now
        while True:
            with self._wake:
                due = next_frame if self.ui is Ui.FRAMES else next_progress
                if not self._leaving and not self._pending.lines:
                    self._wake.wait(max(min(due, next_log) - time.monotonic(), 0.0))
                leaving = self._leaving
            now = time.monotonic()
            if now >= next_log or leaving:
                self._read_log()
                next_log = now + FRAME_INTERVAL_S
            if self.ui is Ui.FRAMES:
                next_progress = now + PROGRESS_INTERVAL_S
            elif self.ui is Ui.LINES and now >= next_progress:
                next_progress = now + PROGRESS_INTERVAL_S
                self._tell_progress()
            if self.ui is Ui.FRAMES and (now >= next_frame or (leaving and self._frames.begun)):
                next_frame = time.monotonic() + self._draw()
            if self.ui is not Ui.FRAMES or leaving:
                self._leave_frames()
            self._write_pending()
            if leaving:
                return

    def _draw(self) -> float:
        """Draw one frame; return how long to wait for the next."""
        begun_s = time.thread_time()
        try:
            size = None if self._terminal is None else self._terminal.size()
            data = self._frames.frame(self._rows(size), size, time.monotonic())
        except Exception as error:
            logger.exception("cannot draw")
            with self._lock:
                self.ui = Ui.LINES
                self._add_line(f"display=lines cause={type(error).__name__} log={LOG_NAME}")
            return FRAME_INTERVAL_S
        if data:
            self._write(data)
        cost_s = time.thread_time() - begun_s
        return min(max(FRAME_INTERVAL_S, cost_s / CPU_SHARE), MOST_FRAME_INTERVAL_S)

    def _rows(self, size: Size | None) -> list[Row]:
        with self._lock:
            view = View(
                state=self._state,
                phase=self._phase,
                now=time.time(),
                title=self._labels.title,
                journal=self._labels.journal,
                watch_hint=self._labels.watch_hint,
                briefing=self._briefing,
                log_errors=tuple(self._log_errors),
                log_name=LOG_NAME,
                glyphs=self._glyphs,
            )
            return compose(view, size)

    def _leave_frames(self) -> None:
        left = self._frames.leave()
        if left:
            self._write(left)

    def _read_log(self) -> None:
        if self._log is None:
            return
        errors = self._log.new_errors()
        with self._lock:
            for text in errors:
                self._log_errors.append(ErrorNote(time.time(), ErrorClass.LOG, "", text))
                self._add_line(log_line(text))

    def _tell_progress(self) -> None:
        with self._lock:
            for line in progress_lines(self._state, self._phase, time.time()):
                self._add_line(line)

    def _write_pending(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, _Pending()
        lines = list(pending.lines)
        if pending.left_out:
            lines.insert(0, f"display left_out={pending.left_out} cause=the-terminal-was-slow")
        for line in lines:
            if self._terminal is None:
                self._write_line(line)
            else:
                self._write(f"{line}\n".encode("utf-8", errors="replace"))

    def _write(self, data: bytes) -> None:
        if self._terminal is None or self._broken:
            return
        try:
            self._terminal.write(data)
        except OSError:
            # Nobody looks any more. The run goes on, its journal is what counts.
            self._broken = True
            with self._lock:
                self.ui = Ui.OFF
