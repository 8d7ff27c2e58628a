"""What writing promises: refusals, retries, expiry, atomic batches, late data, tickets."""

from __future__ import annotations

import datetime as dt
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import START, seconds


def values(db: headwater.Database, table: str = "t", **tags: str) -> list[Any]:
    return list(db.scan(table, tags or None).numpy()["v"].tolist())


def test_single_events_are_written(db: headwater.Database) -> None:
    before = pd.Timestamp.now("UTC")
    assert db.write("t", {"d": "1"}, v=1.5, n=-1, u=2**64 - 1, ok=np.True_, s="ö", b=b"\0", nothing=None).accepted == 1
    last = db.last("t", {"d": "1"})
    assert {n: l.value for n, l in last.items()} == {"v": 1.5, "n": -1, "u": 2**64 - 1, "ok": True, "s": "ö", "b": b"\0"}
    assert before <= pd.Timestamp(last["v"].time, tz="UTC") <= pd.Timestamp.now("UTC")
    instants: list[Any] = [
        START,
        np.datetime64("2026-01-01T00:00:01", "ms"),
        dt.datetime(2026, 1, 1, 0, 0, 2),
        dt.datetime(2026, 1, 1, 1, 0, 3, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        pd.Timestamp("2026-01-01T00:00:04Z"),
        "2026-01-01T00:00:05.000000000Z",
    ]
    for second, instant in enumerate(instants):
        db.write("at", time=instant, v=second)
    assert db.scan("at").numpy()["time"].view(np.int64).tolist() == seconds(6).tolist()
    db.write("day", time=dt.date(2026, 1, 1), v=np.float32(0.5))
    assert db.last("day")["v"] == headwater.Last(START, 0.5)
    for wrong in (1.5, "soon", True, [1]):
        with pytest.raises(headwater.InvalidError):
            db.write("at", time=wrong, v=1)
    with pytest.raises(headwater.InvalidError, match="number, bool, str or bytes, found object"):
        db.write("at", v=object())
    with pytest.raises(headwater.InvalidError, match="64 bits"):
        db.write("at", v=2**64)


def test_events_of_now_have_an_instant_each(db: headwater.Database) -> None:
    for number in range(50):
        db.write("t", {"d": "1"}, v=number)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: db.write("t", {"d": "1"}, v=number), range(50, 400)))
    assert sorted(values(db)) == list(range(400))


def test_a_write_without_a_field_and_a_list_of_mixed_types_are_refused(db: headwater.Database) -> None:
    wrongs: list[dict[str, Any]] = [{}, {"time": seconds(2)}]
    for wrong in wrongs:
        with pytest.raises(headwater.InvalidError, match="no field to write"):
            db.write("t", {"d": "1"}, **wrong)
    with pytest.raises(headwater.InvalidError, match="no field to write"):
        db.write_frame("t", {"time": seconds(2), "d": ["1", "2"]}, tag_columns=["d"])
    mixes: list[Any] = [[1, "a"], ["a", 1.5], [b"a", "a"], (True, "a")]
    for mixed in mixes:
        with pytest.raises(headwater.InvalidError, match=" and "):
            db.write("t", {"d": "1"}, time=seconds(2), m=mixed)
    assert db.write("t", {"d": "1"}, time=seconds(2), m=["a", None]).accepted == 2
    assert list(db.tables()) == ["t"]


def test_refused_rows_raise_and_the_others_are_stored(db: headwater.Database) -> None:
    db.create_table("t", {"v": "i64"})
    times, text = seconds(4), np.array(["a", "b", "c", "d"])
    with pytest.raises(headwater.RefusedError) as caught:
        db.write("t", time=times, v=text)
    error = caught.value
    assert error.code == "refused" and error.written.accepted == 0 and error.written.refused_count == 4
    assert [r.row for r in error.written.refused] == [0, 1, 2, 3]
    assert error.written.refused[0].code == "E_TYPE" and "is i64, found string" in error.written.refused[0].message
    assert pickle.loads(pickle.dumps(error)).written == error.written
    # By row: the good ones stay, and row numbers are those of the input, whichever stream they went to.
    frame = {"time": times, "d": ["x", "y", "x", "y"], "v": np.array([1, 2, 3, 4]), "s": np.array(["", "x" * 99, "", "y" * 99])}
    with headwater.open(Path(db.path).parent / "other", string_bytes_max=10) as other:
        written = other.write_frame("t", frame, tag_columns="d", on_refused="return")
        assert (written.accepted, [(r.row, r.code) for r in written.refused]) == (2, [(1, "E_LIMIT_STRING"), (3, "E_LIMIT_STRING")])
        assert values(other) == [1, 3]
        whole = other.write_frame("all", frame, tag_columns="d", on_refused="return", require_all=True)
        assert (whole.accepted, whole.refused_count) == (0, 2)
        # A batch that is refused as a whole defines nothing either.
        assert list(other.tables()) == ["t"]


def test_integers_widen_to_floats_of_a_table_when_exact(db: headwater.Database) -> None:
    db.create_table("t", {"v": "f64"})
    with pytest.raises(headwater.RefusedError) as caught:
        db.write("t", time=seconds(3), v=np.array([1, 2**53 + 1, 3]))
    assert [r.row for r in caught.value.written.refused] == [1]
    assert values(db) == [1.0, 3.0]


def test_a_numbered_write_is_stored_once(db: headwater.Database, path: Path) -> None:
    for repeated in (False, True):
        written = db.write("t", time=seconds(2), v=[1.0, 2.0], producer=("gateway", 7))
        assert (written.repeated, written.accepted) == (repeated, 0 if repeated else 2)
    db.create_table("k", duplicates="keep")
    for number in (8, 8, 9):
        db.write_frame("k", {"time": [START], "v": [1.0]}, producer=("gateway", number))
    assert len(values(db, "k")) == 2
    db.close()
    with headwater.open(path) as again:
        assert again.write("k", time=START, v=1.0, producer=("gateway", 9)).repeated


