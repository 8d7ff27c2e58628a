"""What ADBC does over PostgreSQL's protocol: tables and their schemas, queries as Arrow, rows in. The argument is the port."""

import datetime as dt
import sys

import adbc_driver_postgresql.dbapi as driver
import pyarrow as pa

port = sys.argv[1]
utc = dt.timezone.utc


def check(got, wanted):
    assert got == wanted, f"{got!r} is not {wanted!r}"


connection = driver.connect(f"postgresql://ann@127.0.0.1:{port}/plant", autocommit=True)
cursor = connection.cursor()


def rows(statement, *parameters):
    cursor.execute(statement, parameters or None)
    return cursor.fetch_arrow_table().to_pylist()


schema = connection.adbc_get_table_schema("cars", db_schema_filter="public")
check(schema.names, ["time", "id", "speed", "laps", "name", "ok", "n", "raw"])
check(schema.field("time").type, pa.timestamp("us", tz="UTC"))
check(schema.field("speed").type, pa.float64())
check(rows("SELECT id, speed, ok, n, raw FROM cars ORDER BY time"), [
    {"id": "seen", "speed": 1.5, "ok": True, "n": 4, "raw": None},
    {"id": "other", "speed": 2.5, "ok": None, "n": None, "raw": b"\x00\xff"},
])
check(rows("SELECT count(*), max(time) FROM cars WHERE id = 'seen'"), [{"count": 1, "max": dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=utc)}])
check(rows("SELECT id FROM cars WHERE speed > $1 AND id = $2", 2.0, "other"), [{"id": "other"}])
check(rows("SELECT ARRAY[1, 2] AS list, 1.25::numeric AS exact, DATE '2024-01-01' AS day")[0]["day"], dt.date(2024, 1, 1))
objects = connection.adbc_get_objects(depth="all", catalog_filter="plant", db_schema_filter="public").read_all().to_pylist()
tables = objects[0]["catalog_db_schemas"][0]["db_schema_tables"]
check(sorted(table["table_name"] for table in tables), ["Odd Name", "cars"])

written = pa.table({
    "time": pa.array([dt.datetime(2024, 1, 1, 0, 0, n, tzinfo=utc) for n in range(3)], pa.timestamp("us", tz="UTC")),
    "id": ["a", "b", "c"],
    "v": [0.5, None, 1.5],
})
check(cursor.adbc_ingest("written", written, mode="create"), 3)
check(cursor.adbc_ingest("written", written.slice(2), mode="append"), 1)
check([row["v"] for row in rows("SELECT v FROM written ORDER BY time, v")][:2], [0.5, None])
check(rows("SELECT count(*) FROM written"), [{"count": 4}])

print("done")
