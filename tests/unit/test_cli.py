"""The command line as a user meets it: one message for a mistake, and the documented exit code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.builders import PACK_DOCUMENT, write_profile

from runner import __version__
from runner.cli import main

ROOT = Path(__file__).resolve().parents[2]
OPENAI = {"kind": "openai", "model": "m", "base_urls": ["http://127.0.0.1:1/v1"]}


def recount(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runner", *arguments],
        cwd=cwd or ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120", "NO_COLOR": "1"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


class Here:
    """Runs the command in this process, which is quicker; an exception that is no exit fails the test."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.delenv("RECOUNT_MODEL", raising=False)
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        self._monkeypatch.setattr(sys, "argv", ["recount", *arguments])
        self._monkeypatch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            main()
        told = self._capsys.readouterr()
        code = ended.value.code
        return subprocess.CompletedProcess(
            arguments, code if isinstance(code, int) else 0, told.out, told.err
        )


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(capsys, monkeypatch)


def assert_one_error(done: subprocess.CompletedProcess[str], *parts: str, code: int = 2) -> None:
    told = " ".join(done.stderr.split())
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.lower().count("error") >= 1
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in told


def test_the_version_is_told() -> None:
    done = recount("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"recount {__version__}\n", "")


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("eval", "--help"), ("conformance", "--help")])
def test_help_is_help(arguments: tuple[str, ...]) -> None:
    done = recount(*arguments)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: " in done.stdout


def test_a_dry_run_of_the_demo_prints_the_plan_and_leaves_nothing(tmp_path: Path) -> None:
    done = recount("eval", "demo", "--dry-run", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    for part in ("20 problems", "40 (2 a problem)", "kind=scripted", "temperature=1.0", "policy demo"):
        assert part in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_what_was_changed(tmp_path: Path) -> None:
    done = recount("eval", "demo", "--dry-run", "--limit", "3", "--samples", "1", "--max-turns", "2")

    assert done.returncode == 0
    for part in ("3 (1 a problem)", "max_turns=2", "limit = 3", "samples = 1"):
        assert part in done.stdout


def test_a_dry_run_contacts_no_server(tmp_path: Path) -> None:
    done = recount("eval", str(write_profile(tmp_path, OPENAI)), "--dry-run")

    assert (done.returncode, done.stderr) == (0, "")


def test_a_plan_can_be_printed_where_only_ascii_can_be_shown(tmp_path: Path) -> None:
    profile = write_profile(tmp_path, OPENAI)
    profile.write_text(
        profile.read_text(encoding="utf-8").replace("samples", 'description = "± ⏎"\nsamples', 1),
        encoding="utf-8",
    )

    done = recount("eval", str(profile), "--dry-run", PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stderr) == (0, "")
    assert "? ?" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("nope",), ("no profile 'nope'", "remedy: name one of cpu, demo, final4, interval25")),
        (("demo", "--only", "x"), ("no data set 'x'", "name one of demo")),
        (("demo", "--data", "x=y"), ("no data set 'x'",)),
        (("demo", "--data", "demo"), ("--data 'demo' is not NAME=FILE",)),
        (("demo", "--data", "demo="), ("is not NAME=FILE",)),
        (("demo", "--data", "demo=gone.jsonl"), ("no file gone.jsonl", "--data demo=FILE")),
        (("demo", "--pack", "gone.json"), ("gone.json: No such file",)),
        (("demo", "--script", "gone.jsonl"), ("gone.jsonl: No such file",)),
        (("demo", "--engine", "vllm9"), ("no engine 'vllm9'", "openai")),
        (("demo", "--engine", "openai"), ("--engine openai needs",)),
        (("demo", "--engine", "scripted"), ("--engine scripted needs a script",)),
        (("demo", "--model", "m"), ("engine.model: no such setting",)),
        (("demo", "--engine", "openai", "--model", "m", "--base-url", "x:1"), ("no http address",)),
        (("demo", "--run-id", "../x"), ("--run-id '../x' is no name",)),
        (("demo", "--samples", "3"), ("no script for 20 of 60 trajectories",)),
        (("demo", "--context-tokens", "1500"), ("leaves no room for a prompt",)),
        (("final4",), ("datasets/",)),
        (("x" * 300,), ("no profile 'xxx",)),
        (("demo", "--data", "demo=" + "x" * 300), ("no file xxx",)),
        (("demo", "--pack", "x" * 300), ("File name too long",)),
        (("demo", "--script", "x" * 300), ("File name too long",)),
    ],
)
def test_a_mistake_is_one_message_with_a_remedy(
    here: Here, tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    done = here("eval", *arguments, "--dry-run", cwd=tmp_path)

    assert_one_error(done, "remedy: ", *parts)
    assert list(tmp_path.iterdir()) == []


def edited(tmp_path: Path, name: str, content: str | bytes | dict[str, Any]) -> Path:
    profile = write_profile(tmp_path, OPENAI)
    data = json.dumps(content) if isinstance(content, dict) else content
    (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return profile


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("profile.toml", "x = ", "profile.toml: not TOML"),
        ("profile.toml", b"\xff", "profile.toml"),
        ("profile.toml", "", "limits: is missing"),
        ("set.jsonl", "", "set.jsonl holds no problem"),
        ("set.jsonl", "{", "set.jsonl:1: not JSON"),
        ("set.jsonl", '{"id": "a", "question": "?"}', "set.jsonl:1: answer is missing"),
        ("set.jsonl", '{"id": "a", "question": "?", "answer": "1"}\n' * 2, "set.jsonl:2: id 'a' stands in"),
        ("pack.json", "[", "pack.json: not JSON"),
        ("pack.json", {**PACK_DOCUMENT, "stop": "x"}, "`stop` is a str"),
        ("pack.json", {"system_prompt": "x"}, "pack.json: `user_prompt_template` is missing"),
    ],
)
def test_a_bad_file_is_one_message_that_names_it(
    here: Here, tmp_path: Path, name: str, content: str | bytes | dict[str, Any], part: str
) -> None:
    assert_one_error(here("eval", str(edited(tmp_path, name, content)), "--dry-run"), part)


