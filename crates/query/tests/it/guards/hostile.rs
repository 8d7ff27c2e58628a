//! Calls of every function there is, with arguments that nobody means well: the ends of each type,
//! long texts and lists, what is no number, nested in each other. The functions are those of the
//! registry, with the types that it says they take, so that one which is added is called too.
//!
//! `HEADWATER_HOSTILE_STATEMENTS` and `HEADWATER_HOSTILE_SEED` ask for more of them, or for others.

use super::child::{Watched, lake, limits, resident, run};
use crate::support::{block_on, rows};
use headwater_testing::Dice;
use std::collections::BTreeMap;

/// What may be resident beyond what statements are allowed: the program, its threads and the rows.
const BEYOND: u64 = (64 << 20) + (200 << 20);

/// Codes of statements that mean nothing.
const INVALID_CODES: [&str; 3] = ["type_mismatch", "unknown_column", "unknown_function"];

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2147483648",
    "1000000000",
    "9223372036854775807",
    "(-9223372036854775807 - 1)",
    "i",
    "64",
];
const FLOATS: &[&str] = &[
    "0.0",
    "-0.0",
    "1e308",
    "-1e308",
    "5e-324",
    "'NaN'::double",
    "'Infinity'::double",
    "'-Infinity'::double",
    "f",
    "0.5",
];
const TEXTS: &[&str] = &[
    "''",
    "'x'",
    "s",
    "repeat('x', 10000000)",
    "repeat(s, 3000)",
    "'äöü😀'",
    "'%_%_%'",
    "'(((a*)*)*)*b'",
    "'99999999999999999999 years'",
    "'day'",
    "'%Y %m %d %H'",
    "'YYYY-MM-DD HH24:MI:SS.US'",
    "'Europe/Paris'",
    "'{\"a\":[1,2]}'",
    "'Int64'",
    "'sha256'",
];
const TIMES: &[&str] = &[
    "time",
    "now()",
    "to_timestamp(0)",
    "TIMESTAMP '1677-09-21 00:12:44'",
    "TIMESTAMP '2262-04-11 23:47:16'",
    "DATE '0001-01-01'",
    "DATE '9999-12-31'",
];
const LENGTHS: &[&str] = &[
    "INTERVAL '1 nanosecond'",
    "INTERVAL '1 day'",
    "INTERVAL '-1 month'",
    "INTERVAL '290 years'",
    "INTERVAL '1000000000 months'",
];
const LISTS: &[&str] = &[
    "[1, 2, 3]",
    "make_array()",
    "range(0, 1000000)",
    "array_repeat(7, 5000000)",
    "array_repeat(repeat('x', 1000), 1000)",
    "[[1], [2, 3]]",
    "[NULL]",
    "[s, s]",
];
const OTHERS: &[&str] = &[
    "NULL",
    "true",
    "b",
    "X'00ff'",
    "repeat('x', 1000000)::bytea",
];

/// A value for a type as the registry names it.
fn value(of: &str, random: &mut Dice, deep: u32, functions: &[Function]) -> String {
    if deep > 0 && random.index(4) == 0 {
        let function = &functions[random.index(functions.len())];
        if function.kind == "SCALAR" {
            return function.call(random, deep - 1, functions);
        }
    }
    let of = of.to_lowercase();
    let known: &[&str] = match of.as_str() {
        // As often as not what is none of its own.
        _ if random.index(8) == 0 => OTHERS,
        of if of.contains("list") => LISTS,
        of if of.contains("int") && !of.contains("interval") => INTEGERS,
        of if of.contains("float") || of.contains("decimal") => FLOATS,
        of if of.contains("utf8") || of.contains("string") => TEXTS,
        of if of.contains("timestamp") || of.contains("date") => TIMES,
        of if of.contains("interval") || of.contains("duration") => LENGTHS,
        of if of.contains("bool") || of.contains("binary") => OTHERS,
        _ => random.pick(&[
            INTEGERS, FLOATS, TEXTS, TEXTS, TIMES, LENGTHS, LISTS, OTHERS,
        ]),
    };
    random.pick(known).to_owned()
}

struct Function {
    name: String,
    kind: String,
    /// The types of the arguments, for each way to call it that the registry tells.
    signatures: Vec<Vec<String>>,
}

impl Function {
    fn call(&self, random: &mut Dice, deep: u32, functions: &[Function]) -> String {
        let any = || vec!["any".to_owned(); 3];
        let mut types = match self.signatures.len() {
            0 => any(),
            ways => self.signatures[random.index(ways)].clone(),
        };
        match random.index(12) {
            0 => drop(types.pop()),
            1 => types.push("any".to_owned()),
            2 => types = any(),
            _ => {}
        }
        let args = types.iter().map(|of| value(of, random, deep, functions));
        let args: Vec<String> = args.collect();
        format!("{}({})", self.name, args.join(", "))
    }

