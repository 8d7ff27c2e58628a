"""Random statements over a random table, answered by Headwater, with and without the pyramid, and by
DuckDB: all three must give the same rows.

    random_sql.py PORT SEED STATEMENTS

The same seed makes the same table and the same statements. What differs is printed with its
statement, and the exit code is 1 then. Where the two mean different things by the same words (bins,
first and last values), each is asked in its own.
"""

import csv
import io
import math
import random
import sys
import urllib.error
import urllib.request
from datetime import date, datetime, timedelta, timezone

import duckdb

PORT, SEED, COUNT = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
R = random.Random(SEED)
BEGIN = datetime(2024, 2, 28, 22, 0, 0)
DEVICES = ["d0", "d1", "d2", "d3", "e4"]
SITES = {"d0": "north", "d1": "north", "d2": "south", "d3": None, "e4": "south"}
ROWS = 1200


def request(path, body):
    asked = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", data=body.encode(), headers={"Accept": "text/csv"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return None, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode(), None


def maybe(value, share=0.12):
    return None if R.random() < share else value


def table():
    """Rows with every kind of value; no two of one instant."""
    rows, at = [], 0
    for _ in range(ROWS):
        at += R.choice([1, 40_000, 999_999, 1_000_000, 7_000_000, 60_000_000, 311_000_000])
        device = R.choice(DEVICES)
        f = R.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, R.uniform(-50, 50)])
        rows.append(
            (
                BEGIN + timedelta(microseconds=at),
                device,
                SITES[device],
                maybe(f if R.random() < 0.5 else R.uniform(-50, 50)),
                maybe(R.randrange(-4000, 4000) / 8),
                maybe(R.choice([R.randrange(-9, 10), R.randrange(-(10**6), 10**6)])),
                maybe(R.random() < 0.5),
                maybe(R.choice(["a", "b", "ab", "Ab", "x%", "x_y", "ärger", "zz top"])),
            )
        )
    R.shuffle(rows)
    return rows


def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return f"'{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}'"
    if isinstance(value, datetime):
        return f"'{value.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


COLUMNS = "time, dev, site, f, g, n, b, s"


def fill(duck):
    rows = table()
    duck.execute(
        "CREATE TABLE m (time TIMESTAMP, dev TEXT, site TEXT, f DOUBLE, g DOUBLE, n BIGINT, "
        "b BOOLEAN, s TEXT)"
    )
    error, _ = request(
        "/api/v1/sql",
        "CREATE TABLE m (time TIMESTAMP, dev TAG, site TAG, f DOUBLE, g DOUBLE, n BIGINT, "
        "b BOOLEAN, s TEXT)",
    )
    assert error is None, error
    for at in range(0, len(rows), 200):
        values = ", ".join("(" + ", ".join(map(literal, row)) + ")" for row in rows[at : at + 200])
        insert = f"INSERT INTO m ({COLUMNS}) VALUES {values}"
        duck.execute(insert.replace("'NaN'", "'NaN'::DOUBLE"))
        error, _ = request("/api/v1/sql", insert)
        assert error is None, error


class Own:
    """Text that each of the two writes in its own way."""

    def __init__(self, headwater, duck):
        self.both = (headwater, duck)


# Parts of statements are lists of texts and of Own.
def text(parts, which):
    return "".join(part.both[which] if isinstance(part, Own) else part for part in parts)


def join(parts, separator):
    out = []
    for at, part in enumerate(parts):
        out += ([separator] if at else []) + part
    return out


def instant():
    at = BEGIN + timedelta(seconds=R.uniform(-4000, ROWS * 60))
    return at.replace(microsecond=0, second=R.choice([0, at.second]))


def moment():
    return literal_instant(instant())


def literal_instant(at):
    forms = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"]
    if at.second == 0:
        forms.append("%Y-%m-%d %H:%M")
    if R.random() < 0.15:
        return f"TIMESTAMP '{at.strftime('%Y-%m-%d %H:%M:%S')}'"
    # DuckDB reads no text without seconds.
    form = R.choice(forms)
    own = at.strftime(form)
    return Own(f"'{own}'", f"'{at.strftime('%Y-%m-%d %H:%M:%S')}'")


