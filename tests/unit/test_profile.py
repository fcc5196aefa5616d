"""Profiles and plans: every bad input is one clear error that names file and setting."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.builders import PACK_DOCUMENT, write_profile

from runner.engines.openai import OpenAIEngine
from runner.engines.scripted import ScriptedEngine
from runner.engines.vllm.engine import VllmEngine
from runner.engines.vllm.kind import VllmEngineSettings
from runner.errors import ExitCode, UserError
from runner.plan import build_engine, make_plan, read_pack
from runner.profile import load_profile
from runner.resources import bundled_profiles

OPENAI = {"kind": "openai", "model": "m", "base_urls": ["http://127.0.0.1:1/v1"]}
SCRIPTED = {"kind": "scripted", "script": "script.jsonl"}


def edited(tmp_path: Path, edit: Callable[[str], str]) -> Path:
    profile = write_profile(tmp_path, OPENAI)
    before = profile.read_text(encoding="utf-8")
    after = edit(before)
    assert after != before
    profile.write_text(after, encoding="utf-8")
    return profile


def replaced(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


def without_section(name: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        start = text.index(f"[{name}]")
        end = text.find("\n[", start + 1)
        return text[:start] + (text[end + 1 :] if end > 0 else "")

    return edit


@pytest.mark.parametrize("name", bundled_profiles())
def test_every_bundled_profile_is_valid_and_named_as_its_file(name: str) -> None:
    assert load_profile(name).name == name


def test_a_profile_on_disk_is_read(tmp_path: Path) -> None:
    profile = load_profile(str(write_profile(tmp_path, OPENAI, samples=3)))

    assert (profile.samples, profile.limits.max_turns, profile.sampling.top_k) == (3, 4, 40)
    assert profile.engine.kind == "openai"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (replaced("samples", "sample"), "sample: no such setting"),
        (replaced("top_k = 40", "top_k = 40\ntop_q = 1"), "sampling.top_q: no such setting"),
        (replaced("[retry]", "[retries]"), "retries: no such setting"),
        (replaced('model = "m"', 'model = "m"\nurl = "x"'), "engine.url: no such setting"),
        (replaced("samples = 1", 'samples = "1"'), "samples: Input should be a valid integer (written: '1')"),
        (replaced("samples = 1", "samples = 0"), "samples: Input should be greater than or equal to 1"),
        (replaced("samples = 1", "samples = 1.0"), "samples: Input should be a valid integer"),
        (replaced("samples = 1", "samples = true"), "samples: Input should be a valid integer"),
        (replaced("temperature = 0.7", "temperature = -1"), "sampling.temperature: Input should be greater"),
        (
            replaced("temperature = 0.7", "temperature = nan"),
            "sampling.temperature: Input should be a finite",
        ),
        (
            replaced("tool_timeout_s = 2.0", "tool_timeout_s = inf"),
            "limits.tool_timeout_s: Input should be a",
        ),
        (replaced("top_p = 0.9\n", ""), "sampling.top_p: is missing"),
        (replaced("max_tokens_per_turn = 500", "max_tokens_per_turn = 4000"), "leaves no room for a prompt"),
        (replaced('kind = "openai"', 'kind = "other"'), "engine: "),
        (replaced('kind = "openai"\n', ""), "engine: "),
        (replaced('base_urls = ["http://127.0.0.1:1/v1"]', "base_urls = []"), "engine.base_urls: "),
        (replaced('name = "test"', 'name = "../test"'), "name: String should match pattern"),
        (replaced('name = "set"', 'name = "a/b"'), "datasets.0.name: String should match pattern"),
        (
            replaced("base_seed = 1000", 'base_seed = 1000\nsha256 = "abc"'),
            "datasets.0.sha256: String should",
        ),
        (without_section("limits"), "limits: is missing"),
        (without_section("sampling"), "sampling: is missing"),
        (without_section("engine"), "engine: is missing"),
        (replaced('pack = "pack.json"\n', ""), "pack: is missing"),
        (replaced('name = "test"', 'name = "test"\nprotocol = "other"'), "protocol: Input should be"),
        (
            lambda text: text + '\n[[datasets]]\nname = "set"\npath = "x"\nbase_seed = 1\n',
            "datasets: Value error, two data sets have one name",
        ),
        (replaced("[limits]", "[limits"), "not TOML: "),
        (replaced("samples = 1", "samples = 1\nsamples = 2"), "not TOML: "),
    ],
)
def test_a_bad_setting_is_named_with_its_file(
    tmp_path: Path, edit: Callable[[str], str], message: str
) -> None:
    profile = edited(tmp_path, edit)

    with pytest.raises(UserError) as raised:
        load_profile(str(profile))

    assert message in raised.value.message
    assert str(profile) in raised.value.message
    assert raised.value.remedy
    assert raised.value.exit_code is ExitCode.BAD_INPUT


def test_a_list_whose_item_is_wrong_is_not_called_too_short_besides(tmp_path: Path) -> None:
    profile = edited(tmp_path, replaced("base_seed = 1000\n", ""))

    with pytest.raises(UserError) as raised:
        load_profile(str(profile))

    assert raised.value.message == f"profile {profile}: datasets.0.base_seed: is missing"


def test_several_bad_settings_are_all_named(tmp_path: Path) -> None:
    profile = edited(
        tmp_path, lambda text: text.replace("samples = 1", "").replace("top_k = 40", 'top_k = "x"')
    )

    with pytest.raises(UserError, match=r"(?s)samples: is missing.*sampling\.top_k: Input should be"):
        load_profile(str(profile))


def test_a_profile_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    profile = tmp_path / "p.toml"
    profile.write_bytes(b"\xff")

    with pytest.raises(UserError, match=r"p\.toml.*utf-8"):
        load_profile(str(profile))


def test_an_unknown_profile_is_answered_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no profile 'nope'\n.*demo, final4, interval25"):
        load_profile("nope")
    with pytest.raises(UserError, match="no profile"):
        load_profile(str(tmp_path))


def test_an_override_takes_the_place_of_a_setting(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path, OPENAI))

    changed = load_profile(profile, {"limits.max_turns": 9, "concurrency.tools": 2})

    assert (changed.limits.max_turns, changed.concurrency.tools) == (9, 2)


def test_a_bad_override_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"engine\.script: no such setting"):
        load_profile(str(write_profile(tmp_path, OPENAI)), {"engine.script": "x"})


def test_an_override_below_a_value_names_the_value(tmp_path: Path) -> None:
    profile = edited(tmp_path, lambda text: "retry = 3\n" + without_section("retry")(text))

    with pytest.raises(UserError, match="retry: Input should be"):
        load_profile(str(profile), {"retry.attempts": 1})


def test_a_plan_holds_everything_a_result_depends_on(tmp_path: Path) -> None:
    profile = write_profile(tmp_path, OPENAI, problems={"a": "1", "b": "2"}, samples=2)

    plan = make_plan(str(profile))

    assert [(str(one.key), one.seed) for one in plan.jobs] == [
        ("set/a:sample00", 1000),
        ("set/b:sample00", 1001),
        ("set/a:sample01", 1001003),
        ("set/b:sample01", 1001004),
    ]
    assert plan.pack_sha256 == hashlib.sha256((tmp_path / "pack.json").read_bytes()).hexdigest()
    assert plan.rules.sampling.presence_penalty == 1.5
    assert plan.deviations == ()


def test_paths_are_meant_beside_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(tmp_path / "there", OPENAI)
    monkeypatch.chdir(tmp_path)

    assert make_plan("there/profile.toml").datasets[0].path == Path("there/set.jsonl")


def test_what_differs_from_the_profile_is_a_deviation_but_for_how_much_runs_at_once(tmp_path: Path) -> None:
    profile = write_profile(tmp_path, OPENAI)
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "x", "question": "?", "answer": "1"}\n', encoding="utf-8")

    plan = make_plan(
        str(profile),
        overrides={"samples": 2, "concurrency.tools": 1},
        data={"set": other},
        only=("set",),
        limit=1,
    )

    told = " ".join(plan.deviations)
    assert all(word in told for word in ("samples", "data.set", "only", "limit"))
    assert "concurrency" not in told
    assert "concurrency.tools" in plan.overrides


@pytest.mark.parametrize("how", [{"data": {"other": Path("x")}}, {"only": ("other",)}])
def test_a_data_set_that_the_profile_does_not_have_is_named_with_those_it_has(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=r"profile test has no data set 'other'\n.*name one of set"):
        make_plan(str(write_profile(tmp_path, OPENAI)), **how)


def test_a_pinned_hash_does_not_apply_to_a_file_named_in_its_place(tmp_path: Path) -> None:
    profile = edited(tmp_path, replaced("base_seed = 1000", f'base_seed = 1000\nsha256 = "{"0" * 64}"'))

    with pytest.raises(UserError, match="is not the expected file"):
        make_plan(str(profile))
    assert make_plan(str(profile), data={"set": tmp_path / "set.jsonl"}).jobs


def test_an_absent_pack_is_named(tmp_path: Path) -> None:
    profile = write_profile(tmp_path, OPENAI)
    (tmp_path / "pack.json").unlink()

    with pytest.raises(UserError, match=r"protocol pack .*pack\.json: No such file.*\n.*--pack"):
        make_plan(str(profile))


@pytest.mark.parametrize("name", ["system_prompt", "observation_template", "stop", "format_check_name"])
def test_a_pack_without_a_key_is_named_with_the_key(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pack.json"
    path.write_text(json.dumps({key: value for key, value in PACK_DOCUMENT.items() if key != name}))

    with pytest.raises(UserError, match=rf"pack\.json: `{name}` is missing"):
        read_pack(path)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_a_pack_that_is_no_json_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pack.json"
    path.write_bytes(content)

    with pytest.raises(UserError, match=r"protocol pack .*pack\.json: not JSON"):
        read_pack(path)


def test_the_profile_s_engine_is_built(tmp_path: Path) -> None:
    assert isinstance(build_engine(make_plan(str(write_profile(tmp_path, OPENAI)))), OpenAIEngine)


def script(tmp_path: Path, *lines: object) -> Path:
    profile = write_profile(tmp_path, SCRIPTED, problems={"a": "1", "b": "2"})
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (tmp_path / "script.jsonl").write_text(text, encoding="utf-8")
    return profile


LINE_A: dict[str, object] = {"dataset": "set", "id": "a", "sample": 0, "completions": ["x", None]}
LINE_B = LINE_A | {"id": "b"}


def test_a_script_that_covers_the_run_is_an_engine(tmp_path: Path) -> None:
    assert isinstance(build_engine(make_plan(str(script(tmp_path, LINE_A, LINE_B)))), ScriptedEngine)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([LINE_A], r"script\.jsonl: no script for 1 of 2 trajectories, the first is set/b:sample00"),
        ([LINE_A, LINE_A], r"script\.jsonl:2: set/a:sample00 is scripted twice"),
        ([LINE_A, "{"], r"script\.jsonl:2: not JSON"),
        ([LINE_A, []], r"script\.jsonl:2: not a line of a script"),
        ([LINE_A, {"dataset": "set"}], r"script\.jsonl:2: not a line of a script"),
        ([LINE_A | {"completions": [1]}], r"script\.jsonl:1: a value of the wrong type"),
        ([LINE_A | {"sample": "0"}], r"script\.jsonl:1: a value of the wrong type"),
        ([LINE_A | {"completions": "x"}], r"script\.jsonl:1: a value of the wrong type"),
    ],
)
def test_a_bad_script_is_named(tmp_path: Path, lines: list[object], message: str) -> None:
    plan = make_plan(str(script(tmp_path, *lines)))

    with pytest.raises(UserError, match=message):
        build_engine(plan)


def test_an_absent_script_is_named(tmp_path: Path) -> None:
    plan = make_plan(str(write_profile(tmp_path, SCRIPTED)))

    with pytest.raises(UserError, match=r"script\.jsonl: No such file"):
        build_engine(plan)


@pytest.mark.parametrize("name", ["stop", "max_tokens", "model", "messages", "top-k", ""])
def test_only_what_a_turn_can_do_without_can_be_left_out(tmp_path: Path, name: str) -> None:
    engine = {
        "kind": "openai",
        "model": "m",
        "base_urls": ["http://h/v1"],
        "omit_parameters": ["top_k", name],
    }

    with pytest.raises(UserError, match=r"engine\.omit_parameters: .*only these can be left out: .*min_p"):
        load_profile(str(write_profile(tmp_path, engine)))


def test_a_name_that_no_file_can_have_is_no_profile() -> None:
    with pytest.raises(UserError, match="no profile 'xxx"):
        load_profile("x" * 300)


def test_a_data_set_s_pinned_file_from_another_place_is_no_deviation(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "profile", OPENAI)
    pinned = (tmp_path / "profile" / "set.jsonl").read_bytes()
    text = profile.read_text(encoding="utf-8")
    sha256 = hashlib.sha256(pinned).hexdigest()
    profile.write_text(text.replace("base_seed", f'sha256 = "{sha256}"\nbase_seed'), encoding="utf-8")
    same, other = tmp_path / "same.jsonl", tmp_path / "other.jsonl"
    same.write_bytes(pinned)
    other.write_bytes(pinned.replace(b"42", b"43"))

    assert make_plan(str(profile), data={"set": same}).deviations == ()
    assert make_plan(str(profile), data={"set": other}).deviations == (f"changed: data.set = {other}",)


VLLM = {
    "kind": "vllm",
    "model": "models/m",
    "engines": 2,
    "gpu_fraction": 0.5,
    "gpu_memory_utilization": 0.42,
}


def test_a_checkpoint_served_here_is_an_engine_with_the_profile_s_context(tmp_path: Path) -> None:
    plan = make_plan(str(write_profile(tmp_path, VLLM)))
    engine = build_engine(plan)

    assert isinstance(engine, VllmEngine)
    identity = engine.identity()
    assert (identity["model"], identity["context_tokens"]) == ("models/m", plan.profile.limits.context_tokens)
    assert (identity["engines"], identity["gpu_fraction"]) == (2, 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu_fraction": 0.0}, r"engine\.gpu_fraction: Input should be greater than 0"),
        ({"gpu_memory_utilization": 0.6}, r"engine: .*puts 2 engines on a GPU.*0\.6"),
        ({"device": "tpu"}, r"engine\.device: Input should be 'cuda' or 'cpu'"),
        ({"dtype": "int8"}, r"engine\.dtype: Input should be 'bfloat16'"),
        ({"base_urls": ["http://x"]}, r"engine\.base_urls: no such setting"),
        ({"engines": 0}, r"engine\.engines: Input should be greater"),
    ],
)
def test_a_bad_setting_of_an_engine_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_profile(str(write_profile(tmp_path, VLLM | change)))


def test_how_many_engines_there_are_is_no_deviation_and_which_checkpoint_is(tmp_path: Path) -> None:
    profile = str(write_profile(tmp_path, VLLM))

    assert make_plan(profile, overrides={"engine.engines": 1}).deviations == ()
    assert make_plan(profile, overrides={"engine.model": "x"}).deviations == ("changed: engine.model = x",)


@pytest.mark.parametrize("name", ["interval25", "final4"])
def test_the_report_s_profiles_serve_as_the_report_did(name: str) -> None:
    profile = load_profile(name)

    assert isinstance(profile.engine, VllmEngineSettings)
    served = profile.engine.model_dump()
    assert {key: served[key] for key in PUBLISHED_SERVING} == PUBLISHED_SERVING
    assert profile.limits.context_tokens == 131072


PUBLISHED_SERVING = {
    "device": "cuda",
    "engines": 8,
    "gpu_fraction": 0.5,
    "gpu_memory_utilization": 0.42,
    "dtype": "bfloat16",
    "enforce_eager": True,
    "gdn_prefill_backend": "triton",
    "prefix_caching": False,
    "seed": 20260627,
}
"""As the report has it (its environment and engine seeds)."""
