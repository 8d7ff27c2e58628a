//! Writes that end between any two steps, and writes at once.

use crate::support::{Bench, DAY, START, files_below, options, rows_of_lake};
use headwater::{ClosedRange, DeleteSpec, StreamName};
use headwater_lake::{LakeError, Steps, data_files};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

fn stream(id: i64) -> StreamName {
    StreamName::new("pumps", [("id", id.to_string())])
}

/// Three days of rows; what a second write finds differs by a late row, a delete and a new day.
fn begin(bench: &Bench) {
    for at in 0..60 {
        bench.row(
            &stream(at % 3),
            START + at * DAY / 20,
            &[("rpm", (at as f64).into())],
        );
    }
}

fn change(bench: &Bench) {
    bench.row(
        &stream(1),
        START + 77,
        &[("rpm", 0.5.into()), ("new", 1i64.into())],
    );
    bench.row(&stream(4), START + 5 * DAY, &[("rpm", 5.0.into())]);
    let spec = DeleteSpec {
        table: "pumps".into(),
        tags: Vec::new(),
        range: ClosedRange::nanos(START + DAY, START + 2 * DAY - 1),
    };
    bench.db().delete(&spec).unwrap();
}

/// Writes up to the step with this number; its name, or nothing when there are fewer.
fn write_until(bench: &Bench, number: usize) -> Option<&'static str> {
    let passed = AtomicUsize::new(0);
    let mut options = options();
    options.steps = Steps::asking(move |_| passed.fetch_add(1, Ordering::Relaxed) < number);
    match bench.write_with(&options) {
        Ok(_) => None,
        Err(LakeError::Stopped(step)) => Some(step),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_write_that_ends_at_any_step_is_taken_up_by_the_next() {
    let mut stopped = BTreeSet::new();
    for number in 0.. {
        let bench = Bench::new();
        begin(&bench);
        bench.write();
        let before = rows_of_lake(&bench.lake(), "pumps");
        change(&bench);
        let Some(step) = write_until(&bench, number) else {
            break;
        };
        stopped.insert(step);
        // A reader sees the table as it was, or as it should be, and nothing in between.
        let now = rows_of_lake(&bench.lake(), "pumps");
        let is_before = now == before;
        let is_done = matches!(step, "committed" | "hint written" | "swept");
        assert_eq!(is_before, !is_done, "stopped at `{step}`");
        bench.write();
        bench.assert_equal(&format!("stopped at `{step}`, then written"));
        // And nothing is left that no snapshot names.
        let left: Vec<_> = files_below(&bench.lake().join("pumps/data"));
        let mut files = data_files(&bench.lake(), "pumps").unwrap();
        files.sort();
        let canonical = bench.lake().canonicalize().unwrap().join("pumps/data");
        assert_eq!(
            files_below(&canonical),
            files,
            "stopped at `{step}`: {}",
            left.len()
        );
        let metadata = files_below(&bench.lake().join("pumps/metadata"));
        let temporary = metadata
            .iter()
            .filter(|f| f.extension().is_some_and(|e| e == "tmp"));
        assert_eq!(temporary.count(), 0, "stopped at `{step}`");
    }
    let expected = [
        "committed",
        "files written",
        "hint written",
        "list written",
        "manifests written",
        "metadata written",
        "swept",
    ];
    assert_eq!(stopped.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn the_first_write_may_end_at_any_step_too() {
    for number in 0.. {
        let bench = Bench::new();
        begin(&bench);
        let Some(step) = write_until(&bench, number) else {
            assert!(number > 5, "{number} steps");
            break;
        };
        bench.write();
        bench.assert_equal(&format!("stopped at `{step}`, then written"));
    }
}

#[test]
fn of_two_commits_that_follow_the_same_one_the_second_looks_again() {
    let bench = Bench::new();
    begin(&bench);
    bench.write();
    change(&bench);
    // While the first write is about to commit, the database changes and another one commits.
    let lake = bench.lake();
    let entered = Arc::new(AtomicBool::new(false));
    let db = bench.db().clone();
    let mut slow = options();
    let in_between = Arc::clone(&entered);
    slow.orphan_age = std::time::Duration::from_secs(3_600);
    let fast = slow.clone();
    slow.steps = Steps::asking(move |step| {
        if step == "metadata written" && !in_between.swap(true, Ordering::SeqCst) {
            let mut batch = headwater::Batch::new();
            batch
                .stream(&stream(1))
                .row(START + 77, [("rpm", 7.75.into())])
                .unwrap();
            db.commit(batch).unwrap();
            headwater_lake::write(&|| db.snapshot(), &lake, &fast).unwrap();
        }
        true
    });
    let told = bench.write_with(&slow).unwrap();
    assert!(entered.load(Ordering::SeqCst));
    // What the other had committed is newer than what this write had in hand.
    assert_eq!(told.tables[0].days_written, 0, "{told:?}");
    bench.assert_equal("after two writes at once");
    let canonical = bench.lake().canonicalize().unwrap().join("pumps/data");
    let mut of_snapshots: Vec<_> = data_files(&bench.lake(), "pumps").unwrap();
    of_snapshots.sort();
    let all = files_below(&canonical);
    assert!(of_snapshots.iter().all(|file| all.contains(file)));
}

#[test]
fn many_writes_at_once_leave_each_row_once() {
    let bench = Bench::new();
    begin(&bench);
    let mut careful = options();
    careful.orphan_age = std::time::Duration::from_secs(3_600);
    for round in 0..4 {
        bench.row(
            &stream(9),
            START + round * DAY,
            &[("rpm", (round as f64).into())],
        );
        let together = Barrier::new(3);
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let (bench, together, careful) = (&bench, &together, &careful);
                scope.spawn(move || {
                    together.wait();
                    bench.row(&stream(writer), START + 5 + round, &[("rpm", 1.0.into())]);
                    bench.write_with(careful).unwrap();
                });
            }
        });
        bench.assert_equal(&format!("round {round}"));
    }
}
