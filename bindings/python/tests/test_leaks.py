"""Memory stays flat over very many calls."""

from __future__ import annotations

import gc
from pathlib import Path

import headwater
import numpy as np
import pyarrow as pa
from conftest import START, seconds

PAGE = 4096


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def test_memory_is_flat_over_a_hundred_thousand_calls(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "db", durability="written", memory_budget=1 << 20, reserve_bytes=0) as db:
        tags = {"d": "1"}
        # What is written lies in the same instants again and again, so that the database stays as small as it is.
        times, text = seconds(20), np.array(["text"] * 20, object)
        v = np.ma.MaskedArray(np.arange(20.0), np.arange(20) % 2 == 0)
        frame = pa.table({"time": pa.array(times), "d": pa.array(["1"] * 20), "v": pa.array(np.arange(20.0))})

        def calls(rounds: int) -> None:
            for i in range(rounds):
                db.last("t", tags)
                result = db.scan("t", tags, end=START + 5 * 10**9)
                if i % 10 == 0:
                    result.numpy(), result.read(), next(iter(result))
                    db.tables(), db.streams("t")
                    db.write("t", tags, time=START, v=1.0)
                if i % 100 == 0:
                    result.arrow(), result.pandas(), result.polars()
                    db.write("t", tags, time=times, v=v, s=text)
                    db.write_frame("t", frame, tag_columns=["d"])
                    db.submit("t", tags, time=times, v=v)
                    db.aggregate("t", "v").numpy()
                    db.tile("t", tags, "v", 0, headwater.tile_offset(0, START)), db.stats()
                    try:
                        db.scan("nope")
                    except headwater.NotFoundError:
                        pass
                if i % 1000 == 0:
                    db.flush()

        db.write("t", tags, time=times, v=v, s=text)
        calls(4000)
        before = resident()
        calls(38_000)  # about 100,000 calls
        grown = resident() - before
        # 60 bytes a call would be 6 MB.
        assert grown < 6 << 20, f"{grown} bytes more"
