//! Who is told what differs: over many streams, of some streams only, and until they want no more.

use super::World;
use headwater_engine::{DiffSpec, Differences, Error, ErrorKind, Result, StreamDiff};
use headwater_types::{Batch, StreamName};
use std::collections::BTreeSet;

/// More than one page of names.
const STREAMS: u64 = 9_500;

#[derive(Default)]
struct Recorder {
    /// Only streams whose tag says so.
    only: Option<&'static str>,
    hidden_table: Option<&'static str>,
    /// It is asked so often whether to go on, and then does not.
    patience: Option<u64>,
    calls: u64,
    looked_at: Vec<String>,
    reported: Vec<(String, u64)>,
}

impl Differences for Recorder {
    fn accepts_table(&mut self, table: &str) -> bool {
        self.hidden_table != Some(table)
    }

    fn accepts(&mut self, stream: &StreamName) -> bool {
        self.looked_at.push(stream.to_string());
        self.only
            .is_none_or(|kind| stream.tag("kind") == Some(kind))
    }

    fn goes_on(&mut self) -> Result<()> {
        self.calls += 1;
        match self.patience.is_none_or(|most| self.calls <= most) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Busy, "enough")),
        }
    }

    fn add_stream(&mut self, found: StreamDiff) -> Result<()> {
        let rows = found
            .stretches
            .iter()
            .map(|s| s.removed + s.added + s.changed);
        self.reported.push((found.stream.to_string(), rows.sum()));
        Ok(())
    }
}

fn stream(at: u64) -> StreamName {
    let kind = if at.is_multiple_of(3) { "x" } else { "y" };
    StreamName::new("many", [("id", at.to_string().as_str()), ("kind", kind)])
}

#[test]
fn streams_of_either_state_come_once_and_only_those_that_are_accepted() {
    let world = World::new(29);
    let db = world.open();
    let write = |of: &dyn Fn(u64) -> bool, value: f64| {
        let mut batch = Batch::new();
        for at in (0..STREAMS).filter(|at| of(*at)) {
            batch
                .stream(&stream(at))
                .row(1, [("v", value.into())])
                .unwrap();
        }
        batch
            .stream(&StreamName::new("other", [("id", "1")]))
            .row(1, [("v", value.into())])
            .unwrap();
        db.commit(batch).unwrap();
    };
    // Half of the streams are in both states, and of these every seventh differs.
    write(&|at| at.is_multiple_of(2), 1.0);
    db.create_snapshot("half").unwrap();
    write(&|at| !at.is_multiple_of(2) || at.is_multiple_of(7), 2.0);
    let (half, now) = (db.snapshot_named("half").unwrap(), db.snapshot().unwrap());
    let differs = |at: &u64| !at.is_multiple_of(2) || at.is_multiple_of(7);
    for (a, b) in [(&half, &now), (&now, &half)] {
        for only in [None, Some("x"), Some("none")] {
            let mut asker = Recorder {
                only,
                hidden_table: Some("other"),
                ..Recorder::default()
            };
            a.diff_to(b, &DiffSpec::default(), &mut asker).unwrap();
            let every: BTreeSet<String> = (0..STREAMS).map(|at| stream(at).to_string()).collect();
            assert_eq!(asker.looked_at.len(), every.len(), "each once");
            assert_eq!(asker.looked_at.into_iter().collect::<BTreeSet<_>>(), every);
            let wanted = (0..STREAMS).filter(differs).map(stream);
            let wanted = wanted.filter(|s| only.is_none_or(|kind| s.tag("kind") == Some(kind)));
            let wanted: BTreeSet<_> = wanted.map(|s| (s.to_string(), 1)).collect();
            assert_eq!(asker.reported.into_iter().collect::<BTreeSet<_>>(), wanted);
        }
    }
    // Of one tag any of the values, of several tags all.
    let spec = DiffSpec {
        table: Some("many".to_owned()),
        tags: ["1", "3", "4"]
            .map(|id| ("id".to_owned(), id.to_owned()))
            .into_iter()
            .chain([("kind".to_owned(), "y".to_owned())])
            .collect(),
        ..DiffSpec::default()
    };
    let mut asker = Recorder::default();
    half.diff_to(&now, &spec, &mut asker).unwrap();
    let mut looked_at = asker.looked_at;
    looked_at.sort();
    assert_eq!(looked_at, ["many,id=1,kind=y", "many,id=4,kind=y"]);
    assert_eq!(asker.reported, [("many,id=1,kind=y".to_owned(), 1)]);
}

#[test]
fn a_comparison_ends_when_nobody_wants_it_any_more_also_inside_of_a_stream() {
    let world = World::new(31);
    let db = world.open();
    let one = StreamName::new("one", [("id", "1")]);
    for value in [1.0, 2.0] {
        let mut batch = Batch::new();
        for time in 0..50_000 {
            batch.stream(&one).row(time, [("v", value.into())]).unwrap();
        }
        db.commit(batch).unwrap();
        if value < 2.0 {
            db.create_snapshot("before").unwrap();
        }
    }
    let (before, now) = (db.snapshot_named("before").unwrap(), db.snapshot().unwrap());
    let mut patient = Recorder::default();
    before
        .diff_to(&now, &DiffSpec::default(), &mut patient)
        .unwrap();
    assert_eq!(patient.reported, [(one.to_string(), 50_000)]);
    assert!(patient.calls >= 10, "asked {} times", patient.calls);
    for patience in 0..patient.calls {
        let mut asker = Recorder {
            patience: Some(patience),
            ..Recorder::default()
        };
        let ended = before.diff_to(&now, &DiffSpec::default(), &mut asker);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!((asker.calls, asker.reported), (patience + 1, Vec::new()));
    }
}
