"""Every type and every edge comes back as it was, from memory and from segments, by every way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headwater
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from conftest import START, seconds

NAN_PAYLOAD = np.array([0x7FF8_0000_DEAD_BEEF, 0xFFF0_0000_0000_0001], np.uint64).view(np.float64)

#: Values as given, and the type of the field they become.
VALUES: dict[str, tuple[npt.NDArray[Any], str]] = {
    "floats": (np.array([1.5, -0.0, 0.0, np.inf, -np.inf, np.nan, 5e-324, 1.7e308]), "f64"),
    "payloads": (NAN_PAYLOAD, "f64"),
    "float32": (np.array([1.5, -0.0, np.nan, 3.4e38], np.float32), "f64"),
    "float16": (np.array([1.5, -0.0], np.float16), "f64"),
    "int64": (np.array([0, -1, -(2**63), 2**63 - 1]), "i64"),
    "int8": (np.array([-128, 127], np.int8), "i64"),
    "uint64": (np.array([0, 2**64 - 1, 2**63], np.uint64), "u64"),
    "uint8": (np.array([0, 255], np.uint8), "u64"),
    "bool": (np.array([True, False, True]), "bool"),
    "fixed text": (np.array(["", "ä", "🌊 wave", "x" * 300]), "string"),
    "objects": (np.array(["a\0", "ö", "", "日本"], object), "string"),
    "bytes": (np.array([b"", b"\0\xff", b"a\0"], object), "bytes"),
    "fixed bytes": (np.array([b"ab", b"\xff"]), "bytes"),
    "big-endian": (np.array([1.5, 2.5], ">f8"), "f64"),
    "strided": (np.arange(10, dtype=np.int64)[::3], "i64"),
    "empty": (np.array([], np.float64), ""),
}


def bits(array: npt.NDArray[Any]) -> list[Any]:
    """Values that compare bit by bit."""
    if array.dtype.kind == "f":
        return list(array.astype(np.float64).view(np.uint64))
    return list(array.tolist())


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("flushed", [False, True])
def test_values_come_back_bit_by_bit(db: headwater.Database, name: str, flushed: bool) -> None:
    values, field_type = VALUES[name]
    times = seconds(len(values))
    written = db.write("t", {"d": "1"}, time=times, v=values)
    assert written.accepted == len(values)
    if not len(values):
        assert db.tables() == {}
        return
    assert db.tables()["t"].fields == {"v": field_type}
    if flushed:
        db.flush()
    result = db.scan("t", {"d": "1"})
    out = result.numpy()
    assert out["time"].dtype == np.dtype("datetime64[ns]")
    assert out["time"].view(np.int64).tolist() == times.tolist()
    assert bits(out["v"]) == bits(values)
    # The other ways out agree.
    table = result.arrow()
    if field_type == "f64":
        assert bits(table["v"].to_numpy()) == bits(values)
        assert bits(result.polars()["v"].to_numpy()) == bits(values)
        assert bits(result.pandas()["v"].to_numpy()) == bits(values)
    else:
        assert table["v"].to_pylist() == values.tolist()
        assert result.polars()["v"].to_list() == values.tolist()
        assert result.pandas()["v"].tolist() == values.tolist()
        assert result.pandas(dtype_backend="pyarrow")["v"].tolist() == values.tolist()
    # And what came out can be written again.
    db.write_frame("again", result)
    again = db.scan("again").numpy()
    assert {n: bits(a) for n, a in again.items()} == {n: bits(a) for n, a in result.numpy().items()}


def test_variable_width_strings_of_numpy_are_taken(db: headwater.Database) -> None:
    text = np.array(["", "a long text that is not stored inline", "ö"], np.dtypes.StringDType())
    db.write("t", time=seconds(3), v=text)
    assert db.scan("t").numpy()["v"].tolist() == text.tolist()


def test_every_instant_can_be_stored(db: headwater.Database, path: Path) -> None:
    times = np.array([-(2**63) + 1, -1, 0, 1, 2**63 - 1, -86_400 * 10**9, 4_070_908_800 * 10**9], np.int64)
    db.write("t", time=times, n=np.arange(len(times)))
    expected = sorted(times.tolist())
    assert db.scan("t").numpy()["time"].view(np.int64).tolist() == expected
    db.flush()
    assert db.scan("t").numpy()["time"].view(np.int64).tolist() == expected
    # The least instant is numpy's NaT; as an integer it is one like others.
    db.write("t", time=np.array([-(2**63)]), n=np.array([99]))
    assert db.scan("t").numpy()["n"][0] == 99
    assert db.scan("t", start="2098-01-01", end="2100-01-01").numpy()["time"].tolist() == [4_070_908_800 * 10**9]
    before = db.scan("t", start="1969-12-31", end=0).numpy()["time"]
    assert before.tolist() == [-86_400 * 10**9, -1]
    with pytest.raises(headwater.InvalidError, match="NaT"):
        db.write("t", time=np.array(["NaT"], "datetime64[ns]"), n=np.array([1]))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "m", "h", "D", "M", "Y"])
def test_times_of_every_unit_are_exact(db: headwater.Database, unit: str) -> None:
    times = np.array(["1969-01-01", "2026-01-01"], f"datetime64[{unit}]")
    db.write("t", time=times, v=np.array([1.0, 2.0]))
    assert (db.scan("t").numpy()["time"] == times).all()


def test_times_outside_of_64_bits_are_refused(db: headwater.Database) -> None:
    with pytest.raises(headwater.InvalidError, match="1677"):
        db.write("t", time=np.array(["3000-01-01"], "datetime64[s]"), v=np.array([1.0]))
    with pytest.raises(headwater.InvalidError, match="1678"):
        times = pa.array([32_503_680_000], pa.timestamp("s"))
        db.write_frame("t", pa.table({"time": times, "v": [1.0]}))


def test_masks_objects_and_missing_values_are_absent(db: headwater.Database) -> None:
    times = seconds(3)
    masked = np.ma.MaskedArray(np.array([7.0, np.nan, 9.0]), [True, False, False])
    db.write("t", time=times, f=masked, n=[1, None, 3], u=[None, 2**64 - 1, 0], s=["a", None, "c"], b=[None, False, True])
    out = db.scan("t").numpy()
    assert np.ma.getmaskarray(out["f"]).tolist() == [True, False, False]
    assert np.isnan(out["f"][1]) and out["f"][1] is not np.ma.masked
    assert out["n"].tolist() == [1, None, 3] and out["n"].dtype == np.int64
    assert out["u"].tolist() == [None, 2**64 - 1, 0] and out["u"].dtype == np.uint64
    assert out["s"].tolist() == ["a", None, "c"]
    assert out["b"].tolist() == [None, False, True]
    frame = db.scan("t").pandas()
    assert frame["f"].isna().tolist() == [True, True, False]
    assert str(frame["n"].dtype) == "Int64" and str(frame["b"].dtype) == "boolean"
    assert db.scan("t").polars()["f"].is_null().to_list() == [True, False, False]
    assert db.scan("t").pandas(dtype_backend="pyarrow")["f"].array.__arrow_array__().null_count == 1
    # What absent values become is the caller's to say.
    plain = db.scan("t", fields=["f", "s"]).numpy(masked=False)
    assert np.isnan(plain["f"][:2]).all() and plain["s"].tolist() == ["a", None, "c"]
    assert not isinstance(plain["f"], np.ma.MaskedArray)
    with pytest.raises(headwater.InvalidError, match="`n` is absent in 1 rows"):
        db.scan("t", fields=["n"]).numpy(masked=False)
    every = db.scan("t", start=START + 2 * 10**9).numpy(masked=True)
    assert isinstance(every["n"], np.ma.MaskedArray) and not np.ma.getmaskarray(every["n"]).any()


def test_nan_is_a_value_unless_said_otherwise(db: headwater.Database) -> None:
    values = np.array([1.0, np.nan])
    db.write("kept", time=seconds(2), v=values)
    db.write("gone", time=seconds(2), v=values, nan="absent")
    assert db.aggregate("kept", "v").numpy()["count"].tolist() == [2]
    assert db.aggregate("gone", "v").numpy()["count"].tolist() == [1]


def test_what_has_no_type_here_is_refused(db: headwater.Database) -> None:
    times = seconds(2)
    for values in (
        np.array([1 + 2j, 3]),
        np.array(["2026-01-01", "2026-01-02"], "datetime64[D]"),
        np.zeros((2, 2)),
        np.array([1, "a"], object),
        [2**64, 0],
        [-1, 2**63],
        [object(), object()],
        np.array(["\ud800", "a"]),
    ):
        with pytest.raises((headwater.InvalidError, UnicodeError)):
            db.write("t", time=times, v=values)
    with pytest.raises(headwater.InvalidError, match="has 3 rows, time has 2"):
        db.write("t", time=times, v=np.zeros(3))
    with pytest.raises(headwater.InvalidError, match="float"):
        db.write("t", time=np.array([1.5, 2.5]), v=np.zeros(2))
    assert db.tables() == {}