def number(q=""):
    """A numeric expression: (parts, is it of floats)."""
    kind = R.randrange(12)
    if kind < 3:
        return [f"{q}g"], True
    if kind < 5:
        return [f"{q}f"], True
    if kind < 7:
        return [f"{q}n"], False
    if kind == 7:
        return [f"({q}n + {R.randrange(-5, 6)})"], False
    if kind == 8:
        return [f"({q}g * {R.choice(['2', '0.5', '-1'])})"], True
    if kind == 9:
        return [f"CAST({q}g AS BIGINT)"], False
    if kind == 10:
        return [f"coalesce({q}n, 0)"], False
    return [f"CASE WHEN {q}b THEN {q}n ELSE -1 END"], False


OPERATORS = ["=", "<>", "<", "<=", ">", ">="]


def condition(q="", depth=2):
    kind = R.randrange(20)
    if depth and kind < 4:
        word = R.choice([" AND ", " OR "])
        return ["("] + condition(q, depth - 1) + [word] + condition(q, depth - 1) + [")"]
    if depth and kind == 4:
        return ["NOT ("] + condition(q, depth - 1) + [")"]
    if kind < 7:
        return [f"{q}time {R.choice(OPERATORS)} ", moment()]
    if kind == 7:
        return [f"{q}time BETWEEN ", moment(), " AND ", moment()]
    if kind == 8:
        return [f"{q}dev {R.choice(['=', '<>', '<', '>='])} {literal(R.choice(DEVICES))}"]
    if kind == 9:
        some = ", ".join(literal(d) for d in R.sample(DEVICES, 2))
        return [f"{q}dev {R.choice(['', 'NOT '])}IN ({some})"]
    if kind == 10:
        column = R.choice(["dev", "s", "site"])
        return [f"{q}{column} {R.choice(['', 'NOT '])}LIKE {literal(R.choice(['d%', '%b', '_b', '%r%', 'north']))}"]
    if kind == 11:
        return [f"{q}{R.choice(['f', 'g', 'n', 'b', 's', 'site'])} IS {R.choice(['', 'NOT '])}NULL"]
    if kind == 12:
        return [f"{q}b" if R.random() < 0.5 else f"{q}b IS {R.choice(['TRUE', 'NOT TRUE', 'FALSE'])}"]
    if kind == 13:
        value = R.choice(["0", "-0.0", "1.5", "'NaN'::DOUBLE", "'Infinity'::DOUBLE", "-7.25"])
        return [f"{q}f {R.choice(OPERATORS)} {value}"]
    if kind == 14:
        right = R.choice([f"{q}n", "NULL", "3", "CAST(NULL AS BIGINT)"])
        return [f"{q}n IS {R.choice(['', 'NOT '])}DISTINCT FROM {right}"]
    if kind == 15:
        return [f"{q}f {R.choice(['', 'NOT '])}IN (0, 1.5, -2.25, 7, 8)"]
    if kind == 16:
        return [f"{q}n % {R.choice(['2', '3', '7'])} {R.choice(OPERATORS)} {R.randrange(3)}"]
    if kind == 17:
        return [f"{q}s {R.choice(OPERATORS)} {literal(R.choice(['a', 'ab', 'x']))}"]
    if kind == 18:
        left = R.choice([f"{q}f - {q}g", f"{q}f * 0", f"{q}f + {q}f", f"{q}f - {q}f"])
        return [f"{left} {R.choice(OPERATORS)} {R.choice(['0', '10', f'{q}g', f'{q}f'])}"]
    left, _ = number(q)
    return left + [f" {R.choice(OPERATORS)} {R.choice(['0', '10', '-3.5', '100', '1000'])}"]


def where(q="", share=0.7):
    if R.random() > share:
        return []
    return [" WHERE "] + join([condition(q) for _ in range(R.randrange(1, 3))], " AND ")


WIDTHS = ["1 second", "30 seconds", "7 minutes", "1 hour", "90 minutes", "1 day", "1 week"]


