"""Random writes, deletes and reopenings against a dict."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import polars as pl
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

#: Instants near each other, so that they meet, and the ends of time.
INSTANTS = st.one_of(st.integers(-50, 50), st.sampled_from([-(2**63) + 1, 2**63 - 1]))
DEVICES = st.sampled_from(["a", "b"])
FLOATS = st.one_of(st.none(), st.floats(allow_nan=True, width=64))
INTEGERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
TEXTS = st.one_of(st.none(), st.text(max_size=5))
ROWS = st.lists(st.tuples(INSTANTS, DEVICES, FLOATS, INTEGERS, TEXTS), min_size=1, max_size=12)
FIELDS = ("f", "n", "s")


def shown(value: Any) -> Any:
    """Something that equals itself, NaN too."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


class Model(RuleBasedStateMachine):
    """The rows of a stream by time; of equal times the later write wins, field by field."""

    def __init__(self) -> None:
        super().__init__()
        self.dir = Path(tempfile.mkdtemp())
        self.rows: dict[str, dict[int, dict[str, Any]]] = {"a": {}, "b": {}}
        self.db = self.open()

    def open(self) -> headwater.Database:
        db = headwater.open(self.dir / "db", durability="written", leaf_events=16, memory_budget=1 << 20, reserve_bytes=0)
        if not db.tables():
            db.create_table("t", {"f": "f64", "n": "i64", "s": "string"})
        return db

    def teardown(self) -> None:
        self.db.close()
        shutil.rmtree(self.dir)

    @rule(rows=ROWS, way=st.sampled_from(["numpy", "polars", "pandas"]))
    def write(self, rows: list[tuple[int, str, float | None, int | None, str | None]], way: str) -> None:
        times = np.array([r[0] for r in rows], np.int64)
        devices = [r[1] for r in rows]
        columns = {name: [r[2 + at] for r in rows] for at, name in enumerate(FIELDS)}
        floats = np.ma.MaskedArray([v or 0.0 for v in columns["f"]], [v is None for v in columns["f"]])
        schema = {"time": pl.Int64, "d": pl.String, "f": pl.Float64, "n": pl.Int64, "s": pl.String}
        frame = pl.DataFrame({"time": times, "d": devices, **columns}, schema=schema)
        if way == "polars":
            self.db.write_frame("t", frame, tag_columns=["d"])
        elif way == "pandas":
            pandas = frame.to_pandas(use_pyarrow_extension_array=True)
            self.db.write_frame("t", pandas, tag_columns=["d"])
        else:
            data = {"time": times, "d": devices, "f": floats, "n": columns["n"], "s": columns["s"]}
            self.db.write_frame("t", data, tag_columns=["d"])
        for time, device, *values in rows:
            row = self.rows[device].setdefault(time, {})
            row.update({n: v for n, v in zip(FIELDS, values, strict=True) if v is not None})

    @rule(device=DEVICES, start=INSTANTS, length=st.integers(1, 40))
    def delete(self, device: str, start: int, length: int) -> None:
        end = min(start + length, 2**63 - 1)
        if end > start:
            self.db.delete("t", {"d": device}, start=start, end=end)
            self.rows[device] = {t: r for t, r in self.rows[device].items() if not start <= t < end}

    @rule()
    def flush(self) -> None:
        self.db.flush()

    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.db = self.open()

    @rule(start=INSTANTS, length=st.integers(0, 60))
    @precondition(lambda self: any(self.rows.values()))
    def range(self, start: int, length: int) -> None:
        end = min(start + length, 2**63 - 1)
        out = self.db.scan("t", {"d": "a"}, start=start, end=end).numpy()
        assert out["time"].view(np.int64).tolist() == sorted(t for t in self.rows["a"] if start <= t < end)

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        found = self.db.scan("t", with_tags=True)
        names = found.columns
        frame = found.polars()
        if "d" not in names:
            assert not any(self.rows.values())
            return
        got = [
            (d, t, tuple(shown(v) for v in values))
            for d, t, *values in frame.select("d", pl.col("time").to_physical(), *FIELDS).rows()
        ]
        assert got == [
            (device, time, tuple(shown(self.rows[device][time].get(name)) for name in FIELDS))
            for device in sorted(self.rows)
            for time in sorted(self.rows[device])
        ]


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=12, stateful_step_count=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
