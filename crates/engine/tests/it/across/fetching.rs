//! Ranges that a read on behalf of a reader needs of a copy: recorded at once, and no others.

use super::copies::PartCopy;
use super::world::World;
use headwater_engine::{
    AggregateSpec, Bins, ErrorKind, MissedRange, Result, Snapshot, SummarySpec, reading_for,
};
use headwater_types::{ClosedRange, Level, StreamName, Timestamp};
use std::collections::BTreeSet;

/// What is read of a stream.
#[derive(Clone, Copy, Debug)]
enum Read {
    Tile(Level, i64),
    Aggregate(ClosedRange, Bins),
    Summary(ClosedRange, Bins),
}

impl Read {
    fn run(self, snapshot: &Snapshot, stream: &StreamName) -> Result<String> {
        match self {
            Read::Tile(level, offset) => snapshot
                .tile(stream, "v", level, offset)
                .map(|found| format!("{found:?}")),
            Read::Aggregate(range, bins) => {
                let spec = AggregateSpec {
                    range,
                    bins,
                    first_last: false,
                };
                let found = snapshot.aggregate(stream, "v", &spec);
                found.map(|found| format!("{found:?}"))
            }
            Read::Summary(range, bins) => {
                let spec = SummarySpec {
                    range,
                    bins,
                    fields: vec!["v".to_owned()],
                };
                let found = snapshot.summary(stream, &spec);
                found.map(|found| format!("{found:?}"))
            }
        }
    }
}

/// What a read had fetched until it succeeded.
struct Fetched {
    rounds: u64,
    ranges: BTreeSet<(u64, u64, u64)>,
    answer: String,
}

fn fetch(far: &PartCopy, reader: u64, read: &dyn Fn(&Snapshot) -> Result<String>) -> Fetched {
    let mut fetched = Fetched {
        rounds: 0,
        ranges: BTreeSet::new(),
        answer: String::new(),
    };
    loop {
        let snapshot = far.snapshot();
        let found = match reader {
            0 => read(&snapshot),
            reader => reading_for(reader, || read(&snapshot)),
        };
        let missed = far.copy.take_missed_of(reader);
        match found {
            Ok(answer) => return Fetched { answer, ..fetched },
            Err(error) => assert_eq!(error.kind(), ErrorKind::Elsewhere, "{error}"),
        }
        assert!(!missed.is_empty());
        for MissedRange {
            segment,
            offset,
            bytes,
        } in missed
        {
            far.bring(segment, offset, bytes);
            assert!(fetched.ranges.insert((segment, offset, bytes)));
        }
        far.copy.commit().unwrap();
        fetched.rounds += 1;
        assert!(fetched.rounds < 10_000);
    }
}

/// Reads of the whole span, of tiles in it, and of parts of it.
fn reads(world: &mut World) -> Vec<Read> {
    let span = world.span();
    let cut = ClosedRange::new(
        Timestamp::from_nanos(span.first.as_nanos() + world.dice.below(1 << 40) as i64),
        span.last,
    );
    let every = |width_ns| Bins::Every {
        width_ns,
        origin_ns: 7,
    };
    let mut all = vec![
        Read::Aggregate(ClosedRange::ALL, Bins::Whole),
        Read::Aggregate(cut, Bins::Whole),
        Read::Aggregate(cut, every(3_000_000_000)),
        Read::Summary(cut, every(100_000_000_000)),
        Read::Summary(ClosedRange::ALL, Bins::Level(Level::clamped(5))),
    ];
    for level in [-6, 0, 1, 2, 3, 5, 8, 11] {
        let level = Level::clamped(level);
        let at = level.bucket_of(cut.first).div_euclid(512);
        all.push(Read::Tile(level, at));
    }
    all
}

#[test]
fn a_reader_has_all_that_it_needs_fetched_at_once_and_nothing_else() {
    let (mut alone, mut at_once, mut several) = (0, 0, 0);
    for seed in 60..66 {
        let mut world = World::new(seed);
        for _ in 0..160 {
            world.step(&mut None);
        }
        let whole = PartCopy::of(&world, 1, Level::MIN);
        while whole.fetch(u64::MAX) {}
        let source = whole.snapshot();
        let mut streams = Vec::new();
        for table in ["plain", "ages"] {
            streams.extend(source.streams(table, &[]).unwrap().into_iter().take(2));
        }
        for stream in streams {
            for what in reads(&mut world) {
                let read = |snapshot: &Snapshot| what.run(snapshot, &stream);
                let expected = read(&source).unwrap();
                let by_one = fetch(&PartCopy::of(&world, 1, Level::MIN), 0, &read);
                let together = fetch(&PartCopy::of(&world, 1, Level::MIN), 7, &read);
                assert_eq!(by_one.answer, expected, "{stream} {what:?}");
                assert_eq!(together.answer, expected, "{stream} {what:?}");
                // Footers, late rows, buckets, rows; borders of bins that are none of buckets lead
                // on to rows level by level.
                let most = match what {
                    Read::Tile(..) => by_one.rounds.min(4),
                    Read::Aggregate(..) | Read::Summary(..) => by_one.rounds,
                };
                assert!(together.rounds <= most, "{stream} {what:?}");
                let more: Vec<_> = together.ranges.difference(&by_one.ranges).collect();
                assert_eq!(more, Vec::<&(u64, u64, u64)>::new(), "{stream} {what:?}");
                alone += by_one.rounds;
                at_once += together.rounds;
                several += u64::from(by_one.rounds > together.rounds + 1);
            }
        }
    }
    assert!(several > 40, "{alone} rounds one by one, {at_once} at once");
}
