//! Every function that there is, with arguments as extreme as they come, over constants, rows,
//! groups and windows.
//!
//! The functions are those that the session has when this runs. A seed gives the same statements in
//! the same order; `HEADWATER_FUZZ_SEED` and `HEADWATER_FUZZ_STATEMENTS` take others and more.

use crate::child::{Watched, lake, resident, resident_max, run};
use crate::support::{block_on, rows};
use headwater_postgres::catalog::{self, Listing, ShownTable, Variables};
use headwater_query::datafusion;
use headwater_query::datafusion::catalog::SchemaProvider;
use headwater_query::datafusion::logical_expr::ScalarUDF;
use headwater_query::datafusion::sql::sqlparser::ast::Statement;
use headwater_query::{Extension, Unrestricted};
use headwater_testing::Dice;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// As many as take about a minute where nothing is optimised.
const STATEMENTS: u64 = 2_500;

const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "-1",
    "2",
    "7",
    "1000",
    "100000",
    "10000000",
    "2147483647",
    "-2147483648",
    "9223372036854775807",
    "(-9223372036854775807 - 1)",
    "1e308",
    "-1e-308",
    "'NaN'::double precision",
    "'Infinity'::double precision",
    "99999999999999999999999999999999999999::decimal(38,0)",
    "0.5",
];

const TEXTS: [&str; 20] = [
    "''",
    "'x'",
    "','",
    "'%'",
    "'%a_b%'",
    "'é漢🦀'",
    "repeat('x', 1000)",
    "repeat('ab,', 100000)",
    "repeat('x', 3000000)",
    "repeat('{[(', 50000)",
    "'((a{100}){100}){100}'",
    "'(a|aa)+$'",
    "'(((((((((.*)))))))))'",
    "'\\1\\1\\1\\1$1$1$0'",
    "'%Y-%m-%d %H:%M:%S.%f %c%c%+'",
    "'base64'",
    "'g'",
    "'FixedSizeList(2000000000, Utf8)'",
    "'1 year'",
    "'2024-02-29T12:00:00.123456789Z'",
];

const INSTANTS: [&str; 9] = [
    "TIMESTAMP '1677-09-21 00:12:44'",
    "TIMESTAMP '2262-04-11 23:47:16'",
    "TIMESTAMP '1970-01-01'",
    "DATE '0001-01-01'",
    "DATE '9999-12-31'",
    "INTERVAL '1 nanosecond'",
    "INTERVAL '100000000 months'",
    "INTERVAL '-1 day'",
    "TIME '23:59:59'",
];

const LISTS: [&str; 16] = [
    "[1, 2, 3]",
    "[NULL]",
    "[]",
    "range(1, 100000)",
    "range(1, 1000)",
    "[[1], [2, NULL], []]",
    "array_repeat('x', 100000)",
    "array_repeat(array_repeat(1, 300), 300)",
    "[repeat('x', 1000000)]",
    "[1.5, 'NaN'::double precision]",
    "['a', NULL, 'b']",
    "array_repeat(NULL, 100000)",
    "[TIMESTAMP '1970-01-01']",
    "range(-9223372036854775807, 9223372036854775807, 4611686018427387904)",
    "struct(1, 'x', [1])",
    "map(['a', 'b'], [1, 2])",
];

const OTHERS: [&str; 6] = [
    "NULL",
    "true",
    "arrow_cast('ab', 'Binary')",
    "arrow_cast('x', 'Dictionary(Int32, Utf8)')",
    "arrow_cast('x', 'LargeUtf8')",
    "arrow_cast('x', 'Utf8View')",
];

const COLUMNS: [&str; 18] = [
    "i",
    "f",
    "s",
    "b",
    "time",
    "tag",
    "i * 1000000",
    "f * 1e300",
    "repeat(s, 50)",
    "s || s",
    "[i, i + 1]",
    "range(0, abs(i))",
    "[s, tag]",
    "i::text",
    "time - TIMESTAMP '1970-01-01'",
    "NULLIF(i, 3)",
    "repeat('(a|b)*', i)",
    "array_repeat(s, 20)",
];

struct Maker {
    dice: Dice,
    /// Types of arguments that functions take, by name.
    shapes: HashMap<String, Vec<Vec<String>>>,
    scalars: Vec<String>,
    aggregates: Vec<String>,
    windows: Vec<String>,
}

impl Maker {
    fn function(&mut self, at: usize) -> String {
        self.scalars[at % self.scalars.len()].clone()
    }