def time_key(q=""):
    kind = R.randrange(7)
    width = R.choice(WIDTHS)
    if kind < 2:
        name = R.choice(["date_bin", "time_bucket"])
        return [Own(
            f"{name}(INTERVAL '{width}', {q}time)",
            f"time_bucket(INTERVAL '{width}', {q}time, TIMESTAMP '1970-01-01')",
        )]
    if kind == 2:
        origin = R.choice(["2024-02-28 00:00:11", "2000-01-01 00:00:00", "2030-06-01 12:34:56"])
        return [Own(
            f"date_bin(INTERVAL '{width}', {q}time, TIMESTAMP '{origin}')",
            f"time_bucket(INTERVAL '{width}', {q}time, TIMESTAMP '{origin}')",
        )]
    if kind == 3:
        return [f"CAST({q}time AS DATE)"]
    if kind == 4:
        return [f"extract({R.choice(['hour', 'minute', 'dow', 'day', 'month'])} FROM {q}time)"]
    return [f"date_trunc('{R.choice(['second', 'minute', 'hour', 'day', 'week', 'month'])}', {q}time)"]


def group_key(q=""):
    kind = R.randrange(10)
    if kind < 4:
        return time_key(q)
    if kind < 7:
        return [R.choice([f"{q}dev", f"{q}site", f"upper({q}dev)", f"coalesce({q}site, 'none')"])]
    if kind == 7:
        return [f"{q}b"]
    if kind == 8:
        return [f"{q}n % 3"]
    return [R.choice([f"{q}f > 0", f"{q}f - {q}f", f"{q}f * 0"])]


def aggregate(q=""):
    kind = R.randrange(17)
    own = R.random() < 0.15
    tail = [" FILTER (WHERE "] + condition(q, 1) + [")"] if own else []
    if kind < 2:
        return ["count(*)"] + tail
    if kind == 2:
        return [f"count({q}{R.choice(['f', 'g', 'n', 'b', 's', 'site'])})"] + tail
    if kind == 3:
        return [f"count(DISTINCT {q}{R.choice(['n', 'b', 's', 'dev', 'f'])})"] + tail
    if kind < 7:
        return [f"{R.choice(['min', 'max'])}({q}{R.choice(['f', 'g', 'n', 'time', 's', 'dev'])})"] + tail
    if kind == 7:
        return [f"{R.choice(['bool_and', 'bool_or'])}({q}b)"] + tail
    if kind == 8:
        return [f"{R.choice(['stddev_pop', 'var_pop', 'var_samp', 'stddev'])}({q}{R.choice(['g', 'n'])})"] + tail
    if kind < 11:
        column, wanted = R.choice(["f", "g", "n", "s"]), R.choice(["first", "last"])
        duck = "arg_min" if wanted == "first" else "arg_max"
        return [Own(f"{wanted}({q}{column}, {q}time)", f"{duck}({q}{column}, {q}time)")]
    if kind == 11:
        column = R.choice(["s", "dev", "site"])
        distinct = f"string_agg(DISTINCT {q}{column}, ',' ORDER BY {q}{column})"
        return [R.choice([f"string_agg({q}s, ',' ORDER BY {q}time)", distinct])] + tail
    if kind == 12:
        return [f"median({q}g)"]
    of, _ = number(q) if R.random() < 0.5 else ([f"{q}{R.choice(['g', 'n', 'f'])}"], True)
    return [f"{R.choice(['sum', 'avg', 'min', 'max'])}("] + of + [")"] + tail


def ordered(columns):
    if R.random() < 0.5:
        return []
    keys = list(range(1, columns + 1))
    R.shuffle(keys)
    by = ", ".join(
        f"{k} {R.choice(['ASC', 'DESC'])} NULLS {R.choice(['FIRST', 'LAST'])}" for k in keys
    )
    limit = f" LIMIT {R.randrange(1, 30)}" if R.random() < 0.6 else ""
    offset = f" OFFSET {R.randrange(0, 9)}" if limit and R.random() < 0.4 else ""
    return [f" ORDER BY {by}{limit}{offset}"]


def source(twice=True):
    """Rows to ask: where `twice`, perhaps some of them twice. Of these the order is nobody's, so windows ask others."""
    kind = R.randrange(8)
    if kind == 0:
        return ["(SELECT * FROM m"] + where() + [") AS m"]
    if kind == 1 and twice:
        return ["(SELECT time, dev, site, f, g, n, b, s FROM m UNION ALL SELECT * FROM m"] + where() + [") AS m"]
    return ["m"]


