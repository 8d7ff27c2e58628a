"""What is asked: statements, made of parts by chance.

Where rows lie far apart, the difference of two instants is not asked: it may be beyond what a length
of time can be.
"""

from datetime import timedelta

import rows
from chance import R, WIDE, choice
from rows import BEGIN, DEVICES, FAR, ROWS, literal


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
    begin = R.choice(FAR) if rows.is_far and R.random() < 0.3 else BEGIN
    at = begin + timedelta(seconds=R.uniform(-4000, ROWS * 60))
    return at.replace(microsecond=0, second=R.choice([0, at.second]))


def moment():
    return literal_instant(instant())


def moment_text():
    return f"'{instant().strftime('%Y-%m-%d %H:%M:%S')}'"


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


def span():
    """A length of time, as either writes it."""
    return R.choice([
        "INTERVAL '90 minutes'", "INTERVAL '1 day 02:03:04'", "INTERVAL '1 hour' * 3", "INTERVAL '36 hours' / 5",
        "INTERVAL '1 day' + INTERVAL '5 seconds'", "INTERVAL '00:30:00'",
        Own("INTERVAL 'PT2H30M'", "INTERVAL '150 minutes'"), Own("INTERVAL '1.5 hours'", "INTERVAL '90 minutes'"),
    ])


def computed(q=""):
    """A numeric expression of several steps."""
    kind = R.randrange(16)
    if kind == 0:
        return [f"round({q}g, 1)"]
    if kind == 1:
        return [Own(f"round({q}g)", f"round_even({q}g, 0)")]
    if kind == 2:
        return [f"{R.choice(['floor', 'ceil', 'trunc', 'abs'])}({q}{R.choice(['g', 'f'])})"]
    if kind == 3:
        return [f"sqrt(abs({q}g))"]
    if kind == 4:
        return [Own(f"{q}n / 7", f"CAST(trunc({q}n / 7.0) AS BIGINT)")]
    if kind == 5:
        return [f"{R.choice(['greatest', 'least'])}({q}f, {q}g{R.choice(['', f', {q}n', ', 0'])})"]
    if kind == 6:
        return [f"nullif({q}f, {R.choice(['0', '1.5', f'{q}g'])})"]
    if kind == 7:
        return [f"coalesce({q}f, {q}g, {q}n)"]
    if kind == 8:
        return [f"-{q}{R.choice(['f', 'g', 'n'])}"]
    if kind == 9:
        return [f"CASE {q}f WHEN 0 THEN 1 WHEN 1.5 THEN 2 WHEN 'NaN'::DOUBLE THEN 3 ELSE 4 END"]
    if kind == 10:
        return [f"CASE WHEN {q}n IS NULL THEN -1 WHEN {q}n > 0 THEN {q}n ELSE {q}g END"]
    if kind == 11:
        return [f"length({q}s)"]
    if kind == 12:
        since = "" if rows.is_far else " - TIMESTAMP '2024-02-29 01:02:03'"
        return [f"extract(epoch FROM {q}time{since})"]
    if kind == 13:
        return [f"CAST({q}g AS {R.choice(['INT', 'SMALLINT', 'REAL', 'DECIMAL(12, 3)'])})"]
    if kind == 14:
        return [f"({q}n - {q}g) * ({q}n + 1) / 4.0"]
    return [f"strpos({q}s, {literal(R.choice(['b', 'x', 'r']))})"]


def number(q=""):
    """A numeric expression: (parts, is it of floats)."""
    if WIDE and R.random() < 0.3:
        return computed(q), True
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


