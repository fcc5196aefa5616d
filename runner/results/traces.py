"""One Markdown trace a trajectory: what was asked, said, run and seen, for a person to read.

What a model wrote stands in fenced blocks whose fence is longer than any run of backticks inside, so
that it cannot leave its block, and without control characters, so that a pager shows it harmlessly.
"""

import re
from pathlib import Path

from runner.atomic import write_text
from runner.clean import clean_text
from runner.errors import InfrastructureError
from runner.events import ProblemRecord, TurnDone
from runner.protocol.score import SCORE_METHOD_PREFIX
from runner.state import RunState, TrajectoryState

TRACE_DIR = "traces"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 100


def trace_name(trajectory: TrajectoryState) -> str:
    """Return a trace's file name: safe whatever the ids hold, unique by the row and sample in it."""
    key = trajectory.key
    problem = _UNSAFE.sub("_", key.problem_id).strip(".")[:_LONGEST_NAME]
    dataset = _UNSAFE.sub("_", key.dataset)
    return f"{dataset}_{trajectory.row_index:04d}_{problem}_sample{key.sample:02d}.md"


def write_traces(state: RunState, run_dir: Path) -> int:
    """Write a trace for every trajectory that began; return how many.

    Raises `InfrastructureError` where the disk refuses.
    """
    directory = run_dir / TRACE_DIR
    try:
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise InfrastructureError(f"cannot create {directory}: {error.strerror or error}") from error
    problems = {record.name: state.problems(record.name) for record in state.datasets()}
    for trajectory in state.trajectories.values():
        problem = problems[trajectory.key.dataset][trajectory.key.problem_id]
        write_text(directory / trace_name(trajectory), render_trace(trajectory, problem), durable=False)
    return len(state.trajectories)


def render_trace(trajectory: TrajectoryState, problem: ProblemRecord) -> str:
    """Return a trajectory as Markdown."""
    key = trajectory.key
    parts = [
        f"# {_inline(str(key))}",
        _facts(trajectory, problem),
        f"## Problem\n\n{_block(problem.question)}",
    ]
    parts += [_turn(turn) for turn in trajectory.turns]
    return "\n\n".join(parts) + "\n"


def _facts(trajectory: TrajectoryState, problem: ProblemRecord) -> str:
    facts = {"seed": str(trajectory.seed), "expected answer": problem.answer}
    end = trajectory.terminated
    if end is not None:
        facts |= {
            "score": f"{end.score:g}",
            "score method": f"{SCORE_METHOD_PREFIX}{end.score_method.value}",
            "termination": end.termination.value,
            "prediction": end.prediction,
            "answer status": end.answer_status.value,
            "used bash": "yes" if end.used_bash else "no",
            "tokens generated": str(end.generated_tokens),
            "largest context": str(end.max_context_tokens),
            "seconds": f"{end.elapsed_s:.1f}",
        }
        facts |= {"error": end.react_error} if end.react_error else {}
    else:
        why = trajectory.cause
        cause = "the run stopped before it ended" if why is None else why.cause
        facts |= {"score": "none: unfinished", "cause": cause}
    facts |= {"infrastructure retries": str(len(trajectory.retries))} if trajectory.retries else {}
    return "\n".join(f"- {name}: {_inline(value)}" for name, value in facts.items())


def _turn(turn: TurnDone) -> str:
    tokens = f"{turn.prompt_tokens} + {turn.completion_tokens} tokens"
    parts = [f"## Turn {turn.turn + 1}", f"{tokens}, {turn.generate_s:.2f} s", _block(turn.assistant)]
    if turn.observation is not None:
        parts += [f"### Observation{_tool(turn)}", _block(turn.observation)]
    return "\n\n".join(parts)


def _tool(turn: TurnDone) -> str:
    tool = turn.tool
    if tool is None:
        return f" ({turn.kind.value})"
    code = "none" if tool.exit_code is None else str(tool.exit_code)
    limits = f", limits: {', '.join(tool.limits)}" if tool.limits else ""
    return f" (exit code {code}, {tool.wall_s:.2f} s{limits})"


def _inline(text: str) -> str:
    """Return text as an inline code span that it cannot end."""
    cleaned = clean_text(text, keep_lines=False, limit_chars=400) or " "
    fence = "`" * (_longest_run(cleaned) + 1)
    return f"{fence} {cleaned} {fence}"


def _block(text: str) -> str:
    cleaned = clean_text(text, keep_lines=True)
    fence = "`" * max(_longest_run(cleaned) + 1, 3)
    return f"{fence}text\n{cleaned}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
