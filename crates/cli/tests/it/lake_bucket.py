"""Reads a table of a lake in a bucket by the catalog of a server: by pyiceberg and by DuckDB.

lake_bucket.py CATALOG_URL S3_ENDPOINT KEY SECRET ROWS SUM
Ends with 3 when the table does not have so many rows with this sum of `rpm`.
"""
import sys

import duckdb
from duckdb_extensions import import_extension
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

url, endpoint, key, secret, rows, total = sys.argv[1:]
wanted = (int(rows), float(total))

# Where the bucket is, the catalog says; who may read it, it does not.
credentials = {"s3.access-key-id": key, "s3.secret-access-key": secret, "s3.region": "us-east-1"}
catalog = load_catalog("headwater", type="rest", uri=url, **credentials)
try:
    table = catalog.load_table("headwater.pump")
except NoSuchTableError:
    sys.exit(3)
arrow = table.scan().to_arrow()
found = (arrow.num_rows, sum(arrow.column("rpm").to_pylist()))
if found != wanted:
    print("pyiceberg:", found)
    sys.exit(3)
late = table.scan(row_filter="time >= '2023-11-17T00:00:00+00:00'").to_arrow().num_rows

con = duckdb.connect()
con.execute("set timezone = 'UTC'")
for extension in ("parquet", "avro", "httpfs", "iceberg"):
    import_extension(extension, con=con)
    con.execute(f"load {extension}")
con.execute(
    f"create secret (type s3, key_id '{key}', secret '{secret}', region 'us-east-1', use_ssl false, "
    f"url_style 'path', endpoint '{endpoint.removeprefix('http://')}')"
)
con.execute(
    f"attach 'lake' as lake (type iceberg, endpoint '{url}', authorization_type 'none', "
    "access_delegation_mode 'none')"
)
found = con.execute("select count(*), sum(rpm) from lake.headwater.pump").fetchone()
assert found == wanted, ("DuckDB through the catalog", found, wanted)
found = con.execute(
    "select count(*) from lake.headwater.pump where time >= timestamptz '2023-11-17 00:00:00+00'"
).fetchone()[0]
assert found == late, ("DuckDB with a filter", found, late)
# Without a catalog, by the hint in the bucket.
where = table.location()
found = con.execute(f"select count(*), sum(rpm) from iceberg_scan('{where}')").fetchone()
assert found == wanted, ("DuckDB by the hint", found, wanted)
print("pyiceberg and DuckDB:", *wanted)