    fn argument(&mut self, columns: bool, depth: usize) -> String {
        let kind = self.dice.index(12);
        if depth > 0 && kind < 2 {
            let at = self.dice.index(self.scalars.len());
            let name = self.function(at);
            return self.call(&name, columns, depth - 1);
        }
        if columns && kind < 7 {
            return self.dice.pick(&COLUMNS).to_owned();
        }
        let list: &[&str] = match self.dice.index(10) {
            0..=2 => &NUMBERS,
            3..=5 => &TEXTS,
            6 => &INSTANTS,
            7 | 8 => &LISTS,
            _ => &OTHERS,
        };
        self.dice.pick(list).to_owned()
    }

    /// An argument of about this type.
    fn argument_of(&mut self, data_type: &str, columns: bool, depth: usize) -> String {
        if self.dice.index(8) == 0 {
            return self.argument(columns, depth);
        }
        let of = |types: &[&str]| types.iter().any(|part| data_type.contains(part));
        let (constants, values): (&[&str], &[&str]) = if of(&["List", "Struct", "Map"]) {
            (
                &LISTS,
                &[
                    "[i, i + 1]",
                    "range(0, abs(i))",
                    "[s, tag]",
                    "array_repeat(s, 20)",
                    "[[i]]",
                ],
            )
        } else if of(&["Int", "Float", "Decimal"]) {
            (
                &NUMBERS,
                &["i", "f", "i * 1000000", "f * 1e300", "NULLIF(i, 3)"],
            )
        } else if of(&["Utf8", "Binary"]) {
            (
                &TEXTS,
                &[
                    "s",
                    "tag",
                    "repeat(s, 50)",
                    "s || s",
                    "i::text",
                    "repeat('(a|b)*', i)",
                ],
            )
        } else if of(&["Time", "Date", "Interval", "Duration"]) {
            (
                &INSTANTS,
                &["time", "time - TIMESTAMP '1970-01-01'", "time::date"],
            )
        } else {
            return self.argument(columns, depth);
        };
        let columns = columns && self.dice.index(3) > 0;
        self.dice
            .pick(if columns { values } else { constants })
            .to_owned()
    }

    fn arguments(&mut self, name: &str, columns: bool, depth: usize) -> Vec<String> {
        let shapes = self.shapes.get(name).map_or(0, Vec::len);
        if shapes > 0 && self.dice.index(8) > 0 {
            let at = self.dice.index(shapes);
            let shape = self.shapes[name][at].clone();
            return shape
                .iter()
                .map(|of| self.argument_of(of, columns, depth))
                .collect();
        }
        let count = self.dice.index(9).div_ceil(2);
        (0..count).map(|_| self.argument(columns, depth)).collect()
    }

    fn call(&mut self, name: &str, columns: bool, depth: usize) -> String {
        let args = self.arguments(name, columns, depth);
        // Operators are named by their signs.
        match (name, &*args) {
            ("||" | "~" | "LIKE" | "ILIKE" | "SIMILAR TO", [left, right, ..]) => {
                format!("(({left}) {name} ({right}))")
            }
            ("||" | "~" | "LIKE" | "ILIKE" | "SIMILAR TO", _) => format!("('a' {name} s)"),
            _ => format!("\"{name}\"({})", args.join(", ")),
        }
    }

    fn statement(&mut self, n: usize) -> String {
        let name = self.function(n);
        let over = [
            "",
            "ORDER BY time",
            "PARTITION BY tag ORDER BY i",
            "ORDER BY time ROWS 3 PRECEDING",
        ];
        match self.dice.index(8) {
            0 | 1 => format!("SELECT {}", self.call(&name, false, 2)),
            2 | 3 => format!("SELECT {} FROM t", self.call(&name, true, 2)),
            4 => {
                let by = self.call(&name, true, 1);
                format!("SELECT count(*) FROM t WHERE {by} IS NOT NULL GROUP BY {by}")
            }
            5 => {
                let at = self.dice.index(self.aggregates.len());
                let (aggregate, inner) = (self.aggregates[at].clone(), self.call(&name, true, 1));
                let argument = self.argument(true, 0);
                match self.dice.index(3) {
                    0 => format!("SELECT {aggregate}({inner}) FROM t"),
                    1 => format!("SELECT {aggregate}({inner}, {argument}) FROM t GROUP BY tag"),
                    _ => format!("SELECT {} FROM t", self.call(&aggregate, true, 1)),
                }
            }
            6 => {
                let at = self.dice.index(self.aggregates.len());
                let aggregate = self.aggregates[at].clone();
                let over = self.dice.pick(&over);
                format!(
                    "SELECT {} OVER ({over}) FROM t",
                    self.call(&aggregate, true, 1)
                )
            }
            _ => {
                let at = self.dice.index(self.windows.len());
                let window = self.windows[at].clone();
                let over = self.dice.pick(&over);
                format!(
                    "SELECT {} OVER ({over}) FROM t",
                    self.call(&window, true, 1)
                )
            }
        }
    }
}

