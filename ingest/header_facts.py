"""What a trace's header says, in the forms that a store keeps."""

from __future__ import annotations

import json
from typing import Any


def metadata_json(header: dict[str, Any]) -> str | None:
    """The header as JSON text that any reader takes; null for NaN and infinities, None when it nests too deep."""
    try:
        try:
            text = json.dumps(header, sort_keys=True, ensure_ascii=False, allow_nan=False, default=str)
        except ValueError:
            sound = json.loads(json.dumps(header, default=str), parse_constant=lambda _: None)
            text = json.dumps(sound, sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return encodable(text)


def encodable(text: str) -> str:
    """The text with what UTF-8 cannot hold (halves of surrogate pairs, undecodable file names) escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def gpus(header: dict[str, Any]) -> set[str]:
    """Names of the devices the file lists."""
    devices = header.get("deviceProperties") or header.get("computeProperties")
    listed = devices if isinstance(devices, list) else []
    return {d["name"] for d in listed if isinstance(d, dict) and isinstance(d.get("name"), str)}


def only_gpu(header: dict[str, Any]) -> str | None:
    """The device name, when every device of the file has the same."""
    names = gpus(header)
    return names.pop() if len(names) == 1 else None


def versions(header: dict[str, Any]) -> dict[str, str]:
    """Versions the file states (`cuda_runtime_version`, `nccl_version` ...), as text."""
    inner = header.get("distributedInfo")
    found: dict[str, str] = {}
    for place in (inner if isinstance(inner, dict) else {}, header):
        for name, value in place.items():
            if (
                name.lower().endswith("version")
                and name != "schemaVersion"
                and isinstance(value, str | int | float)
            ):
                found[name] = str(value)[:80]
    return found