def test_a_mistake_of_a_real_process_is_one_message_and_no_traceback(tmp_path: Path) -> None:
    assert_one_error(recount("eval", "nope", cwd=tmp_path), "no profile 'nope'")


def test_a_docker_engine_that_is_not_there_is_one_message_and_no_results(tmp_path: Path) -> None:
    docker_unreachable = "unix:///nonexistent/docker.sock"

    done = recount("eval", "demo", cwd=tmp_path, DOCKER_HOST=docker_unreachable)

    assert_one_error(done, "docker.sock")
    assert list(tmp_path.iterdir()) == []


def test_a_hostile_file_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    line = json.dumps({"id": "\x1b]52;c;x\x07\x1b[2J", "question": "?", "answer": ""})

    done = recount("eval", str(edited(tmp_path, "set.jsonl", line + "\n")), "--dry-run")

    assert_one_error(done)
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("eval", "demo", "--limit", "0"), ("eval", "demo", "--nope"), ("nope",), ("eval", "a", "b")],
)
def test_a_wrong_option_is_a_usage_error(here: Here, arguments: tuple[str, ...]) -> None:
    done = here(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("Error") == 1
    assert "Traceback" not in done.stderr


def test_without_a_profile_the_bundled_ones_are_named() -> None:
    assert_one_error(recount("eval"), "which profile?", "name one of cpu, demo, final4, interval25")


def test_profiles_stand_side_by_side_and_only_their_differences_if_asked(here: Here) -> None:
    done = here("profiles", "interval25", "final4", "--differing")

    lines = done.stdout.splitlines()
    assert lines[0].split() == ["setting", "interval25", "final4"]
    shown = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert shown["samples"] == ["1", "4"]
    assert shown["datasets.aime.base_seed"] == ["20260652", "20280652"]
    assert "limits.max_turns" not in shown
    every = here("profiles").stdout
    assert all(name in every for name in ("demo", "cpu", "engine.gpu_memory_utilization", "verdict.margin"))


def test_conformance_on_the_host_has_to_be_asked_for(tmp_path: Path) -> None:
    done = recount("conformance", "trajectories", "x.jsonl", "--protocol", "y.json", "--sandbox", "host")

    assert_one_error(done, "--i-trust-these-commands")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("{", "cases.jsonl:1: not JSON"),
        ("{}", "cases.jsonl:1: name"),
        (
            '{"name": "x", "task": {}}',
            "cases.jsonl:1: task.id",
        ),
    ],
)
def test_conformance_names_a_bad_case(here: Here, tmp_path: Path, line: str, part: str) -> None:
    cases, pack = tmp_path / "cases.jsonl", tmp_path / "pack.json"
    cases.write_text(line + "\n", encoding="utf-8")
    pack.write_text(json.dumps(PACK_DOCUMENT), encoding="utf-8")

    done = here(
        *("conformance", "trajectories", str(cases), "--protocol", str(pack), "--sandbox", "host"),
        "--i-trust-these-commands",
    )

    assert_one_error(done, part)


