//! the time of a point by the size of batches, synced and not, ours and SQLite tuned.

use super::channel::Channel;
use super::{add_ratio, name_of};
use crate::baselines::{Open, STORES, Survival, Window};
use crate::harness::{
    Bench, Bound, Candidate, Failure, Rounds, Targets, time_round_with_drain, turns,
};
use crate::table;

/// Batches of a round at most: small ones are all sync.
const BATCHES_MAX: u64 = 300;

pub(super) fn measure(
    bench: &Bench,
    sizes: &[u64],
    points_max: u64,
) -> Result<Vec<Rounds>, Failure> {
    let mut candidates = Vec::new();
    for size in sizes {
        let size = (*size).max(1);
        let points = points_max.min(size * BATCHES_MAX).max(size);
        for survives in [Survival::PowerCut, Survival::Process] {
            for (store, open) in STORES.iter().take(2) {
                let name = format!("{store}, {}, batches of {size}", survives.name());
                candidates.push(candidate(bench, &name, (*open, survives), size, points));
            }
        }
    }
    let rounds = turns(bench.rounds(), candidates)?;
    let rows: Vec<Vec<String>> = rounds
        .iter()
        .map(|r| {
            vec![
                r.name.clone(),
                r.time(),
                r.spread(),
                format!("{:.3}", r.cpu_per_million()),
            ]
        })
        .collect();
    table::print(
        &["batches", "a point", "spread", "CPU s per million"],
        &rows,
    );
    Ok(rounds)
}

fn candidate<'a>(
    bench: &'a Bench,
    name: &str,
    (open, survives): (Open, Survival),
    size: u64,
    points: u64,
) -> Candidate<'a> {
    Candidate::new(name_of(name, points), move |_| {
        let dir = bench.path("batches");
        let mut store = open(&dir, 1, survives)?;
        let mut channel = Channel::new();
        let one = time_round_with_drain(
            &mut store,
            |store| {
                let mut left = points;
                while left > 0 {
                    let (seconds, values) = channel.take(size.min(left));
                    left -= seconds.len() as u64;
                    store.write(&Window {
                        seconds: &seconds,
                        values: &[&values],
                    })?;
                }
                Ok(points)
            },
            |store| store.drain(),
        )?;
        drop(store);
        std::fs::remove_dir_all(dir)?;
        Ok(one)
    })
}

pub(super) fn judge(rounds: &[Rounds], targets: &mut Targets) {
    let ours = |size: &str| {
        let name = format!("headwater, unsynced, batches of {size},");
        rounds.iter().find(move |r| r.name.starts_with(&name))
    };
    let best = rounds
        .iter()
        .filter(|r| r.name.starts_with("headwater, unsynced"))
        .min_by(|a, b| a.seconds().total_cmp(&b.seconds()));
    let what = "R-5: a point in batches of 1,000, unsynced, against the best size".to_owned();
    add_ratio(targets, what, Bound::AtMost(1.3), ours("1000"), best);
}