def grouped():
    keys = [group_key() for _ in range(R.choice([0, 1, 1, 1, 2]))]
    values = [aggregate() for _ in range(R.randrange(1, 4))]
    columns = keys + values
    parts = ["SELECT "] + join(columns, ", ") + [" FROM "] + source() + where()
    if keys:
        parts += [" GROUP BY "] + join([[str(at + 1)] for at in range(len(keys))], ", ")
        kind = R.randrange(10)
        if kind < 2:
            parts += [" HAVING "] + aggregate() + [" IS NOT NULL"]
        elif kind == 2:
            # What is computed may have no value, which is compared too.
            of = R.choice(["sum(f)", "avg(f)", "max(f) - min(f)", "avg(g) * 2", "sum(f) - sum(f)"])
            parts += [f" HAVING {of} {R.choice(OPERATORS)} {R.choice(['0', '5', '-2.5'])}"]
    return parts + ordered(len(columns))


def plain():
    columns = []
    for _ in range(R.randrange(1, 5)):
        kind = R.randrange(10)
        if kind < 4:
            columns.append([R.choice(["time", "dev", "site", "f", "g", "n", "b", "s"])])
        elif kind < 6:
            columns.append(number()[0])
        elif kind == 6:
            columns.append(condition(depth=1))
        elif kind == 8 and R.random() < 0.3:
            column = R.choice(["n", "dev", "site", "s"])
            columns.append([f"{column} {R.choice(['', 'NOT '])}IN (SELECT {column} FROM m"] + where(share=1) + [")"])
        elif kind == 7:
            columns.append(time_key())
        elif kind == 8:
            columns.append([R.choice([
                "n::text", "b::text", "b::int", "n::double", "time::date", "g::int", "upper(s)",
                "s || '-' || dev", "length(s)", "nullif(n, 3)", "abs(n)", "greatest(g, n)",
            ])])
        else:
            columns.append([R.choice([
                "row_number() OVER (PARTITION BY dev ORDER BY time)",
                "lag(n) OVER (PARTITION BY dev ORDER BY time)",
                "sum(n) OVER (PARTITION BY site ORDER BY time ROWS 3 PRECEDING)",
                "max(g) OVER (ORDER BY time ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
                "min(f) OVER (PARTITION BY dev ORDER BY time ROWS 2 PRECEDING)",
                "rank() OVER (ORDER BY dev)",
                "count(*) OVER (PARTITION BY b)",
            ])])
    distinct = R.choice(["", "", "DISTINCT "])
    windows = any(" OVER (" in part for column in columns for part in column if isinstance(part, str))
    return [f"SELECT {distinct}"] + join(columns, ", ") + [" FROM "] + source(not windows) + where() + ordered(len(columns))


def subquery():
    kind = R.randrange(8)
    word = R.choice(["", "NOT "])
    if kind == 0:
        column = R.choice(["dev", "site", "s", "n", "b"])
        return ["SELECT count(*), min(time) FROM m WHERE " + f"{column} {word}IN (SELECT {column} FROM m"] + where(share=1) + [")"]
    if kind == 1:
        column = R.choice(["dev", "site", "n", "s"])
        return [f"SELECT dev, count(*) FROM m AS o WHERE {word}EXISTS (SELECT 1 FROM m AS i WHERE i.{column} = o.{column} AND "] + condition("i.") + [") GROUP BY 1"]
    if kind == 2:
        return ["SELECT dev, n FROM m WHERE n > (SELECT avg(n) FROM m"] + where() + [")"] + where().__getitem__(slice(0, 0))
    if kind == 3:
        return ["WITH w AS (SELECT dev, "] + time_key() + [" AS t, "] + aggregate() + [" AS v FROM m"] + where() + [" GROUP BY 1, 2) SELECT dev, count(*), count(v), min(t) FROM w GROUP BY dev"]
    if kind == 4:
        return ["SELECT x.dev, y.w, count(*), sum(x.n) FROM m AS x ", R.choice(["JOIN", "LEFT JOIN"]), " (VALUES ('d0', 1), ('d2', 2), ('d2', 3), ('zz', 4)) AS y(dev, w) ON x.dev = y.dev"] + where("x.") + [" GROUP BY 1, 2"]
    if kind == 5:
        return ["SELECT x.dev, count(*), max(y.g) FROM m AS x JOIN m AS y ON x.dev = y.dev AND x.n = y.n"] + where("x.") + [" GROUP BY 1"]
    if kind == 6:
        return ["SELECT dev, (SELECT max(n) FROM m AS i WHERE i.dev = o.dev AND "] + condition("i.", 1) + [") FROM (SELECT DISTINCT dev FROM m) AS o"]
    return ["SELECT EXISTS (SELECT 1 FROM m"] + where(share=1) + ["), count(*) FROM m"] + where()


