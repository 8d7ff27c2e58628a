"""Compares a table of a lake, read by DuckDB and by pyiceberg, with lines of JSON.

compare.py TABLE_FOLDER EXPECTED.jsonl [METADATA]
Of a table in a bucket METADATA is the location of the newest, and S3_ENDPOINT, S3_KEY and S3_SECRET say where that is.
"""
import datetime
import decimal
import json
import math
import os
import struct
import sys

import duckdb
import pyarrow.compute
import pyarrow.dataset
from duckdb_extensions import import_extension
from pyiceberg.expressions import IsNaN
from pyiceberg.table import StaticTable

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format(struct.unpack("<Q", struct.pack("<d", value))[0], "016x")
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, decimal.Decimal):
        return str(int(value))
    return str(value)


def float_of(text):
    return struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0]


def row(names, values):
    cells = dict(zip(names, values))
    at = cells.pop("time") - EPOCH
    micros = (at.days * 86_400 + at.seconds) * 1_000_000 + at.microseconds
    cells = {name: text(value) for name, value in cells.items() if value is not None}
    rest = int(cells.pop("time_ns", "0"))
    cells["time"] = str(micros * 1_000 + rest)
    return cells


def ordered(rows):
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def rows(arrow):
    columns = [column.to_pylist() for column in arrow.columns]
    return ordered(row(arrow.column_names, values) for values in zip(*columns))


def differences(who, found, expected):
    if found == expected:
        return []
    missing = [row for row in expected if row not in set(found)]
    more = [row for row in found if row not in set(expected)]
    return [f"{who}: {len(found)} rows, expected {len(expected)}; missing {missing[:3]}, more {more[:3]}"]


folder, expected_file, *bucket = sys.argv[1:]
with open(expected_file, encoding="utf-8") as lines:
    expected = ordered(json.loads(line) for line in lines)

wrong = []

if bucket:
    metadata = bucket[0]
    store = {
        "s3.endpoint": os.environ["S3_ENDPOINT"],
        "s3.access-key-id": os.environ["S3_KEY"],
        "s3.secret-access-key": os.environ["S3_SECRET"],
        "s3.region": "us-east-1",
    }
else:
    store = {}
    with open(f"{folder}/metadata/version-hint.text", encoding="utf-8") as hint:
        metadata = f"{folder}/metadata/v{hint.read().strip()}.metadata.json"

table = StaticTable.from_metadata(metadata, store)
wrong += differences("pyiceberg", rows(table.scan().to_arrow()), expected)
if expected:
    # A filter that bounds of files decide must find the same.
    middle = sorted(int(json.loads(line)["time"]) for line in expected)[len(expected) // 2] // 1_000 * 1_000
    instant = EPOCH + datetime.timedelta(microseconds=middle // 1_000)
    later = table.scan(row_filter=f"time >= '{instant.isoformat()}'").to_arrow()
    wanted = sum(int(json.loads(line)["time"]) >= middle for line in expected)
    if len(later) != wanted:
        wrong.append(f"pyiceberg: {len(later)} rows from {instant} on, expected {wanted}")

con = duckdb.connect()
con.execute("set timezone = 'UTC'")
for extension in ("parquet", "avro", *(["httpfs"] if bucket else []), "iceberg"):
    import_extension(extension, con=con)
    con.execute(f"load {extension}")
if bucket:
    con.execute(
        "create secret (type s3, region 'us-east-1', use_ssl false, url_style 'path', "
        f"key_id '{store['s3.access-key-id']}', secret '{store['s3.secret-access-key']}', "
        f"endpoint '{store['s3.endpoint'].removeprefix('http://')}')"
    )
for what in (folder, metadata):
    found = rows(con.sql(f"select * from iceberg_scan('{what}')").to_arrow_table())
    wrong += differences(f"DuckDB of {what}", found, expected)
if expected:
    count = con.execute(f"select count(*) from iceberg_scan('{folder}') where time >= ?", [instant]).fetchone()[0]
    if count != wanted:
        wrong.append(f"DuckDB: {count} rows from {instant} on, expected {wanted}")

# Whoever filters must find NaN too: neither bounds of files nor statistics of chunks may hide it.
for column in table.scan(limit=1).to_arrow().schema if expected else []:
    if not pyarrow.types.is_floating(column.type):
        continue
    name = column.name
    cells = [float_of(cell) for cell in (json.loads(line).get(name) for line in expected) if cell is not None]
    nans = sum(math.isnan(cell) for cell in cells)
    counts = {
        "pyiceberg": len(table.scan(row_filter=IsNaN(name)).to_arrow()),
        "DuckDB": con.execute(f"select count(*) from iceberg_scan('{folder}') where isnan(\"{name}\")").fetchone()[0],
    }
    if not bucket:
        files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        of_files = pyarrow.dataset.dataset(files, format="parquet")
        counts["pyarrow"] = of_files.count_rows(filter=pyarrow.compute.is_nan(pyarrow.dataset.field(name)))
        read = f"read_parquet({files!r}, union_by_name = true)"
        counts["DuckDB's Parquet"] = con.execute(f"select count(*) from {read} where isnan(\"{name}\")").fetchone()[0]
        # To DuckDB NaN is above every number.
        above = sum(math.isnan(cell) or cell > 8.5 for cell in cells)
        found = con.execute(f"select count(*) from {read} where \"{name}\" > 8.5").fetchone()[0]
        if found != above:
            wrong.append(f"DuckDB's Parquet: {found} values of {name} above 8.5, expected {above}")
    for who, found in counts.items():
        if found != nans:
            wrong.append(f"{who}: {found} values of {name} are NaN, expected {nans}")

if wrong:
    print("\n".join(wrong))
    sys.exit(1)
print(f"{len(expected)} rows are equal in pyiceberg and DuckDB")
