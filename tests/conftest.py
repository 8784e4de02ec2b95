"""Shared fixtures: where the shared corpus is, and a cache of its own for every test run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _shared() -> Path | None:
    places = [os.environ.get("RANKSCOPE_SHARED"), str(ROOT.parent / "shared")]
    return next((Path(p) for p in places if p and Path(p).is_dir()), None)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces and cases; skips where it is absent."""
    found = _shared()
    if found is None:
        pytest.skip("the shared corpus is not here (set RANKSCOPE_SHARED to its folder)")
    return found


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own cache."""
    if "RANKSCOPE_CACHE" not in os.environ:
        monkeypatch.setenv("RANKSCOPE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests run in CI and in `make test-all` only."""
    if os.environ.get("RANKSCOPE_SLOW"):
        return
    skip = pytest.mark.skip(reason="slow: runs in `make test-all` (RANKSCOPE_SLOW=1)")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
