"""A trajectory from its question to its score, as lines. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from runner.clean import clean_text
from runner.events import Terminated, ToolRecord, TurnDone, Unfinished
from runner.protocol.score import AnswerStatus, ScoreMethod, Termination
from runner.views.watch.document import Line, paragraphs
from runner.views.watch.figures import duration_text
from runner.views.watch.palette import ACTION, ALARM, CARE, DIM, HEADING, OUTCOME_STYLES
from runner.views.watch.rows import Outcome, Row, command_of, shown
from runner.views.watch.turns import Told

CUT_CHARS = 1200
CUT_LINES = 14
WHOLE_CHARS = 400_000
"""Also of a text that is shown whole: far beyond what a turn may hold, and short enough to wrap at once."""
_INDENT = 2
_MIB = 2**20

_WHY = {
    ScoreMethod.EXACT_FALLBACK: "the prediction was compared with the gold answer by the exact rule",
    ScoreMethod.MISSING_FINAL_ANSWER: "the last completion holds no final answer: scored 0",
    ScoreMethod.NO_BASH_TOOL_USE: "it answered without ever using bash: scored 0",
    ScoreMethod.CONTEXT_LENGTH_EXCEEDED: "the conversation outgrew the context: scored 0",
    ScoreMethod.REQUEST_ERROR: "the engine refused the prompt twice: scored 0",
}
_ENDS = {
    Termination.FINAL_ANSWER: "it gave a final answer",
    Termination.MAX_TURNS: "its turns ran out",
    Termination.CONTEXT_LENGTH_EXCEEDED: "its context ran out",
    Termination.REQUEST_ERROR: "the engine refused its prompt",
}


@dataclass(frozen=True)
class _Cut:
    """How much of a long text is shown."""

    whole: bool

    def lines(self, text: str, style: str = "", indent: int = _INDENT) -> Iterator[Line]:
        limit = WHOLE_CHARS if self.whole else CUT_CHARS
        own = paragraphs(clean_text(text, keep_lines=True, limit_chars=limit), style, indent)
        kept = own if self.whole else own[:CUT_LINES]
        yield from kept
        if len(kept) < len(own) or len(text) > limit:
            rest = "only so much is ever shown" if self.whole else "press a for all of it"
            yield Line(f"[{len(text):,} characters, {text.count(chr(10)) + 1:,} lines; {rest}]", CARE, indent)


def trajectory_lines(row: Row, told: Told, now: float, *, whole: bool) -> Iterator[Line]:
    """Yield a trajectory's page; `whole` shows long texts uncut."""
    cut = _Cut(whole)
    yield from _head(row, told, now, cut)
    for retry in told.retries:
        yield Line(f"attempt {retry.attempt} failed on our side and was begun anew:", CARE, anchor=True)
        yield from cut.lines(retry.cause, CARE)
    for turn in told.turns:
        yield Line("")
        yield from _turn(turn, cut)
    yield Line("")
    yield from _end(row, told, cut)
    for problem in told.problems:
        yield Line(f"not readable: {shown(problem)}", ALARM)


def _head(row: Row, told: Told, now: float, cut: _Cut) -> Iterator[Line]:
    facts = [row.outcome.value]
    if row.attempt:
        facts += [f"attempt {row.attempt}", f"{row.turns} turns", f"{row.generated_tokens} tokens generated"]
        facts += [f"largest context {row.context_tokens}", f"elapsed {duration_text(row.elapsed_at(now))}"]
    yield Line(" · ".join(facts), OUTCOME_STYLES[row.outcome])
    yield Line("question", HEADING)
    yield from cut.lines(row.problem.question)
    yield Line("gold answer", HEADING)
    yield from cut.lines(row.problem.gold)
    if isinstance(told.end, Terminated):
        yield Line("prediction", HEADING)
        yield from cut.lines(told.end.prediction or "(none)", OUTCOME_STYLES[row.outcome])
        yield from _score(told.end)


def _score(end: Terminated) -> Iterator[Line]:
    missing = end.answer_status is AnswerStatus.MISSING_FINAL_ANSWER
    yield Line("score", HEADING)
    yield Line(f"{end.score:g} by {end.score_method.value}: {_WHY[end.score_method]}", indent=_INDENT)
    yield Line(
        f"ended by {end.termination.value}: {_ENDS[end.termination]}"
        f"{', without a final answer' if missing else ''}; bash {'used' if end.used_bash else 'never used'}",
        indent=_INDENT,
    )


