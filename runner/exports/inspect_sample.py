"""Trajectories as samples of Inspect AI: messages, tool calls, scores and events.

Their objects are untyped here, since their library is an extra.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from runner.events import ProblemRecord, RunStarted, Terminated, TurnDone
from runner.exports.inspect_values import (
    arguments,
    call_id,
    iso_time,
    message_id,
    model_name,
    moment,
    plain_json,
    plain_text,
    stable_id,
)
from runner.protocol.score import Termination
from runner.rescore.files import ScoreKey
from runner.state import TrajectoryState

SCORER = "exact"
"""What the run's own scores are called."""
_LIMITS = {Termination.MAX_TURNS: "turn", Termination.CONTEXT_LENGTH_EXCEEDED: "context"}
_STOPS = {"stop": "stop", "length": "max_tokens"}

AllScores = Mapping[str, Mapping[ScoreKey, float | None]]
"""By the name of a scorer; None where it failed."""


class SampleMaker:
    """Makes samples of one run's trajectories."""

    def __init__(self, inspect: ModuleType, started: RunStarted, scores: AllScores) -> None:
        """`inspect` is their library, imported."""
        self.inspect: Any = inspect
        self._started, self._scores = started, scores
        self.model = model_name(started.engine)

    def sample(self, trajectory: TrajectoryState, problem: ProblemRecord) -> Any:  # noqa: ANN401 - theirs
        """Return a trajectory as a sample; an unfinished one has an error and no score."""
        log, end = self.inspect.log, trajectory.terminated
        scores = {} if end is None else self._sample_scores(trajectory, end)
        unfinished = trajectory.unfinished
        error = None
        if end is None:
            cause = "the run stopped before it ended" if unfinished is None else unfinished.cause
            error = log.EvalError(message=plain_text(cause), traceback="", traceback_ansi="")
        events = [one for turn in trajectory.turns for one in self._events(turn, trajectory)]
        if end is not None:
            events.append(
                self.inspect.event.ScoreEvent(
                    score=scores[SCORER],
                    target=plain_text(problem.answer),
                    scorer=SCORER,
                    timestamp=moment(end.at),
                    working_start=end.elapsed_s,
                )
            )
        return log.EvalSample(
            id=plain_text(problem.id),
            epoch=trajectory.key.sample + 1,
            input=plain_text(problem.question),
            target=plain_text(problem.answer),
            messages=[
                self.inspect.model.ChatMessageUser(content=plain_text(problem.question), source="input"),
                *(one for turn in trajectory.turns for one in self._messages(turn)),
            ],
            output=self._output(trajectory.turns[-1])
            if trajectory.turns
            else self.inspect.model.ModelOutput(),
            scores=scores or None,
            metadata=plain_json(self._metadata(trajectory, end)),
            events=events,
            model_usage={self.model: self.usage(trajectory.turns)},
            total_time=None if end is None else end.elapsed_s,
            completed_at=None if end is None else iso_time(end.at),
            uuid=stable_id(self._started.run_id, str(trajectory.key)),
            limit=self._limit(end),
            error=error,
        )

    def _sample_scores(self, trajectory: TrajectoryState, end: Terminated) -> dict[str, Any]:
        score = self.inspect.scorer.Score
        found = {
            SCORER: score(
                value=end.score,
                answer=plain_text(end.prediction),
                explanation=plain_text(end.score_method.value),
            )
        }
        key = trajectory.key
        for name, scores in self._scores.items():
            value = scores.get((key.dataset, key.problem_id, key.sample))
            # A scorer that failed has given no score, and a 0 is one.
            if name != SCORER and value is not None:
                found[name] = score(value=value, answer=plain_text(end.prediction))
        return found

    def _metadata(self, trajectory: TrajectoryState, end: Terminated | None) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "row_index": trajectory.row_index,
            "sample_index": trajectory.key.sample,
            "seed": trajectory.seed,
            "attempts": trajectory.attempt,
        }
        if end is not None:
            facts |= {
                "termination_reason": end.termination.value,
                "score_method": end.score_method.value,
                "answer_status": end.answer_status.value,
                "used_bash": end.used_bash,
                "max_context_tokens": end.max_context_tokens,
                "react_error": end.react_error,
            }
        return facts

    def _limit(self, end: Terminated | None) -> Any:  # noqa: ANN401
        if end is None or end.termination is Termination.FINAL_ANSWER:
            return None
        limits = self._started.profile.get("limits")
        known = limits if isinstance(limits, Mapping) else {}
        value = {"turn": known.get("max_turns"), "context": known.get("context_tokens")}
        kind = _LIMITS.get(end.termination, "custom")
        return self.inspect.log.EvalSampleLimit(
            type=kind,
            limit=float(value.get(kind) or 0),
            reason=plain_text(end.react_error or end.termination.value),
        )

    def _messages(self, turn: TurnDone) -> Iterator[Any]:
        model = self.inspect.model
        yield self._assistant(turn)
        if turn.observation is None:
            return
        if turn.action is None:
            yield model.ChatMessageUser(id=message_id(turn, "seen"), content=plain_text(turn.observation))
        else:
            yield model.ChatMessageTool(
                id=message_id(turn, "seen"),
                content=plain_text(turn.observation),
                tool_call_id=call_id(turn),
                function=plain_text(str(turn.action.get("name", ""))),
                error=self._tool_error(turn),
            )

    def _assistant(self, turn: TurnDone) -> Any:  # noqa: ANN401
        calls = None
        if turn.action is not None:
            calls = [
                self.inspect.tool.ToolCall(
                    id=call_id(turn),
                    function=plain_text(str(turn.action.get("name", ""))),
                    arguments=arguments(turn),
                )
            ]
        return self.inspect.model.ChatMessageAssistant(
            id=message_id(turn, "said"),
            content=plain_text(turn.assistant),
            source="generate",
            model=self.model,
            tool_calls=calls,
        )

    def _tool_error(self, turn: TurnDone) -> Any:  # noqa: ANN401
        if turn.tool is None or not turn.tool.timed_out:
            return None
        return self.inspect.tool.ToolCallError("timeout", f"after {turn.tool.wall_s:.1f} s")

    def _last_output(self, trajectory: TrajectoryState) -> Any:  # noqa: ANN401
        turns = trajectory.turns
        return self._output(turns[-1]) if turns else self.inspect.model.ModelOutput(model=self.model)

    def _output(self, turn: TurnDone) -> Any:  # noqa: ANN401
        model = self.inspect.model
        stop = "tool_calls" if turn.action is not None else _STOPS.get(turn.finish_reason, "unknown")
        return model.ModelOutput(
            model=self.model,
            choices=[model.ChatCompletionChoice(message=self._assistant(turn), stop_reason=stop)],
            usage=self.usage((turn,)),
            time=turn.generate_s,
        )

    def _events(self, turn: TurnDone, trajectory: TrajectoryState) -> Iterator[Any]:
        event, model = self.inspect.event, self.inspect.model
        begun_s = max(turn.at - trajectory.turns[0].at, 0.0)
        yield event.ModelEvent(
            model=self.model,
            # The conversation so far stands in `messages`; to repeat it every turn would be quadratic.
            input=[],
            tools=[],
            tool_choice="auto",
            config=model.GenerateConfig(seed=turn.seeds[-1] if turn.seeds else None),
            output=self._output(turn),
            timestamp=moment(turn.at - turn.tool_s - turn.tool_wait_s),
            working_start=begun_s,
        )
        if turn.action is not None and turn.observation is not None:
            yield event.ToolEvent(
                id=call_id(turn),
                function=plain_text(str(turn.action.get("name", ""))),
                arguments=arguments(turn),
                result=plain_text(turn.observation),
                error=self._tool_error(turn),
                timestamp=moment(turn.at - turn.tool_s),
                completed=moment(turn.at),
                working_start=begun_s,
                working_time=turn.tool_s,
            )

    def usage(self, turns: Iterable[TurnDone]) -> Any:  # noqa: ANN401
        """Return the tokens of turns."""
        prompt = completion = cached = 0
        for turn in turns:
            prompt += turn.prompt_tokens
            completion += turn.completion_tokens
            cached += turn.cached_tokens or 0
        return self.inspect.model.ModelUsage(
            input_tokens=prompt - cached,
            output_tokens=completion,
            total_tokens=prompt + completion,
            input_tokens_cache_read=cached or None,
        )
