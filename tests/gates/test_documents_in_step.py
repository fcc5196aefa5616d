"""The pages name what the code has, and nothing that it has not."""

import json
import re
import typing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support.markdown import ROOT, pages

from runner.errors import ExitCode
from runner.profile import Profile
from runner.resources import bundled_profiles
from sandbox.policy import Policy, bundled_policies

RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
PROFILES = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
SANDBOX = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")
SCHEMA = json.loads((ROOT / "runner/data/schemas/evaluation_results.schema.json").read_text(encoding="utf-8"))
THE_REPORTS_OWN = {"summary", "step"}
"""Parts that have the published files' form and names, and are described nowhere else."""

SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
VARIABLE = re.compile(r"\b(?:RECOUNT|EVAL|MATH)_[A-Z][A-Z_]*[A-Z]\b")
NO_VARIABLES = {"RECOUNT_CANARY", "MATH_VERIFY"}
"""The first is set and looked for by the sandbox's own check; the second is a scorer's name."""


def named(name: str, text: str) -> bool:
    """Whether a page has the name as a word."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", text) is not None


def described(schema: dict[str, Any]) -> set[str]:
    """The properties of the document and of each of its parts, without those inside them."""
    parts = {"": schema, **schema["$defs"]}
    return {
        name
        for part, one in parts.items()
        if part not in THE_REPORTS_OWN
        for name in one.get("properties", {})
    }


def settings(model: type[BaseModel], seen: set[type] | None = None) -> set[str]:
    """The names of all settings of a model and of those inside it."""
    seen = set() if seen is None else seen
    if model in seen:
        return set()
    seen.add(model)
    found: set[str] = set()
    for name, field in model.model_fields.items():
        found.add(field.alias or name)
        left = [field.annotation]
        while left:
            annotation = left.pop()
            left += typing.get_args(annotation)
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                found |= settings(annotation, seen)
    return found


def code_of(*places: str) -> str:
    """All program text below the places."""
    files = [path for place in places for path in sorted((ROOT / place).rglob("*.py"))]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def test_the_results_page_names_every_property_of_the_schema() -> None:
    assert {name for name in described(SCHEMA) if not named(name, RESULTS)} == set()


def test_a_property_that_the_page_leaves_out_is_found() -> None:
    more = {**SCHEMA, "$defs": {**SCHEMA["$defs"], "cost": {"properties": {"carbon_kg": {}}}}}
    assert {name for name in described(more) if not named(name, RESULTS)} == {"carbon_kg"}


def test_the_profiles_page_names_every_setting() -> None:
    assert {name for name in settings(Profile) if not named(name, PROFILES)} == set()


def test_the_profiles_page_sets_nothing_that_is_no_setting() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PROFILES, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    keys = {match[1] for line in lines if (match := re.match(r"#? ?([a-z][a-z0-9_]*) = ", line))}
    assert len(keys) > 30
    assert keys - settings(Profile) == set()


def test_the_profiles_page_names_every_profile_that_comes_with_recount() -> None:
    assert {name for name in bundled_profiles() if not named(name, PROFILES)} == set()


def test_the_sandbox_page_names_every_policy_and_every_setting_of_one() -> None:
    assert {name for name in (*bundled_policies(), *settings(Policy)) if not named(name, SANDBOX)} == set()


def test_the_table_of_exit_codes_is_that_of_the_program() -> None:
    table = RESULTS.split("## Exit codes\n")[1].split("\n\n")[0]
    assert set(map(int, re.findall(r"^\| (\d+) \|", table, re.MULTILINE))) == set(map(int, ExitCode))


def test_the_page_of_variables_names_every_one_that_is_read() -> None:
    used = set(VARIABLE.findall(code_of("runner", "sandbox")))
    used |= set(re.findall(r"\$\{([A-Z][A-Z_]+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    plain = {"TERM"}  # a terminal's own
    assert {name for name in used - NO_VARIABLES - plain if not named(name, SETTINGS)} == set()


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_variable_that_a_page_names_is_read(page: Path) -> None:
    scripts = ("test", ".ci/run", ".ci/model", "docker-compose.yml", "deploy/entry")
    text = code_of("runner", "sandbox", "benchmarks", "tests")
    text += "\n".join((ROOT / script).read_text(encoding="utf-8") for script in scripts)
    said = VARIABLE.findall(page.read_text(encoding="utf-8"))
    assert {name for name in said if not re.search(rf"\b{name}", text)} == set()
