//! Meaning of valid texts, errors of invalid texts, and statements that print unchanged.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Result<Vec<Statement>, ParseError> {
    parse(text, &Parameters::default())
}

fn select(text: &str) -> Select {
    match read(text).unwrap().pop() {
        Some(Statement::Select(select)) => *select,
        other => panic!("{text}: {other:?}"),
    }
}

/// Texts, and their printed forms.
#[test]
fn statements_are_read_as_they_are_meant() {
    for (text, printed) in [
        (
            "SELECT * FROM usermetric WHERE time = 1439241807000000u",
            r#"SELECT * FROM "usermetric" WHERE "time" = 1439241807000000000ns"#,
        ),
        (
            "SELECT MEAN(value) FROM m WHERE time >= 1u AND time <= 2u AND ( T1 = 'x' OR T1 = 'y' ) AND ( T0 = 'z' ) GROUP BY time(10s)",
            r#"SELECT mean("value") FROM "m" WHERE "time" >= 1000ns AND "time" <= 2000ns AND ("T1" = 'x' OR "T1" = 'y') AND "T0" = 'z' GROUP BY time(10000000000ns)"#,
        ),
        (
            r#"SELECT mean("value")  / 100 AS "pct" FROM "db"."rp"."cpu" WHERE ("host" =~ /^(a|b\/c)$/) AND time >= now() - 6h GROUP BY time(1m), "host" fill(previous) ORDER BY time DESC LIMIT 3 SLIMIT 2"#,
            r#"SELECT mean("value") / 100 AS "pct" FROM "db"."rp"."cpu" WHERE "host" =~ /^(a|b\/c)$/ AND "time" >= now() - 21600000000000ns GROUP BY time(60000000000ns), "host" fill(previous) ORDER BY time DESC LIMIT 3 SLIMIT 2"#,
        ),
        (
            "select a+b*-2 from m, /^x/ group by *, /t/ fill(-1.5) tz('Europe/Oslo') -- and so on",
            r#"SELECT "a" + "b" * -2 FROM "m", /^x/ GROUP BY *, /t/ fill(-1.5) tz('Europe/Oslo')"#,
        ),
        (
            "SELECT a - b - -(c) FROM db..m",
            r#"SELECT "a" - "b" - -1 * "c" FROM "db".."m""#,
        ),
        (
            "SELECT a - (b - c) * -(d / e) / (f % g) FROM m WHERE (a = b OR c) AND (d AND e) = (f)",
            r#"SELECT "a" - ("b" - "c") * (-1 * ("d" / "e")) / ("f" % "g") FROM "m" WHERE ("a" = "b" OR "c") AND ("d" AND "e") = "f""#,
        ),
        (
            "SELECT f((a = b), (-(c)), d * (e)) FROM m WHERE (a OR (b OR c)) AND ((d AND e) AND f)",
            r#"SELECT f(("a" = "b"), -1 * "c", "d" * "e") FROM "m" WHERE ("a" OR ("b" OR "c")) AND (("d" AND "e") AND "f")"#,
        ),
        (
            "SELECT derivative(mean(v), 1s), *::field, v::float FROM m group by time(1h30m, -15m)",
            r#"SELECT derivative(mean("v"), 1000000000ns), *::field, "v"::float FROM "m" GROUP BY time(5400000000000ns, -900000000000ns)"#,
        ),
        (
            "SHOW TAG VALUES ON plant FROM cpu WITH KEY IN (host, \"dc\") WHERE a = 'b' LIMIT 5 OFFSET 1",
            r#"SHOW TAG VALUES ON "plant" FROM "cpu" WITH KEY IN ("host", "dc") WHERE "a" = 'b' LIMIT 5 OFFSET 1"#,
        ),
        (
            "SHOW MEASUREMENTS WITH MEASUREMENT =~ /cpu.*/ LIMIT 100",
            "SHOW MEASUREMENTS WITH MEASUREMENT =~ /cpu.*/ LIMIT 100",
        ),
        (
            "SHOW SERIES EXACT CARDINALITY",
            "SHOW SERIES EXACT CARDINALITY",
        ),
        ("show tag key cardinality; ", "SHOW TAG KEY CARDINALITY"),
        (
            "SHOW TAG VALUES EXACT CARDINALITY FROM m WITH KEY = host",
            r#"SHOW TAG VALUES EXACT CARDINALITY FROM "m" WITH KEY = "host""#,
        ),
        ("SHOW FIELD KEY CARDINALITY", "SHOW FIELD KEY CARDINALITY"),
        (
            "SELECT 1 + a & 3 * 2, a | b & c ^ -d, a | (b + 1) FROM m WHERE a & 1 = 1 AND b ^ c",
            r#"SELECT 1 + "a" & 3 * 2, "a" | "b" & "c" ^ -1 * "d", "a" | ("b" + 1) FROM "m" WHERE "a" & 1 = 1 AND "b" ^ "c""#,
        ),
        (
            "select mean(v) into plant..\"a b\" from m group by *",
            r#"SELECT mean("v") INTO "plant".."a b" FROM "m" GROUP BY *"#,
        ),
        (
            "select * into plant.autogen.:measurement from /m/",
            r#"SELECT * INTO "plant"."autogen".:MEASUREMENT FROM /m/"#,
        ),
        (
            "select * into x.:measurement from /m/",
            r#"SELECT * INTO "x".:MEASUREMENT FROM /m/"#,
        ),
        (
            "select * into x..:measurement from /m/",
            r#"SELECT * INTO "x"..:MEASUREMENT FROM /m/"#,
        ),
        (
            "explain analyze select v from m",
            r#"EXPLAIN ANALYZE SELECT "v" FROM "m""#,
        ),
        (
            "explain select v into x from m",
            r#"EXPLAIN SELECT "v" INTO "x" FROM "m""#,
        ),
        ("show shards", "SHOW SHARDS"),
        ("show shard groups", "SHOW SHARD GROUPS"),
        ("SHOW STATS FOR 'runtime'", "SHOW STATS"),
        (
            "SELECT DISTINCT a, count(DISTINCT \"b\") FROM m GROUP BY time(15m, now())",
            r#"SELECT distinct("a"), count(distinct("b")) FROM "m" GROUP BY time(900000000000ns, now())"#,
        ),
        (
            "SELECT a FROM m GROUP BY time(1h, '1970-01-01T00:20:00Z')",
            r#"SELECT "a" FROM "m" GROUP BY time(3600000000000ns, 1200000000000ns)"#,
        ),
        (
            "SELECT max(x) FROM (SELECT mean(v) AS x FROM a, (SELECT v FROM /b/) GROUP BY host), c WHERE x > 1",
            r#"SELECT max("x") FROM (SELECT mean("v") AS "x" FROM "a", (SELECT "v" FROM /b/) GROUP BY "host"), "c" WHERE "x" > 1"#,
        ),
        (
            "DELETE FROM m, /x/ WHERE host = 'a' AND time < 5s",
            r#"DELETE FROM "m", /x/ WHERE "host" = 'a' AND "time" < 5000000000ns"#,
        ),
        ("delete where time < 5", r#"DELETE WHERE "time" < 5"#),
        (
            "DROP SERIES WHERE host = 'a'",
            r#"DROP SERIES WHERE "host" = 'a'"#,
        ),
        ("DROP MEASUREMENT m", r#"DROP MEASUREMENT "m""#),
        (
            "CREATE RETENTION POLICY p ON d DURATION 1w REPLICATION 1 DEFAULT",
            r#"CREATE RETENTION POLICY "p" ON "d" DURATION 604800000000000ns REPLICATION 1 DEFAULT"#,
        ),
        (
            "ALTER RETENTION POLICY p ON d DEFAULT SHARD DURATION 1h",
            r#"ALTER RETENTION POLICY "p" ON "d" SHARD DURATION 3600000000000ns DEFAULT"#,
        ),
        (
            "DROP RETENTION POLICY p ON d",
            r#"DROP RETENTION POLICY "p" ON "d""#,
        ),
        ("show field keys from m", r#"SHOW FIELD KEYS FROM "m""#),
        (
            "CREATE DATABASE x WITH DURATION INF REPLICATION 1 NAME \"a\\\"b\"",
            r#"CREATE DATABASE "x" WITH DURATION 0ns REPLICATION 1 NAME "a\"b""#,
        ),
        ("DROP DATABASE x;", r#"DROP DATABASE "x""#),
    ] {
        let statements = read(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(statements.len(), 1, "{text}");
        assert_eq!(statements[0].to_string(), printed, "{text}");
        assert_eq!(read(printed).unwrap(), statements, "{printed}");
    }
    assert_eq!(read(" ; SHOW SERIES;; SHOW DATABASES ; ").unwrap().len(), 2);
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (text, place, part) in [
        ("", (1, 1), "found EOF, expected a statement"),
        ("  ; ", (1, 5), "found EOF"),
        ("SELEC v", (1, 1), "found SELEC, expected SELECT"),
        ("SELECT v FORM m", (1, 10), "found FORM, expected FROM"),
        ("SELECT v\nFROM m WHERE\n  a ==", (3, 6), "found ="),
        ("SELECT v FROM m WHERE a =~ 'x'", (1, 28), "expected regex"),
        ("SELECT v FROM m WHERE a = 'x", (1, 27), "closing '"),
        ("SELECT v FROM m WHERE a =~ /x", (1, 28), "closing /"),
        ("SELECT v FROM \"m", (1, 15), "closing \""),
        ("SELECT 'a\\x' FROM m", (1, 10), "backslash"),
        (
            "SELECT v FROM m GROUP BY time(0s)",
            (1, 26),
            "longer than zero",
        ),
        (
            "SELECT v FROM m GROUP BY time(1s), time(2s)",
            (1, 36),
            "multiple time",
        ),
        ("SELECT v FROM m GROUP BY time(5)", (1, 31), "duration"),
        ("SELECT v FROM m ORDER BY v", (1, 26), "ORDER BY time"),
        ("SELECT v FROM m LIMIT -1", (1, 23), "expected integer"),
        ("SELECT v FROM m fill(x)", (1, 22), "expected null, none"),
        ("SELECT v INTO /x/ FROM m", (1, 15), "expected identifier"),
        (
            "SELECT v INTO :MEASUREMENT FROM m",
            (1, 15),
            "expected identifier",
        ),
        (
            "SELECT v INTO a.b.:OTHER FROM m",
            (1, 20),
            "expected MEASUREMENT",
        ),
        ("SELECT v INTO a, b FROM m", (1, 16), "expected FROM"),
        (
            "SELECT x FROM (SELECT v INTO a FROM m)",
            (1, 25),
            "outermost",
        ),
        ("EXPLAIN DELETE FROM m", (1, 9), "expected SELECT"),
        ("EXPLAIN EXPLAIN SELECT v FROM m", (1, 9), "expected SELECT"),
        ("SELECT a & FROM m", (1, 12), "expected identifier"),
        ("SHOW SHARD", (1, 6), "SHARD GROUPS"),
        ("SELECT v FROM (v)", (1, 16), "expected SELECT"),
        ("SELECT v FROM (SELECT v FROM m", (1, 31), "expected )"),
        (
            "SELECT v FROM m WHERE a = $x",
            (1, 27),
            "missing parameter: x",
        ),
        ("SELECT v FROM m WHERE a = 5x", (1, 27), "found `5x`"),
        ("SELECT v FROM m WHERE a ^", (1, 26), "found EOF"),
        (
            "SELECT 18446744073709551616 FROM m",
            (1, 8),
            "largest integer",
        ),
        (
            "SELECT - -9223372036854775808 FROM m",
            (1, 8),
            "smallest integer",
        ),
        ("SELECT v /* FROM m", (1, 10), "comment"),
        ("SELECT v FROM m # x", (1, 17), "unexpected character"),
        ("SHOW TAG VALUES FROM m", (1, 23), "WITH KEY"),
        ("SHOW ME", (1, 6), "DATABASES, MEASUREMENTS"),
        ("DELETE", (1, 7), "expected FROM, WHERE"),
        ("DROP SERIES", (1, 12), "expected FROM, WHERE"),
        ("DROP USER x", (1, 1), "not supported"),
        (
            "SHOW DATABASES SHOW DATABASES",
            (1, 16),
            "found SHOW, expected ;, EOF",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!((error.line, error.column), place, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = |n: usize| format!("SELECT {}v{} FROM m", "(".repeat(n), ")".repeat(n));
    assert!(read(&deep(NESTING_MAX)).is_ok());
    assert!(read(&deep(NESTING_MAX + 1)).is_err());
    assert!(read(&deep(1_000_000)).is_err());
    let long = |n: usize| format!("SELECT v{} FROM m", " + 1".repeat(n));
    assert!(read(&long(OPERATORS_MAX)).is_ok());
    assert!(read(&long(OPERATORS_MAX + 1)).is_err());
    assert!(read(&format!("SELECT {}v FROM m", "- ".repeat(100_000))).is_err());
    assert!(read(&"SHOW SERIES;".repeat(STATEMENTS_MAX)).is_ok());
    assert!(read(&"SHOW SERIES;".repeat(STATEMENTS_MAX + 1)).is_err());
    let within = |n: usize| {
        let before = "SELECT v FROM (".repeat(n);
        format!("{before}SELECT v FROM m{}", ")".repeat(n))
    };
    let deepest = read(&within(select::QUERIES_MAX)).unwrap();
    assert_eq!(read(&deepest[0].to_string()), Ok(deepest));
    assert!(read(&within(select::QUERIES_MAX + 1)).is_err());
    assert!(read(&within(100_000)).is_err());
    // Long conditions over many chosen values in dashboards are not deep.
    let many = format!(
        "SELECT v FROM m WHERE a = 'x'{}",
        " OR a = 'x'".repeat(20_000)
    );
    assert!(
        matches!(select(&many).condition, Some(Expression::Any(parts)) if parts.len() == 20_001)
    );
}

#[test]
fn a_long_chain_of_operators_prints_as_text_that_is_read_again() {
    let chain = format!(
        "SELECT mean(\"valuea\") / 100 {}AS x FROM m",
        "* ".repeat(100)
    );
    for text in [
        chain,
        format!("SELECT v{} FROM m", " - 1 * w".repeat(OPERATORS_MAX / 2)),
        format!(
            "SELECT v FROM m WHERE 1 = v{}",
            " + 1".repeat(OPERATORS_MAX)
        ),
    ] {
        let statement = read(&text).unwrap();
        let printed = statement[0].to_string();
        assert_eq!(read(&printed).as_ref(), Ok(&statement), "{printed}");
    }
}

/// Ways to nest one thing within another, each as deep as allowed, separately and alternating.
#[test]
fn what_is_read_at_the_bounds_of_depth_prints_within_them() {
    let ways = [
        ("(", ")"),
        ("- ", ""),
        ("+ ", ""),
        ("-1 * ", ""),
        ("x * -", ""),
        ("x - (y - ", ")"),
        ("(", ") * -2"),
        ("x % -(", " - -1)"),
        ("f(", ", -(x))"),
        ("(a AND ", ")"),
        ("(", " OR b)"),
        ("(a = ", ")"),
        ("(", " =~ /x/)"),
        ("f((", " = -1))"),
    ];
    let mut deepest = 0;
    for (first, second) in ways.iter().flat_map(|w| ways.iter().map(move |v| (w, v))) {
        for core in ["v", "-1", "f(-2)"] {
            let nested = |depth: usize| {
                let turn = |i: usize| if i.is_multiple_of(2) { first } else { second };
                let before: String = (0..depth).map(|i| turn(i).0).collect();
                let behind: String = (0..depth).rev().map(|i| turn(i).1).collect();
                format!("SELECT v FROM m WHERE {before}{core}{behind}")
            };
            let read_at = |depth: usize| Some((depth, read(&nested(depth)).ok()?));
            let Some((depth, statement)) = (0..=NESTING_MAX + 1).rev().find_map(read_at) else {
                panic!("{} is not read", nested(0));
            };
            deepest = deepest.max(depth);
            let printed = statement[0].to_string();
            let back = read(&printed);
            assert_eq!(
                back.as_ref(),
                Ok(&statement),
                "{}: {printed}",
                nested(depth)
            );
        }
    }
    assert!(deepest >= NESTING_MAX, "{deepest}");
}

#[test]
fn parameters_stand_for_values_only() {
    let parameters = Parameters::parse(
        r#"{"h":"a' OR 'b' = 'b","n":5,"u":18446744073709551615,"f":1.5,"b":true,"d":{"duration":"1h"},"r":{"regex":"^x"}}"#,
    )
    .unwrap();
    let text = "SELECT v FROM m WHERE h = $h AND n = $n AND u = $u AND f = $f AND b = $b AND time > now() - $d AND r =~ $r GROUP BY time($d)";
    let statement = parse(text, &parameters).unwrap().remove(0);
    assert_eq!(
        statement.to_string(),
        r#"SELECT "v" FROM "m" WHERE "h" = 'a\' OR \'b\' = \'b' AND "n" = 5 AND "u" = 18446744073709551615 AND "f" = 1.5 AND "b" = true AND "time" > now() - 3600000000000ns AND "r" =~ /^x/ GROUP BY time(3600000000000ns)"#
    );
    assert!(parse("SELECT v FROM $h", &parameters).is_err());
    assert!(parse("SELECT v FROM m WHERE a =~ $n", &parameters).is_err());
    for none in ["", "  ", "null", " null\n", "{}"] {
        assert_eq!(Parameters::parse(none), Ok(Parameters::default()), "{none}");
    }
    for bad in [
        "[]",
        "{",
        r#"{"a":null}"#,
        r#"{"a":[1]}"#,
        r#"{"a":{"duration":"x"}}"#,
    ] {
        assert!(Parameters::parse(bad).is_err(), "{bad}");
    }
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_]{1,6}", any::<String>(), Just("select".to_owned())]
}

fn patterns() -> impl Strategy<Value = String> {
    // As the parser produces them: a backslash has a character after it, and an expression does not
    // begin like a comment.
    prop::collection::vec(
        prop_oneof![
            "[a-z^$.()|\"' /]",
            Just("\\\\".to_owned()),
            Just("\\d".to_owned())
        ],
        1..8,
    )
    .prop_map(|parts| parts.concat())
}

fn literals() -> impl Strategy<Value = Literal> {
    prop_oneof![
        any::<i64>().prop_map(Literal::Integer),
        (9_223_372_036_854_775_809u64..).prop_map(Literal::Unsigned),
        any::<f64>()
            .prop_filter("finite", |v| v.is_finite())
            .prop_map(Literal::Float),
        any::<String>().prop_map(Literal::Text),
        any::<bool>().prop_map(Literal::Boolean),
        (-i64::MAX..).prop_map(Literal::Duration),
        patterns().prop_map(Literal::Regex),
    ]
}

fn operands() -> BoxedStrategy<Expression> {
    let leaf = prop_oneof![
        literals().prop_map(Expression::Literal),
        (
            names(),
            prop::option::of(prop::sample::select(Cast::ALL.map(|(c, _)| c).to_vec()))
        )
            .prop_map(|(name, cast)| Expression::Reference { name, cast }),
        prop::sample::select(vec![
            Expression::Wildcard(WildcardKind::All),
            Expression::Wildcard(WildcardKind::Fields),
            Expression::Wildcard(WildcardKind::Tags),
        ]),
    ];
    let arithmetic = [
        Operator::Add,
        Operator::Subtract,
        Operator::Multiply,
        Operator::Divide,
        Operator::Modulo,
        Operator::BitAnd,
        Operator::BitOr,
        Operator::BitXor,
    ];
    leaf.prop_recursive(4, 24, 3, move |inner| {
        prop_oneof![
            (
                inner.clone(),
                inner.clone(),
                prop::sample::select(arithmetic.to_vec())
            )
                .prop_map(|(left, right, operator)| Expression::Binary {
                    operator,
                    left: Box::new(left),
                    right: Box::new(right),
                }),
            ("[a-z][a-z_]{0,5}x", prop::collection::vec(inner, 0..3))
                .prop_map(|(name, arguments)| Expression::Call { name, arguments }),
        ]
    })
    .boxed()
}

fn conditions() -> BoxedStrategy<Expression> {
    let comparisons = [Operator::Equal, Operator::NotEqual, Operator::LessOrEqual];
    let leaf = prop_oneof![
        (
            operands(),
            operands(),
            prop::sample::select(comparisons.to_vec())
        )
            .prop_map(|(left, right, operator)| Expression::Binary {
                operator,
                left: Box::new(left),
                right: Box::new(right),
            }),
        (operands(), patterns(), any::<bool>()).prop_map(|(left, pattern, is)| {
            Expression::Binary {
                operator: if is {
                    Operator::Matches
                } else {
                    Operator::NotMatches
                },
                left: Box::new(left),
                right: Box::new(Expression::Literal(Literal::Regex(pattern))),
            }
        }),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expression::All),
            prop::collection::vec(inner, 2..4).prop_map(Expression::Any),
        ]
    })
    .boxed()
}

fn sources() -> impl Strategy<Value = Vec<Source>> {
    let name = prop_oneof![
        names().prop_map(MeasurementName::Exact),
        patterns().prop_map(MeasurementName::Matching),
    ];
    let path = prop_oneof![
        Just((None, None)),
        names().prop_map(|policy| (None, Some(policy))),
        (names(), names()).prop_map(|(database, policy)| (Some(database), Some(policy))),
    ];
    let source = (path, name).prop_map(|((database, policy), name)| Source {
        database,
        policy,
        name,
    });
    prop::collection::vec(source, 1..3)
}

fn dimensions() -> impl Strategy<Value = Vec<Dimension>> {
    let tags = prop_oneof![
        names().prop_map(Dimension::Tag),
        patterns().prop_map(Dimension::Matching),
        Just(Dimension::All),
    ];
    let time =
        (1i64.., -1_000i64..1_000, any::<bool>()).prop_map(|(every_ns, offset_ns, from_now)| {
            Dimension::Time {
                every_ns,
                offset_ns: if from_now { 0 } else { offset_ns },
                from_now,
            }
        });
    (prop::option::of(time), prop::collection::vec(tags, 0..3))
        .prop_map(|(time, tags)| time.into_iter().chain(tags).collect())
}

fn selects() -> impl Strategy<Value = Statement> {
    let stored = sources().prop_map(|s| s.into_iter().map(SelectSource::Measurement).collect());
    let within = prop::collection::vec(questions(stored), 1..3).prop_map(|inner| {
        inner
            .into_iter()
            .map(Box::new)
            .map(SelectSource::Query)
            .collect()
    });
    let stored = sources().prop_map(|s| s.into_iter().map(SelectSource::Measurement).collect());
    let sources = prop_oneof![3 => stored, 1 => within];
    (questions(sources), prop::option::of(targets())).prop_map(|(select, into)| {
        let select = Box::new(Select { into, ..select });
        Statement::Select(select)
    })
}

fn targets() -> impl Strategy<Value = IntoTarget> {
    // A target without its own name, `:MEASUREMENT`, needs a name before it.
    let before = || (prop::option::of(names()), names());
    prop_oneof![
        (before(), prop::option::of(names())).prop_map(|((database, policy), name)| IntoTarget {
            database,
            policy: Some(policy),
            name,
        }),
        names().prop_map(|name| IntoTarget {
            database: None,
            policy: None,
            name: Some(name),
        }),
    ]
}

fn questions(sources: impl Strategy<Value = Vec<SelectSource>>) -> impl Strategy<Value = Select> {
    let field = (operands(), prop::option::of(names()))
        .prop_map(|(expression, alias)| SelectField { expression, alias });
    let fill = prop_oneof![
        prop::sample::select(vec![Fill::Null, Fill::None, Fill::Previous, Fill::Linear]),
        any::<i64>().prop_map(Fill::Integer),
        (-1e6..1e6).prop_map(Fill::Float),
    ];
    let counts = (
        prop::option::of(any::<u64>()),
        prop::option::of(any::<u64>()),
        prop::option::of(any::<u64>()),
        prop::option::of(any::<u64>()),
    );
    (
        prop::collection::vec(field, 1..3),
        sources,
        prop::option::of(conditions()),
        dimensions(),
        fill,
        any::<bool>(),
        counts,
        prop::option::of("[A-Za-z/]{1,9}"),
    )
        .prop_map(
            |(fields, sources, condition, group_by, fill, descending, counts, time_zone)| Select {
                fields,
                into: None,
                sources,
                condition,
                group_by,
                fill,
                descending,
                limit: counts.0,
                offset: counts.1,
                slimit: counts.2,
                soffset: counts.3,
                time_zone,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn statements_print_as_what_they_are(statement in selects()) {
        let text = statement.to_string();
        let back = read(&text).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
        prop_assert_eq!(back, vec![statement], "{}", text);
    }

    #[test]
    fn what_is_read_prints_and_reads_again(
        text in "(SELECT|SHOW|CREATE|DROP|[a-z]|FROM|WHERE|GROUP BY|[ -~]|'|\"|/|\n){0,24}"
    ) {
        if let Ok(statements) = read(&text) {
            let printed: Vec<String> = statements.iter().map(ToString::to_string).collect();
            prop_assert_eq!(read(&printed.join(";")).unwrap(), statements);
        }
    }

    #[test]
    fn no_text_panics(text: String) {
        let _ = read(&text);
        let _ = read(&format!("SELECT {text}"));
        let _ = Parameters::parse(&text);
    }
}