def condition_of_time(q=""):
    kind = R.randrange(9)
    if kind == 0:
        return [f"{moment_text()} {R.choice(OPERATORS)} {q}time"]
    if kind == 1:
        return [f"{q}time {R.choice(['+', '-'])} ", span(), f" {R.choice(OPERATORS)} ", moment()]
    if kind == 2:
        at = moment_text()
        return [f"{q}time BETWEEN TIMESTAMP {at} AND TIMESTAMP {at} + ", span()]
    if kind == 3:
        return [f"{q}time > TIMESTAMP {moment_text()} - ", span()]
    if kind == 4 and not rows.is_far:
        return [f"{q}time - TIMESTAMP {moment_text()} {R.choice(OPERATORS)} ", span()]
    if kind == 5:
        day = R.choice(["2024-02-28", "2024-02-29", "2024-03-01"])
        return [f"{q}time::date {R.choice(OPERATORS)} '{day}'"]
    if kind == 6:
        part, value = R.choice([("hour", 3), ("minute", 30), ("dow", 4), ("day", 29), ("isodow", 4), ("doy", 60), ("quarter", 1), ("week", 9)])
        return [f"extract({part} FROM {q}time) {R.choice(OPERATORS)} {value}"]
    if kind == 7:
        unit = R.choice(["hour", "day", "minute"])
        return [f"date_trunc('{unit}', {q}time) {R.choice(OPERATORS)} ", moment()]
    return [f"{q}time {R.choice(['', 'NOT '])}IN ({moment_text()}, {moment_text()})"]


def condition_of_text(q=""):
    kind = R.randrange(8)
    column = R.choice([f"{q}s", f"{q}dev", f"{q}site"])
    word = R.choice(["", "NOT "])
    if kind == 0:
        return [f"{column} {word}ILIKE {literal(R.choice(['a%', '%B', 'D_', 'NORTH']))}"]
    if kind == 1:
        return [f"{column} {word}LIKE {literal(R.choice(['x!_%', 'x!%', '%!_y']))} ESCAPE '!'"]
    if kind == 2:
        ours, theirs = R.choice([("a%", "(?s)a.*"), ("(a|x)_", "(?s)(a|x)."), ("%o+%", "(?s).*o+.*"), ("[a-d][0-9]?", "[a-d][0-9]?")])
        return [Own(f"{column} {word}SIMILAR TO '{ours}'", f"{column} {word}SIMILAR TO '{theirs}'")]
    if kind == 3:
        pattern = R.choice(["^d[12]", "o", "b$", "x.y", "ä"])
        way = R.choice(["~", "!~"])
        return [Own(f"{column} {way} '{pattern}'", f"{'NOT ' if way == '!~' else ''}regexp_matches({column}, '{pattern}')")]
    if kind == 4:
        return [Own(f"{column} = ANY(ARRAY['d1', 'a', 'south'])", f"{column} IN ('d1', 'a', 'south')")]
    if kind == 5:
        return [f"{column} {word}IN ('a', NULL, 'd2', 'north')"]
    if kind == 6:
        return [f"{column} IS {word}DISTINCT FROM {R.choice([f'{q}s', literal('d1'), 'NULL', f'upper({q}s)'])}"]
    return [f"{column} {word}BETWEEN 'a' AND 'e'"]


def condition_of_floats(q=""):
    kind = R.randrange(7)
    word = R.choice(["", "NOT "])
    if kind == 0:
        return [f"{q}f {word}BETWEEN {R.choice(['-2.25', '0', '-0.0'])} AND {R.choice(['1.5', 'CAST(' + chr(39) + 'NaN' + chr(39) + ' AS DOUBLE)', '0'])}"]
    if kind == 1:
        return [f"{q}f IS {word}DISTINCT FROM {R.choice([f'{q}g', 'NULL', '0', '-0.0', f'-{q}f'])}"]
    if kind == 2:
        return [f"-{q}f {R.choice(OPERATORS)} {R.choice(['0', f'{q}f', '1.5'])}"]
    if kind == 3:
        return [f"{q}b IS {word}DISTINCT FROM ({q}f > {R.choice(['0', f'{q}g'])})"]
    if kind == 4:
        return computed(q) + [f" {R.choice(OPERATORS)} {R.choice(['0', '2', '-7.5'])}"]
    if kind == 5:
        return [f"{q}n {word}IN (1, 2, NULL, -3)"]
    return [f"{q}big {R.choice(OPERATORS)} {R.choice(['0', '9223372036854775807', '-9223372036854775808', '4611686018427387904', f'{q}n'])}"]


