//! Random lives of a state: what is told and not taken back is what is found and decided.

use crate::support::{BOUNDS, match_of, round};
use headwater_watch::{Change, EventKind, Match, Persisted};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Move {
    /// A match is there, with an answer.
    Put(u8, i64, u8),
    Take(u8, i64),
    On(i64),
    Quiet,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (0..3u8, -12..6i64, 0..3u8).prop_map(|(p, at, row)| Move::Put(p, at, row)),
        2 => (0..3u8, -12..6i64).prop_map(|(p, at)| Move::Take(p, at)),
        4 => (0..9i64).prop_map(Move::On),
        1 => Just(Move::Quiet),
    ];
    prop::collection::vec(one, 1..60)
}

proptest! {
    #[test]
    fn what_is_told_is_what_is_found(moves in moves()) {
        let mut kept = Persisted::new(1, i64::MIN);
        let mut there: BTreeMap<(u8, i64), u8> = BTreeMap::new();
        let mut told: BTreeMap<String, (i64, String)> = BTreeMap::new();
        let mut settled: Vec<String> = Vec::new();
        let (mut clock, mut quiet) = (100, false);
        for step in moves {
            let stays = kept.state.settled_ns();
            match step {
                // Nothing changes of what is settled: the rows of it may come too late.
                Move::Put(p, at, row) if clock + at >= stays => {
                    there.insert((p, clock + at), row);
                }
                Move::Take(p, at) if clock + at >= stays => {
                    there.remove(&(p, clock + at));
                }
                Move::On(by) => clock += by,
                Move::Quiet => quiet = true,
                _ => {}
            }
            let all: Vec<Match> = there
                .iter()
                .filter(|((_, at), _)| *at >= stays)
                .map(|((p, at), row)| match_of(&format!("[{p}]"), *at, at + 3, &format!("{{\"r\":{row}}}")))
                .collect();
            let mut now = round(clock, all.clone());
            now.is_quiet = std::mem::take(&mut quiet);
            let was_quiet = now.is_quiet;
            let step = kept.state.step(BOUNDS, &now).unwrap();
            kept.apply(&Change::Step(step.clone()));
            for event in &step.events {
                let id = event.id(5);
                match event.kind {
                    EventKind::Match => {
                        let one = (event.key.first.time_ns, event.row.clone());
                        prop_assert!(told.insert(id.clone(), one).is_none() && !settled.contains(&id));
                    }
                    _ => prop_assert!(told.remove(&id).is_some()),
                }
                settled.push(id);
            }
            let mut expected: Vec<(i64, String)> = all
                .iter()
                .map(|f| (f.key.first.time_ns, f.row.clone()))
                .collect();
            expected.sort();
            let mut live: Vec<(i64, String)> =
                told.values().filter(|(at, _)| *at >= stays).cloned().collect();
            live.sort();
            if was_quiet {
                prop_assert_eq!(&live, &expected);
            }
            // Nothing is told that is not there.
            prop_assert!(live.iter().all(|one| expected.contains(one)));
        }
    }
}
