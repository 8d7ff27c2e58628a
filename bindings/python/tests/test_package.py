"""The package as a whole: help, stubs, examples, documentation."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import headwater
import headwater._native as native
import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def test_the_version_is_that_of_the_workspace() -> None:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert headwater.__version__ == manifest["workspace"]["package"]["version"]


def test_help_reads_well() -> None:
    text = pydoc.render_doc(headwater, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    assert "embedded database for events" in text and "class Database" in text and "open(path" in text
    for name in headwater.__all__:
        found = getattr(headwater, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert found.__doc__ and len(found.__doc__) > 15, name
    for name, method in inspect.getmembers(headwater.Database):
        if not name.startswith("_"):
            assert method.__doc__, name


def test_the_stubs_name_what_is_there() -> None:
    assert native.__file__ is not None
    stub = ast.parse((Path(native.__file__).parent / "_native.pyi").read_text())
    said: dict[str, Any] = {}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            said[node.name] = {f.name for f in node.body if isinstance(f, ast.FunctionDef)} - {"__new__"}
        elif isinstance(node, ast.FunctionDef):
            said[node.name] = [a.arg for a in node.args.args]
    public = {n for n in dir(native) if not n.startswith("_")} - {"VERSION"}
    assert public == set(said)
    for name in public:
        found = getattr(native, name)
        if inspect.isclass(found):
            own = {n for n in vars(found) if not n.startswith("_")} | {
                n for n in ("__arrow_c_stream__", "__len__") if n in vars(found)
            }
            assert own == said[name], name
        else:
            assert list(inspect.signature(found).parameters) == said[name], name


def python_blocks(page: Path) -> list[str]:
    """The code of a page, if it is about this package."""
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return blocks if page.name == "python.md" else [b for b in blocks if "import headwater" in b]


@pytest.mark.parametrize("page", ["README.md", "docs/embed/python.md", "bindings/python/README.md"])
def test_code_on_pages_runs_as_written(page: str, tmp_path: Path) -> None:
    blocks = python_blocks(ROOT / page)
    assert blocks, "a page without code"
    program = "\n".join(blocks)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr


def test_the_plot_example_draws(tmp_path: Path) -> None:
    picture = tmp_path / "weather.png"
    ran = subprocess.run(
        [sys.executable, HERE.parent / "examples/plot.py", ROOT / "data/weather_nyc_2013.csv.gz", tmp_path / "db", picture],
        capture_output=True, text=True, timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "26115 rows of 3 airports" in ran.stdout
    import matplotlib.image

    pixels = matplotlib.image.imread(picture)
    assert pixels.shape[0] > 300 and pixels.shape[1] > 500
    # Something is drawn in each third of it, from left to right.
    dark = (pixels[:, :, :3].min(axis=2) < 0.9).sum(axis=0)
    third = len(dark) // 3
    assert all(dark[i * third : (i + 1) * third].sum() > 500 for i in range(3))


def test_the_stream_example_runs(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, HERE.parent / "examples/stream.py", tmp_path / "db", "200000"],
        capture_output=True, text=True, timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "200000 samples" in ran.stdout


def test_the_benchmark_runs_small(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, HERE.parent / "bench/columns.py", "--points", "20000", "--rounds", "2", "--dir", tmp_path],
        capture_output=True, text=True, timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "write" in ran.stdout and "read" in ran.stdout
