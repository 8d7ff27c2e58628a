//! The memory budget bounds the memory of all replays together, however many run.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;
use crate::{Database, Options};
use headwater_io::{Env, NoThreads};
use headwater_types::{Batch, StreamRows, Values};

const STREAMS: i64 = 40;
const ROWS: i64 = 2_000;
const REPLAYS: usize = 32;

fn slab_bytes(replay: &ReplaySteps) -> usize {
    let slab = replay.slab.iter();
    let bytes = slab.map(|slab| {
        let columns: usize = slab.columns.iter().map(Column::heap_bytes).sum();
        columns + slab.times.len() * 8 + slab.streams.len() * 4 + slab.order.len() * 4
    });
    bytes.sum()
}

#[test]
fn thirty_two_replays_hold_a_quarter_of_the_budget() {
    let env = Env {
        threads: Arc::new(NoThreads),
        ..Env::memory()
    };
    let options = Options {
        memory_budget_bytes: 16 << 20,
        ..Options::new("/db")
    };
    let db = Database::open_in(env, options).unwrap();
    for stream in 0..STREAMS {
        let mut entry = StreamRows::new(StreamName::new("m", [("s", stream.to_string())]));
        entry.times = (0..ROWS).map(|n| n * 1_000 + stream).collect();
        for field in ["a", "b", "c", "d"] {
            let values = (0..ROWS).map(|n| n.cast_unsigned()).collect();
            entry = entry.with_column(field, Values::U64(values));
        }
        let mut batch = Batch::new();
        batch.push(entry);
        db.commit(batch).unwrap();
    }
    db.flush().unwrap();
    let snapshot = db.snapshot().unwrap();
    let spec = ReplaySpec::new("m");
    let begin = |_| snapshot.replay_steps(&spec, None).unwrap();
    let mut replays: Vec<(ReplaySteps, i64)> = (0..REPLAYS).map(begin).map(|r| (r, 0)).collect();
    let (mut goes_on, mut most) = (true, 0);
    while goes_on {
        goes_on = false;
        for at in 0..REPLAYS {
            let (replay, rows) = &mut replays[at];
            if let Some(chunk) = replay.next_chunk(&snapshot) {
                *rows += i64::try_from(chunk.unwrap().times.len()).unwrap();
                goes_on = true;
            }
            most = most.max(replays.iter().map(|(replay, _)| slab_bytes(replay)).sum());
        }
    }
    let bound = (4 << 20) + REPLAYS * (64 << 10);
    assert!((512 << 10..=bound).contains(&most), "{most}");
    assert!(replays.iter().all(|(_, rows)| *rows == STREAMS * ROWS));
    assert!(replays.iter().all(|(replay, _)| replay.share.is_none()));
    // A larger limit that is set explicitly is granted.
    let spec = ReplaySpec {
        memory_bytes: 64 << 20,
        ..spec
    };
    let mut alone = snapshot.replay_steps(&spec, None).unwrap();
    alone.next_chunk(&snapshot).unwrap().unwrap();
    assert!(slab_bytes(&alone) > 3 << 20, "{}", slab_bytes(&alone));
}
