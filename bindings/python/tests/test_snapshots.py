"""Named snapshots: made, listed, read, dropped; over closing, deletes and ends by themselves."""

from __future__ import annotations

import time
from pathlib import Path

import headwater
import pytest
from conftest import SECOND, START, seconds


def test_a_named_snapshot_is_read_after_closing_and_until_it_is_dropped(path: Path) -> None:
    with headwater.open(path, durability="written") as db:
        db.write("t", {"d": "a"}, time=seconds(10), v=[float(i) for i in range(10)])
        made = db.create_snapshot("ten")
        assert (made.name, made.events, made.streams, made.tables) == ("ten", 10, 1, 1)
        db.write("t", {"d": "a", "site": "x"}, time=seconds(20), v=[100.0] * 20, w=[1] * 20)
        db.write("t", {"d": "a"}, time=seconds(3, 9), v=[-1.0] * 3)
    with headwater.open(path, durability="written") as db:
        assert [s.name for s in db.snapshots()] == ["ten"]
        assert db.snapshots()[0].created == made.created
        now = db.scan("t", order="time")
        then = db.scan("t", order="time", with_tags=True, snapshot="ten")
        assert len(now.read()) == 32
        # Neither fields nor tags that came later.
        assert then.columns == ["time", "d", "v"]
        assert then.numpy()["v"].tolist() == [float(i) for i in range(10)]
        assert db.scan("t", snapshot="ten").numpy()["v"].tolist() == [float(i) for i in range(10)]
        with pytest.raises(headwater.NotFoundError):
            db.scan("t", fields=["w"], snapshot="ten")
        assert db.streams("t", snapshot="ten") == [{"d": "a"}]
        assert len(db.streams("t")) == 2
        assert db.last("t", {"d": "a"}, snapshot="ten")["v"] == (START + 9 * SECOND, 9.0)
        assert db.last("t", {"d": "a"})["v"].value == -1.0
        with pytest.raises(headwater.NotFoundError):
            db.last("t", {"d": "a", "site": "x"}, snapshot="ten")
        whole = db.aggregate("t", "v", snapshot="ten").numpy()
        assert (whole["count"].tolist(), whole["max"].tolist()) == ([10], [9.0])
        assert db.aggregate("t", "v", {"d": "a"}, with_tags=False).numpy()["count"].tolist() == [12, 20]
        offset = headwater.tile_offset(0, START)
        tile = db.tile("t", {"d": "a"}, "v", 0, offset, snapshot="ten").numpy()
        assert tile["count"].sum() == 10 and tile["max"].max() == 9.0
        # Dropping takes nothing from who reads it.
        db.drop_snapshot("ten")
        assert len(then.read()) == 10
        then.close()
        with pytest.raises(headwater.NotFoundError, match="ten"):
            db.scan("t", snapshot="ten")
        with pytest.raises(headwater.NotFoundError):
            db.drop_snapshot("ten")
        assert db.snapshots() == []


def test_what_is_deleted_later_is_not_in_it_either(db: headwater.Database) -> None:
    db.write("t", time=seconds(10), v=[1.0] * 10)
    db.create_snapshot("before")
    db.delete("t", end=START + 4 * SECOND)
    assert len(db.scan("t", snapshot="before").read()) == 6
    db.drop_table("t")
    with pytest.raises(headwater.NotFoundError):
        db.scan("t", snapshot="before")


def test_what_is_wrong_is_told(path: Path) -> None:
    with headwater.open(path, snapshot_age_max=1) as db:
        for name in ("", "now"):
            with pytest.raises(headwater.InvalidError):
                db.create_snapshot(name)
        db.create_snapshot("old")
        # The next one finds that the one before is due.
        time.sleep(1.1)
        db.create_snapshot("new")
        (ended,) = [one for one in db.ended_snapshots() if one.name == "old"]
        assert ended.created <= ended.ended and "age_max" in ended.reason
        with pytest.raises(headwater.GoneError) as gone:
            db.streams("t", snapshot="old")
        assert gone.value.code == "gone"


def test_a_reader_reads_the_snapshots_of_the_owner(path: Path) -> None:
    with headwater.open(path, durability="written") as db:
        db.write("t", time=seconds(10), v=[1.0] * 10)
        db.create_snapshot("ten")
        with pytest.raises(headwater.InvalidError, match="already exists"):
            db.create_snapshot("ten")
        with headwater.open(path, read_only=True) as reader:
            assert [s.name for s in reader.snapshots()] == ["ten"]
            assert len(reader.scan("t", snapshot="ten").read()) == 10
            with pytest.raises(headwater.ReadOnlyError):
                reader.create_snapshot("more")
            with pytest.raises(headwater.ReadOnlyError):
                reader.drop_snapshot("ten")
