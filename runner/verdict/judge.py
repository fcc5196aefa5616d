"""The verdict: three words, for each data set and pooled over all their problems (the headline).

Everything is for the same problems and fresh samples; `docs/verdict.md` has the formulas and the reasons.
Whether the run may be called a reproduction at all (settings changed, artifacts unverified) is for the caller
to say.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from runner.verdict.align import RIGHT, WRONG, NotComparable, Reference, find_reference
from runner.verdict.compare import (
    Pair,
    Side,
    Spread,
    estimate,
    holm,
    p_value,
    samples_to_decide,
    smallest_difference,
)
from runner.verdict.model import (
    Basis,
    Comparison,
    Judgement,
    Method,
    Reach,
    RunScores,
    SolvedAtLeastOnce,
    VarianceSource,
    Verdict,
    VerdictSettings,
    Word,
)
from runner.verdict.published import Published, Report
from runner.verdict.rows import PublishedRows
from runner.verdict.solved import Range, pass_at_k, permutation_range, posterior_range, shown_ks
from runner.verdict.wording import unfinished_reason, word_reason

POOLED = "all problems"

_DEFAULTS = VerdictSettings()


def judge(
    profile: str,
    run: Sequence[RunScores],
    published: Published,
    rows: PublishedRows | None = None,
    *,
    settings: VerdictSettings = _DEFAULTS,
    forbidden: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Verdict:
    """Hold a run's scores against what was published for its profile.

    `forbidden` says why this run is no reproduction (the words of its numbers are kept beside it), `notes`
    what a reader has to know besides ("template unpinned").
    """
    reports = published.reference(profile)
    found = [
        (one, find_reference(one.dataset, tuple(one.scores), published, reports, rows))
        for one in run
        if one.scores
    ]
    for index, (one, reference) in enumerate(found):
        if isinstance(reference, Reference) and _has_no_variance(one, reference):
            why = "a single sample a problem, and nothing published tells the variance within problems"
            found[index] = one, NotComparable(one.dataset, why, reference.points)
    pairs = [(one, reference) for one, reference in found if isinstance(reference, Reference)]
    judged = {judgement.name: judgement for judgement in _judge_datasets(pairs, settings)}
    for one, reference in found:
        if isinstance(reference, NotComparable):
            judged[one.dataset] = Judgement(
                name=one.dataset,
                word=Word.CANNOT_TELL,
                why=reference.why,
                planned_problems=len(one.scores),
                unfinished=one.unfinished,
                points=reference.points,
            )
    missing = [name for name in published.problems if name not in judged and _is_published(name, reports)]
    return Verdict(
        profile=profile,
        published=tuple(report.name for report in reports),
        rows=any(reference.rows is not None for _, reference in pairs),
        settings=settings,
        datasets=tuple(judged[one.dataset] for one, _ in found),
        pooled=_judge_pooled(pairs, published, reports, settings) if pairs else None,
        forbidden=tuple(forbidden),
        notes=(*(f"{name} is published and not part of this run" for name in missing), *notes),
    )


def _is_published(dataset: str, reports: Sequence[Report]) -> bool:
    return any(dataset in report.figures for report in reports)


def _has_no_variance(run: RunScores, reference: Reference) -> bool:
    rows = reference.rows
    return run.samples < 2 and (rows is None or rows.samples < 2) and reference.assumed_variance is None


Pairs = Sequence[tuple[RunScores, Reference]]


def _judge_datasets(pairs: Pairs, settings: VerdictSettings) -> list[Judgement]:
    worlds: list[list[Comparison]] = []
    for unfinished_as in (WRONG, RIGHT):
        sides = [reference.pair(run, unfinished_as) for run, reference in pairs]
        results = [p_value([side]) for side in sides]
        adjusted = holm(np.asarray([float(p[0]) for p, _ in results])) if results else ()
        worlds.append(
            [
                _comparison([side], float(p[0]), float(adjusted[index]), method, settings)
                for index, (side, (p, method)) in enumerate(zip(sides, results, strict=True))
            ]
        )
    return [
        _judgement(
            reference.dataset,
            [(run, reference)],
            worlds[0][index],
            worlds[1][index],
            settings,
            family=len(pairs),
        )
        for index, (run, reference) in enumerate(pairs)
    ]


def _judge_pooled(
    pairs: Pairs, published: Published, reports: Sequence[Report], settings: VerdictSettings
) -> Judgement:
    worlds = []
    for unfinished_as in (WRONG, RIGHT):
        sides = [reference.pair(run, unfinished_as) for run, reference in pairs]
        p, method = p_value(sides)
        worlds.append(_comparison(sides, float(p[0]), float(p[0]), method, settings))
    judgement = _judgement(POOLED, pairs, worlds[0], worlds[1], settings, family=1)
    total = sum(count for name, count in published.problems.items() if _is_published(name, reports))
    if judgement.planned_problems == total:
        return judgement
    note = f"over {judgement.planned_problems} of the {total} published problems"
    return _with_note(judgement, note)


def _judgement(
    name: str,
    pairs: Pairs,
    if_wrong: Comparison,
    if_right: Comparison,
    settings: VerdictSettings,
    *,
    family: int,
) -> Judgement:
    unfinished = sum(_unfinished(run, reference) for run, reference in pairs)
    words = tuple(_word(comparison, settings) for comparison in (if_wrong, if_right))
    # Both may "differ" in opposite directions: then the truth lies between, and may be no difference at all.
    agree = words[0] is words[1] and (
        words[0] is not Word.DIFFERS or (if_wrong.difference > 0) == (if_right.difference > 0)
    )
    word = words[0] if agree else Word.CANNOT_TELL
    if agree:
        why = word_reason(word, if_wrong, if_right, settings)
    else:
        why = unfinished_reason(unfinished, words, (if_wrong, if_right))
    single = pairs[0] if len(pairs) == 1 and name != POOLED else None
    return Judgement(
        name=name,
        word=word,
        why=why,
        planned_problems=if_wrong.problems,
        unfinished=unfinished,
        if_wrong=if_wrong,
        if_right=if_right,
        reach=_reach(pairs, settings, family),
        points=() if single is None else single[1].points,
        solved=() if single is None else _solved(*single, settings),
        notes=() if single is None else single[1].notes,
    )


def _with_note(judgement: Judgement, note: str) -> Judgement:
    return replace(judgement, notes=(*judgement.notes, note))


def _unfinished(run: RunScores, reference: Reference) -> int:
    return sum(score is None for problem in reference.problems for score in run.scores[problem])


def _word(comparison: Comparison, settings: VerdictSettings) -> Word:
    low, high = comparison.interval
    if -settings.margin <= low and high <= settings.margin:
        return Word.REPRODUCED
    return Word.DIFFERS if comparison.p_adjusted < settings.alpha else Word.CANNOT_TELL


def _comparison(
    sides: Sequence[Pair], p: float, p_adjusted: float, method: Method, settings: VerdictSettings
) -> Comparison:
    found = estimate(sides)
    low, high = found.interval(settings.interval_level)
    sources = [tuple(source for _, source in side.variances()) for side in sides]
    return Comparison(
        problems=found.problems,
        run_samples=sides[0].run.samples,
        published_samples=min(side.published_samples for side in sides),
        run_mean=float(found.run_mean[0]),
        run_standard_error=float(found.run_standard_error[0]),
        published_mean=float(found.published_mean[0]),
        published_standard_error=float(found.published_standard_error[0]),
        difference=float(found.difference[0]),
        standard_error=float(found.standard_error[0]),
        interval=(float(low[0]), float(high[0])),
        p=p,
        p_adjusted=p_adjusted,
        method=method,
        run_variance=_weakest([run for run, _ in sources]),
        published_variance=_weakest([published for _, published in sources]),
    )


def _weakest(sources: Sequence[VarianceSource]) -> VarianceSource:
    order = list(VarianceSource)
    return max(sources, key=order.index)


def _reach(pairs: Pairs, settings: VerdictSettings, family: int) -> Reach:
    sides = [reference.pair(run, WRONG) for run, reference in pairs]
    spreads = []
    for side in sides:
        (run_w, _), (published_w, _) = side.variances()
        spreads.append(
            Spread(
                side.run.problems,
                float(np.ravel(run_w)[0]),
                float(np.ravel(published_w)[0]),
                side.published_samples,
            )
        )
    alone, both = samples_to_decide(spreads, settings)
    error = float(estimate(sides).standard_error[0])
    return Reach(smallest_difference(error, settings, family=family), alone, both)


def _solved(run: RunScores, reference: Reference, settings: VerdictSettings) -> tuple[SolvedAtLeastOnce, ...]:
    """Return max@k and the pass@k below it; none with trajectories missing, or scores between 0 and 1."""
    side = reference.pair(run, WRONG).run
    if _unfinished(run, reference) or not side.is_right_or_wrong or run.samples < 2:
        return ()
    figures = []
    rows = reference.rows
    if rows is not None and rows.is_right_or_wrong:
        for k in shown_ks(min(run.samples, rows.samples)):
            found = permutation_range(side, rows, k, settings.interval_level)
            published = float(pass_at_k(rows, k)[0])
            figures.append(_figure(k, side, published, found, "this run", Basis.PERMUTATION))
    elif rows is None:
        point = max(reference.points, key=lambda one: one.samples)
        for k in shown_ks(min(run.samples, point.samples)):
            found = posterior_range(side, point.samples, k, settings.interval_level)
            published_max = point.max_at_k if k == point.samples else None
            figures.append(_figure(k, side, published_max, found, "a repeat", Basis.POSTERIOR))
    return tuple(figures)


def _figure(
    k: int, run: Side, published: float | None, found: Range, interval_of: str, basis: Basis
) -> SolvedAtLeastOnce:
    return SolvedAtLeastOnce(
        k=k,
        is_max=k == run.samples,
        run=float(pass_at_k(run, k)[0]),
        published=published,
        interval=(float(found.low[0]), float(found.high[0])),
        interval_of=interval_of,
        basis=basis,
    )