def test_values_expire(db: headwater.Database) -> None:
    db.write("t", time=seconds(2), v=[1.0, 2.0], expires_at="2001-01-01")
    db.write("t", time=seconds(1, first=5), v=[3.0], expires_at=dt.datetime(2200, 1, 1))
    assert values(db) == [3.0]


def test_late_events_and_later_writes_find_their_place(db: headwater.Database) -> None:
    order = np.random.default_rng(7).permutation(5000)
    times = seconds(5000)
    for part in np.array_split(order, 11):
        db.write("t", {"d": "1"}, time=times[part], v=part.astype(np.float64))
        db.flush()
    assert values(db) == list(range(5000))
    # The later write wins, field by field.
    db.write("t", {"d": "1"}, time=times[:3], w=[7, 7, 7])
    db.write("t", {"d": "1"}, time=times[:1], v=[-1.0])
    rows = db.scan("t", end=START + 2 * 10**9).arrow().to_pydict()
    assert rows["v"] == [-1.0, 1.0] and rows["w"] == [7, 7]


def test_large_writes_go_in_pieces_and_small_ones_whole(db: headwater.Database, tmp_path: Path) -> None:
    with headwater.open(tmp_path / "small", batch_bytes_max=1 << 20, durability="written") as small:
        n = 300_000
        written = small.write("t", time=seconds(n), v=np.arange(n, dtype=np.float64), s=np.array(["text"] * n, object))
        assert written.accepted == n
        out = small.scan("t").numpy()
        assert (out["v"] == np.arange(n)).all() and (out["s"] == "text").all()
        table = pa.table({"time": pa.array(seconds(n)), "v": pa.array(np.arange(n)), "s": pa.array(["ö" * 20] * n)})
        assert small.write_frame("a", table).accepted == n
        assert small.scan("a").arrow()["v"].to_numpy().tolist() == list(range(n))
        kinds: list[dict[str, Any]] = [{"require_all": True}, {"producer": ("p", 1)}]
        for kind in kinds:
            with pytest.raises(headwater.InvalidError, match="batch_bytes_max"):
                small.write("x", time=seconds(n), v=np.zeros(n), **kind)
            with pytest.raises(headwater.InvalidError, match="batch_bytes_max"):
                small.write_frame("x", table, **kind)
        assert "x" not in small.tables()
    # Record batches of one table that fit into one batch are one write.
    before = db.stats()["log_syncs"]
    chunks = pa.concat_tables([pa.table({"time": pa.array(seconds(10, i * 10)), "v": pa.array(np.arange(10))}) for i in range(50)])
    assert db.write_frame("c", chunks, producer=("p", 1)).accepted == 500
    assert db.stats()["log_syncs"] <= before + 3


def test_a_failing_source_says_what_was_stored(tmp_path: Path) -> None:
    schema = pa.table({"time": pa.array(seconds(1)), "v": pa.array(np.zeros(1))}).schema

    def batches() -> Any:
        for i in range(20):
            yield pa.record_batch({"time": pa.array(seconds(20_000, i * 20_000)), "v": pa.array(np.zeros(20_000))}, schema=schema)
        raise ValueError("the source broke")

    with headwater.open(tmp_path / "db", batch_bytes_max=1 << 20, durability="written") as db:
        with pytest.raises(headwater.Error, match="the source broke") as caught:
            db.write_frame("t", pa.RecordBatchReader.from_batches(schema, batches()))
        assert any("rows of this write were stored" in note for note in caught.value.__notes__)
        assert 0 < len(values(db)) < 400_000


def test_tickets_are_waited_for_in_any_order(db: headwater.Database) -> None:
    tickets = [db.submit("t", time=seconds(100, i * 100), v=np.full(100, float(i))) for i in range(20)]
    for ticket in reversed(tickets):
        assert ticket.wait().accepted == 100
        assert ticket.wait().accepted == 100
    assert len(values(db)) == 2000
    waiting = db.submit("t", time=[0], v=["text"])
    with pytest.raises(headwater.RefusedError):
        waiting.wait()
    forgotten = db.submit("t", time=seconds(1, 5000), v=[1.0])
    db.close()
    assert forgotten.wait().accepted == 1


def test_wrong_calls_say_what_is_wrong(db: headwater.Database) -> None:
    with pytest.raises(headwater.InvalidError, match="given twice"):
        db.write("t", data={"v": 1}, v=2)
    with pytest.raises(headwater.InvalidError, match="need an array of times"):
        db.write("t", v=[1.0])
    with pytest.raises(headwater.InvalidError, match="tags: expected a dict"):
        db.write("t", "d=1", v=1)  # type: ignore[arg-type]
    with pytest.raises(headwater.InvalidError, match="tags: expected text"):
        db.write("t", {"d": 1}, v=1)  # type: ignore[dict-item]
    with pytest.raises(headwater.InvalidError, match="on_refused: expected 'raise' or 'return'"):
        db.write("t", v=1, on_refused="ignore")  # type: ignore[arg-type]
    with pytest.raises(headwater.InvalidError, match="nan: expected"):
        db.write("t", time=[1], v=[1], nan="zero")  # type: ignore[arg-type]
    with pytest.raises(headwater.RefusedError, match="E_NAME"):
        db.write("", v=1)
    assert db.write("t", time=np.empty(0, np.int64), v=np.empty(0)).accepted == 0
    assert db.tables() == {}
