"""Questions: ranges, conditions, fields, aggregates, tiles, newest values, and changes of tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import headwater
import numpy as np
import pandas as pd
import pytest
from conftest import SECOND, START, seconds

ROWS = 20_000


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[headwater.Database]:
    """Three streams, one of them with gaps; half in segments, half in memory."""
    with headwater.open(tmp_path_factory.mktemp("filled") / "db", durability="written") as db:
        for first in (0, ROWS // 2):
            times = seconds(ROWS // 2, first)
            wave = np.sin(np.arange(first, first + ROWS // 2) / 500) * 10
            for d in ("a", "b"):
                db.write("t", {"d": d, "site": "x"}, time=times, v=wave, n=np.arange(first, first + ROWS // 2), s=np.where(wave > 0, "up", "down"))
            gaps = np.ma.MaskedArray(wave, np.arange(ROWS // 2) % 2 == 1)
            db.write("t", {"d": "c"}, time=times, v=gaps, ok=wave > 0)
            if first == 0:
                db.flush()
        yield db


def test_ranges_hold_their_start_and_not_their_end(filled: headwater.Database) -> None:
    out = filled.scan("t", {"d": "a"}, start="2026-01-01T00:00:10Z", end=dt.datetime(2026, 1, 1, 0, 0, 13)).numpy()
    assert out["n"].tolist() == [10, 11, 12]
    assert len(filled.scan("t", {"d": "a"}, start=START + ROWS * SECOND).read()) == 0
    assert len(filled.scan("t", {"d": "a"}, start=START + 5, end=START).read()) == 0


def test_rows_of_all_streams_in_the_order_of_time(filled: headwater.Database) -> None:
    by_stream = filled.scan("t", with_tags=True).pandas()
    replay = filled.scan("t", with_tags=True, order="time")
    wanted = by_stream.sort_values("time", kind="stable", ignore_index=True)
    pd.testing.assert_frame_equal(replay.pandas(), wanted, check_categorical=False)
    # Twice, in batches of any size, and with a range, conditions and tags.
    batches = [batch.pandas() for batch in replay.batches(7_777)]
    assert len(batches) > 2
    pd.testing.assert_frame_equal(pd.concat(batches, ignore_index=True), wanted, check_categorical=False)
    few = filled.scan("t", {"site": "x"}, start=START + 5 * SECOND, end=START + 7 * SECOND, fields=["n"], order="time")
    assert [(r["n"], r["d"]) for r in few.polars().to_dicts()] == [(5, "a"), (5, "b"), (6, "a"), (6, "b")]
    high = filled.scan("t", where=[("v", ">", 9.9)], fields=["v"], order="time").numpy()
    assert len(high["v"]) > 0 and (np.diff(high["time"].astype("int64")) >= 0).all()
    assert len(filled.scan("t", {"d": "z"}, order="time").read()) == 0
    with pytest.raises(headwater.InvalidError, match="order"):
        filled.scan("t", order="value")  # type: ignore[arg-type]


def test_fields_conditions_and_tags(filled: headwater.Database) -> None:
    result = filled.scan("t", {"site": "x"}, fields=["n", "s"], where=[("v", ">", 9.9), ("n", "<", np.int64(1000))])
    assert result.columns == ["time", "d", "n", "s"] and result.stream_count == 2
    frame = result.pandas()
    wave = np.sin(np.arange(1000) / 500) * 10
    expected = np.flatnonzero(wave > 9.9).tolist()
    assert frame["n"].tolist() == expected * 2
    assert frame["d"].tolist() == ["a"] * len(expected) + ["b"] * len(expected)
    assert set(frame["s"]) == {"up"}
    assert filled.scan("t", {"d": "a"}, with_tags=True).columns[:3] == ["time", "d", "site"]
    assert filled.scan("t", with_tags=False).columns == ["time", "v", "n", "s", "ok"]
    # A stream without a tag has none; absent fields are absent.
    rows = filled.scan("t", {"d": "c"}, end=START + 2 * SECOND).polars().to_dicts()
    assert [(r["site"], r["v"] is None, r["n"]) for r in rows] == [(None, False, None), (None, True, None)]
    for field, op, value in (("nope", "==", 1), ("v", "==", "text"), ("v", "~", 1.0)):
        with pytest.raises(headwater.Error):
            filled.scan("t", where=[(field, op, value)]).read()
    with pytest.raises(headwater.NotFoundError, match="no field `nope`"):
        filled.scan("t", fields=["nope"])
    with pytest.raises(LookupError, match="no table `nope`"):
        filled.scan("nope")


def test_aggregates_equal_those_of_the_rows(filled: headwater.Database) -> None:
    rows = filled.scan("t", {"site": "x"}, fields=["v", "n"]).pandas()
    bins = filled.aggregate("t", "v", {"site": "x"}, every="17min", start=START + 5, first_last=True).pandas()
    rows = rows[rows["time"] > pd.Timestamp(START + 4, tz="UTC")]
    grouped = rows.groupby([rows["d"], rows["time"].dt.floor("17min")], observed=True)["v"]
    assert bins["count"].tolist() == grouped.count().tolist()
    assert bins["min"].tolist() == grouped.min().tolist() and bins["max"].tolist() == grouped.max().tolist()
    np.testing.assert_allclose(bins["mean"], grouped.mean(), rtol=0, atol=1e-11)
    np.testing.assert_allclose(bins["stddev"], grouped.std(ddof=0), rtol=0, atol=1e-11)
    np.testing.assert_allclose(bins["sum"], grouped.sum(), rtol=0, atol=1e-7)
    assert bins["first"].tolist() == grouped.first().tolist() and bins["last"].tolist() == grouped.last().tolist()
    whole = filled.aggregate("t", "n", {"d": "a"}).numpy()
    assert whole["count"].tolist() == [ROWS] and whole["max"].dtype == np.int64
    assert (whole["min"][0], whole["max"][0], whole["sum"][0]) == (0, ROWS - 1, ROWS * (ROWS - 1) / 2)
    assert whole["mean_time"].view(np.int64).tolist() == [START + (ROWS - 1) * SECOND // 2]
    text = filled.aggregate("t", "s", {"d": "a"}).arrow()
    assert text["count"].to_pylist() == [ROWS] and text["mean"].null_count == 1
    assert len(filled.aggregate("t", "v", level=10)) == len(filled.aggregate("t", "v", every=1024.0))
    with pytest.raises(headwater.InvalidError, match="exclude each other"):
        filled.aggregate("t", "v", level=1, every=1)
    with pytest.raises(headwater.InvalidError, match="wider than 0"):
        filled.aggregate("t", "v", every=0)
    with pytest.raises(headwater.InvalidError, match="units: ns"):
        filled.aggregate("t", "v", every="3 fortnights")
    with pytest.raises(headwater.NotFoundError):
        filled.aggregate("t", "nope")


@pytest.mark.parametrize("level", [-3, 0, 5, 12, 40])
def test_tiles_equal_aggregates_of_their_buckets(filled: headwater.Database, level: int) -> None:
    tags = {"d": "a", "site": "x"}
    offset = headwater.tile_offset(level, START + 1000 * SECOND)
    tile = filled.tile("t", tags, "v", level, offset).numpy()
    assert len(tile["bucket"]) > 0 and ((tile["bucket"] // 512) == offset).all()
    width = 2.0**level * 1e9
    first, last = int(offset * 512 * width), int((offset + 1) * 512 * width)
    bins = filled.aggregate("t", "v", tags, level=level, start=max(first, -(2**63)), end=min(last, 2**63 - 1)).numpy()
    for column in ("count", "mean", "min", "max", "stddev"):
        np.testing.assert_allclose(tile[column], bins[column], rtol=1e-12)
    with pytest.raises(headwater.NotFoundError, match="no stream"):
        filled.tile("t", {"d": "a"}, "v", level, offset)
    with pytest.raises(headwater.InvalidError, match="-20 to 40"):
        filled.tile("t", tags, "v", 41, 0)


def test_newest_values_streams_and_tables(filled: headwater.Database) -> None:
    last = filled.last("t", {"d": "c"})
    assert list(last) == ["v", "ok"]
    assert last["ok"].time_ns == START + (ROWS - 1) * SECOND and last["v"].time_ns == START + (ROWS - 2) * SECOND
    assert isinstance(last["ok"].value, bool)
    assert filled.streams("t", {"site": "x"}) == [{"d": "a", "site": "x"}, {"d": "b", "site": "x"}]
    table = filled.tables()["t"]
    assert table.tags == ("d", "site") and table.streams == 3
    assert table.fields == {"v": "f64", "n": "i64", "s": "string", "ok": "bool"}
    stats = filled.stats()
    assert stats["events"] == 3 * ROWS and stats["disk_bytes"] > 0
    with pytest.raises(headwater.NotFoundError):
        filled.last("t")


def test_a_result_sees_the_state_of_its_scan(db: headwater.Database) -> None:
    db.write("t", time=seconds(10), v=np.arange(10.0))
    with db.scan("t") as result:
        batches = iter(result.batches(4))
        first = next(batches).numpy()["v"].tolist()
        db.write("t", time=seconds(10, 10), v=np.arange(10.0))
        db.delete("t", start=0)
        db.flush()
        assert first + [v for b in batches for v in b.numpy()["v"].tolist()] == list(range(10))
        assert len(result.read()) == 10
        assert len(db.scan("t").read()) == 0
    with pytest.raises(headwater.ClosedError):
        result.read()


def test_tables_are_made_changed_and_dropped(db: headwater.Database) -> None:
    made = db.create_table("t", {"v": "f64", "n": "i64"}, duplicates="keep", leaf_events=512, retention=dt.timedelta(days=36500), raw_for="30000d")
    assert made == db.tables()["t"]
    assert (made.duplicates, made.leaf_events, made.retention) == ("keep", 512, 36500 * 86400.0)
    changed = db.alter_table("t", add_fields={"s": "string", "n": "f64"}, add_tags=["site"], retention=None)
    assert changed.tags == ("site",) and db.create_table("u", tags=["b", "a"]).tags == ("a", "b")
    db.drop_table("u")
    assert (changed.retention, changed.raw_for) == (None, 30000 * 86400.0)
    assert changed.fields == {"v": "f64", "n": "f64", "s": "string"}
    db.write("t", {"d": "1"}, time=[START, START], v=[1.0, 2.0])
    db.write("t", {"d": "2"}, time=[START], v=[3.0])
    assert db.scan("t").numpy()["v"].tolist() == [1, 2, 3]
    with pytest.raises(headwater.InvalidError, match="already exists"):
        db.create_table("t")
    with pytest.raises(headwater.InvalidError, match="cannot be changed to"):
        db.alter_table("t", add_fields={"v": "i64"})
    with pytest.raises(headwater.InvalidError, match="expected f64, i64"):
        db.create_table("w", {"v": "float"})  # type: ignore[dict-item]
    assert db.drop_streams("t", {"d": "1"}) == 1
    assert db.streams("t") == [{"d": "2"}]
    assert db.delete("t", {"d": "2"}, start=START, end=START + 1) == 1
    db.drop_table("t")
    assert db.tables() == {}
    with pytest.raises(headwater.NotFoundError):
        db.drop_table("t")


def test_spans_and_instants() -> None:
    from headwater import _time

    assert [_time.span(s) for s in (1, 0.5, "1.5min", dt.timedelta(microseconds=1), np.timedelta64(3, "h"), "7 ns")] == [
        10**9, 5 * 10**8, 90 * 10**9, 1000, 3 * 3600 * 10**9, 7,
    ]
    assert _time.instant("2026-01-01T00:00:00.123456789Z") == START + 123_456_789
    assert _time.instant("1969-12-31T23:59:59.5") == -500_000_000
    assert _time.instant(np.datetime64("1969", "Y")) == -365 * 86_400 * SECOND
    assert _time.instant(pd.Timestamp(START + 1)) == START + 1
    for wrong in ("", "2026-13-01", np.datetime64("NaT"), 2**63, None, 1.5):
        with pytest.raises(headwater.InvalidError):
            _time.instant(wrong)  # type: ignore[arg-type]
    assert headwater.tile_offset(0, 0) == 0 and headwater.tile_offset(0, -1) == -1 and headwater.tile_offset(-9, START) == START // 10**9
