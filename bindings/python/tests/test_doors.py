"""The table of doors, ``tests/doors/cases.json``: what every door through which rows come in is taken through."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headwater
import pyarrow as pa
import pytest

CASES = Path(__file__).parents[3] / "tests" / "doors" / "cases.json"
BEGIN_MS = 1_704_067_200_000

#: What a frame cannot say: one has times, and columns of one type, of one table.
LACKS = {"no times", "mixed types", "several tables", "a field called time"}

TYPES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "f": ("f64", float),
    "i": ("i64", int),
    "u": ("u64", int),
    "b": ("bool", lambda text: text == "true"),
    "s": ("string", str),
}
ARROW = {"f64": pa.float64(), "i64": pa.int64(), "u64": pa.uint64(), "bool": pa.bool_(), "string": pa.string()}


def cases() -> list[dict[str, Any]]:
    found = json.loads(CASES.read_text())["cases"]
    return [case for case in found if not LACKS & set(case["needs"])]


def value(text: str) -> tuple[str, Any]:
    """The type's name and the value."""
    kind, _, rest = text.partition(":")
    name, read = TYPES[kind]
    return name, read(rest)


def frame(rows: list[Any]) -> tuple[pa.Table, list[str]]:
    """The rows of a request, and which columns are tags."""
    tags = sorted({tag for row in rows for tag in row[1]})
    fields: dict[str, str] = {name: value(text)[0] for row in rows for name, text in row[3].items()}
    columns: dict[str, Any] = {"time": pa.array([BEGIN_MS + row[2] for row in rows], pa.timestamp("ms", "UTC"))}
    columns |= {tag: pa.array([row[1].get(tag) for row in rows], pa.string()) for tag in tags}
    for name, of in fields.items():
        cells = [value(row[3][name])[1] if name in row[3] else None for row in rows]
        columns[name] = pa.array(cells, ARROW[of])
    return pa.table(columns), tags


class Model:
    """What is stored: types of fields, and rows by their tags and time."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.rows: dict[tuple[tuple[str, str], ...], dict[int, dict[str, Any]]] = {}

    def store(self, row: list[Any]) -> None:
        stored = self.rows.setdefault(tuple(sorted(row[1].items())), {}).setdefault((BEGIN_MS + row[2]) * 1_000_000, {})
        for name, text in row[3].items():
            of, cell = value(text)
            if self.fields.setdefault(name, of) == "i64" and of == "f64":
                self.fields[name] = of
            stored[name] = cell


def stored(db: headwater.Database, table: str) -> Model:
    model = Model()
    model.fields = {name: str(of) for name, of in db.tables()[table].fields.items()}
    for tags in db.streams(table):
        rows = model.rows[tuple(sorted(tags.items()))] = {}
        exactly = [row for row in db.scan(table, tags, with_tags=True).arrow().to_pylist() if {t: row.get(t) for t in tags} == tags]
        others = set(db.tables()[table].tags) - set(tags)
        for row in exactly:
            if all(row.get(tag) is None for tag in others):
                rows[row["time"].value] = {name: row[name] for name in model.fields if row[name] is not None}
    return model


@pytest.mark.parametrize("require_all", [False, True])
@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
def test_frames_are_taken_as_every_door_takes_rows(path: Path, case: dict[str, Any], require_all: bool) -> None:
    wanted: dict[str, Model] = {}
    with headwater.open(path, max_future=3600) as db:
        for request in case["requests"]:
            rows, refused = request["rows"], request.get("refused", {})
            table, tags = frame(rows)
            written = db.write_frame(rows[0][0], table, tag_columns=tags, require_all=require_all, on_refused="return")
            assert {one.code for one in written.refused} == set(refused.values()), written
            if refused and require_all:
                continue
            assert written.refused_count == len(refused)
            assert (written.accepted, written.replaced) == (len(rows) - len(refused), request.get("replaced", 0))
            for at, row in enumerate(rows):
                if str(at) not in refused:
                    wanted.setdefault(row[0], Model()).store(row)
    with headwater.open(path) as db:
        assert set(db.tables()) == set(wanted)
        for name, model in wanted.items():
            found = stored(db, name)
            assert (found.fields, found.rows) == (model.fields, model.rows)


def test_most_cases_can_be_said() -> None:
    assert len(cases()) >= 20
