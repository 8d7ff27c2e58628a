//! Tables as a whole: the streams by pages and by values of tags, how many rows there are, and
//! which streams have the newest ones. Each is what the streams one after the other say.

use crate::support::{Dice, small_options};
use headwater_engine::{
    Bins, Database, DeleteSpec, Duplicates, Options, OutermostSpec, PageStart, ScanSpec, Snapshot,
    SummarySpec, TableSpec,
};
use headwater_io::{Env, MemoryFiles, NoThreads};
use headwater_types::{Batch, ClosedRange, StreamName, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;

fn name(dice: &mut Dice) -> StreamName {
    let mut tags = Vec::new();
    for (key, values) in [("a", 5), ("bb", 4), ("c", 3)] {
        match dice.below(values + 1) {
            0 => {}
            1 => tags.push((key, String::new())),
            value => tags.push((key, "x".repeat(value as usize % 3) + &value.to_string())),
        }
    }
    StreamName::new("t", tags)
}

fn times(snapshot: &Snapshot, stream: &StreamName, range: ClosedRange) -> Vec<i64> {
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    let chunks = snapshot.scan(stream, &spec).unwrap();
    chunks.flat_map(|chunk| chunk.unwrap().times).collect()
}

fn compare(snapshot: &Snapshot, dice: &mut Dice, what: &str) {
    let all = snapshot.streams("t", &[]).unwrap();
    let limit = 1 + dice.below(9) as usize;

    let mut paged = Vec::new();
    let mut start = Some(PageStart::default());
    while let Some(from) = start {
        let page = snapshot.handles_from("t", from, limit).unwrap();
        assert!(page.streams.len() <= limit);
        paged.extend(page.streams);
        start = page.next;
    }
    let names: BTreeSet<&StreamName> = paged.iter().map(|handle| handle.name()).collect();
    assert_eq!(
        (names.len(), &names),
        (paged.len(), &all.iter().collect()),
        "{what}"
    );
    let spec = ScanSpec::default();
    for handle in &paged {
        let rows = handle.scan(snapshot, &spec).unwrap();
        let rows: Vec<i64> = rows.flat_map(|chunk| chunk.unwrap().times).collect();
        assert_eq!(
            rows,
            times(snapshot, handle.name(), ClosedRange::ALL),
            "{what}"
        );
    }

    let mut wanted: Vec<(String, Vec<String>)> = Vec::new();
    for key in ["a", "bb", "c", "nothing"] {
        if dice.below(3) == 0 {
            let values = (0..1 + dice.below(3)).filter_map(|_| {
                let stream = name(dice);
                stream.tag(key).map(str::to_owned)
            });
            wanted.push((key.to_owned(), values.collect()));
        }
    }
    let fits = |stream: &&StreamName| {
        let mut wanted = wanted.iter();
        wanted.all(|(key, values)| {
            stream
                .tag(key)
                .is_some_and(|value| values.iter().any(|v| v == value))
        })
    };
    let mut found: Vec<StreamName> = Vec::new();
    loop {
        let page = snapshot
            .streams_having("t", &wanted, found.last(), limit)
            .unwrap();
        let is_last = page.len() < limit;
        found.extend(page);
        if is_last {
            break;
        }
    }
    let expected: Vec<&StreamName> = all.iter().filter(fits).collect();
    assert_eq!(
        found.iter().collect::<Vec<_>>(),
        expected,
        "{what}: {wanted:?}"
    );

    let edge = |dice: &mut Dice| dice.below(500) as i64 * SECOND;
    let range = match dice.below(3) {
        0 => ClosedRange::ALL,
        1 => ClosedRange::nanos(edge(dice), i64::MAX),
        _ => ClosedRange::nanos(edge(dice), edge(dice)),
    };
    let spec = SummarySpec {
        range,
        bins: Bins::Whole,
        fields: Vec::new(),
    };
    let counted: u64 = all
        .iter()
        .flat_map(|stream| snapshot.summary(stream, &spec).unwrap())
        .map(|bin| bin.rows)
        .sum();
    let rows = snapshot.row_count("t", range, &mut || true).unwrap();
    assert_eq!(rows, Some(counted), "{what}: {range:?}");

    let newest = dice.below(2) == 0;
    let spec = OutermostSpec {
        range,
        newest,
        limit,
    };
    let only_a = dice.below(2) == 0;
    let mut accepts = |stream: &StreamName| Ok(stream.tag("a").is_some());
    let outermost = snapshot
        .outermost_streams("t", &spec, only_a.then_some(&mut accepts), &mut || true)
        .unwrap();
    assert!(outermost.len() <= limit);
    let first = |streams: &mut dyn Iterator<Item = &StreamName>| {
        let mut found: Vec<i64> = streams.flat_map(|s| times(snapshot, s, range)).collect();
        found.sort_unstable();
        if newest {
            found.reverse();
        }
        found.truncate(limit);
        found
    };
    let readable = |stream: &&StreamName| !only_a || stream.tag("a").is_some();
    assert!(outermost.iter().all(|stream| readable(&stream)), "{what}");
    assert_eq!(
        first(&mut outermost.iter()),
        first(&mut all.iter().filter(readable)),
        "{what}: {range:?} {newest}"
    );
}

fn env(files: &Arc<MemoryFiles>) -> Env {
    Env {
        files: Arc::clone(files) as _,
        threads: Arc::new(NoThreads),
        ..Env::memory()
    }
}

fn run_workload(seed: u64) {
    let mut dice = Dice::new(seed);
    let files = Arc::new(MemoryFiles::new());
    let open = || Database::open_in(env(&files), small_options()).unwrap();
    let mut db = open();
    db.create_table(&TableSpec {
        duplicates: [Duplicates::Last, Duplicates::Keep][dice.below(2) as usize],
        ..TableSpec::new("t")
    })
    .unwrap();
    let mut held: Vec<(u64, Snapshot)> = Vec::new();
    let mut clock = 0;
    for step in 0..60u64 {
        let what = format!("seed {seed}, step {step}");
        match dice.below(12) {
            0..=6 => {
                let mut batch = Batch::new();
                if dice.below(12) == 0 {
                    batch.expire_at(Timestamp::from_nanos(i64::MAX - 1));
                }
                for _ in 0..dice.below(30) {
                    let late = if dice.chance(15) { dice.below(200) } else { 0 };
                    clock += dice.below(3) as i64;
                    let time = (clock - late as i64) * SECOND;
                    let stream = name(&mut dice);
                    let other = StreamName::new("other", stream.tags().to_vec());
                    batch
                        .stream(&stream)
                        .row(time, [("v", clock.into())])
                        .unwrap();
                    batch
                        .stream(&other)
                        .row(time, [("v", clock.into())])
                        .unwrap();
                }
                db.commit(batch).unwrap();
            }
            7 => db.flush().unwrap(),
            8 => {
                let first = dice.below(500) as i64 * SECOND;
                let range = ClosedRange::nanos(first, first + 60 * SECOND);
                if dice.chance(30) {
                    db.delete(&DeleteSpec {
                        table: "t".to_owned(),
                        tags: Vec::new(),
                        range,
                    })
                    .unwrap();
                } else {
                    db.delete_streams("t", &[name(&mut dice)], range).unwrap();
                }
            }
            9 => {
                let gone = [name(&mut dice), name(&mut dice)];
                db.drop_named_streams("t", &gone).unwrap();
            }
            10 => {
                held.clear();
                db.close().unwrap();
                drop(db);
                db = open();
            }
            _ => db.compact().unwrap(),
        }
        if dice.chance(20) {
            held.push((step, db.snapshot().unwrap()));
        }
        if dice.chance(30) {
            compare(&db.snapshot().unwrap(), &mut dice, &what);
            for (taken, snapshot) in &held {
                compare(snapshot, &mut dice, &format!("{what}, seen at {taken}"));
            }
        }
    }
}

#[test]
fn a_table_as_a_whole_is_what_its_streams_are() {
    for seed in 0..40 {
        run_workload(seed);
    }
}

#[test]
fn a_partition_of_very_many_streams_is_rewritten_when_one_streams_rows_are_spread() {
    let files = Arc::new(MemoryFiles::new());
    let options = Options {
        memory_budget_bytes: 16 << 20,
        shards: 1,
        groups_max: 4,
        ..Options::new("/db")
    };
    let db = Database::open_in(env(&files), options).unwrap();
    let compacted = || db.stats().unwrap().events_compaction;
    // Of a thousand streams each flush stores an eighth: two pages of them.
    for round in 0..3i64 {
        for part in 0..8 {
            let mut batch = Batch::new();
            for stream in part * 128..part * 128 + 128 {
                let stream = StreamName::new("t", [("id", format!("{stream:04}"))]);
                let row = [("v", (round as f64).into())];
                batch.stream(&stream).row(round * SECOND, row).unwrap();
            }
            db.commit(batch).unwrap();
            db.flush().unwrap();
            db.maintain().unwrap();
        }
        assert_eq!(compacted(), 0, "round {round}");
    }
    // Of all of them: now their rows are spread over many groups.
    for round in 3..40i64 {
        let mut batch = Batch::new();
        for stream in 0..1024 {
            let stream = StreamName::new("t", [("id", format!("{stream:04}"))]);
            batch
                .stream(&stream)
                .row(round * SECOND, [("v", 1.0.into())])
                .unwrap();
        }
        db.commit(batch).unwrap();
        db.flush().unwrap();
        db.maintain().unwrap();
    }
    assert!(compacted() > 0);
}
