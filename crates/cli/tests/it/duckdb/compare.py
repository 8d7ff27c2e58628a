"""Runs the statements of a file in DuckDB and in Headwater on the same rows, and compares what they answer.

compare.py HEADWATER DB TABLE.parquet STATEMENTS.sql

The rows come from the file that Headwater exported. Values are compared by type: floats to 1e-9 of their size, everything else
exactly; a date of DuckDB is the instant at its midnight.
"""

import datetime
import decimal
import json
import math
import pathlib
import subprocess
import sys

import duckdb

TOLERANCE = 1e-9


def statements(text):
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";\n") if part.strip(" ;\n")]


def ours(headwater, db, sql):
    run = [headwater, "query", "--db", db, "--format", "json", "-"]
    done = subprocess.run(run, input=sql, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"headwater: {done.stderr}")
    decoder, at, answers = json.JSONDecoder(), 0, []
    while at < len(done.stdout):
        answer, end = decoder.raw_decode(done.stdout, at)
        answers.append(answer)
        at = end + len(done.stdout[end:]) - len(done.stdout[end:].lstrip())
    return answers


def plain(value):
    """A value of DuckDB as Headwater's JSON has it."""
    if isinstance(value, datetime.datetime):
        text = value.isoformat()
        return text if "." not in text else text.rstrip("0")
    if isinstance(value, datetime.date):
        return f"{value.isoformat()}T00:00:00"
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def is_time(text):
    return len(text) >= 19 and text[4] == text[7] == "-" and text[10] == "T"


def same(left, right):
    if isinstance(left, str) and is_time(left):
        left = left.rstrip("Z")
        left = left if "." not in left else left.rstrip("0")
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if isinstance(left, int) and isinstance(right, int):
            return left == right
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=1e-12)
    return left == right


def main():
    headwater, db, parquet, file = sys.argv[1:]
    table = pathlib.Path(parquet).stem
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    # The widths of the statements divide a day, so that both count from midnight.
    connection.execute("CREATE MACRO date_bin(width, t) AS time_bucket(width, t)")
    # DuckDB's times hold microseconds; these data have milliseconds.
    connection.execute(
        f"CREATE TABLE {table} AS SELECT make_timestamp(epoch_ns(time) // 1000) AS time, * EXCLUDE (time) FROM read_parquet($1)",
        [parquet],
    )
    todo = statements(pathlib.Path(file).read_text(encoding="utf-8"))
    answers = ours(headwater, db, ";\n".join(todo) + ";\n")
    if len(answers) != len(todo):
        raise SystemExit(f"{len(todo)} statements, {len(answers)} answers")
    wrong = []
    values = 0
    for sql, answer in zip(todo, answers):
        try:
            rows = connection.execute(sql).fetchall()
        except duckdb.Error as error:
            wrong.append(f"{sql}\n  DuckDB: {error}")
            continue
        expected = [[plain(value) for value in row] for row in rows]
        found = answer["rows"]
        if len(found) != len(expected):
            wrong.append(f"{sql}\n  {len(found)} rows, DuckDB has {len(expected)}")
            continue
        for number, (mine, other) in enumerate(zip(found, expected)):
            values += len(mine)
            if len(mine) != len(other) or not all(map(same, mine, other)):
                wrong.append(f"{sql}\n  row {number}: {mine}\n  DuckDB: {other}")
                break
    for each in wrong:
        print(each)
    print(f"{len(todo)} statements, {values} values, {len(wrong)} answered otherwise")
    sys.exit(1 if wrong or values == 0 else 0)


main()