def test_conformance_names_the_file_or_the_pack_that_is_missing(here: Here, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"

    assert_one_error(here("conformance", "trajectories", str(cases)), "no file", "cases.jsonl")
    cases.write_text("{}\n", encoding="utf-8")
    assert_one_error(
        here("conformance", "trajectories", str(cases)), "protocol.json: No such file", "--protocol"
    )
    assert_one_error(here("conformance", "functions", str(tmp_path)), "Is a directory")


def test_conformance_with_no_case_is_a_mistake_and_no_success(here: Here, tmp_path: Path) -> None:
    cases, pack = tmp_path / "cases.jsonl", tmp_path / "protocol.json"
    cases.write_text("\n", encoding="utf-8")
    pack.write_text(json.dumps(PACK_DOCUMENT), encoding="utf-8")

    for kind in (("functions",), ("trajectories", "--sandbox", "host", "--i-trust-these-commands")):
        assert_one_error(here("conformance", *kind, str(cases)), "cases.jsonl: holds no")


def test_conformance_shows_at_most_twenty_cases_that_differ_and_counts_all(
    here: Here, tmp_path: Path
) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"function": "strip_think", "args": ["x"], "expected": "y"}\n' * 25, encoding="utf-8")

    done = here("conformance", "functions", str(cases))

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("FAILED") == 20
    assert done.stdout.splitlines()[-2:] == ["... and 5 more", "0 passed, 25 failed"]


def test_a_hostile_case_cannot_act_on_the_terminal(here: Here, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    hostile = "\x1b]52;c;x\x07[bold]\u202e\n"
    lines = [
        {"function": hostile, "args": [], "expected": hostile},
        {"function": "strip_think", "args": [{hostile: hostile}], "expected": hostile},
        {"function": "score", "args": [hostile, hostile, hostile], "expected": None},
    ]
    cases.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    done = here("conformance", "functions", str(cases))

    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 3 * 3 + 1
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout)


def test_conformance_says_how_many_cases_passed(tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    good = {"function": "strip_think", "args": ["<think>x</think> y"], "expected": "y"}
    cases.write_text(json.dumps(good) + "\n" + json.dumps(good | {"expected": "z"}) + "\n", encoding="utf-8")

    done = recount("conformance", "functions", str(cases))

    assert (done.returncode, done.stderr) == (1, "")
    assert "1 passed, 1 failed" in done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "runner", "eval", "demo", "--dry-run"],
            cwd=ROOT,
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_behind_the_output_is_no_error() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "runner", "eval", "demo", "--dry-run"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_plan_fits_a_terminal_of_80_columns_and_holds_whole_hashes(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    done = here("eval", "demo", "--dry-run")

    assert max(map(len, done.stdout.splitlines())) <= 80
    assert len(re.findall(r"\b[0-9a-f]{64}\b", done.stdout)) == 3


def test_a_hostile_profile_cannot_act_on_the_terminal(here: Here, tmp_path: Path) -> None:
    profile = write_profile(tmp_path, OPENAI)
    hostile = 'description = "\\u001b]52;c;x\\u0007[bold]\\u202e"\nsamples'
    profile.write_text(profile.read_text(encoding="utf-8").replace("samples", hostile, 1), encoding="utf-8")

    done = here("eval", str(profile), "--dry-run")

    assert done.returncode == 0
    assert "[bold]" in done.stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout)


def test_a_fault_of_the_program_is_a_cleaned_traceback_and_no_check_that_failed(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug quotes \x1b[2J a model")

    monkeypatch.setattr("runner.cli.preparation.make_plan", fail)

    done = here("eval", "demo", "--dry-run")

    assert (done.returncode, done.stdout) == (3, "")
    assert "error: a fault of Recount itself" in done.stderr
    assert "RuntimeError: a bug quotes  a model" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.docker
def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    done = recount("eval", "demo", "--limit", "2", "--out", str(tmp_path), "--run-id", "demo")

    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "demo" / "evaluation_results.json").read_bytes())["complete"] is True


VLLM = {"kind": "vllm", "model": "models/m"}


def test_the_environment_names_a_checkpoint_where_the_profile_serves_one(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, elsewhere = write_profile(tmp_path / "a", VLLM), write_profile(tmp_path / "b", OPENAI)
    monkeypatch.setenv("RECOUNT_MODEL", "/models/other")

    assert "engine.model = /models/other" in here("eval", str(served), "--dry-run").stdout
    assert "engine.model = mine" in here("eval", str(served), "--model=mine", "--dry-run").stdout
    assert "/models/other" not in here("eval", str(elsewhere), "--dry-run").stdout


@pytest.mark.parametrize("named", ["models/m", ""])
def test_the_profile_s_own_checkpoint_or_none_in_the_environment_is_no_override(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("RECOUNT_MODEL", named)

    assert "engine.model =" not in here("eval", str(write_profile(tmp_path, VLLM)), "--dry-run").stdout


def test_any_profile_can_be_served_here(here: Here, tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path, OPENAI))
    done = here("eval", profile, "--engine=vllm", "--model=x/y", "--engines=3", "--dry-run")

    said = " ".join(done.stdout.split())
    assert "kind=vllm model=x/y device=cuda" in said
    assert "engines=3" in said
    assert_one_error(
        here("eval", profile, "--engine=vllm", "--dry-run"), "needs a checkpoint", "RECOUNT_MODEL"
    )
