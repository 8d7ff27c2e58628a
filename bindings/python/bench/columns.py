"""Writes a column of points from numpy and reads it back into numpy, beside the Rust calls.

    make python-bench              # builds both optimised, and runs this

The two take turns, and who begins alternates, so that what else the machine does falls on both; each round makes new databases.
The Rust side is crates/headwater/examples/columns.rs; both write batches of the same size, several in flight, without syncs.
A ratio is Rust's seconds over Python's within a round: 1 means as fast, 0.8 means a quarter longer.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import headwater
import numpy as np

START = 1_767_225_600_000_000_000


def measured(path: Path, points: int) -> dict[str, float]:
    """Seconds of writing and reading through the package."""
    at = np.arange(points)
    times = (START + at * 1_000_000).view("datetime64[ns]")
    values = np.round(20 + 10 * np.sin(at / 5000), 3)
    with headwater.open(path, durability="written") as db:
        begun = time.perf_counter()
        db.write("bench", {"d": "1"}, time=times, v=values)
        write = time.perf_counter() - begun
        db.flush()
        begun = time.perf_counter()
        rows = 0
        for frame in db.scan("bench", {"d": "1"}):
            rows += len(frame)
        look = time.perf_counter() - begun
        begun = time.perf_counter()
        out = db.scan("bench", {"d": "1"}).numpy()
        read = time.perf_counter() - begun
    if not (rows == points and (out["time"] == times).all() and (out["v"] == values).all()):
        sys.exit("what was read is not what was written")
    return {"write": write, "look": look, "read": read}


def of_rust(program: str, path: Path, points: int) -> dict[str, float]:
    """Seconds of the same by the Rust program."""
    ran = subprocess.run([program, path, str(points)], capture_output=True, text=True, check=True)
    return {name: float(value) for name, value in map(str.split, ran.stdout.splitlines())}


def spread(values: list[float]) -> str:
    """Least, median and greatest."""
    return f"{statistics.median(values):.3f} ({min(values):.3f} … {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rust", help="the Rust program; without it Python runs alone")
    parser.add_argument("--dir", help="where databases are made; a temporary folder by default")
    asked = parser.parse_args()
    python: list[dict[str, float]] = []
    rust: list[dict[str, float]] = []
    for number in range(asked.rounds + 1):
        with tempfile.TemporaryDirectory(dir=asked.dir) as folder:
            for turn in ("python", "rust") if number % 2 else ("rust", "python"):
                path = Path(folder) / turn
                if turn == "python":
                    python.append(measured(path, asked.points))
                elif asked.rust:
                    rust.append(of_rust(asked.rust, path, asked.points))
    print(f"{asked.points} points, {asked.rounds} rounds after one to warm up; median (least … greatest)")
    meaning = {
        "write": "write from numpy",
        "read": "read into numpy / gather into vectors",
        "look": "iterate over batches / over chunks",
    }
    for name, what in meaning.items():
        mine = [round[name] for round in python[1:]]
        print(f"{what}: Python {spread(mine)} s", end="")
        if rust:
            theirs = [round[name] for round in rust[1:]]
            ratios = [r / p for r, p in zip(theirs, mine, strict=True)]
            print(f", Rust {spread(theirs)} s, ratio {spread(ratios)}", end="")
        print()
    if rust:
        # The strictest reading of the target: into numpy arrays, against Rust that only looks at each chunk.
        ratios = [r["look"] / p["read"] for r, p in zip(rust[1:], python[1:], strict=True)]
        print(f"read into numpy / iterate over chunks: ratio {spread(ratios)}")


if __name__ == "__main__":
    main()
