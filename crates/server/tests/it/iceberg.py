"""Reads a table by the catalog of a server: by pyiceberg, and by DuckDB where it attaches it.

iceberg.py CATALOG_URL TOKEN
"""
import sys

import duckdb
from duckdb_extensions import import_extension
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

url, token = sys.argv[1:]
wanted = [(str(device), 100, float(sum(range(device, 300, 3)))) for device in range(3)]

catalog = load_catalog("headwater", type="rest", uri=url, token=token)
assert catalog.list_namespaces() == [("headwater",)], catalog.list_namespaces()
assert catalog.list_tables("headwater") == [("headwater", "pump")]
assert catalog.table_exists("headwater.pump") and not catalog.table_exists("headwater.none")
try:
    catalog.load_table("headwater.none")
    raise SystemExit("a table that is not there was loaded")
except NoSuchTableError:
    pass
rows = catalog.load_table("headwater.pump").scan(row_filter="rpm >= 0").to_arrow()
found = {}
for device, rpm in zip(rows.column("id").to_pylist(), rows.column("rpm").to_pylist()):
    count, total = found.get(device, (0, 0.0))
    found[device] = (count + 1, total + rpm)
assert sorted((device, *sums) for device, sums in found.items()) == wanted, found
print("pyiceberg:", rows.num_rows, "rows")

con = duckdb.connect()
for extension in ("parquet", "avro", "httpfs", "iceberg"):
    import_extension(extension, con=con)
    con.execute(f"load {extension}")
con.execute(f"create secret (type iceberg, token '{token}')")
con.execute(f"attach 'lake' as lake (type iceberg, endpoint '{url}')")
found = con.execute(
    "select id, count(*), sum(rpm) from lake.headwater.pump group by id order by id"
).fetchall()
assert found == wanted, found
print("DuckDB:", found)
