"""Opening, closing, sharing between threads and processes, interrupts, errors, care."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pytest
from conftest import seconds


def test_options_are_taken_and_checked(path: Path) -> None:
    with headwater.open(
        str(path),
        memory_budget=8 << 20,
        durability=0.05,
        shards=2,
        busy_timeout="2s",
        max_future=3600,
        late_policy="separate:0.5",
        late_merge_interval=None,
        batch_bytes_max=1 << 20,
        leaf_events=512,
        reserve_bytes=0,
        fast_dir=path.parent / "fast",
        fast_parts="log",
        fast_bytes=64 << 20,
        fast_index_bytes=64 << 20,
        fast_newest_bytes=64 << 20,
        fast_newest_age=86_400,
        io_backend="uring",
        read_ahead=4,
        queue_sets=1,
        queue_placement="interval",
        log_mirror=3600,
        idle_after=None,
    ) as db:
        assert db.path == str(path) and not db.read_only and not db.closed
        opened = db
        with pytest.raises(headwater.RefusedError, match="E_TIME_FUTURE"):
            db.write("t", time="2200-01-01", v=1)
        assert db.create_table("t").leaf_events == 512
        assert (path.parent / "fast" / "tier").exists() and not (path / "log" / "1.log").exists()
    assert opened.closed
    (path.parent / "fast" / "tier").rename(path.parent / "fast" / "away")
    with pytest.raises(headwater.TierError):
        headwater.open(path)
    (path.parent / "fast" / "away").rename(path.parent / "fast" / "tier")
    wrong: list[dict[str, Any]] = [
        {"memory_budget": 5},
        {"durability": "sometimes"},
        {"durability": -1.0},
        {"late_policy": "hopeful"},
        {"shards": 0},
        {"colour": 1},
        {"fast_parts": "segments"},
    ]
    for settings in wrong:
        with pytest.raises(headwater.InvalidError) as caught:
            headwater.open(path, **settings)
        assert caught.value.code == "invalid"
    with pytest.raises(headwater.NotFoundError):
        headwater.open(path.parent / "none", create=False)
    with pytest.raises(headwater.NotFoundError):
        headwater.open(path.parent / "none", read_only=True)


def test_closing_ends_everything_that_is_open(path: Path) -> None:
    db = headwater.open(path)
    db.write("t", {"d": "1"}, time=seconds(1000), v=np.arange(1000.0))
    result, cursor = db.scan("t"), db.scan("t").batches(10)
    next(cursor)
    stream = db.scan("t").__arrow_c_stream__()
    db.close()
    db.close()
    calls: list[Any] = [
        result.read,
        result.polars,
        lambda: next(cursor),
        lambda: db.scan("t"),
        lambda: db.write("t", v=1.0),
        lambda: db.last("t", {"d": "1"}),
        db.tables,
        db.flush,
    ]
    for call in calls:
        with pytest.raises(headwater.ClosedError) as caught:
            call()
        assert caught.value.code == "closed"
    # Though they are still referenced, the directory can be opened again at once.
    with headwater.open(path) as again:
        assert len(again.scan("t").read()) == 1000
    assert result is not None and stream is not None


def test_the_owner_is_alone_and_readers_are_not(db: headwater.Database, path: Path) -> None:
    db.write("t", time=seconds(5), v=np.arange(5.0))
    with pytest.raises(headwater.LockedError, match="pid") as caught:
        headwater.open(path)
    assert caught.value.code == "locked"
    with headwater.open(path, read_only=True) as reader:
        assert reader.read_only and len(reader.scan("t").read()) == 5
        db.write("t", time=seconds(5, 5), v=np.arange(5.0))
        assert len(reader.scan("t").read()) == 5
        reader.refresh()
        assert len(reader.scan("t").read()) == 10
        assert reader.last("t")["v"].value == 4.0 and reader.stats()["tables"] == 1
        writes: list[Any] = [lambda: reader.write("t", v=1.0), lambda: reader.delete("t"), reader.compact]
        for write in writes:
            with pytest.raises(headwater.ReadOnlyError) as refused:
                write()
            assert refused.value.code == "read_only"


def test_an_unclosed_database_says_so_and_is_closed(path: Path) -> None:
    db = headwater.open(path)
    db.write("t", time=seconds(1), v=[1.0])
    with pytest.warns(ResourceWarning, match="unclosed database"):
        del db
        gc.collect()
    with headwater.open(path) as db:
        assert len(db.scan("t").read()) == 1


def test_threads_write_and_read_together_while_another_closes(path: Path) -> None:
    db = headwater.open(path, durability="written", memory_budget=4 << 20)
    stop = threading.Event()
    acknowledged = [0] * 3
    seen: list[int] = []

    def write(thread: int) -> None:
        try:
            for batch in range(100_000):
                db.write("t", {"d": str(thread)}, time=seconds(500, batch * 500), v=np.full(500, float(batch)))
                acknowledged[thread] += 500
        except headwater.ClosedError:
            stop.set()

    def read() -> None:
        try:
            while not stop.is_set():
                if "t" in db.tables():
                    counts = db.aggregate("t", "v").numpy()["count"]
                    rows = sum(len(frame) for frame in db.scan("t"))
                    assert rows >= counts.sum()
                    seen.append(rows)
        except headwater.ClosedError:
            pass

    with ThreadPoolExecutor() as pool:
        futures = [*(pool.submit(write, i) for i in range(3)), *(pool.submit(read) for _ in range(2))]
        while len(seen) < 4 and not any(f.done() for f in futures):
            time.sleep(0.01)
        db.close()
        for future in futures:
            future.result(timeout=60)
    assert seen and all(acknowledged)
    with headwater.open(path) as again:
        counts = again.aggregate("t", "v").numpy()["count"]
        # What was acknowledged is there; a write that closing overtook may be there too.
        assert all(a <= c <= a + 500 for a, c in zip(acknowledged, counts.tolist(), strict=True))


def test_other_threads_run_while_one_works(db: headwater.Database) -> None:
    """With Python's lock held for the whole call, the other thread would not get to look at the clock in the middle of it."""
    rows = 200_000
    times, v = seconds(rows), np.random.default_rng(1).random(rows)
    db.write("t", time=times, v=v)
    query = db.scan("t")._inner
    calls: list[tuple[int, int]] = []
    done = threading.Event()

    def work() -> None:
        how = (None, None, False)
        for _ in range(5):
            for call in (query.numpy, lambda: db._inner.write_columns("w", [], times, [("v", "f64", 0, v, None)], [], how)):
                before = time.perf_counter_ns()
                call()
                calls.append((before, time.perf_counter_ns()))
        done.set()

    looks = []
    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        looks.append(time.perf_counter_ns())
        time.sleep(0)
    thread.join()
    seen = np.array(looks)
    for kind in (calls[::2], calls[1::2]):
        middles = [(a + (b - a) // 4, b - (b - a) // 4) for a, b in kind]
        assert any(((seen > a) & (seen < b)).any() for a, b in middles)


INTERRUPTED = """
import headwater, numpy as np, os, signal, sys, threading
with headwater.open(sys.argv[1], durability="written") as db:
    times = np.arange(2_000_000, dtype=np.int64) * 1000
    for part in range(4):
        db.write("t", {"d": str(part)}, time=times[:500_000], v=np.random.default_rng(part).random(500_000))
    rows = 0
    def strike():
        os.kill(os.getpid(), signal.SIGINT)
    try:
        threading.Timer(0.05, strike).start()
        while True:
            db.scan("t").numpy()
            rows += 1
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    # It goes on working.
    print(len(db.scan("t", {"d": "1"}).read()), flush=True)
"""


def test_an_interrupt_stops_a_long_scan(path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED, path], capture_output=True, text=True, timeout=120)
    assert ran.stdout.split() == ["interrupted", "500000"], ran.stderr


def in_child(db: headwater.Database, result: headwater.Result, queue: Any) -> None:
    codes = []
    calls: list[Any] = [lambda: db.write("t", v=1.0), db.tables, result.read, db.close, lambda: db.closed]
    for call in calls:
        try:
            call()
            codes.append("worked")
        except headwater.Error as error:
            codes.append(error.code)
    queue.put(codes)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_cannot_use_the_database_and_does_no_harm(db: headwater.Database, path: Path) -> None:
    db.write("t", {"d": "1"}, time=seconds(1000), v=np.arange(1000.0))
    result = db.scan("t")
    ticket = db.submit("t", {"d": "1"}, time=seconds(10, 1000), v=np.arange(10.0))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(db, result, queue))
    child.start()
    assert queue.get(timeout=60) == ["forked"] * 5
    child.join(timeout=60)
    assert child.exitcode == 0
    # A child that ends as a program does, with all its objects dropped.
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            del db, result, ticket
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert ticket.wait().accepted == 10
    db.write("t", {"d": "1"}, time=seconds(10, 2000), v=np.arange(10.0))
    db.close()
    assert headwater.check(path).is_sound
    with headwater.open(path) as again:
        assert len(again.scan("t").read()) == 1020


