"""Frames of pandas, polars and Arrow, in and out."""

from __future__ import annotations

import datetime as dt
from typing import Any

import headwater
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import START, seconds


def devices(rows: int) -> tuple[Any, list[str | None], Any]:
    """Times, devices in turn, and values."""
    names: list[str | None] = [("a", "b", None)[i % 3] for i in range(rows)]
    return seconds(rows), names, np.arange(rows, dtype=np.float64)


def expected(rows: int) -> dict[str | None, list[float]]:
    _, names, values = devices(rows)
    return {n: [v for m, v in zip(names, values.tolist(), strict=True) if m == n] for n in ("a", "b", None)}


def stored(db: headwater.Database, table: str) -> dict[str | None, list[float]]:
    out = db.scan(table).numpy()
    return {n: out["v"][[m == n for m in out["device"]]].tolist() for n in ("a", "b", None)}


def frames(rows: int) -> dict[str, Any]:
    times, names, values = devices(rows)
    stamps = times.view("datetime64[ns]")
    pandas = pd.DataFrame({"time": stamps, "device": names, "v": values})
    arrow = pa.table({"time": pa.array(stamps), "device": pa.array(names), "v": values})
    polars = pl.DataFrame({"time": stamps, "device": names, "v": values})
    return {
        "dict": {"time": stamps, "device": np.array(names, object), "v": values},
        "pandas": pandas,
        "pandas, categories": pandas.astype({"device": "category"}),
        "pandas, arrow types": pandas.convert_dtypes(dtype_backend="pyarrow").assign(v=values),
        "pandas, UTC index": pandas.set_index(pd.DatetimeIndex(stamps).tz_localize("UTC")).drop(columns="time"),
        "pandas, Vienna": pandas.assign(time=pd.DatetimeIndex(stamps).tz_localize("UTC").tz_convert("Europe/Vienna")),
        "polars": polars,
        "polars, categories": polars.with_columns(pl.col("device").cast(pl.Categorical)),
        "polars, milliseconds": polars.with_columns(pl.col("time").cast(pl.Datetime("ms"))),
        "arrow": arrow,
        "arrow, dictionary": arrow.set_column(1, "device", arrow["device"].dictionary_encode()),
        "arrow, chunks": pa.concat_tables([arrow.slice(0, 100), arrow.slice(100, 1), arrow.slice(101)]),
        "arrow, large": arrow.set_column(1, "device", arrow["device"].cast(pa.large_string())),
        "arrow, view": arrow.set_column(1, "device", arrow["device"].cast(pa.string_view())),
        "arrow, batch": arrow.to_batches()[0],
        "arrow, reader": arrow.to_reader(max_chunksize=50),
        "arrow, integers": arrow.set_column(0, "time", pa.array(times)),
    }


@pytest.mark.parametrize("kind", frames(1))
def test_frames_of_many_devices_become_streams(db: headwater.Database, kind: str) -> None:
    written = db.write_frame("t", frames(300)[kind], tag_columns=["device"])
    assert written.accepted == 300
    assert db.streams("t") == [{}, {"device": "a"}, {"device": "b"}]
    assert stored(db, "t") == expected(300)


def test_columns_of_every_arrow_type_are_taken(db: headwater.Database) -> None:
    numbers = [1, None, 3]
    columns: dict[str, pa.Array[Any]] = {
        t: pa.array(numbers, getattr(pa, t)())
        for t in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
    }
    text = ["a", None, "ö" * 50]
    for t in ("string", "large_string", "string_view"):
        columns[t] = pa.array(text, getattr(pa, t)())
    raw = [b"ab", None, b"\xff\0"]
    for t in ("binary", "large_binary", "binary_view"):
        columns[t] = pa.array(raw, getattr(pa, t)())
    columns["fixed"] = pa.array(raw, pa.binary(2))
    columns["bool"] = pa.array([True, None, False])
    columns["dictionary"] = pa.array(text).dictionary_encode()
    columns["nothing"] = pa.nulls(3)
    db.write_frame("t", pa.table({"time": pa.array(seconds(3)), **columns}).slice(1))
    found = db.scan("t").arrow()
    for name, column in columns.items():
        if name != "nothing":
            assert found[name].to_pylist() == column.to_pylist()[1:], name
    assert "nothing" not in found.column_names
    with pytest.raises(headwater.InvalidError, match="`list` has Arrow type"):
        db.write_frame("t", pa.table({"time": pa.array(seconds(1)), "list": [[1]]}))


def test_single_columns_of_arrow_and_polars_are_taken(db: headwater.Database) -> None:
    chunks = pa.chunked_array([pa.array([1, None]), pa.array([3])])
    db.write("t", time=seconds(3), n=chunks, s=pl.Series(["a", None, "c"]), c=pd.Categorical(["x", "y", None]))
    assert db.scan("t").arrow().to_pydict() == {
        "time": [dt.datetime.fromtimestamp(START / 1e9 + i, dt.timezone.utc) for i in range(3)],
        "n": [1, None, 3],
        "s": ["a", None, "c"],
        "c": ["x", "y", None],
    }


