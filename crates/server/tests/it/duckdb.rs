//! Random statements of a kept seed, answered with the pyramid, without it, and by DuckDB, as it
//! comes from PyPI: all three give the same rows.
//!
//! `HEADWATER_SQL_STATEMENTS` and `HEADWATER_SQL_SEED` ask for more of them, or for others,
//! `HEADWATER_SQL_WIDE` for constructs besides the usual ones. What is documented as a difference
//! is not asked; what a statement may be stands in `random_sql`.

use crate::support::Running;
use headwater_testing::{or_skip, python, run};
use std::path::Path;
use std::process::Command;

const PACKAGES: [&str; 1] = ["duckdb==2.0.0"];

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Err(_) => default,
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}: expected a number, found {text}")),
    }
}

#[test]
fn random_statements_have_the_answers_that_duckdb_gives() {
    let Some(python) = or_skip(python(&PACKAGES)) else {
        return;
    };
    let server = Running::start_with(|settings| {
        // Small buckets, so that bins of minutes hold whole ones of a table of few rows.
        settings.engine.bucket_events = 4;
        settings.engine.max_future = None;
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/random_sql/main.py");
    let seed = number("HEADWATER_SQL_SEED", 14);
    let statements = number("HEADWATER_SQL_STATEMENTS", 80);
    let mut asking = Command::new(python);
    asking.arg("-B").arg(script).args([
        server.addr.port().to_string(),
        seed.to_string(),
        statements.to_string(),
    ]);
    if std::env::var_os("HEADWATER_SQL_WIDE").is_some_and(|wide| !wide.is_empty()) {
        asking.arg("wide");
    }
    let told = run(&mut asking);
    match told {
        Ok(told) => println!("{told}"),
        Err(differences) => panic!("{differences}"),
    }
}
