"""Random statements over a random table, answered by Headwater, with and without the pyramid, and by
DuckDB: all three must give the same rows.

    random_sql/main.py PORT SEED STATEMENTS [wide]

The same seed makes the same table and the same statements. What differs is printed with its
statement, and the exit code is 1 then. Where the two mean different things by the same words (bins,
first and last values), each is asked in its own. The second half of the statements finds rows at the
ends of time too.
"""

import csv
import io
import sys
from datetime import date, datetime, timezone

import duckdb

import rows
from chance import COUNT, SEED
from server import BROKEN_OFF, request
from statements import statement, text


def value_of_text(cell):
    if cell == "":
        return None
    if cell in ("true", "false"):
        return cell == "true"
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        return float(cell)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(cell)
    except ValueError:
        return cell
    if len(cell) == 10:
        return at.date()
    return at.replace(tzinfo=None)


def value_of_duck(cell):
    if isinstance(cell, str):
        return value_of_text(cell)
    if isinstance(cell, datetime):
        return cell.astimezone(timezone.utc).replace(tzinfo=None) if cell.tzinfo else cell
    if isinstance(cell, (bool, int, float, date, type(None))):
        return cell
    return value_of_text(str(cell))


def canonical(value):
    if isinstance(value, bool):
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


def key(row):
    out = []
    for value in row:
        if value is None:
            out.append("0")
        elif isinstance(value, bool):
            out.append(f"1{value}")
        elif isinstance(value, (int, float)):
            out.append("2NaN" if value != value else f"2{value + 0.0:.5e}")
        else:
            out.append(f"3{value}")
    return out


def order(row):
    """Rows by about their values, those that are about the same by their integers, and those that
    have the same integers by their floats."""
    exact = [v if isinstance(v, int) and not isinstance(v, bool) else 0 for v in row]
    floats = [v if isinstance(v, float) and v == v else 0.0 for v in row]
    return key(row), exact, floats


def same(a, b):
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and not isinstance(a, bool):
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        if a != a or b != b:
            return a != a and b != b
        return a == b or abs(a - b) <= 1e-6 + 1e-9 * max(abs(a), abs(b))
    return type(a) is type(b) and a == b


def ask(sql, pyramid):
    error, body = request("/api/v1/sql", f"SET headwater.use_pyramid = {pyramid}; {sql}")
    if error is not None:
        return error, None
    lines = list(csv.reader(io.StringIO(body)))[1:]
    # An empty line is the row of a table of one column whose value is NULL.
    return None, [[canonical(value_of_text(cell)) for cell in line or [""]] for line in lines]


def beyond(value):
    return isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63


def compare(ours, theirs):
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, DuckDB has {len(theirs)}"
    for a, b in zip(sorted(ours, key=order), sorted(theirs, key=order)):
        if len(a) != len(b) or not all(map(same, a, b)):
            return f"{a}, DuckDB has {b}"
    return None


def main():
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'; SET threads = 1")
    rows.fill(duck)
    found, refused = 0, 0
    for number_of in range(COUNT):
        if number_of == COUNT // 2:
            rows.add_far(duck)
        parts, has_two_ways = statement()
        own, other = text(parts, 0), text(parts, 1)
        try:
            theirs = [[canonical(value_of_duck(cell)) for cell in row] for row in duck.execute(other).fetchall()]
        except duckdb.Error as error:
            theirs, refused = None, refused + 1
            why = str(error).splitlines()[0]
        for pyramid in ["on", "off"] if has_two_ways else ["on"]:
            error, ours = ask(own, pyramid)
            if theirs is None:
                # It has no bound to be compared with; but nobody may fail by a mistake of his own.
                wrong = error if error is not None and '"internal"' in error else None
            elif error is not None:
                # What fails behind the first rows says so in no other way.
                fails = '"out_of_range"' in error or error == BROKEN_OFF
                is_large = fails and any(beyond(cell) for row in theirs for cell in row)
                wrong = None if is_large else error.strip()
            else:
                wrong = compare(ours, theirs)
            if wrong:
                found += 1
                print(f"#{number_of} pyramid {pyramid}: {wrong}\n  {own}\n  {other}", flush=True)
        if theirs is None and "-v" in sys.argv:
            print(f"#{number_of} DuckDB: {why}\n  {other}")
        if found > 40:
            break
    print(f"seed {SEED}: {COUNT} statements, {refused} that DuckDB refuses, {found} differences")
    if refused * 10 > COUNT:
        print("too many statements that DuckDB refuses")
        sys.exit(1)
    sys.exit(1 if found else 0)


main()