/// What clients of PostgreSQL find, over no tables.
#[derive(Debug)]
struct EmptyListing;

impl Listing for EmptyListing {
    fn tables(&self) -> datafusion::common::Result<Vec<ShownTable>> {
        Ok(Vec::new())
    }
    fn variables(&self) -> Variables {
        Variables::default()
    }
    fn user(&self) -> String {
        "somebody".to_owned()
    }
    fn database(&self) -> String {
        "db".to_owned()
    }
}

#[derive(Debug)]
struct Functions(Vec<Arc<ScalarUDF>>);

impl Extension for Functions {
    fn rewrite(&self, _: &mut Statement) -> headwater_query::Result<()> {
        Ok(())
    }
    fn schemas(&self) -> Vec<(String, Arc<dyn SchemaProvider>)> {
        Vec::new()
    }
    fn functions(&self) -> Vec<Arc<ScalarUDF>> {
        self.0.clone()
    }
}

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().unwrap())
}

#[test]
fn no_function_with_any_arguments_ends_the_process() {
    const NAME: &str = "functions::no_function_with_any_arguments_ends_the_process";
    run(NAME, || {
        block_on(async {
            let lake = lake(1_500);
            let listing: Arc<dyn Listing> = Arc::new(EmptyListing);
            let own = Functions(catalog::functions(&listing));
            let session = lake
                .query
                .session_with(Arc::new(Unrestricted), Arc::new(own));
            let of = async |kind: &str| {
                let sql = format!(
                    "SELECT DISTINCT routine_name FROM information_schema.routines \
                     WHERE function_type = '{kind}' ORDER BY 1"
                );
                rows(&session, &sql).await
            };
            let mut scalars = of("SCALAR").await;
            scalars.extend(["||", "~", "LIKE", "ILIKE", "SIMILAR TO"].map(str::to_owned));
            let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
            for row in rows(
                &session,
                "SELECT specific_name, rid, data_type FROM information_schema.parameters \
                 WHERE parameter_mode = 'IN' ORDER BY specific_name, rid, ordinal_position",
            )
            .await
            {
                let mut parts = row.splitn(3, '|').map(str::to_owned);
                let mut part = || parts.next().unwrap();
                found.entry((part(), part())).or_default().push(part());
            }
            let mut shapes: HashMap<String, Vec<Vec<String>>> = HashMap::new();
            for ((name, _), shape) in found {
                shapes.entry(name).or_default().push(shape);
            }
            let mut maker = Maker {
                shapes,
                dice: Dice(number("HEADWATER_FUZZ_SEED", 1)),
                scalars,
                aggregates: of("AGGREGATE").await,
                windows: of("WINDOW").await,
            };
            assert!(maker.scalars.len() > 150, "{:?}", maker.scalars);
            assert!(maker.aggregates.len() > 20 && maker.windows.len() > 5);
            assert!(maker.scalars.iter().any(|name| name == "format_type"));
            let sessions = Watched::of(session);
            assert_eq!(sessions.run("SELECT * FROM t").await.unwrap(), 3_000);
            let (mut answered, mut refused) = (0u64, 0u64);
            let all = number("HEADWATER_FUZZ_STATEMENTS", STATEMENTS);
            for n in 0..usize::try_from(all).unwrap() {
                let sql = maker.statement(n);
                let high = resident("VmHWM");
                let began = std::time::Instant::now();
                eprintln!("{n}: {sql:.1500}");
                match sessions.run(&sql).await {
                    Ok(_) => answered += 1,
                    Err(error) => {
                        refused +=
                            u64::from(error.code == "memory_limit" || error.code == "too_large");
                        if error.code == "time_limit" || error.code == "internal" {
                            println!("{n}: {}: {error:.300}\n  {sql:.600}", error.code);
                        }
                    }
                }
                let now = resident("VmHWM");
                if now > high + (64 << 20) || began.elapsed().as_secs() > 5 {
                    println!(
                        "{n}: {} MiB more, {:?}\n  {sql:.600}",
                        (now - high) >> 20,
                        began.elapsed()
                    );
                }
                assert!(
                    now <= resident_max(),
                    "{} MiB were resident after {sql}",
                    now >> 20
                );
            }
            println!("{all} statements, {answered} answered, {refused} refused");
            // The generator makes what can be run, and what cannot.
            assert!(answered > all / 10, "{answered} answered");
            assert!(refused > all / 500, "{refused} refused");
        });
    });
}