KILLED = """
import headwater, numpy as np, os, sys
db = headwater.open(sys.argv[1])
for batch in range(1000):
    db.write("t", time=np.arange(100, dtype=np.int64) + batch * 100, v=np.arange(100.0))
    print(batch, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        batches = [child.stdout.readline() for _ in range(20)]
        child.send_signal(signal.SIGKILL)
        batches += child.stdout.readlines()
    acknowledged = sum(1 for b in batches if b.endswith("\n"))
    with headwater.open(path) as db:
        assert db.recovery.events_replayed >= acknowledged * 100
        rows = len(db.scan("t").read())
        assert acknowledged * 100 <= rows <= (acknowledged + 1) * 100 and rows % 100 == 0


def test_what_happens_in_the_background_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with headwater.open(path) as db:
        db.write("t", time=seconds(10), v=np.arange(10.0))
    segment = next((path / "segment").iterdir())
    stray = segment.with_name("9" * len(segment.stem) + segment.suffix)
    stray.write_bytes(segment.read_bytes())
    with caplog.at_level("INFO", logger="headwater"):
        headwater.open(path).close()
        assert not stray.exists()
        limit = time.monotonic() + 60
        while not caplog.records and time.monotonic() < limit:
            time.sleep(0.01)
    assert caplog.records[0].name == "headwater" and caplog.records[0].levelname == "INFO"
    assert "removed an uncommitted segment file" in caplog.text and stray.name in caplog.text


def test_checks_backups_and_repairs(db: headwater.Database, path: Path) -> None:
    db.write("t", time=seconds(5000), v=np.random.default_rng(3).random(5000))
    db.flush()
    saved = path.parent / "backup"
    first = db.backup(saved)
    assert first.number == 1 and first.bytes_copied == first.bytes > 0
    assert headwater.backup(path, saved).number == 2
    assert headwater.verify_backup(saved).is_sound
    report = headwater.restore(saved, path.parent / "restored")
    assert report.is_sound and report.rows == 5000
    with headwater.open(path.parent / "restored") as restored:
        assert len(restored.scan("t").read()) == 5000
    db.close()
    assert headwater.check(path).rows == 5000
    segment = max((path / "segment").iterdir(), key=lambda p: p.stat().st_size)
    with segment.open("r+b") as file:
        file.seek(2000)
        file.write(b"\xff" * 64)
    damage = headwater.check(path)
    assert not damage.is_sound and damage.damages[0].file.endswith(".seg")
    with headwater.open(path) as damaged:
        with pytest.raises(headwater.CorruptError) as caught:
            damaged.scan("t").read()
        assert caught.value.code == "corrupt" and str(caught.value.file).endswith(".seg")
        assert isinstance(caught.value.offset, int)
        with pytest.raises(headwater.CorruptError):
            damaged.scan("t").polars()
    with pytest.raises(headwater.LockedError), headwater.open(path):
        headwater.repair(path)
    dry = headwater.repair(path, dry_run=True)
    assert dry.findings and not headwater.check(path).is_sound
    mended = headwater.repair(path)
    assert mended.findings and mended.lost and mended.quarantined and mended.after.is_sound
    assert headwater.check(path).is_sound


def test_errors_have_their_kinds() -> None:
    from headwater import _errors

    for code, kind in _errors._CLASSES.items():
        error = _errors.make(code, "a message", None)
        assert type(error) is kind and error.code == code and str(error) == "a message"
        assert isinstance(error, headwater.Error)
    assert issubclass(headwater.InvalidError, ValueError) and issubclass(headwater.NotFoundError, LookupError)
    assert issubclass(headwater.FullError, OSError)
