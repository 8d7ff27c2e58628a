"""What programs in Python do over PostgreSQL's protocol: psycopg 3, text and binary, and SQLAlchemy. The argument is the port."""

import datetime as dt
import sys
from decimal import Decimal

import psycopg
import sqlalchemy as sa

port = sys.argv[1]
where = f"host=127.0.0.1 port={port} user=ann dbname=plant"
utc = dt.timezone.utc


def check(got, wanted):
    assert got == wanted, f"{got!r} is not {wanted!r}"


for binary in (False, True):
    with psycopg.connect(where, autocommit=True) as c:
        cur = c.cursor(binary=binary)
        cur.execute("SELECT time, id, speed, laps, name, ok, n, raw FROM cars WHERE id = %s ORDER BY time", ["seen"])
        check(
            cur.fetchall(),
            [(dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=utc), "seen", 1.5, 3, "x", True, 4, None)],
        )
        check([d.name for d in cur.description][:3], ["time", "id", "speed"])
        # Parameters of every kind, and what they come back as.
        cur.execute(
            "SELECT %s::int, %s::bigint, %s::float8, %s::text, %s::bool, %s::timestamptz, %s::bytea",
            [7, 1 << 40, 0.1, "ä'", True, dt.datetime(2024, 1, 2, 3, 4, 5, 678900, tzinfo=utc), b"\x00\xff"],
        )
        check(
            cur.fetchone(),
            (7, 1 << 40, 0.1, "ä'", True, dt.datetime(2024, 1, 2, 3, 4, 5, 678900, tzinfo=utc), b"\x00\xff"),
        )
        cur.execute("SELECT count(*) FROM cars WHERE time < %b", [dt.datetime(2023, 11, 14, 22, 13, 21, tzinfo=utc)])
        check(cur.fetchone(), (1,))
        cur.execute("SELECT count(*) AS n FROM cars WHERE speed > %b AND laps = %b", [1.0, 3])
        check(cur.fetchone(), (1,))
        cur.execute("SELECT time FROM cars ORDER BY time LIMIT %s", [1])
        check(len(cur.fetchall()), 1)
        # A list of texts, of which the driver does not tell the type.
        cur.execute("SELECT count(*) FROM cars WHERE id = ANY(%s)", [["seen", "nowhere"]])
        check(cur.fetchone(), (1,))
        cur.execute("SELECT count(*) FROM cars WHERE id = ANY(%s::text[])", [["seen", "other"]])
        check(cur.fetchone(), (2,))
        # The same statement again and again is prepared by the driver.
        for n in range(8):
            cur.execute("SELECT speed FROM cars WHERE n = %s", [n])
            check(cur.fetchall(), [(1.5,)] if n == 4 else [])
        cur.execute("SELECT array_agg(speed ORDER BY time) FROM cars")
        check(cur.fetchone(), ([1.5, 2.5],))
        try:
            cur.execute("SELECT nope FROM cars")
            raise AssertionError("it must fail")
        except psycopg.errors.UndefinedColumn as e:
            check(e.diag.statement_position, "8")

# Rows in and out by COPY, as the driver makes and reads them.
with psycopg.connect(where, autocommit=True) as c:
    cur = c.cursor()
    with cur.copy("COPY written (time, id, v) FROM STDIN") as copy:
        for n in range(3000):
            copy.write_row((dt.datetime(2023, 1, 1, tzinfo=utc) + dt.timedelta(seconds=n), "copied\t\\", None if n == 7 else n / 4))
    check(cur.rowcount, 3000)
    with cur.copy("COPY (SELECT time, id, v FROM written WHERE id LIKE 'copied%' ORDER BY time LIMIT 9) TO STDOUT") as copy:
        copy.set_types(["timestamptz", "text", "float8"])
        rows = list(copy.rows())
    check(rows[1], (dt.datetime(2023, 1, 1, 0, 0, 1, tzinfo=utc), "copied\t\\", 0.25))
    check([row[2] for row in rows[6:9]], [1.5, None, 2.0])
    try:
        with cur.copy("COPY written (time, id, v) FROM STDIN") as copy:
            copy.write_row(("2023-01-01", "x", "much"))
        raise AssertionError("it must fail")
    except psycopg.errors.InvalidTextRepresentation as e:
        assert "line 1" in str(e), e
    cur.execute("DELETE FROM written WHERE id LIKE 'copied%'")
    check(cur.rowcount, 3000)
    # A text that looks like null, read by the driver itself.
    with cur.copy("COPY (SELECT '\\N', NULL) TO STDOUT") as copy:
        check(list(copy.rows()), [("\\N", None)])

