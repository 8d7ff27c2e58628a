"""Parameters of every type by the drivers psycopg, asyncpg and pg8000, as text and in the binary form. The argument is the port."""

import asyncio
import datetime as dt
import sys
import uuid
from decimal import Decimal

import asyncpg
import pg8000.native
import psycopg
from psycopg.types.json import Json, Jsonb

port = int(sys.argv[1])
utc = dt.timezone.utc
at = dt.datetime(2024, 1, 2, 3, 4, 5, 678900, tzinfo=utc)
name = uuid.UUID("12345678-1234-5678-1234-567812345678")
length = dt.timedelta(days=3, seconds=7, microseconds=5)

# Of each type a value; those behind it come back as text, since there are no such types here.
cases = [
    ("int2", 7),
    ("int4", 1 << 20),
    ("int8", 1 << 40),
    ("float4", 1.5),
    ("float8", 0.1),
    ("numeric", Decimal("12345.678")),
    ("text", "ä'x"),
    ("varchar", "v"),
    ("bool", True),
    ("timestamp", at.replace(tzinfo=None)),
    ("timestamptz", at),
    ("date", dt.date(2024, 2, 29)),
    ("time", dt.time(12, 34, 56, 789000)),
    ("interval", length),
    ("bytea", b"\x00\xff"),
    ("int4[]", [1, 2, None]),
    ("int8[]", [1 << 40]),
    ("float8[]", [0.5, None]),
    ("text[]", ["a", "b c", None, 'q"']),
    ("bool[]", [True, False]),
    ("timestamptz[]", [at]),
]
texts = [("uuid", name, str(name)), ("json", '{"a": 1}', '{"a": 1}'), ("jsonb", '{"a": 1}', '{"a": 1}')]


def check(what, got, wanted):
    assert got == wanted, f"{what}: {got!r} is not {wanted!r}"


for binary in (False, True):
    with psycopg.connect(f"host=127.0.0.1 port={port} user=ann dbname=plant", autocommit=True) as c:
        cur = c.cursor(binary=binary)
        for place in ("%s", "%b", "%t"):
            for of, value in cases:
                cur.execute(f"SELECT {place}::{of}", [value])
                check(("psycopg", binary, place, of), cur.fetchone(), (value,))
                cur.execute(f"SELECT {place}::{of}", [None])
                check(("psycopg", binary, place, of), cur.fetchone(), (None,))
            cur.execute(f"SELECT {place}::uuid, {place}::json, {place}::jsonb", [name, Json({"a": 1}), Jsonb({"a": 1})])
            check(("psycopg", binary, place), cur.fetchone(), (str(name), '{"a": 1}', '{"a": 1}'))
        # Without a cast, too.
        cur.execute("SELECT count(*) FROM cars WHERE id <> %b", [name])
        check("uuid", cur.fetchone(), (2,))

c = pg8000.native.Connection("ann", host="127.0.0.1", port=port, database="plant")
for of, value in cases:
    check(("pg8000", of), c.run(f"SELECT CAST(:p AS {of})", p=value), [[value]])
for of, value, wanted in texts:
    check(("pg8000", of), c.run(f"SELECT CAST(:p AS {of})", p=value), [[wanted]])
check("pg8000", c.run("SELECT id FROM cars WHERE speed > :v ORDER BY time LIMIT :n", v=1.0, n=1), [["seen"]])
c.close()


async def main():
    c = await asyncpg.connect(host="127.0.0.1", port=port, user="ann", database="plant")
    # It sends what the server says that a parameter is.
    for of, value in cases:
        check(("asyncpg", of), await c.fetchval(f"SELECT $1::{of}", value), value)
        check(("asyncpg", of), await c.fetchval(f"SELECT $1::{of}", None), None)
    for of, value, wanted in texts:
        check(("asyncpg", of), await c.fetchval(f"SELECT $1::{of}", str(value)), wanted)
    for sql, args, wanted in [
        ("SELECT count(*) FROM cars WHERE time > $1", [at], 0),
        ("SELECT count(*) FROM cars WHERE n = $1 AND speed > $2 AND ok = $3", [4, 1.0, True], 1),
        ("SELECT id FROM cars ORDER BY time LIMIT $1 OFFSET $2", [1, 1], "other"),
        ("SELECT date_bin($1, time) FROM cars WHERE id = 'seen'", [dt.timedelta(minutes=1)], dt.datetime(2023, 11, 14, 22, 13, tzinfo=utc)),
        ("SELECT time_bucket($1, time) FROM cars WHERE id = 'seen'", [dt.timedelta(minutes=1)], dt.datetime(2023, 11, 14, 22, 13, tzinfo=utc)),
        ("SELECT count(*) FROM cars WHERE id = ANY($1)", [["seen", "nowhere"]], 1),
        ("SELECT count(*) FROM cars WHERE id = ANY($1::text[])", [["seen", "other"]], 2),
        ("SELECT count(*) FROM cars WHERE id LIKE $1", ["s%"], 1),
        ("SELECT count(*) FROM cars WHERE n IN ($1, $2)", [4, 5], 1),
        ("SELECT count(*) FROM cars WHERE time > now() - $1::interval", [length], 0),
        ("SELECT time + $1 FROM cars WHERE id = 'seen'", [dt.timedelta(seconds=2)], dt.datetime(2023, 11, 14, 22, 13, 22, tzinfo=utc)),
    ]:
        check(("asyncpg", sql), await c.fetchval(sql, *args), wanted)
    # More prepared statements than it keeps.
    for number in range(150):
        check("asyncpg", await c.fetchval(f"SELECT {number} + $1::int8", 1), number + 1)
    await c.close()


asyncio.run(main())
print("done")