def _turn(turn: TurnDone, cut: _Cut) -> Iterator[Line]:
    seeds = " then ".join(str(seed) for seed in turn.seeds)
    yield Line(f"turn {turn.turn + 1} · {turn.kind.value.replace('_', ' ')}", HEADING, anchor=True)
    yield Line(_tokens(turn, seeds), DIM, _INDENT)
    yield Line(_times(turn), DIM, _INDENT)
    yield Line("assistant", "bold", _INDENT)
    yield from cut.lines(turn.assistant, indent=2 * _INDENT)
    if turn.action is not None:
        yield Line("action", "bold", _INDENT)
        yield from cut.lines(_action(turn), ACTION, 2 * _INDENT)
    if turn.tool is not None:
        yield Line(_tool(turn.tool), CARE if turn.tool.limits or turn.tool.timed_out else DIM, 2 * _INDENT)
    if turn.observation is not None:
        yield Line("observation", "bold", _INDENT)
        yield from cut.lines(turn.observation, indent=2 * _INDENT)


def _action(turn: TurnDone) -> str:
    action = turn.action or {}
    arguments = action.get("arguments")
    if action.get("name") == "bash" and isinstance(arguments, dict) and set(arguments) == {"command"}:
        return f"$ {command_of(turn)}"
    return json.dumps(action, ensure_ascii=False, default=str)


def _tokens(turn: TurnDone, seeds: str) -> str:
    cached = "" if turn.cached_tokens is None else f" ({turn.cached_tokens} cached)"
    return (
        f"{turn.prompt_tokens} tokens in{cached}, {turn.completion_tokens} out, "
        f"{shown(turn.finish_reason)} · seed {seeds} · engine {shown(turn.engine)}"
    )


def _times(turn: TurnDone) -> str:
    inside = [
        f"{name} {duration_text(value)}"
        for name, value in (("queue", turn.queue_s), ("prefill", turn.prefill_s), ("decode", turn.decode_s))
        if value is not None
    ]
    times = f"waited {duration_text(turn.generate_wait_s)}, generated {duration_text(turn.generate_s)}"
    times += f" ({', '.join(inside)})" if inside else ""
    if turn.tool is not None:
        times += f" · waited {duration_text(turn.tool_wait_s)} for a tool, {duration_text(turn.tool_s)} in it"
    return times


def _tool(tool: ToolRecord) -> str:
    facts = ["ended by us" if tool.exit_code is None else f"exit code {tool.exit_code}"]
    facts += ["timed out"] if tool.timed_out else []
    facts += [f"limit {limit}" for limit in tool.limits]
    facts.append(f"wall {duration_text(tool.wall_s)}")
    if tool.cpu_s is not None:
        facts.append(f"cpu {tool.cpu_s:.2f}s")
    if tool.throttled_s:
        facts.append(f"throttled {duration_text(tool.throttled_s)}")
    if tool.peak_memory_bytes is not None:
        facts.append(f"peak {tool.peak_memory_bytes / _MIB:.1f} MiB")
    facts.append(f"stdout {tool.stdout_bytes} B, stderr {tool.stderr_bytes} B")
    return shown(", ".join(facts))


def _end(row: Row, told: Told, cut: _Cut) -> Iterator[Line]:
    end = told.end
    if isinstance(end, Terminated):
        style = OUTCOME_STYLES[row.outcome]
        yield Line(f"ended: {end.termination.value}, score {end.score:g}", style, anchor=True)
        if end.react_error is not None:
            yield from cut.lines(f"error: {end.react_error}", CARE)
    elif isinstance(end, Unfinished):
        yield Line(f"unfinished after {end.attempt} attempts, without a score:", ALARM, anchor=True)
        yield from cut.lines(end.cause, ALARM)
    elif row.outcome is Outcome.RUNNING:
        yield Line("running: the next turn appears here", OUTCOME_STYLES[Outcome.RUNNING], anchor=True)
    elif row.outcome is Outcome.STOPPED:
        yield Line("the run ended before this trajectory did", OUTCOME_STYLES[Outcome.STOPPED], anchor=True)
    else:
        yield Line("not started yet", DIM, anchor=True)
