"""The summary's lines on engines: what they gave, where the time went, and each loss. From results alone."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.text import Text

from runner.clean import clean_text

_SHOWN_LOSSES = 5
_NAME_CHARS = 80
_CAUSE_CHARS = 160


def throughput_lines(engines: Mapping[str, Any]) -> Iterator[Text]:
    """Yield lines for the `engines` of a results document; none for a run that asked no engine anything."""
    run, trajectories = engines["run"], engines["trajectories"]
    if run["turns"]:
        yield Text(_joined("engines", _produced(run)), style="dim")
    if trajectories["elapsed_s"]:
        yield Text(_joined("trajectories", _times(trajectories)), style="dim")
    yield from _losses(engines["by_engine"], run["losses"])


def _produced(run: Mapping[str, Any]) -> Iterator[str]:
    yield f"{run['prompt_tokens']} tokens in, {run['completion_tokens']} out"
    if run["completion_tokens_per_s"] is not None:
        yield f"{run['completion_tokens_per_s']:.1f} tokens/s"
    if run["idle_share"] is not None:
        yield f"idle {run['idle_share']:.1%}"
    if run["mean_batch"] is not None:
        yield f"mean batch {run['mean_batch']:.1f}"
    if run["mean_queue"] is not None:
        yield f"mean queue {run['mean_queue']:.1f}"
    if run["preemptions"]:
        yield f"{run['preemptions']} preemptions"


def _times(trajectories: Mapping[str, Any]) -> Iterator[str]:
    yield f"generating {trajectories['generation_share']:.1%}"
    yield f"waiting to generate {trajectories['generation_wait_share']:.1%}"
    yield f"in tools {trajectories['tool_share']:.1%}"
    yield f"waiting for tools {trajectories['tool_wait_share']:.1%}"
    yield f"rest {trajectories['rest_share']:.1%}"
    if trajectories["tail_s"] is not None:
        yield f"tail {trajectories['tail_s']:.1f} s"


def _losses(by_engine: Mapping[str, Any], losses: int) -> Iterator[Text]:
    """Yield a line a loss, in the order of time, and how many more there were."""
    kept = [(loss["at"], name, loss) for name, one in by_engine.items() for loss in one["last_losses"]]
    kept.sort(key=lambda one: one[:2])
    for _, name, loss in kept[:_SHOWN_LOSSES]:
        cause = clean_text(str(loss["cause"]), keep_lines=False, limit_chars=_CAUSE_CHARS)
        shown = clean_text(name, keep_lines=False, limit_chars=_NAME_CHARS)
        yield Text(f"engine {shown} lost, {_afterwards(loss)}: {cause}", style="yellow")
    if losses > _SHOWN_LOSSES:
        yield Text(f"engines were lost {losses - _SHOWN_LOSSES} more times", style="yellow")


def _afterwards(loss: Mapping[str, Any]) -> str:
    if loss["given_up"]:
        return "given up"
    return "not back" if loss["back_after_s"] is None else f"back after {loss['back_after_s']:.1f} s"


def _joined(label: str, parts: Iterable[str]) -> str:
    return f"{label}: {', '.join(parts)}"
