//! `headwater replay`: rows of many streams in the order of time.

use crate::support::Bench;

const LINES: &str = "\
pump,id=a flow=1 1000
pump,id=b flow=2 1000
pump,id=a on=true 1500
pump,id=a flow=4 3000
pump,id=b flow=5 2000
";

#[test]
fn rows_are_printed_in_the_order_of_time_and_a_cursor_goes_on() {
    let bench = Bench::new();
    bench.import_lines(LINES).ok();
    let all = bench.run("replay", &["pump"]).ok().stdout;
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines.len(), 5, "{all}");
    assert_eq!(
        lines[0],
        "{\"time\":\"1000\",\"stream\":\"pump,id=a\",\"fields\":{\"flow\":1.0}}"
    );
    let rest = bench
        .run("replay", &["pump", "--after", "1500/1/pump,id=a"])
        .ok();
    assert_eq!(rest.stdout.lines().collect::<Vec<_>>(), lines[3..]);
    let some = ["pump", "--tag", "id=a", "--field", "flow", "--limit", "5"];
    let some = bench.run("replay", &some).ok().stdout;
    assert_eq!(some.lines().count(), 2, "{some}");
}

#[test]
fn another_database_takes_what_is_printed_as_line_protocol() {
    let (bench, other) = (Bench::new(), Bench::new());
    bench.import_lines(LINES).ok();
    for arguments in [
        &["pump", "--format", "lp"][..],
        &["pump", "--format", "lp", "--field", "flow"],
    ] {
        let printed = bench.run("replay", arguments).ok().stdout;
        other.import_lines(&printed).ok();
    }
    assert_eq!(other.exported("pump"), bench.exported("pump"));
}

#[test]
fn what_cannot_be_replayed_is_said() {
    let bench = Bench::new();
    bench.import_lines(LINES).ok();
    for (arguments, code, said) in [
        (&["none"][..], 1, "none"),
        (&["pump", "--field", "none"], 1, "none"),
        (&["pump", "--speed", "0"], 2, "seconds of data"),
        (&["pump", "--after", "1"], 2, "TIME/ROW/STREAM"),
    ] {
        let ran = bench.run("replay", arguments);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.stderr.contains(said), "{ran:?}");
    }
}