def condition(q="", depth=2):
    if WIDE and R.random() < 0.25:
        return R.choice([condition_of_time, condition_of_text, condition_of_floats])(q)
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
        origin = choice(
            ["2024-02-28 00:00:11", "2000-01-01 00:00:00", "2030-06-01 12:34:56"],
            ["1700-03-01 00:00:07", "2261-12-31 23:59:59"],
        )
        return [Own(
            f"date_bin(INTERVAL '{width}', {q}time, TIMESTAMP '{origin}')",
            f"time_bucket(INTERVAL '{width}', {q}time, TIMESTAMP '{origin}')",
        )]
    if kind == 3:
        return [f"CAST({q}time AS DATE)"]
    if kind == 4:
        part = choice(["hour", "minute", "dow", "day", "month"], ["isodow", "week", "doy", "quarter", "year"])
        return [f"extract({part} FROM {q}time)"]
    return [f"date_trunc('{choice(['second', 'minute', 'hour', 'day', 'week', 'month'], ['quarter', 'year'])}', {q}time)"]


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
    return [choice([f"{q}f > 0", f"{q}f - {q}f", f"{q}f * 0"], [f"{q}f", f"-{q}f", f"abs({q}f)"])]


def rare_aggregate(q=""):
    kind = R.randrange(10)
    tail = [" FILTER (WHERE "] + condition(q, 1) + [")"] if R.random() < 0.2 else []
    if kind == 0:
        name = R.choice(["corr", "covar_pop", "covar_samp", "regr_slope", "regr_count"])
        return [f"{name}({R.choice(['', '', 'DISTINCT '])}{q}g, {q}n)"]
    if kind == 1:
        share = R.choice(["0.25", "0.5", "0.9"])
        return [Own(f"percentile_cont({share}) WITHIN GROUP (ORDER BY {q}g)", f"quantile_cont({q}g, {share})")]
    if kind == 2:
        return [f"{R.choice(['bit_and', 'bit_or', 'bit_xor'])}({q}n)"] + tail
    if kind == 3:
        return [f"{R.choice(['sum', 'avg', 'count'])}(DISTINCT {q}n)"] + tail
    if kind == 4 and not rows.is_far:
        return [f"extract(epoch FROM max({q}time) - min({q}time))"]
    if kind == 5:
        return [f"{R.choice(['max', 'min'])}({q}time){R.choice([' + ', ' - '])}", span()]
    if kind == 6:
        return ["coalesce(sum("] + number(q)[0] + ["), 0)"]
    if kind == 7:
        return [f"{R.choice(['min', 'max', 'count'])}({q}big)"] + tail
    if kind == 8:
        return [Own(f"array_length(array_agg({q}n ORDER BY {q}time))", f"len(array_agg({q}n ORDER BY {q}time))")]
    return [f"{R.choice(['min', 'max'])}(CASE WHEN {q}b THEN {q}f ELSE {q}g END)"] + tail


