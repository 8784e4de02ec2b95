"""The page of quality codes lists every code the source can emit, with every severity it has, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from quality_page import listed

from rankscope.store.schema import Severity

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"[a-z]+(_[a-z]+)+")
TABLES = ("_EFFECTS", "_REFUSALS")
"""Module tables that hold codes."""


def _words(node: ast.AST, constants: dict[str, str]) -> set[str]:
    """Words a piece of source may stand for: its literals, and those of the module's constants."""
    found = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    found |= {constants[n.id] for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in constants}
    return {w for w in found if CODE.fullmatch(w)}


def _constants(tree: ast.Module) -> dict[str, str]:
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def _codes_in(tree: ast.Module, constants: dict[str, str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            owner = ast.unparse(getattr(node.func, "value", node.func))
            if name == "Quality" or (name == "add" and owner.endswith(("notes", "done"))):
                found |= _words(node.args[0], constants)
        elif isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "code" for t in node.targets):
            found |= _words(node.value, constants)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(getattr(t, "id", "") in TABLES for t in targets):
                keys = node.value.keys if isinstance(node.value, ast.Dict) else [node.value]
                found |= {w for key in keys if key is not None for w in _words(key, constants)}
    return found


def emitted() -> set[str]:
    """Every code that the source gives to a quality row."""
    trees = [
        ast.parse(p.read_text()) for f in ("ingest", "analysis") for p in sorted((ROOT / f).rglob("*.py"))
    ]
    constants = {name: word for tree in trees for name, word in _constants(tree).items()}
    return set().union(*(_codes_in(tree, constants) for tree in trees))


def test_every_code_is_on_the_page_once() -> None:
    codes = [row.code for row in listed()]
    assert len(emitted()) > 30
    assert len(codes) == len(set(codes))
    assert set(codes) == emitted()


def test_every_code_has_a_severity_a_meaning_and_an_effect() -> None:
    for row in listed():
        assert row.severities <= {str(s) for s in Severity}, row.code
        assert row.meaning, row.code
        assert row.effect, row.code


def test_codes_that_other_pages_name_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "docs" / "inputs.md", ROOT / "docs" / "tutorial.md"]
    known = emitted()
    for page in pages:
        named = re.findall(r"\| [^|]+ \| [^|]+ \| ((?:`\w+`(?:, )?)+) \|", page.read_text())
        for cell in named:
            assert set(re.findall(r"`(\w+)`", cell)) <= known, (page.name, cell)
