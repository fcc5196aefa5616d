"""Every gold answer, graded by the scorer itself: one that it does not take for right can never be solved."""

from pathlib import Path

from anyio.to_thread import run_sync

from runner.artifacts import Group
from runner.datasets import Dataset, load_dataset
from runner.doctor.question import Question
from runner.doctor.report import Finding, failed, ok, skipped, warning
from runner.errors import UserError
from runner.profile import DatasetSettings, resolve_path
from runner.protocol.score import Termination, score_trajectory

GOLD = "gold answers"
SHOWN = 3


def load_here(question: Question) -> tuple[list[Dataset], list[str]]:
    """Return the profile's data sets that are here, and the names of the others; raise `UserError`."""
    here, away = [], []
    for settings in question.profile.datasets:
        path = _path_of(settings, question)
        if path is None:
            away.append(settings.name)
            continue
        sha256 = None if settings.name in question.data else settings.sha256
        here.append(load_dataset(settings.name, path, base_seed=settings.base_seed, sha256=sha256))
    return here, away


def _path_of(settings: DatasetSettings, question: Question) -> Path | None:
    """Return a data set's file: the named one, the profile's, or the fetched one."""
    if settings.name in question.data:
        return question.data[settings.name]
    candidates = [resolve_path(settings.path, question.profile_path)]
    if question.store is not None:
        fetched = question.store.manifest.of_group(Group.DATASETS)
        candidates += [question.store.path_of(one) for one in fetched if one.name == settings.name]
    return next((path for path in candidates if path.is_file()), None)


async def examine_gold(question: Question) -> Finding:
    """Grade the gold answers of all data sets that are here."""
    try:
        here, away = await run_sync(load_here, question, abandon_on_cancel=True)
    except UserError as error:
        return failed(error.message, error.remedy)
    return await run_sync(judge_gold, here, away, abandon_on_cancel=True)


def judge_gold(datasets: list[Dataset], away: list[str]) -> Finding:
    """Grade them. Pure."""
    wrong = [
        f"{dataset.name} {problem.id}"
        for dataset in datasets
        for problem in dataset.problems
        if not is_right(problem.answer)
    ]
    total = sum(len(one.problems) for one in datasets)
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        return failed(
            f"{len(wrong)} of {total} gold answers are not graded right: {', '.join(wrong[:SHOWN])}{more}",
            "mend the answers in the data set: no answer to these problems can score",
        )
    waiting = f"; not here yet: {', '.join(away)}" if away else ""
    if not datasets:
        return skipped(f"the data sets are not here yet: {', '.join(away)}")
    counts = ", ".join(f"{one.name} {len(one.problems)}" for one in datasets)
    said = f"all {total} are graded right ({counts}){waiting}"
    return warning(said, "fetch them first: recount fetch PROFILE") if away else ok(said)


def is_right(gold: str) -> bool:
    r"""Say whether `\boxed{gold}` scores under the real scorer."""
    score = score_trajectory(f"\\boxed{{{gold}}}", gold, used_bash=True, termination=Termination.FINAL_ANSWER)
    return score.value == 1.0
