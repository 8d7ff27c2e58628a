"""Asks DuckDB one question over the tables of all edges, by the catalogs of their clouds.

lake.py S3_ENDPOINT CLOUD…      with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION
"""
import os
import sys
import time

import duckdb
from duckdb_extensions import import_extension

EDGES = 8
# A first answer takes some turns of the lake.
WITHIN = 300

store, *clouds = sys.argv[1:]
con = duckdb.connect()
for extension in ("parquet", "avro", "httpfs", "iceberg"):
    import_extension(extension, con=con)
    con.execute(f"load {extension}")
con.execute(
    "create secret (type s3, use_ssl false, url_style 'path', "
    f"key_id '{os.environ['AWS_ACCESS_KEY_ID']}', secret '{os.environ['AWS_SECRET_ACCESS_KEY']}', "
    f"region '{os.environ['AWS_REGION']}', endpoint '{store.removeprefix('http://')}')"
)
for number, cloud in enumerate(clouds):
    con.execute(
        f"attach 'lake' as cloud{number} (type iceberg, endpoint '{cloud}/iceberg', "
        "authorization_type 'none', access_delegation_mode 'none')"
    )

began = time.monotonic()
while True:
    tables = con.execute(
        "select database_name, schema_name, table_name from duckdb_tables() "
        "where schema_name like 'edge\\_%' escape '\\' and table_name = 'simulated'"
    ).fetchall()
    if len(tables) >= EDGES:
        break
    if time.monotonic() - began > WITHIN:
        sys.exit(f"after {WITHIN} s the lake has the tables of {len(tables)} edges: {tables}")
    time.sleep(2)

every = " union all ".join(
    f'select site, time, temperature from {base}."{schema}"."{table}"' for base, schema, table in sorted(tables)
)
question = f"""
    select site, count(*) as rows, min(time)::timestamp(0) as first, round(avg(temperature), 2) as mean
    from ({every}) where temperature is not null group by site order by site"""
print(con.sql(question))
