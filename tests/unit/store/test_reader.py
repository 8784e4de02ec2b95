"""A store is what its manifest names, and reads touch nothing else."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from builders_store import small_store

from rankscope.store import layout
from rankscope.store.errors import MissingColumn, StoreVersion, UnreadableFile, UsageError
from rankscope.store.manifest import is_store, is_unfinished
from rankscope.store.place import Place
from rankscope.store.reader import RunStore
from rankscope.store.schema import STORED


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    small_store(str(tmp_path / "run"))
    return RunStore(tmp_path / "run")


def test_a_table_has_the_columns_of_the_schema_with_the_rank_from_the_folder(store: RunStore) -> None:
    table = store.table("events")
    assert table.schema.equals(STORED["events"].arrow)
    assert table.column("rank").to_pylist() == [0] * 4 + [1] * 4
    assert store.table("steps").schema.equals(STORED["steps"].arrow)
    assert store.table("quality").num_rows == 0


def test_dictionaries_are_one_over_all_ranks(store: RunStore) -> None:
    names = store.table("events", columns=["name", "host"])
    first, *rest = names.column("name").chunks
    assert all(c.dictionary.equals(first.dictionary) for c in rest)
    counts = names.group_by("name").aggregate([("host", "count")]).to_pylist()
    assert {r["name"]: r["host_count"] for r in counts} == {"op0": 4, "op1": 2, "op2": 2}


def test_only_the_files_asked_for_are_opened(store: RunStore, tmp_path: Path) -> None:
    (gone,) = (p for p in store.parts("events") if p.rank == 1)
    (tmp_path / "run" / gone.path).unlink()
    assert store.table("events", ranks=[0]).num_rows == 4
    assert store.table("events", worlds=["7"]).num_rows == 0
    assert store.table("events", windows=[1]).num_rows == 0
    with pytest.raises(StoreVersion, match=r"not complete.*rank=1.*not there"):
        store.table("events")


def test_columns_come_in_the_order_asked_for_and_unknown_ones_are_errors(store: RunStore) -> None:
    assert store.table("events", columns=["name", "rank"]).column_names == ["name", "rank"]
    assert store.table("events", columns=["rank"]).num_rows == 8
    with pytest.raises(MissingColumn, match="nope"):
        store.table("events", columns=["nope"])
    with pytest.raises(UsageError, match="no table"):
        store.table("nope")
    with pytest.raises(UsageError, match="no table"):
        store.parts("nope")


def test_categories_are_filtered_and_need_not_be_asked_for(store: RunStore) -> None:
    assert store.table("events", columns=["name"], cats=["cpu_op"]).column_names == ["name"]
    assert store.table("events", cats=["cpu_op", "kernel"]).num_rows == 8
    assert store.table("events", cats=["kernel"]).num_rows == 0
    assert store.table("events", cats=[]).schema.equals(STORED["events"].arrow)


def test_ranks_worlds_and_windows_are_known_without_opening_a_file(store: RunStore) -> None:
    assert (store.ranks(), store.worlds(), store.windows()) == ([0, 1], ["0"], [0])
    assert store.default_world == "0"
    assert store.ranks(world="1") == []


def test_files_the_manifest_does_not_name_do_not_exist(store: RunStore, tmp_path: Path) -> None:
    (stale,) = (p for p in store.parts("events") if p.rank == 0)
    folder = tmp_path / "run" / "events" / "rank=9"
    folder.mkdir()
    (folder / "0123456789abcdef.parquet").write_bytes((tmp_path / "run" / stale.path).read_bytes())
    assert RunStore(tmp_path / "run").ranks() == [0, 1]
    assert RunStore(tmp_path / "run").table("events").num_rows == 8


@pytest.mark.parametrize("damage", [b"PAR1", b"", b"not parquet at all, but long enough to have a footer"])
def test_a_damaged_part_is_one_clear_error(store: RunStore, tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "run" / store.parts("events")[0].path).write_bytes(damage)
    with pytest.raises(StoreVersion, match="not complete"):
        store.table("events")


def test_a_part_with_other_rows_than_promised_is_refused(store: RunStore, tmp_path: Path) -> None:
    small_store(str(tmp_path / "other"), n=9)
    part = store.parts("events")[0].path
    (tmp_path / "run" / part).write_bytes((tmp_path / "other" / part).read_bytes())
    with pytest.raises(StoreVersion, match="9 rows, not 4"):
        store.table("events")


def test_a_folder_without_manifest_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such"):
        RunStore(tmp_path / "absent")
    with pytest.raises(StoreVersion, match=r"no manifest\.json"):
        RunStore(tmp_path)
    (tmp_path / layout.RECEIPTS).mkdir()
    assert is_unfinished(Place(str(tmp_path)))
    with pytest.raises(StoreVersion, match="interrupted"):
        RunStore(tmp_path)


def _edit(root: Path, **changes: object) -> None:
    path = root / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_another_schema_version_is_refused_with_what_to_do(store: RunStore, tmp_path: Path) -> None:
    _edit(tmp_path / "run", schema_version=99)
    with pytest.raises(StoreVersion, match=r"(?s)version 99.*ingest the traces again"):
        RunStore(tmp_path / "run")


@pytest.mark.parametrize(
    "parts",
    [
        None,
        [{"table": "events"}],
        [{"table": "events", "world": "0", "rank": 0, "window": 0, "source_id": "../../x", "path": "x", "rows": 1}],
        [{"table": "events", "world": "0", "rank": 0, "window": 0, "source_id": "0" * 16, "path": "../x", "rows": 1}],
        ["events"],
    ],
)  # fmt: skip
def test_a_manifest_that_leads_out_of_the_store_is_refused(
    store: RunStore, tmp_path: Path, parts: object
) -> None:
    _edit(tmp_path / "run", parts=parts)
    with pytest.raises(StoreVersion, match=r"manifest\.json"):
        RunStore(tmp_path / "run")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', "[" * 100_000])
def test_a_manifest_of_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert is_store(Place(str(tmp_path)))
    with pytest.raises(StoreVersion):
        RunStore(tmp_path)


def test_an_unknown_url_is_one_clear_error() -> None:
    with pytest.raises(UnreadableFile, match="no file system"):
        RunStore("nosuchscheme://bucket/run")


def test_a_remote_store_reads_like_a_local_one(tmp_path: Path) -> None:
    small_store("memory://stores/run", ranks=3)
    small_store(str(tmp_path), ranks=3)
    remote, local = RunStore("memory://stores/run"), RunStore(tmp_path)
    assert remote.manifest == local.manifest
    for name in STORED:
        assert remote.table(name).equals(local.table(name))


def test_a_thousand_ranks_are_read_in_seconds(tmp_path: Path) -> None:
    small_store(str(tmp_path), ranks=1)
    template = tmp_path / RunStore(tmp_path).parts("events")[0].path
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (entry,) = (p for p in manifest["parts"] if p["table"] == "events")
    manifest["parts"] = []
    for rank in range(1024):
        path = layout.part_path("events", rank, entry["source_id"])
        manifest["parts"].append({**entry, "rank": rank, "path": path})
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(template.read_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    begin = time.process_time()
    table = RunStore(tmp_path).table("events", columns=["rank", "name", "cat", "start_ns", "dur_ns"])
    assert time.process_time() - begin < 5
    assert table.num_rows == 4096
    assert pc.count_distinct(table.column("rank")).as_py() == 1024
    assert isinstance(table.column("name").type, pa.DictionaryType)