def test_pandas_missing_values_are_absent_and_nan_is_not(db: headwater.Database) -> None:
    frame = pd.DataFrame(
        {
            "time": seconds(3),
            "n": pd.array([1, None, 3], "Int32"),
            "b": pd.array([True, None, False], "boolean"),
            "f": [1.0, np.nan, 3.0],
            "s": pd.array(["a", None, "c"], "str"),
        }
    )
    db.write_frame("t", frame)
    found = db.scan("t").arrow()
    assert {n: found[n].null_count for n in found.column_names} == {"time": 0, "n": 1, "b": 1, "f": 0, "s": 1}
    db.write_frame("absent", frame, nan="absent", fields=["f"])
    assert db.scan("absent").arrow()["f"].to_pylist() == [1.0, 3.0] or db.scan("absent").arrow()["f"].null_count == 1


def test_a_result_goes_to_arrow_consumers_in_batches(db: headwater.Database) -> None:
    db.write("t", {"d": "1"}, time=seconds(150_000), v=np.arange(150_000.0))
    reader = pa.RecordBatchReader.from_stream(db.scan("t"))
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 150_000 and max(sizes) <= 65_536 and len(sizes) == 3
    assert sum(len(frame) for frame in db.scan("t")) == 150_000
    frames = list(db.scan("t").batches(1000))
    assert {len(frame) for frame in frames} == {1000}
    assert np.concatenate([f.numpy()["v"] for f in frames]).tolist() == list(range(150_000))
    with pytest.raises(headwater.InvalidError):
        next(db.scan("t").batches(0))


def test_a_frame_of_a_batch_is_not_changed_by_its_arrays(db: headwater.Database) -> None:
    db.write("t", time=seconds(3), v=np.arange(3.0))
    frame = db.scan("t").read()
    first = frame.numpy()["v"]
    first[:] = 7
    assert frame.numpy()["v"].tolist() == [0, 1, 2]
    assert frame.columns == ["time", "v"] and len(frame) == 3
    # A frame outlives the database.
    db.close()
    assert frame.polars()["v"].to_list() == [0, 1, 2]


def test_arrow_consumers_share_memory(db: headwater.Database) -> None:
    db.write("t", time=seconds(1000), v=np.arange(1000.0))
    frame = db.scan("t").read()
    addresses = set()
    for table in (frame.arrow(), frame.arrow()):
        values = table.to_batches()[0].column(1).buffers()[1]
        assert values is not None
        addresses.add(values.address)
    assert len(addresses) == 1


def test_names_that_are_taken_get_a_suffix(db: headwater.Database) -> None:
    db.write("t", {"v": "tag"}, time=[START], data={"time": [1.0], "v": [2.0]})
    assert db.scan("t").columns == ["time", "v", "time_1", "v_1"]
    assert db.scan("t").polars().rows() == [(dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc), "tag", 1.0, 2.0)]
    assert db.aggregate("t", "v").columns[:2] == ["time", "v"]


def test_an_empty_answer_has_its_columns(db: headwater.Database) -> None:
    db.write("t", {"d": "1"}, time=seconds(1), v=[1.5], s=["a"], n=[1])
    for empty in (db.scan("t", start=0, end=0), db.scan("t", {"d": "none"}, with_tags=True), db.scan("t", end=5)):
        assert empty.arrow().num_rows == 0
        assert set(empty.columns) == {"time", "d", "v", "s", "n"}
        assert len(empty.pandas()) == 0 and len(empty.polars()) == 0
        assert all(len(a) == 0 for a in empty.numpy().values())
        assert empty.numpy()["v"].dtype == np.float64
        assert list(empty) == []


def test_wrong_frames_say_what_is_wrong(db: headwater.Database) -> None:
    frame = pl.DataFrame({"time": seconds(1), "d": [1], "v": [1.0]})
    with pytest.raises(headwater.InvalidError, match="no column `when`; there are: time, d, v"):
        db.write_frame("t", frame, time="when")
    with pytest.raises(headwater.InvalidError, match="expected a string or a dictionary"):
        db.write_frame("t", frame, tag_columns=["d"])
    with pytest.raises(headwater.InvalidError, match="tags are text"):
        db.write_frame("t", frame.to_pandas(), tag_columns=["d"])
    with pytest.raises(headwater.InvalidError, match="without a time"):
        db.write_frame("t", pl.DataFrame({"time": [None, 1], "v": [1.0, 2.0]}))
    with pytest.raises(headwater.InvalidError, match="expected a DataFrame"):
        db.write_frame("t", 5)
    assert db.tables() == {}