def rows_at_ends():
    """The first or the last rows of groups."""
    kind = R.randrange(5)
    way = R.choice(["", " DESC"])
    columns = ", ".join(R.sample(["time", "dev", "site", "f", "g", "n", "b", "s"], R.randrange(1, 5)))
    if kind == 0:
        keys = R.choice(["dev", "site", "dev, site", "upper(dev)", "b"])
        return [f"SELECT DISTINCT ON ({keys}) {columns} FROM m"] + where() + [f" ORDER BY {keys}, time{way}"]
    if kind == 1:
        column = R.choice(["f", "n", "s", "site", "time"])
        of = R.choice(["first_value", "last_value"])
        return [f"SELECT dev, {of}({column} ORDER BY time{way}), count(*) FROM m"] + where() + [" GROUP BY dev"]
    if kind == 2:
        join = R.choice(["CROSS JOIN LATERAL", "LEFT JOIN LATERAL"])
        on = " ON true" if join.startswith("LEFT") else ""
        inner = ["(SELECT time, n, g FROM m AS i WHERE i.dev = o.dev AND "] + condition("i.", 1)
        return [f"SELECT o.dev, l.time, l.n, l.g FROM (SELECT DISTINCT dev FROM m) AS o {join} "] + inner + [f" ORDER BY i.time{way} LIMIT {R.randrange(1, 4)}) AS l{on}"]
    if kind == 3:
        inner = ["(SELECT i.n FROM m AS i WHERE i.dev = o.dev AND "] + condition("i.", 1)
        return ["SELECT o.dev, "] + inner + [f" ORDER BY i.time{way} LIMIT 1) FROM (SELECT DISTINCT dev FROM m) AS o"]
    one = lambda: ["(SELECT "] + aggregate() + [" FROM m"] + where(share=1) + [")"]
    return ["SELECT "] + join_of([one() for _ in range(R.randrange(2, 4))])


def join_of(parts):
    return join(parts, ", ")


def statement():
    return R.choice([grouped, grouped, grouped, plain, plain, subquery, rows_at_ends])()


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
        if a != a or b != b:
            return a != a and b != b
        return a == b or abs(a - b) <= 1e-6 + 1e-9 * max(abs(a), abs(b))
    return type(a) is type(b) and a == b


def ask(sql, pyramid):
    error, body = request("/api/v1/sql", f"SET headwater.use_pyramid = {pyramid}; {sql}")
    if error is not None:
        return error, None
    rows = list(csv.reader(io.StringIO(body)))[1:]
    return None, [[canonical(value_of_text(cell)) for cell in row] for row in rows]


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
    fill(duck)
    found, refused = 0, 0
    for number_of in range(COUNT):
        parts = statement()
        own, other = text(parts, 0), text(parts, 1)
        try:
            theirs = [[canonical(value_of_duck(cell)) for cell in row] for row in duck.execute(other).fetchall()]
        except duckdb.Error as error:
            theirs, refused = None, refused + 1
            why = str(error).splitlines()[0]
        for pyramid in ["on", "off"]:
            error, ours = ask(own, pyramid)
            if theirs is None:
                # It has no bound to be compared with; but nobody may fail by a mistake of his own.
                wrong = error if error is not None and '"internal"' in error else None
            elif error is not None:
                wrong = error.strip()
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
