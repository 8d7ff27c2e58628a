//! What a hook gets: each event, again while it is not taken, and dead letters in the end.

use crate::support::reported_events;
use headwater_watch::{
    ATTEMPTS_MAX, Change, DEAD_MAX, Delivery, EVENTS_MAX, Failure, Next, Persisted,
};

const SECOND: i64 = 1_000_000_000;

fn next(kept: &Persisted, now_ns: i64) -> Next {
    kept.delivery.next(&kept.journal, now_ns)
}

fn failure(is_final: bool) -> Failure {
    Failure {
        reason: "no answer".to_owned(),
        is_final,
    }
}

/// Tries the next event in vain, waiting as long as it says: how long that was.
fn fail_next(kept: &mut Persisted, now_ns: &mut i64, is_final: bool) -> bool {
    if let Next::Wait(until) = next(kept, *now_ns) {
        assert!(until > *now_ns);
        *now_ns = until;
    }
    let Next::Send(event) = next(kept, *now_ns) else {
        panic!("an event waits");
    };
    let given_up = kept.delivery.failed(&failure(is_final), *now_ns);
    if given_up {
        let attempts = kept.delivery.attempts();
        let dead = Delivery::dead_of(*event, attempts, "no answer");
        kept.apply(&Change::Died(dead));
    }
    given_up
}

#[test]
fn an_event_is_tried_with_pauses_that_grow_and_then_is_a_dead_letter() {
    let mut kept = reported_events(3);
    let mut now_ns = 0;
    let mut attempts = 1;
    while !fail_next(&mut kept, &mut now_ns, false) {
        attempts += 1;
    }
    assert_eq!(attempts, ATTEMPTS_MAX);
    assert!(now_ns > 60 * SECOND && now_ns < 600 * SECOND, "{now_ns}");
    assert_eq!(kept.delivery.dead().len(), 1);
    // While nothing is taken, the next ones are tried once each.
    assert!(fail_next(&mut kept, &mut now_ns, false));
    assert_eq!(
        (kept.delivery.delivered_up_to(), kept.delivery.dead().len()),
        (2, 2)
    );
    let Next::Wait(until) = next(&kept, now_ns) else {
        panic!("there is a pause");
    };
    // A clock that was set back does not stop it.
    assert!(matches!(
        next(&kept, now_ns - 10_000 * SECOND),
        Next::Send(_)
    ));
    assert!(matches!(next(&kept, until), Next::Send(_)));
    kept.apply(&Change::Delivered(3));
    assert_eq!(next(&kept, 0), Next::Nothing);
    assert_eq!(kept.delivery.reason(), None);
    kept.apply(&Change::Buried(1));
    assert_eq!(kept.delivery.dead().len(), 1);
}

#[test]
fn what_cannot_be_taken_is_not_tried_again() {
    let mut kept = reported_events(2);
    let mut now_ns = 0;
    assert!(fail_next(&mut kept, &mut now_ns, true));
    assert_eq!(kept.delivery.dead().values().next().unwrap().attempts, 1);
}

#[test]
fn dead_letters_and_the_journal_are_bounded_and_what_goes_is_counted() {
    let dead = i64::try_from(DEAD_MAX).unwrap();
    let mut kept = reported_events(dead + 10);
    let mut now_ns = 0;
    for _ in 0..dead + 10 {
        assert!(fail_next(&mut kept, &mut now_ns, true));
    }
    assert_eq!(kept.delivery.dead().len(), DEAD_MAX);
    assert_eq!(kept.delivery.lost(), 10);
    let mut journal = headwater_watch::Journal::default();
    let event = kept.journal.behind(0, 1).events.pop().unwrap();
    let most = u64::try_from(EVENTS_MAX).unwrap();
    for sequence in 1..=most + 5 {
        journal.push(headwater_watch::Event {
            sequence,
            ..event.clone()
        });
    }
    let behind = journal.behind(2, 3);
    assert_eq!((behind.missed, behind.newest), (3, most + 5));
    let numbers: Vec<u64> = behind.events.iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, [6, 7, 8]);
    assert_eq!(journal.behind(most + 5, 3).events.len(), 0);
}
