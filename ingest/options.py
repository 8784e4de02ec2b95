"""What decides the content of a store besides the traces themselves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_CODE = ("rankscope.ingest", "rankscope.ingest.scan", "rankscope.store")
_CODE_SUFFIXES = (".py", ".toml")


@dataclass(frozen=True)
class IngestOptions:
    """Options of an ingest; plain values, so that they travel to worker processes.

    Attributes:
        rules: texts of user rule files; the first that matches wins, before the shipped table.
        step_regex: pattern that names steps in annotations and operators.
        sets: `key=value` facts, over those of a `run.toml`.
        storage_options: for fsspec (credentials, endpoint); they do not change the content.
    """

    rules: tuple[str, ...] = ()
    step_regex: str | None = None
    sets: tuple[str, ...] = ()
    storage_options: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    def content(self) -> dict[str, Any]:
        """The part that decides what is stored, JSON-able; never credentials."""
        return {"rules": list(self.rules), "step_regex": self.step_regex, "sets": list(self.sets)}

    def derivation(self) -> dict[str, Any]:
        """The part that decides how one source is read, the same for every run it may belong to."""
        return {"rules": list(self.rules), "step_regex": self.step_regex}


@cache
def ingester_version() -> str:
    """The release and a digest of the code that reads and writes, for example `0.1.0+9f2c4d1e`.

    What was stored by other code is never reused: a release number alone would not tell a checkout that
    changed since.
    """
    try:
        release = version("rankscope")
    except PackageNotFoundError:
        release = "0"
    digest = hashlib.sha256()
    for package in _CODE:
        for entry in sorted(resources.files(package).iterdir(), key=lambda e: e.name):
            if entry.name.endswith(_CODE_SUFFIXES) and entry.is_file():
                digest.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return f"{release}+{digest.hexdigest()[:8]}"


def digest_of(content: Any) -> str:
    """Thirty-two hex digits of a JSON-able value; equal values give equal digits."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