# Rows one by one and many at once: the driver calls a number int2, int4, int8, float8 or numeric, as it is.
for binary in (False, True):
    with psycopg.connect(where, autocommit=True) as c:
        cur = c.cursor(binary=binary)
        values = [1, 40_000, 1 << 40, 0.5, Decimal("1.25")]
        insert = "INSERT INTO written (time, id, v) VALUES (%s, %s, %s)"
        for n, value in enumerate(values):
            cur.execute(insert, [dt.datetime(2023, 1, 1, 0, 0, n, tzinfo=utc), "one", value])
        cur.executemany(insert, [(dt.datetime(2023, 1, 1, 0, 0, n), "many", v) for n, v in enumerate(values)])
        cur.execute(insert, [dt.date(2023, 1, 2), "many", 2])
        cur.execute("SELECT id, v FROM written ORDER BY id, time")
        stored = [float(v) for v in values]
        check(cur.fetchall(), [("many", v) for v in [*stored, 2.0]] + [("one", v) for v in stored])
        try:
            cur.execute(insert, [dt.date(2023, 1, 3), "one", True])
            raise AssertionError("it must fail")
        except psycopg.errors.DatatypeMismatch as e:
            assert "column `v`" in str(e), e
        cur.execute("DELETE FROM written")

# The same in the binary form, whose types must be told.
with psycopg.connect(where, autocommit=True) as c:
    cur = c.cursor()
    start = dt.datetime(2023, 1, 1, tzinfo=utc)
    with cur.copy("COPY written (time, id, v) FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(["timestamptz", "text", "float8"])
        for n in range(3000):
            copy.write_row((start + dt.timedelta(microseconds=n), "binary\t", None if n == 7 else n / 4))
    check(cur.rowcount, 3000)
    with cur.copy("COPY (SELECT time, id, v FROM written WHERE id LIKE 'binary%' ORDER BY time LIMIT 9) TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["timestamptz", "text", "float8"])
        rows = list(copy.rows())
    check(rows[1], (start + dt.timedelta(microseconds=1), "binary\t", 0.25))
    check([row[2] for row in rows[6:9]], [1.5, None, 2.0])
    try:
        with cur.copy("COPY written (time, id, v) FROM STDIN (FORMAT binary)") as copy:
            copy.write_row((start, "x", 1))
        raise AssertionError("it must fail")
    except psycopg.errors.InvalidBinaryRepresentation as e:
        assert "row 1: column v" in str(e), e
    cur.execute("DELETE FROM written WHERE id LIKE 'binary%'")
    check(cur.rowcount, 3000)

# Instants of nanoseconds fit the binary form, which cuts them, and not the driver's reading of text.
with psycopg.connect(where, autocommit=True) as c:
    cur = c.cursor(binary=True)
    cur.execute("SELECT time FROM cars WHERE id = 'other'")
    check(cur.fetchone(), (dt.datetime(2023, 11, 14, 22, 13, 21, 123456, tzinfo=utc),))

    cur = c.cursor()
    cur.execute("SELECT date_trunc('microsecond', time) FROM cars WHERE id = 'other'")
    check(cur.fetchone(), (dt.datetime(2023, 11, 14, 22, 13, 21, 123456, tzinfo=utc),))

# By the clocks of the client's zone.
for binary in (False, True):
    with psycopg.connect(f"{where} options='-c timezone=Europe/Berlin'", autocommit=True) as c:
        check(c.info.parameter_status("TimeZone"), "Europe/Berlin")
        cur = c.cursor(binary=binary)
        cur.execute("SELECT time FROM cars WHERE time = '2023-11-14 23:13:20'")
        check(cur.fetchone(), (dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=utc),))
        cur.execute("SELECT count(*) FROM cars WHERE time = %s", [dt.datetime(2023, 11, 14, 23, 13, 20)])
        check(cur.fetchone(), (1,))

# Transactions are taken for the driver's sake; cursors give rows in parts.
with psycopg.connect(where) as c:
    c.execute("INSERT INTO written (time, id, v) VALUES (%s, 'py', 1.25)", [dt.datetime(2024, 1, 1, tzinfo=utc)])
    c.commit()
    with c.cursor(name="part") as cur:
        cur.itersize = 10
        cur.execute("SELECT g FROM (SELECT unnest(generate_series(1, %s)) AS g) t ORDER BY g", [35])
        check([row[0] for row in cur], list(range(1, 36)))
    with c.transaction():
        check(c.execute("SELECT v FROM written").fetchall(), [(1.25,)])
    try:
        c.execute("SELECT 1 FROM nothere")
        raise AssertionError("it must fail")
    except psycopg.errors.UndefinedTable:
        pass
    try:
        c.execute("SELECT 1")
        raise AssertionError("it must fail")
    except psycopg.errors.InFailedSqlTransaction:
        c.rollback()
    check(c.execute("SELECT 1").fetchone(), (1,))
    with c.pipeline():
        got = [c.execute("SELECT %s::int", [n]) for n in range(5)]
    check([g.fetchone()[0] for g in got], list(range(5)))

engine = sa.create_engine(f"postgresql+psycopg://ann@127.0.0.1:{port}/plant")
with engine.connect() as c:
    rows = c.execute(sa.text("SELECT id, max(speed) FROM cars GROUP BY id ORDER BY id")).fetchall()
    check([tuple(r) for r in rows], [("other", 2.5), ("seen", 1.5)])
inspector = sa.inspect(engine)
check(inspector.get_schema_names(), ["information_schema", "public"])
check(sorted(inspector.get_table_names()), ["Odd Name", "cars", "written"])
kinds = {c["name"]: str(c["type"]) for c in inspector.get_columns("cars")}
check(kinds["time"], "TIMESTAMP")
check(kinds["speed"], "DOUBLE PRECISION")
check(kinds["id"], "TEXT")
check(inspector.get_indexes("cars"), [])
check(inspector.get_foreign_keys("cars"), [])
check(inspector.get_pk_constraint("cars")["constrained_columns"], [])
table = sa.Table("cars", sa.MetaData(), autoload_with=engine)
with engine.connect() as c:
    query = sa.select(sa.func.count()).where(table.c.speed > 2.0)
    check(c.execute(query).scalar(), 1)

# What was made is found: a view, and an index.
with engine.begin() as c:
    c.execute(sa.text("CREATE VIEW fast AS SELECT id, max(speed), count(*) FROM cars GROUP BY id"))
    c.execute(sa.text("CREATE INDEX by_name ON cars (name, n)"))
inspector = sa.inspect(engine)
check(inspector.get_view_names(), ["fast"])
assert "columns" in inspector.get_view_names("information_schema")
check([(c["name"], str(c["type"])) for c in inspector.get_columns("fast")], [("id", "TEXT"), ("max", "DOUBLE PRECISION"), ("count", "BIGINT")])
check(inspector.get_view_definition("fast"), "SELECT id, max(speed), count(*) FROM cars GROUP BY id")
check([(i["name"], i["column_names"], i["unique"]) for i in inspector.get_indexes("cars")], [("by_name", ["name", "n"], False)])
check((inspector.has_table("fast"), inspector.has_table("nothere")), (True, False))
everything = sa.MetaData()
everything.reflect(engine, views=True)
check(sorted(everything.tables), ["Odd Name", "cars", "fast", "written"])
with engine.begin() as c:
    check(c.execute(sa.select(everything.tables["fast"].c.max).order_by("max")).scalars().all(), [1.5, 2.5])
    c.execute(sa.text("DROP VIEW fast"))
    c.execute(sa.text("DROP INDEX by_name"))
check(sa.inspect(engine).get_view_names(), [])

print("done")
