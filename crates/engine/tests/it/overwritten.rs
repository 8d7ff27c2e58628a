//! Points that are written again and again, and questions over them.

use crate::support::{Dice, Run, small_options};
use headwater_engine::{
    Database, DeleteSpec, FieldSpec, Options, RowBlock, ScanSpec, Snapshot, TableSpec,
};
use headwater_io::{Env, MemoryFiles};
use headwater_types::{Batch, ClosedRange, FieldType, StreamName, Timestamp, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

const POINTS: i64 = 100;
const FIELDS: [&str; 3] = ["a", "b", "c"];

fn stream() -> StreamName {
    StreamName::new("t", [("id", "1")])
}

fn database() -> Database {
    let options = Options {
        memory_budget_bytes: 16 << 20,
        ..small_options()
    };
    let db = Run::new(Arc::new(MemoryFiles::new()), &options)
        .open()
        .unwrap();
    let fields = FIELDS.map(|name| FieldSpec {
        name: name.into(),
        field_type: FieldType::I64,
    });
    db.create_table(&TableSpec {
        fields: fields.to_vec(),
        ..TableSpec::new("t")
    })
    .unwrap();
    db
}

/// Each point's fields.
type Points = BTreeMap<i64, BTreeMap<&'static str, i64>>;

/// Writes some fields of every point once more.
fn write_all(db: &Database, fields: &[&'static str], value: i64, plain: &mut Points) {
    let mut batch = Batch::new();
    for time in 0..POINTS {
        let values = fields.iter().map(|field| (*field, (value + time).into()));
        batch.stream(&stream()).row(time, values).unwrap();
        let point = plain.entry(time).or_default();
        point.extend(fields.iter().map(|field| (*field, value + time)));
    }
    db.commit(batch).unwrap();
}

/// What a snapshot shows, by rows handed out where they lie and by the newest values.
fn shown(snapshot: &Snapshot) -> Points {
    let mut points = Points::new();
    let each = |block: RowBlock<'_>| {
        for (row, time) in block.times().iter().enumerate() {
            let fields = FIELDS.iter().enumerate().filter_map(|(place, field)| {
                match block.column(place)?.get(row)?.to_owned() {
                    Value::I64(value) => Some((*field, value)),
                    _ => None,
                }
            });
            let before = points.insert(*time, fields.collect());
            assert_eq!(before, None, "two rows at {time}");
        }
    };
    let fields = Some(FIELDS.map(str::to_owned).to_vec());
    let spec = ScanSpec {
        fields,
        ..ScanSpec::default()
    };
    snapshot.visit(&stream(), &spec, each).unwrap();
    for last in snapshot.last(&stream()).unwrap() {
        let newest = points.iter().rev();
        let mut newest = newest.filter_map(|(t, p)| Some((*t, *p.get(last.field.as_str())?)));
        let found = (last.time.as_nanos(), last.value);
        let (time, value) = newest.next().unwrap();
        assert_eq!(found, (time, Value::I64(value)), "{}", last.field);
    }
    points
}

#[test]
fn the_first_question_merges_the_versions_of_points_for_those_that_follow() {
    let db = database();
    let mut plain = Points::new();
    for round in 0..40 {
        write_all(&db, &FIELDS, round * 1000, &mut plain);
    }
    let memory = || db.stats().unwrap().memory_bytes;
    let before = memory();
    assert_eq!(shown(&db.snapshot().unwrap()), plain);
    let merged = memory() - before;
    assert!(merged > 0, "nothing was kept for the next question");
    assert!(
        merged < before / 20,
        "{merged} bytes for one of 40 versions in {before}"
    );
    assert_eq!(shown(&db.snapshot().unwrap()), plain);
    assert_eq!(
        memory() - before,
        merged,
        "the second question merged again"
    );
    // One more version is read beside what was merged; what is stored needs nothing of it.
    write_all(&db, &["b"], 7, &mut plain);
    assert_eq!(shown(&db.snapshot().unwrap()), plain);
    db.flush().unwrap();
    assert_eq!(shown(&db.snapshot().unwrap()), plain);
    assert!(memory() < before / 40, "{} bytes are left", memory());
}

#[test]
fn points_that_are_only_out_of_order_are_not_kept_twice() {
    let db = database();
    for part in 0..20 {
        let mut batch = Batch::new();
        for row in 0..100 {
            let time = row * 20 + part;
            batch
                .stream(&stream())
                .row(time, [("a", 1i64.into())])
                .unwrap();
        }
        db.commit(batch).unwrap();
    }
    let before = db.stats().unwrap().memory_bytes;
    assert_eq!(shown(&db.snapshot().unwrap()).len(), 2000);
    assert_eq!(db.stats().unwrap().memory_bytes, before);
}

#[test]
fn what_was_merged_shows_what_the_rows_show_whatever_happens_beside_it() {
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let db = database();
        let mut plain = Points::new();
        let mut held: Vec<(Snapshot, Points)> = Vec::new();
        for step in 0..60 {
            let some: Vec<&'static str> = FIELDS.into_iter().filter(|_| dice.chance(60)).collect();
            match dice.below(20) {
                0 => {
                    let (a, b) = (dice.below(100) as i64, dice.below(100) as i64);
                    let range = ClosedRange::nanos(a.min(b), a.max(b));
                    db.delete(&DeleteSpec {
                        table: "t".into(),
                        tags: Vec::new(),
                        range,
                    })
                    .unwrap();
                    plain.retain(|time, _| !range.contains(Timestamp::from_nanos(*time)));
                }
                1 => db.flush().unwrap(),
                2 => db.compact().unwrap(),
                3 if held.len() < 3 => held.push((db.snapshot().unwrap(), plain.clone())),
                4 if !held.is_empty() => drop(held.remove(0)),
                5 => {
                    // A single point, late by itself.
                    let time = dice.below(100) as i64;
                    let mut batch = Batch::new();
                    batch
                        .stream(&stream())
                        .row(time, [("c", step.into())])
                        .unwrap();
                    db.commit(batch).unwrap();
                    plain.entry(time).or_default().insert("c", step);
                }
                _ if some.is_empty() => {}
                _ => write_all(&db, &some, step * 1000, &mut plain),
            }
            if dice.chance(50) && db.stats().unwrap().streams > 0 {
                assert_eq!(shown(&db.snapshot().unwrap()), plain, "{seed} {step}");
            }
            if let Some((snapshot, then)) = held.first().filter(|_| dice.chance(20))
                && !then.is_empty()
            {
                assert_eq!(shown(snapshot), *then, "held, {seed} {step}");
            }
        }
        for (snapshot, then) in held.iter().filter(|(_, then)| !then.is_empty()) {
            assert_eq!(shown(snapshot), *then, "held to the end, {seed}");
        }
        drop(held);
    }
}

#[test]
fn an_expiry_that_was_taken_back_by_a_newer_version_stays_taken_back() {
    let db = database();
    for round in 0..10i64 {
        let mut batch = Batch::new();
        for time in 0..POINTS {
            batch
                .stream(&stream())
                .row(time, [("a", round.into())])
                .unwrap();
        }
        if round % 2 == 0 {
            batch.expire_at(Timestamp::from_nanos(Env::MEMORY_START.as_nanos() - 1));
        }
        db.commit(batch).unwrap();
        let found = shown(&db.snapshot().unwrap());
        // Expired with the even rounds, back with the odd ones.
        assert_eq!(found.len(), if round % 2 == 0 { 0 } else { 100 }, "{round}");
    }
}
