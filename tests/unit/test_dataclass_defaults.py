"""What Python 3.11 alone refuses, and tests on 3.10 and 3.12 do not see."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import runner
import sandbox

NEEDS_ENGINES = "runner.engines.vllm.qwen3_next"
IS_A_PROGRAM = ("__main__", "runner.rescore.child")


def defaults() -> Iterator[tuple[str, Any]]:
    """Yield the name and value of every default that a dataclass of ours has."""
    for package in (runner, sandbox):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name == NEEDS_ENGINES or found.name.endswith(IS_A_PROGRAM):
                continue
            module = importlib.import_module(found.name)
            for one in vars(module).values():
                if dataclasses.is_dataclass(one) and isinstance(one, type) and one.__module__ == found.name:
                    for field in dataclasses.fields(one):
                        if field.default is not dataclasses.MISSING:
                            yield f"{found.name}.{one.__name__}.{field.name}", field.default


def test_a_dataclass_s_default_is_one_that_can_be_hashed() -> None:
    found = list(defaults())

    assert len(found) > 100
    assert [name for name, default in found if type(default).__hash__ is None] == []
