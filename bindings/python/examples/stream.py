"""Streams samples from numpy into a database, as an instrument would bring them, and reads them back in batches.

    python stream.py samples.db 10000000

Several blocks are on their way at a time, so that they share the waiting for the medium; each is stored whole or not at all.
Reading takes the memory of one batch, however long the recording is.
"""

from __future__ import annotations

import sys
from collections import deque

import headwater
import numpy as np

BLOCK = 50_000
RATE_HZ = 10_000
IN_FLIGHT = 4


def record(db: headwater.Database, samples: int) -> None:
    """Writes a vibration at 10 kHz, a block after another."""
    random = np.random.default_rng(42)
    start = np.datetime64("2026-01-01", "ns")
    tickets: deque[headwater.Ticket] = deque()
    for first in range(0, samples, BLOCK):
        at = np.arange(first, min(first + BLOCK, samples))
        wave = np.sin(at * (2 * np.pi * 50 / RATE_HZ)) + 0.05 * random.standard_normal(at.size)
        time = start + at * np.timedelta64(1_000_000_000 // RATE_HZ, "ns")
        tickets.append(db.submit("vibration", {"axis": "x"}, time=time, g=wave, clipped=np.abs(wave) > 1.1))
        if len(tickets) > IN_FLIGHT:
            tickets.popleft().wait()
    for ticket in tickets:
        ticket.wait()


def main() -> None:
    path, samples = sys.argv[1], int(sys.argv[2])
    with headwater.open(path) as db:
        record(db, samples)
        count, square, clipped = 0, 0.0, 0
        for frame in db.scan("vibration", {"axis": "x"}):
            columns = frame.numpy()
            count += len(frame)
            square += float(np.square(columns["g"]).sum())
            clipped += int(columns["clipped"].sum())
        print(f"{count} samples, {(square / count) ** 0.5:.3f} g on average (RMS), {clipped} clipped")
        seconds = db.aggregate("vibration", "g", {"axis": "x"}, every="1s").numpy()
        print(f"strongest second: {seconds['time'][np.argmax(seconds['stddev'])]}")


if __name__ == "__main__":
    main()
