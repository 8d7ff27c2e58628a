//! `headwater lake`: what it prints, and how it ends.

use crate::support::{Bench, Ran, text};

const LINES: &str = "\
t,d=a v=1 1700000000000000000
t,d=b v=2 1700000000000000001
t,d=a v=3 1700100000000000000
";

fn lake(bench: &Bench, command: &str, more: &[&str]) -> Ran {
    let (db, lake) = (bench.db(), bench.path("lake"));
    let mut all = vec![command, "--db", text(&db), text(&lake)];
    all.extend(more);
    let output = crate::support::program().arg("lake").args(all).output();
    Ran::of(output.unwrap())
}

#[test]
fn a_lake_is_written_told_of_and_compared() {
    let bench = Bench::new();
    bench.import_lines(LINES).ok();
    let written = lake(&bench, "write", &[]).ok();
    assert!(
        written.stdout.starts_with("t: 2 days written (3 rows, "),
        "{written:?}"
    );
    let again = lake(&bench, "write", &[]).ok();
    assert_eq!(
        again.stdout,
        "t: 0 days written (0 rows, 0 B), 2 unchanged\n"
    );
    let status = lake(&bench, "status", &["--json"]).ok().json();
    let table = &status["tables"][0];
    assert_eq!(
        (&table["rows"], &table["days"]),
        (&3.into(), &2.into()),
        "{status}"
    );
    assert_eq!(table["missing"], serde_json::json!([]), "{status}");
    let compared = lake(&bench, "verify", &["--deep"]).ok();
    assert_eq!(compared.stdout, "t: 2 days equal (3 rows)\n");
    // A row more, which the lake does not have yet: behind, and not wrong.
    bench.import_lines("t,d=c v=4 1700000000000000005\n").ok();
    let status = lake(&bench, "status", &[]).ok();
    assert!(
        status.stdout.contains("t, 2023-11-14: changed"),
        "{status:?}"
    );
    let compared = lake(&bench, "verify", &[]).ok();
    assert!(compared.stdout.contains("1 behind"), "{compared:?}");
    lake(&bench, "write", &[]).ok();
    // The files of a day are lost: that of the snapshot of now, and the one it replaced.
    let data = bench.path("lake/t/data/time_day=2023-11-14");
    for file in std::fs::read_dir(data).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let compared = lake(&bench, "verify", &[]);
    assert!(
        compared.code == 1 && compared.stdout.contains("t, 2023-11-14"),
        "{compared:?}"
    );
}

#[test]
fn wrong_arguments_of_a_lake_are_told() {
    let bench = Bench::new();
    bench.import_lines(LINES).ok();
    let refused = lake(&bench, "write", &["--keep-snapshots", "soon"]);
    assert!(
        refused.code == 2 && refused.stderr.contains("keep-snapshots"),
        "{refused:?}"
    );
    let refused = lake(&bench, "write", &["--table", "nothing"]);
    assert!(
        refused.code == 1 && refused.stderr.contains("nothing"),
        "{refused:?}"
    );
    let refused = lake(&bench, "status", &[]);
    assert_eq!(
        (refused.code, refused.stderr.is_empty()),
        (0, true),
        "{refused:?}"
    );
}
