//! Replays against the rows of all streams, put in order.

use super::world::World;
use crate::support::{Dice, Fields, collect};
use headwater_engine::{
    Comparison, ErrorKind, Filter, Replay, ReplayCursor, ReplaySpec, ScanSpec, Snapshot,
};
use headwater_types::{ClosedRange, StreamName, Timestamp, Value};

/// Time, stream, values.
type Row = (i64, StreamName, Fields);

/// The rows of all streams, by time, and by stream where times are equal.
fn expected(snapshot: &Snapshot, spec: &ReplaySpec) -> Vec<Row> {
    let scan = ScanSpec {
        range: spec.range,
        fields: spec.fields.clone(),
        filters: spec.filters.clone(),
        any_of: Vec::new(),
    };
    let mut rows = Vec::new();
    let streams = snapshot.streams_having(&spec.table, &spec.tags, None, usize::MAX);
    for stream in streams.unwrap() {
        let (found, errors) = collect(snapshot.scan(&stream, &scan).unwrap());
        assert!(errors.is_empty());
        rows.extend(found.into_iter().map(|(t, f)| (t, stream.clone(), f)));
    }
    rows.sort_by_key(|(time, ..)| *time);
    rows
}

/// Rows up to a number of them, and the cursor of the last one.
fn some(mut replay: Replay<'_>, most: usize) -> (Vec<Row>, Option<ReplayCursor>) {
    let (mut rows, mut cursor) = (Vec::new(), None);
    let names: Vec<String> = replay
        .fields()
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    while let Some(chunk) = replay.next() {
        let chunk = chunk.unwrap();
        assert!(!chunk.times.is_empty());
        for (row, time) in chunk.times.iter().enumerate() {
            if rows.len() == most {
                return (rows, cursor);
            }
            let stream = replay.stream(chunk.streams[row]).unwrap().clone();
            let fields = names.iter().zip(&chunk.columns);
            let fields = fields.filter_map(|(n, c)| Some((n.clone(), c.get(row)?.to_owned())));
            rows.push((*time, stream, fields.collect()));
            cursor = replay.cursor(&chunk, row);
            assert!(cursor.is_some());
        }
    }
    (rows, cursor)
}

fn some_spec(world: &World, dice: &mut Dice) -> ReplaySpec {
    let table = ["plain", "keeps", "moves", "ages", "forgets"][dice.below(5) as usize];
    let mut spec = ReplaySpec::new(table);
    // From a few rows at a time to everything at once.
    spec.memory_bytes = [1, 500, 4_000, 40_000, 1 << 26][dice.below(5) as usize];
    if dice.chance(50) {
        let span = world.span();
        let width = (span.last.as_nanos() - span.first.as_nanos()) as u64;
        let first = span.first.as_nanos() + dice.below(width) as i64;
        spec.range = ClosedRange::nanos(first, first + dice.below(width) as i64);
    }
    if dice.chance(40) {
        let ids = ["0", "1", "4", "5"].map(str::to_owned).to_vec();
        spec.tags = vec![("id".to_owned(), ids)];
    }
    if dice.chance(40) {
        spec.fields = Some(vec!["n".to_owned(), "c".to_owned()]);
    }
    if dice.chance(30) {
        spec.filters = vec![Filter {
            field: "v".to_owned(),
            comparison: Comparison::Less,
            value: Value::F64(60.0),
        }];
    }
    spec
}

#[test]
fn a_replay_is_the_rows_of_all_streams_in_order_and_goes_on_where_it_was_cut() {
    let (mut rows, mut cuts) = (0, 0);
    for seed in 61..=68 {
        let mut world = World::new(seed);
        let mut dice = Dice::new(seed);
        let mut all = None;
        for _ in 0..12 {
            for _ in 0..12 {
                world.step(&mut all);
            }
            let snapshot = match dice.chance(50) {
                true => world.across(&mut all),
                false => world.one(),
            };
            let spec = some_spec(&world, &mut dice);
            let wanted = expected(&snapshot, &spec);
            let mut found = Vec::new();
            let mut after = None;
            loop {
                let most = match dice.chance(25) {
                    true => usize::MAX,
                    false => 1 + dice.below(200) as usize,
                };
                let part = ReplaySpec {
                    after: after.clone(),
                    ..spec.clone()
                };
                let (part, cursor) = some(snapshot.replay(&part, None).unwrap(), most);
                let is_last = part.len() < most;
                found.extend(part);
                if is_last {
                    break;
                }
                (after, cuts) = (cursor, cuts + 1);
            }
            assert_eq!(found.len(), wanted.len(), "{spec:?}");
            for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                assert_eq!(found, wanted, "row {at} of {spec:?}");
            }
            rows += found.len();
        }
    }
    assert!(rows > 10_000 && cuts > 50, "{rows} {cuts}");
}

#[test]
fn a_replay_takes_the_streams_that_it_is_allowed_and_goes_on_behind_one_that_has_gone() {
    let mut world = World::new(71);
    for _ in 0..120 {
        world.step(&mut None);
    }
    let snapshot = world.one();
    let spec = ReplaySpec::new("plain");
    let all = expected(&snapshot, &spec);
    let is_odd = |stream: &StreamName| stream.tag("a").is_none();
    let odd: Vec<Row> = all.iter().filter(|(_, s, _)| is_odd(s)).cloned().collect();
    assert!(!odd.is_empty() && odd.len() < all.len());
    let mut accepts = |stream: &StreamName| is_odd(stream);
    let replay = snapshot.replay(&spec, Some(&mut accepts)).unwrap();
    assert_eq!(some(replay, usize::MAX).0, odd);
    // Behind a row of a stream that is not among them: all that stands behind it in order.
    let cut = all.iter().position(|(_, s, _)| !is_odd(s)).unwrap();
    let (time, stream, _) = &all[cut];
    let after = Some(ReplayCursor {
        time: Timestamp::from_nanos(*time),
        stream: stream.clone(),
        row: 1,
    });
    let spec = ReplaySpec { after, ..spec };
    let replay = snapshot.replay(&spec, Some(&mut accepts)).unwrap();
    let rest = all[cut..].iter().filter(|(_, s, _)| is_odd(s));
    assert_eq!(
        some(replay, usize::MAX).0,
        rest.cloned().collect::<Vec<_>>()
    );
}

#[test]
fn a_replay_of_what_is_not_there_is_refused_before_anything_is_read() {
    let mut world = World::new(72);
    for _ in 0..60 {
        world.step(&mut None);
    }
    let snapshot = world.one();
    let refused = |spec: ReplaySpec| snapshot.replay(&spec, None).err().unwrap().kind();
    assert_eq!(refused(ReplaySpec::new("none")), ErrorKind::NotFound);
    let fields = Some(vec!["none".to_owned()]);
    let spec = ReplaySpec::new("plain");
    assert_eq!(
        refused(ReplaySpec {
            fields,
            ..spec.clone()
        }),
        ErrorKind::NotFound
    );
    let filters = vec![Filter {
        field: "v".to_owned(),
        comparison: Comparison::Less,
        value: Value::Bool(true),
    }];
    assert_eq!(
        refused(ReplaySpec {
            filters,
            ..spec.clone()
        }),
        ErrorKind::Invalid
    );
    let after = Some(ReplayCursor {
        time: Timestamp::from_nanos(0),
        stream: StreamName::new("keeps", [("id", "1")]),
        row: 1,
    });
    assert_eq!(refused(ReplaySpec { after, ..spec }), ErrorKind::Invalid);
}
