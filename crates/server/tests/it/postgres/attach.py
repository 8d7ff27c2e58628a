"""What DuckDB does with a database that it attaches over PostgreSQL's protocol. The argument is the port."""

import sys
from decimal import Decimal

import duckdb
from duckdb_extensions import import_extension

port = sys.argv[1]


def check(got, wanted):
    assert got == wanted, f"{got!r} is not {wanted!r}"


import_extension("postgres_scanner")
con = duckdb.connect()
con.execute("LOAD postgres_scanner")
con.execute(f"ATTACH 'host=127.0.0.1 port={port} user=ann dbname=plant' AS plant (TYPE postgres)")


def rows(statement):
    return con.execute(statement).fetchall()


con.execute("CALL postgres_execute('plant', 'CREATE VIEW fast AS SELECT id, max(speed) FROM cars GROUP BY id')")
con.execute("CALL pg_clear_cache()")
names = {name for (name,) in rows("SELECT table_name FROM duckdb_tables() WHERE database_name = 'plant' AND schema_name = 'public'")}
names |= {name for (name,) in rows("SELECT view_name FROM duckdb_views() WHERE database_name = 'plant' AND schema_name = 'public'")}
check(names, {"Odd Name", "cars", "fast"})
kinds = {name: kind for name, kind, *_ in rows("DESCRIBE plant.cars")}
check(kinds["time"], "TIMESTAMP WITH TIME ZONE")
check(kinds["laps"], "DECIMAL(20,0)")
check(kinds["raw"], "BLOB")
check(rows("SELECT id, speed, laps, name, ok, n, raw FROM plant.cars ORDER BY id"), [("other", 2.5, None, None, None, None, b"\x00\xff"), ("seen", 1.5, Decimal(3), "x", True, 4, None)])
check(rows("SELECT epoch_us(time) FROM plant.cars WHERE id = 'seen'"), [(1_700_000_000_000_000,)])
check(rows("SELECT count(*), max(speed) FROM plant.public.cars WHERE speed > 2"), [(1, 2.5)])
check(rows("SELECT v FROM plant.\"Odd Name\""), [(1.0,)])
check(rows("SELECT id, max FROM plant.fast ORDER BY id"), [("other", 2.5), ("seen", 1.5)])
check(rows("SELECT * FROM postgres_query('plant', 'SELECT count(*) AS n FROM cars')"), [(2,)])

print("done")
