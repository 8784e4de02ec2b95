"""The cache: entries are named by everything that decides them, and the oldest make room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankscope.ingest import cache
from rankscope.ingest.options import IngestOptions, digest_of, ingester_version

HOUR = 3600.0


def _entry(root: Path, letter: str, *, size: int, used: float) -> Path:
    folder = root / (letter * 32)
    folder.mkdir(parents=True)
    (folder / "data").write_bytes(b"x" * size)
    (folder / cache.USED).touch()
    os.utime(folder / cache.USED, (used, used))
    return folder


def test_the_variable_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path))
    assert cache.cache_root() == tmp_path
    monkeypatch.delenv(cache.CACHE_VARIABLE)
    assert cache.cache_root().parts[-2:] == ("rankscope", "runs")


def test_the_key_depends_on_content_not_on_order() -> None:
    a, b = {"path": "/a", "size": 1}, {"path": "/b", "size": 1}
    key = cache.cache_key([a, b], {"rules": []}, "1")
    assert key == cache.cache_key([b, a], {"rules": []}, "1")
    others = [
        cache.cache_key([a], {"rules": []}, "1"),
        cache.cache_key([a, {**b, "size": 2}], {"rules": []}, "1"),
        cache.cache_key([a, b], {"rules": ["x"]}, "1"),
        cache.cache_key([a, b], {"rules": []}, "2"),
    ]
    assert len({key, *others}) == 5


def test_credentials_are_no_part_of_what_decides_the_content() -> None:
    secret = IngestOptions(storage_options={"key": "hunter2"})
    assert secret.content() == IngestOptions().content()
    assert "hunter2" not in repr(secret)
    assert digest_of(secret.content()) == digest_of(IngestOptions().content())


def test_the_version_names_the_code() -> None:
    release, sign, digest = ingester_version().partition("+")
    assert release[0].isdigit() and sign and len(digest) == 8
    assert ingester_version() == ingester_version()


def test_an_entry_is_made_on_demand_and_found_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "not" / "there"))
    key = "a" * 32
    assert cache.existing(key) is None
    made = cache.entry(key)
    assert made is not None and made.is_dir() and (made / cache.USED).exists()
    assert cache.existing(key) == made == cache.entry(key)


def test_a_cache_that_cannot_be_written_gives_no_entry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "file"))
    assert cache.entry("a" * 32) is None


def test_the_least_recently_used_entries_are_evicted_until_the_rest_fits(tmp_path: Path) -> None:
    now = 1e9
    oldest = _entry(tmp_path, "a", size=600, used=now - 9 * HOUR)
    older = _entry(tmp_path, "b", size=600, used=now - 8 * HOUR)
    newer = _entry(tmp_path, "c", size=600, used=now - 7 * HOUR)
    kept = _entry(tmp_path, "d", size=600, used=now)
    assert cache.evict(kept, limit=1300, now=now) == [oldest.name, older.name]
    assert newer.exists() and kept.exists() and not oldest.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == [newer.name, kept.name]


def test_what_was_just_written_or_may_be_in_use_stays(tmp_path: Path) -> None:
    now = 1e9
    busy = _entry(tmp_path, "a", size=600, used=now - 60)
    kept = _entry(tmp_path, "b", size=600, used=now - 9 * HOUR)
    assert cache.evict(kept, limit=0, now=now) == []
    assert busy.exists() and kept.exists()


def test_folders_that_are_no_entries_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data").write_bytes(b"x" * 5000)
    kept = _entry(tmp_path, "d", size=1, used=1e9)
    assert cache.evict(kept, limit=0, now=2e9) == []
    assert (tmp_path / "mine" / "data").exists()


@pytest.mark.parametrize(
    ("text", "size"), [("500M", 500_000_000), ("20G", 20 * 10**9), ("0", 0), ("7 kb", 7000), ("lots", 20 * 10**9)]
)  # fmt: skip
def test_the_limit_is_read_from_the_variable(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv(cache.LIMIT_VARIABLE, text)
    assert cache.limit_bytes() == size