    fn statement(&self, random: &mut Dice, functions: &[Function]) -> String {
        let call = self.call(random, 2, functions);
        match self.kind.as_str() {
            "AGGREGATE" => {
                let groups = ["", " GROUP BY i", " GROUP BY time, tag"];
                format!("SELECT {call} FROM t{}", random.pick(&groups))
            }
            "WINDOW" => {
                let over = ["", "ORDER BY time", "PARTITION BY i ORDER BY f"];
                format!("SELECT {call} OVER ({}) FROM t", random.pick(&over))
            }
            _ => match random.index(4) {
                0 => format!("SELECT {call}"),
                1 => format!("SELECT count({call}) FROM t GROUP BY i"),
                2 => format!("SELECT i FROM t WHERE {call} IS NULL"),
                _ => format!("SELECT {call} FROM t"),
            },
        }
    }
}

/// Every function that is registered.
async fn registered(sessions: &Watched) -> Vec<Function> {
    let mut all: BTreeMap<(String, String), Vec<Vec<String>>> = BTreeMap::new();
    let sql = "SELECT DISTINCT routine_name, function_type FROM information_schema.routines";
    for row in rows(&sessions.session, sql).await {
        let (name, kind) = row.split_once('|').unwrap();
        all.entry((name.to_owned(), kind.to_owned())).or_default();
    }
    let sql = "SELECT DISTINCT specific_name, rid, ordinal_position, data_type \
               FROM information_schema.parameters WHERE parameter_mode = 'IN' ORDER BY 1, 2, 3";
    let mut ways: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for row in rows(&sessions.session, sql).await {
        let parts: Vec<&str> = row.splitn(4, '|').collect();
        let way = (parts[0].to_owned(), parts[1].to_owned());
        ways.entry(way).or_default().push(parts[3].to_owned());
    }
    for ((name, _), types) in ways {
        let named = all.iter_mut().filter(|((known, _), _)| *known == name);
        for (_, ways) in named {
            ways.push(types.clone());
        }
    }
    let all = all.into_iter();
    let all = all.map(|((name, kind), signatures)| Function {
        name,
        kind,
        signatures,
    });
    all.collect()
}

fn number(name: &str, default: u64) -> u64 {
    let asked = std::env::var(name).ok();
    asked.map_or(default, |asked| asked.parse().unwrap())
}

#[test]
fn no_call_of_any_function_ends_the_process_or_takes_what_nobody_gave() {
    const NAME: &str =
        "guards::hostile::no_call_of_any_function_ends_the_process_or_takes_what_nobody_gave";
    run(NAME, || {
        block_on(async {
            let lake = lake(4_000);
            let sessions = Watched::new(&lake.query);
            let functions = registered(&sessions).await;
            assert!(functions.len() > 250, "{} functions", functions.len());
            let asked = functions
                .iter()
                .filter(|f| !f.signatures.is_empty())
                .count();
            assert!(asked > 120, "the registry tells types of {asked} functions");
            let mut random = Dice::new(number("HEADWATER_HOSTILE_SEED", 1));
            let wanted = number("HEADWATER_HOSTILE_STATEMENTS", 250).cast_signed();
            let allowed = limits().all_memory as u64 + BEYOND;
            let (mut answered, mut refused) = (0, BTreeMap::<&str, u64>::new());
            let mut computed: i64 = 0;
            for number in 0..30 * wanted {
                // Each function in turn, from another one on with each seed.
                let at = random.index(2) + 2 * usize::try_from(number).unwrap();
                let sql = functions[at % functions.len()].statement(&mut random, &functions);
                match sessions.run(&sql).await {
                    Ok(_) => answered += 1,
                    Err(error) => {
                        assert_ne!(error.code, "internal", "{sql}: {error}");
                        *refused.entry(error.code).or_default() += 1;
                        // What is not understood is refused at once, and harms nobody.
                        computed -= i64::from(INVALID_CODES.contains(&error.code));
                    }
                }
                computed += 1;
                let now = resident("VmHWM");
                assert!(now <= allowed, "{sql}: {} MiB", now >> 20);
                if computed == wanted {
                    break;
                }
            }
            println!(
                "{answered} answered, refused {refused:?}, at most {} MiB",
                resident("VmHWM") >> 20
            );
            assert!(
                computed == wanted && answered * 4 > wanted,
                "{answered} of {computed}"
            );
        });
    });
}