def aggregate(q=""):
    if WIDE and R.random() < 0.2:
        return rare_aggregate(q)
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
        return ["(SELECT time, dev, site, f, g, n, b, s, big FROM m UNION ALL SELECT * FROM m"] + where() + [") AS m"]
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
            columns.append([choice([
                "n::text", "b::text", "b::int", "n::double", "time::date", "g::int", "upper(s)",
                "s || '-' || dev", "length(s)", "nullif(n, 3)", "abs(n)", "greatest(g, n)",
            ], [
                "big", "-n", "-f", "substring(s, 2, 1)", "replace(s, 'a', 'o')", "trim(s)", "lower(s)",
                "left(s, 2)", "right(s, 1)", "concat(s, dev, site)", "concat_ws('-', site, s)", "split_part(s, ' ', 2)",
                "reverse(dev)", "lpad(dev, 4, '.')", "repeat(dev, 2)", "starts_with(s, 'a')", "n::smallint", "n::boolean",
                "CASE WHEN site IS NULL THEN 'none' ELSE site || s END", "b AND n > 0", "b OR NULL", "NOT b",
                "try_cast(s AS BIGINT)", "(n > 0)::int", "coalesce(s, site, dev)", "'12'::int + n", "time::date - 1",
                "date_part('year', time)", "n IS NOT DISTINCT FROM 3", "md5(dev)", "sign(n)", "mod(n, 7)", "power(g, 2)",
            ])])
        else:
            columns.append([choice([
                "row_number() OVER (PARTITION BY dev ORDER BY time)",
                "lag(n) OVER (PARTITION BY dev ORDER BY time)",
                "sum(n) OVER (PARTITION BY site ORDER BY time ROWS 3 PRECEDING)",
                "max(g) OVER (ORDER BY time ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
                "min(f) OVER (PARTITION BY dev ORDER BY time ROWS 2 PRECEDING)",
                "rank() OVER (ORDER BY dev)",
                "count(*) OVER (PARTITION BY b)",
            ], [
                "lead(g, 2, -1.0) OVER (PARTITION BY dev ORDER BY time)",
                "first_value(n) OVER (PARTITION BY site ORDER BY time)",
                "last_value(s) OVER (ORDER BY time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)",
                "dense_rank() OVER (PARTITION BY b ORDER BY dev)",
                "ntile(3) OVER (ORDER BY time)",
                "avg(g) OVER (PARTITION BY dev ORDER BY time RANGE BETWEEN INTERVAL '1 hour' PRECEDING AND CURRENT ROW)",
                "count(n) FILTER (WHERE g > 0) OVER (ORDER BY time ROWS 5 PRECEDING)",
                "lag(time) OVER (PARTITION BY dev ORDER BY time)" if rows.is_far
                else "time - lag(time) OVER (PARTITION BY dev ORDER BY time) > INTERVAL '5 minutes'",
                "nth_value(n, 3) OVER (PARTITION BY dev ORDER BY time)",
                "max(f) OVER (PARTITION BY dev ORDER BY time)",
                "sum(g) OVER (PARTITION BY dev ORDER BY time ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING)",
                "percent_rank() OVER (ORDER BY time)",
                "cume_dist() OVER (PARTITION BY dev ORDER BY time)",
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
        return ["SELECT dev, ", Own(of, of.removesuffix("_value") if WIDE else of), f"({column} ORDER BY time{way}), count(*) FROM m"] + where() + [" GROUP BY dev"]
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


def sets():
    """Rows of two questions together, or of one that are not in the other; and totals beside groups."""
    kind = R.randrange(4)
    if kind < 2:
        columns = ", ".join(R.sample(["dev", "site", "b", "s", "n", "f"], R.randrange(1, 3)))
        word = R.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
        return [f"SELECT {columns} FROM m"] + where() + [f" {word} SELECT {columns} FROM m"] + where()
    keys = R.choice(["ROLLUP (dev, b)", "CUBE (site, b)", "GROUPING SETS ((dev), (site), ())", "ROLLUP (site, dev)"])
    columns = {"ROLLUP (dev, b)": "dev, b", "CUBE (site, b)": "site, b", "ROLLUP (site, dev)": "site, dev"}.get(keys, "dev, site")
    return [f"SELECT {columns}, grouping({columns.split(', ')[0]}), "] + join_of([aggregate(), aggregate()]) + [" FROM m"] + where() + [f" GROUP BY {keys}"]


def joined():
    """Two tables, or one and a part of it."""
    kind = R.randrange(7)
    part = lambda: ["(SELECT * FROM m"] + where(share=1) + [")"]
    if kind == 0:
        word = R.choice(["FULL", "RIGHT", "LEFT", "INNER"])
        return ["SELECT dev, count(*), count(x.n), max(y.g) FROM "] + part() + [f" AS x {word} JOIN "] + part() + [" AS y USING (dev, time) GROUP BY dev"]
    if kind == 1:
        return ["SELECT x.time, x.dev, y.time, y.n FROM "] + part() + [" AS x ASOF JOIN "] + part() + [f" AS y ON x.dev = y.dev AND x.time {R.choice(['>=', '>'])} y.time"]
    if kind == 2:
        return ["SELECT count(*), sum(x.n) FROM m AS x JOIN m AS y ON x.f = y.f AND x.dev = y.dev"] + where("x.", 1)
    if kind == 3:
        word = R.choice(["", "NOT "])
        inner = [f"{word}EXISTS (SELECT 1 FROM m AS i WHERE i.dev = o.dev AND i.n = o.n AND "] + condition("i.", 1) + [")"]
        return ["SELECT o.time, CASE WHEN "] + inner + [" THEN 'yes' ELSE o.dev END FROM m AS o"] + where("o.", 1)
    if kind == 4:
        return ["SELECT o.dev, l.v, l.c FROM (SELECT DISTINCT dev FROM m) AS o CROSS JOIN LATERAL (SELECT "] + aggregate("i.") + [" AS v, count(*) AS c FROM m AS i WHERE i.dev = o.dev AND "] + condition("i.", 1) + [") AS l"]
    if kind == 5:
        return ["SELECT a.t, a.v, b.v FROM (SELECT date_trunc('hour', time) AS t, "] + aggregate() + [" AS v FROM m"] + where() + [" GROUP BY 1) AS a LEFT JOIN (SELECT date_trunc('hour', time) AS t, "] + aggregate() + [" AS v FROM m"] + where() + [" GROUP BY 1) AS b ON a.t = b.t"]
    return ["SELECT dev, time, n FROM (SELECT dev, time, n, row_number() OVER (PARTITION BY dev ORDER BY time DESC) AS r FROM m"] + where() + [f") AS w WHERE r <= {R.randrange(1, 4)}"]


def nested():
    """What is computed of what was computed."""
    kind = R.randrange(5)
    if kind == 0:
        return ["SELECT dev, t, v, sum(c) OVER (PARTITION BY dev ORDER BY t) FROM (SELECT dev, date_trunc('hour', time) AS t, "] + aggregate() + [" AS v, count(*) AS c FROM m"] + where() + [" GROUP BY 1, 2) AS w"]
    if kind == 1:
        return ["SELECT count(*), min(time), max(n) FROM (SELECT * FROM m"] + where() + [f" ORDER BY time{R.choice(['', ' DESC'])} LIMIT {R.randrange(1, 300)}) AS w"] + where()
    if kind == 2:
        return ["SELECT "] + aggregate() + [" FROM m WHERE time > (SELECT "] + [f"{R.choice(['min', 'max'])}(time) - "] + [span(), " FROM m"] + where() + [")"]
    if kind == 3:
        return ["SELECT DISTINCT "] + group_key() + [" FROM m"] + where()
    return ["WITH a AS (SELECT dev, "] + aggregate() + [" AS v FROM m"] + where() + [" GROUP BY dev), b AS (SELECT dev FROM m"] + where() + [" GROUP BY dev) SELECT b.dev, a.v, count(*) OVER () FROM b LEFT JOIN a ON a.dev = b.dev"]


def sums():
    """Of integers that may not fit: then both fail, or only DuckDB has an answer, which does not fit."""
    value = R.choice(["sum(big)", "sum(big)", "sum(big) FILTER (WHERE big < 9)", "sum(n) + max(big)", "sum(abs(n)) * 9", "sum(n * 1000)"])
    keys = R.choice([[], ["dev"], ["date_trunc('hour', time)"], ["site"], ["date_trunc('minute', time)", "dev"]])
    by = [" GROUP BY " + ", ".join(keys)] if keys else []
    return ["SELECT " + ", ".join(keys + [value]) + " FROM m"] + where() + by


def join_of(parts):
    return join(parts, ", ")


KINDS = [grouped, grouped, grouped, plain, plain, subquery, rows_at_ends]
MORE_KINDS = KINDS + [sets, joined, joined, nested, nested, sums]


def statement():
    """A statement, and whether it may be answered in two ways: with the pyramid, and from rows."""
    kind = choice(KINDS, MORE_KINDS)
    # Rows as they are have one way; now and then it is seen that this is so.
    return kind(), kind is not plain or not WIDE or R.random() < 0.1
