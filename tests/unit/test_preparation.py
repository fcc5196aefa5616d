"""What comes before a run: the examination, the fetch, and the plan that is made of what was fetched."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support import published_site
from support.artifact_files import Report
from support.artifact_server import ArtifactServer
from support.fake_sandbox import FakeSandbox, result

from runner.cli.doctor import ask_about
from runner.cli.preparation import Fetching, Preparation, gather, not_ready
from runner.cli.resuming import Asked
from runner.doctor import Check, Question, State, examine
from runner.doctor import Report as Examined
from runner.engines.reports import ReplicaReport
from runner.errors import UserError
from runner.run import RunOutcome, run_prepared
from runner.views.phases import Phase

pytestmark = pytest.mark.anyio


@dataclass
class Shown:
    """A display that keeps what it is told."""

    phases: list[Phase] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    briefing: list[str] = field(default_factory=list)

    def brief(self, lines: Sequence[str]) -> None:
        self.briefing += lines

    def phase(
        self,
        phase: Phase,
        detail: str = "",
        *,
        done: float | None = None,
        total: float | None = None,
        in_bytes: bool = False,
    ) -> None:
        del detail, done, total, in_bytes
        self.phases += [] if self.phases[-1:] == [phase] else [phase]

    def note(self, text: str) -> None:
        self.notes.append(text)

    def note_engine(self, report: ReplicaReport) -> None:
        raise AssertionError(f"a script has no engine that could come up: {report}")


@dataclass
class Here:
    """A profile with a manifest, its server, and where everything goes."""

    root: Path
    report: Report
    server: ArtifactServer
    inputs: published_site.Inputs
    shown: Shown = field(default_factory=Shown)

    @property
    def asked(self) -> Asked:
        return Asked(str(self.inputs.profile), {}, {}, (), None)

    def question(self, asked: Asked | None = None) -> Question:
        asked = asked or self.asked
        return ask_about(
            asked.profile,
            overrides=asked.overrides,
            data=asked.data,
            broker=None,
            results_dir=self.root / "results",
            models_dir=self.root / "models",
            data_dir=self.root / "data",
            manifest=str(self.inputs.manifest),
        )

    async def run(self, fetching: Fetching | None = None, *, asked: Asked | None = None) -> RunOutcome:
        asked = asked or self.asked
        return await run_prepared(
            Preparation(asked, self.question(asked), fetching or Fetching(), self.shown, examines=False),
            FakeSandbox(lambda _: result("done")),
            run_id="a-run",
            results_dir=self.root / "results",
            listener=lambda _: None,
        )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    report = published_site.report()
    inputs = published_site.write_inputs(tmp_path / "inputs", report)
    with report.server() as server:
        for name, value in (server.environment() | {"HF_HOME": str(tmp_path / "hf")}).items():
            monkeypatch.setenv(name, value)
        yield Here(tmp_path, report, server, inputs)


async def test_a_run_fetches_what_is_missing_and_is_held_against_the_fetched_rows(here: Here) -> None:
    outcome = await here.run()

    assert outcome.results["complete"] is True
    assert {Phase.FETCHING, Phase.VERIFYING} <= set(here.shown.phases)
    assert here.shown.phases[-1] is Phase.STARTING
    verdict = outcome.results["verdict"]
    assert not verdict["differs"]
    assert outcome.state.started is not None
    assert outcome.state.started.comparison is not None
    assert outcome.state.started.comparison.rows is not None


async def test_what_was_fetched_changes_no_setting_and_stands_in_the_results(here: Here) -> None:
    outcome = await here.run()

    started = outcome.state.started
    assert started is not None
    assert started.overrides == ()
    assert [one for one in started.deviations if "changed" in one or "unverified" in one] == []
    assert started.protocol["pack"] == "pack.json"
    assert started.provenance is not None
    assert started.provenance.artifacts is not None


async def test_a_checkpoint_that_the_run_does_not_serve_is_not_fetched(here: Here) -> None:
    await here.run()

    assert here.server.downloads(".safetensors") == []


async def test_what_is_here_needs_no_network(here: Here) -> None:
    await gather(here.question(), Fetching())
    here.server.stop()

    outcome = await here.run(Fetching(network=False))

    assert outcome.results["complete"] is True


async def test_a_whole_store_asks_nobody_although_it_might(here: Here) -> None:
    await gather(here.question(), Fetching())
    here.server.stop()

    assert (await here.run()).results["complete"] is True


async def test_without_network_what_is_missing_is_named(here: Here) -> None:
    with pytest.raises(UserError, match=r"no file datasets/dapo_test.jsonl") as caught:
        await here.run(Fetching(network=False))

    assert "recount fetch" in str(caught.value.remedy)
    assert not (here.root / "results" / "a-run").exists()


async def test_a_directory_takes_the_place_of_the_network(here: Here) -> None:
    brought = here.report.lay_out(here.root / "brought")
    here.server.stop()

    assert (await here.run(Fetching(source=brought))).results["complete"] is True


async def test_a_file_with_another_hash_is_refused_before_a_run_exists(here: Here) -> None:
    here.report.code["data/dapo_test.jsonl"] += b"\n"

    with pytest.raises(UserError, match=r"dapo_test\.jsonl"):
        await here.run()

    assert not (here.root / "results" / "a-run").exists()


async def test_a_file_that_was_let_pass_marks_the_run_for_good(here: Here) -> None:
    here.report.code["data/dapo_test.jsonl"] += b"\n"

    outcome = await here.run(Fetching(allow_unverified=True))

    assert outcome.state.started is not None
    assert any(one.startswith("unverified: ") for one in outcome.state.started.deviations)
    assert outcome.verdict_word is None


async def test_a_data_set_that_is_named_is_not_fetched_and_counts_as_a_change(here: Here) -> None:
    mine = here.root / "mine.jsonl"
    mine.write_bytes(here.report.code["data/dapo_test.jsonl"])
    asked = Asked(str(here.inputs.profile), {}, {"dapo": mine}, (), None)

    outcome = await here.run(asked=asked)

    assert here.server.downloads("dapo_test.jsonl") == []
    assert outcome.results["complete"] is True


async def test_what_the_run_will_be_able_to_tell_is_said_before_it(here: Here) -> None:
    await here.run()

    assert any("dapo" in one for one in here.shown.briefing), here.shown.briefing


async def test_a_machine_that_is_not_ready_is_refused_with_every_remedy(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = (
        Check("disk", State.FAILED, "no room", "make some", 0.1),
        Check("clock", State.WARNING, "it is slow", "set it", 0.1),
        Check("driver", State.FAILED, "too old", "install a newer one", 0.1),
    )

    async def examined(*_: object, **__: object) -> Examined:
        return Examined("final4", checks)

    monkeypatch.setattr("runner.cli.preparation.examine", examined)
    prepare = Preparation(here.asked, here.question(), Fetching(), here.shown)

    with pytest.raises(UserError) as caught:
        await prepare(FakeSandbox(lambda _: result("done")))

    message = str(caught.value)
    assert "disk: no room (make some)" in message
    assert "driver: too old (install a newer one)" in message
    assert f"recount doctor {here.asked.profile};" in str(caught.value.remedy)
    assert here.shown.notes == ["clock: it is slow (set it)"]
    assert here.server.downloads("") == []


def test_the_doctor_that_is_named_is_of_the_profile_that_was_asked_for(here: Here) -> None:
    report = Examined("final4", (Check("disk", State.FAILED, "no room", "make some", 0.1),))
    mine = replace(here.question(), profile_path=Path("own/mine.toml"))

    assert "recount doctor own/mine.toml;" in str(not_ready(mine, report).remedy)


async def test_the_doctor_asks_for_no_network_that_the_run_will_not_use(here: Here) -> None:
    here.server.stop()
    brought = here.report.lay_out(here.root / "brought")
    names = ("artifacts", "clock")

    def states(report: Examined) -> list[State]:
        return [one.state for one in report.checks if one.name in names]

    sandbox = FakeSandbox(lambda _: result("42"))
    for fetching in (Fetching(source=brought), Fetching(network=False)):
        report = await examine(fetching.applied(here.question()), sandbox=sandbox)
        assert State.FAILED not in states(report), report

    online = await examine(Fetching().applied(here.question()), sandbox=sandbox)
    assert State.FAILED in states(online)


async def test_gold_answers_of_a_fetched_data_set_are_graded_before_engines_start(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def examined(*_: object, **__: object) -> Examined:
        return Examined("final4", ())

    monkeypatch.setattr("runner.cli.preparation.examine", examined)
    broken = here.report.code["data/dapo_test.jsonl"].replace(b'"answer": "0"', b'"answer": "{"')
    here.report.code["data/dapo_test.jsonl"] = broken
    here.report.write_manifest(here.inputs.manifest)
    prepare = Preparation(here.asked, here.question(), Fetching(), here.shown)

    with pytest.raises(UserError, match="dapo p0"):
        await prepare(FakeSandbox(lambda _: result("done")))
