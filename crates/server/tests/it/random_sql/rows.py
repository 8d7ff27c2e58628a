"""The table that is asked: in Headwater as a history has left it, stored and in memory, in DuckDB the
rows that remain."""

import math
import re
from datetime import datetime, timedelta

from chance import R, WIDE
from server import compact, sql

BEGIN = datetime(2024, 2, 28, 22, 0, 0)
DEVICES = ["d0", "d1", "d2", "d3", "e4"]
# Rows of another device are all deleted.
GONE = "gone"
SITES = {"d0": "north", "d1": "north", "d2": "south", "d3": None, "e4": "south", GONE: "west"}
ROWS = 1200
# Instants that are as far apart as there are; their difference is beyond what a length can be.
FAR = [datetime(1700, 1, 31, 23, 59, 0), datetime(2249, 12, 30, 12, 0, 0)]
FAR_ROWS = 60
COLUMNS = "time, dev, site, f, g, n, b, s, big"

# Whether rows are there that lie so far apart.
is_far = False


def maybe(value, share=0.12):
    return None if R.random() < share else value


def large():
    return R.choice([R.randrange(-9, 10), R.randrange(-(2**62), 2**62), 2**63 - 1, -(2**63)])


def values():
    """One of every kind."""
    f = R.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, R.uniform(-50, 50)])
    return (
        f if R.random() < 0.5 else R.uniform(-50, 50),
        R.randrange(-4000, 4000) / 8,
        R.choice([R.randrange(-9, 10), R.randrange(-(10**6), 10**6)]),
        R.random() < 0.5,
        R.choice(["a", "b", "ab", "Ab", "x%", "x_y", "ärger", "zz top"]),
        large(),
    )


def row(at, device):
    kept = tuple(map(maybe, values()))
    return (at, device, SITES[device], *kept[:5], kept[5] if WIDE else None)


def other(old):
    """The row with other values where it has some."""
    new = (None if kept is None else value for kept, value in zip(old[3:], values()))
    return (*old[:3], *new)


def table(begin, count):
    """Rows in the order of time, no two of one instant."""
    at, rows = 0, []
    for _ in range(count):
        at += R.choice([1, 40_000, 999_999, 1_000_000, 7_000_000, 60_000_000, 311_000_000])
        rows.append(row(begin + timedelta(microseconds=at), R.choice(DEVICES)))
    return rows


def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return f"'{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}'"
    if isinstance(value, datetime):
        return f"'{value.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def inserts(rows):
    for at in range(0, len(rows), 200):
        lines = ", ".join("(" + ", ".join(map(literal, row)) + ")" for row in rows[at : at + 200])
        yield f"INSERT INTO m ({COLUMNS}) VALUES {lines}"


class Kept:
    """What Headwater has been told, and what must be left of it."""

    def __init__(self):
        self.rows = {}

    def write(self, rows):
        for insert in inserts(rows):
            sql(insert)
        # One that comes later replaces one of the same stream and instant.
        self.rows.update({row[:2]: row for row in rows})

    def delete(self, device, begin, end):
        of = [] if device is None else [f"dev = {literal(device)}"]
        of += [f"time >= {literal(begin)}", f"time < {literal(end)}"] if begin else []
        sql(f"DELETE FROM m WHERE {' AND '.join(of)}")
        self.rows = {
            (at, dev): row
            for (at, dev), row in self.rows.items()
            if not ((device is None or dev == device) and (not begin or begin <= at < end))
        }


def shuffled(rows):
    return R.sample(rows, len(rows))


def sample(rows, share):
    return R.sample(rows, int(len(rows) * share))


def create(duck):
    types = "(time TIMESTAMP, dev {0}, site {0}, f DOUBLE, g DOUBLE, n BIGINT, b BOOLEAN, s TEXT, big BIGINT)"
    duck.execute(f"CREATE TABLE m {types.format('TEXT')}")
    # Short leaves, so that there are some whole buckets of few rows.
    sql(f"CREATE TABLE m {types.format('TAG')} WITH (leaf_events = {R.choice([16, 32, 100])})")
    for field in R.sample(["f", "g", "n", "s", "big"], R.choice([0, 0, 2, 4])):
        sql(f"CREATE INDEX by_{field} ON m ({field})")


def fill(duck):
    """Rows in order, late, replaced and deleted, stored and in memory."""
    create(duck)
    rows = table(BEGIN, ROWS)
    stored, newest = rows[: ROWS * 9 // 10], rows[ROWS * 9 // 10 :]
    late = set(sample(range(len(stored)), 0.2))
    gone = [row(at + timedelta(microseconds=1), GONE) for at, *_ in sample(rows, 0.1)]
    kept = Kept()
    in_order = [row for at, row in enumerate(stored) if at not in late] + gone
    kept.write(sorted(in_order, key=lambda row: row[:2]))
    compact()
    kept.write(shuffled([stored[at] for at in late]))
    kept.write(shuffled([other(row) for row in sample(stored, 0.1)]))
    kept.delete(GONE, None, None)
    begin = R.choice(stored)[0]
    kept.delete(None, begin, begin + timedelta(minutes=R.randrange(5, 90)))
    begin = R.choice(stored)[0]
    kept.delete(R.choice(DEVICES), begin, begin + timedelta(minutes=R.randrange(30, 300)))
    if R.random() < 0.7:
        compact()
    # In memory: the newest, late ones, some where rows were deleted, and some that replace others.
    again = [row for row in stored if row[:2] not in kept.rows]
    kept.write(newest + shuffled(sample(again, 0.5)))
    kept.write(shuffled([other(row) for row in sample(list(kept.rows.values()), 0.05)]))
    insert(duck, kept)
    told = sql("EXPLAIN ANALYZE SELECT date_trunc('hour', time), sum(n) FROM m GROUP BY 1")
    buckets = re.search(r"\bbuckets=(\d+)", told)
    assert buckets and int(buckets[1]) > 100, f"few stored buckets are met: {told}"


def add_far(duck):
    """Rows at the ends of time, half of them stored."""
    global is_far
    is_far = True
    kept = Kept()
    rows = shuffled([row for begin in FAR for row in table(begin, FAR_ROWS // 2)])
    kept.write(rows[: FAR_ROWS // 2])
    compact()
    kept.write(rows[FAR_ROWS // 2 :])
    insert(duck, kept)


def insert(duck, kept):
    for statement in inserts(shuffled(list(kept.rows.values()))):
        duck.execute(statement.replace("'NaN'", "'NaN'::DOUBLE"))
