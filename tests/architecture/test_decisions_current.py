"""The signatures that decision 0002 states are those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "decisions" / "0002-main-pipeline.md"
Parameters = tuple[list[str], list[str]]


def _parameters(node: ast.FunctionDef) -> Parameters:
    """Names that may be given by position (without self and cls), and those given by keyword only."""
    by_place = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
    return by_place, [a.arg for a in node.args.kwonlyargs]


def _functions(tree: ast.Module) -> Iterator[tuple[str, Parameters]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, _parameters(node)
        elif isinstance(node, ast.ClassDef):
            yield from (
                (f"{node.name}.{f.name}", _parameters(f)) for f in node.body if isinstance(f, ast.FunctionDef)
            )


def _stated() -> list[tuple[str, str, Parameters]]:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    pieces = re.split(r"^# (\w+/\S+\.py)", block, flags=re.M)[1:]
    return [
        (path, name, parameters)
        for path, text in zip(pieces[::2], pieces[1::2], strict=True)
        for name, parameters in _functions(ast.parse(f"#{text}"))
    ]


@pytest.mark.parametrize(("path", "name", "parameters"), _stated(), ids=lambda v: str(v))
def test_a_stated_signature_is_the_code_s(path: str, name: str, parameters: Parameters) -> None:
    assert dict(_functions(ast.parse((ROOT / path).read_text()))).get(name) == parameters


def test_the_page_states_something() -> None:
    assert len(_stated()) > 20
