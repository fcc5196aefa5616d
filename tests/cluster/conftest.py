"""Tests of a real Ray cluster run where Ray is (`./test --engines`), and elsewhere skip and say why."""

import importlib.util

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what starts Ray where there is none; what is pure runs everywhere."""
    if importlib.util.find_spec("ray") is not None:
        return
    for item in items:
        if "cluster" in item.path.parts and item.get_closest_marker("engines") is not None:
            item.add_marker(pytest.mark.skip(reason="Ray is not in this environment: ./test --engines"))
