"""The floors of the house: every import goes down, and start-up stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOOR = {"store": 0, "ingest": 1, "analysis": 1, "simulate": 1, "report": 2, "rankscope": 3, "cli": 4}
FOLDERS = [f for f in FLOOR if (ROOT / f).is_dir()]


def _modules() -> list[Path]:
    """Every source file once: the links inside rankscope/ are left out."""
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT).parts
            if folder == "rankscope" and len(inside) > 2 and (ROOT / "rankscope" / inside[1]).is_symlink():
                continue
            found.append(path)
    return found


def _imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
            names += [f"{node.module}.{a.name}" for a in node.names if node.module == "rankscope"]
    return names


def _layer_of(name: str) -> str | None:
    if name != "rankscope" and not name.startswith("rankscope."):
        return None
    part = ([*name.split("."), ""])[1]
    return part if part in FLOOR else "rankscope"


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_import_goes_down(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    wrong = [
        name
        for name in _imports(path)
        if (target := _layer_of(name))
        and target != layer
        and FLOOR[target] >= FLOOR[layer]
        and not (name == "rankscope" and layer != "rankscope" and FLOOR[layer] > FLOOR["rankscope"])
    ]
    assert not wrong, f"{path.relative_to(ROOT)} imports across or upwards: {wrong}"


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    kernels = "scan" in path.parts
    assert text.count("\n") <= 400, "a module holds one idea: at most 400 lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            assert size <= (90 if kernels else 50), f"{node.name} has {size} lines"


def test_no_layer_imports_pandas_or_datasets_at_import_time() -> None:
    banned = {"pandas", "pyarrow.dataset", "holoviews", "bokeh"}
    for path in _modules():
        tree = ast.parse(path.read_text())
        for node in tree.body:
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert not banned & set(names), f"{path.relative_to(ROOT)} imports {names} when it is imported"


def test_the_list_of_packages_is_complete() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {
        ".".join(("rankscope", *p.parent.relative_to(ROOT).parts))
        for f in FOLDERS
        if f != "rankscope"
        for p in (ROOT / f).rglob("__init__.py")
    } | {"rankscope"}
    assert set(setup["packages"]) == folders
    for name, folder in setup["package-dir"].items():
        assert (ROOT / folder).is_dir(), name


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv=['rankscope','--help']\n"
        "from rankscope.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "bad=[m for m in ('pandas','pyarrow','numpy','holoviews','bokeh','rich','numba','fsspec') if m in sys.modules]\n"
        "print('HEAVY', bad)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.rstrip().endswith("HEAVY []"), out[-300:]


def test_importing_the_facade_is_light() -> None:
    code = "import sys, rankscope; print([m for m in ('pandas','pyarrow','numpy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
