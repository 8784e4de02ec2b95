"""Scanned batches on local disk: written once while scanning, read back as often as needed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from rankscope.store.schema import RAW_EVENTS

SCHEMA = RAW_EVENTS.arrow


class Spool:
    """An Arrow stream of `RAW_EVENTS` batches (lz4) in a file of its own; removed on `close`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="events-", suffix=".arrows", dir=folder)
        os.close(handle)
        self._path = Path(name)
        # The stream format, not the file format: each batch may bring dictionaries of its own.
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._file = pa.OSFile(str(self._path), "wb")
        self._writer = pa.ipc.new_stream(self._file, SCHEMA, options=options)
        self._is_writing = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        self._writer.write_batch(batch)

    def finish(self) -> None:
        """End writing; reading is possible from now on."""
        if self._is_writing:
            self._is_writing = False
            self._writer.close()
            self._file.close()

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The batches with those columns only, in the schema's order."""
        wanted = [i for i, field in enumerate(SCHEMA) if field.name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
        with pa.OSFile(str(self._path), "rb") as file, pa.ipc.open_stream(file, options=options) as reader:
            yield from reader

    def close(self) -> None:
        """Remove the file; idempotent."""
        self.finish()
        self._path.unlink(missing_ok=True)
