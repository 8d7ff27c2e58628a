//! One follower, one case each.

use crate::notice::world::{at, changed, gone, key, sealed, sealed_by, told};
use headwater_protocol::notice::{Due, Follower, Heard, NodeVersion, Why};
use std::time::Duration;

const CHECK: Duration = Duration::from_secs(60);

/// One that knows version 5 of epoch 1, by a link.
fn following() -> Follower {
    let mut follower = Follower::new(CHECK);
    assert_eq!(follower.due(at(0)), Due::Now(Why::Unknown));
    follower.link(true);
    follower.asks();
    follower.answered(at(1), told(1, 5));
    assert_eq!(follower.due(at(1)), Due::At(at(61)));
    follower
}

fn ask(follower: &mut Follower, seconds: u64, answer: NodeVersion) {
    follower.asks();
    follower.answered(at(seconds), answer);
}

#[test]
fn news_is_asked_for_at_once_and_then_it_is_quiet() {
    let mut follower = following();
    assert_eq!(
        follower.hear(&sealed(&changed(1, 1, 6))),
        Heard::News { missed: 0 }
    );
    assert_eq!(follower.due(at(2)), Due::Now(Why::News));
    ask(&mut follower, 2, told(1, 6));
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
    assert_eq!(follower.due(at(62)), Due::Now(Why::Check));
}

#[test]
fn doubled_late_and_known_notices_make_nobody_ask() {
    let mut follower = following();
    assert_eq!(
        follower.hear(&sealed(&changed(1, 3, 8))),
        Heard::News { missed: 0 }
    );
    ask(&mut follower, 2, told(1, 9));
    assert_eq!(follower.hear(&sealed(&changed(1, 3, 8))), Heard::Known);
    assert_eq!(follower.hear(&sealed(&changed(1, 2, 7))), Heard::Late);
    assert_eq!(follower.hear(&sealed(&changed(1, 4, 9))), Heard::Known);
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
    // Two are missing before this one, and what they said is in the answer.
    assert_eq!(
        follower.hear(&sealed(&changed(1, 7, 12))),
        Heard::News { missed: 2 }
    );
    assert_eq!(follower.due(at(3)), Due::Now(Why::News));
}

#[test]
fn forged_notices_and_those_of_others_make_nobody_ask() {
    let mut follower = following();
    let forged = sealed_by(&key(9), &changed(1, 1_000, 1_000_000));
    assert_eq!(follower.hear(&forged), Heard::Forged);
    let mut other = changed(1, 1, 6);
    other.identity += 1;
    assert_eq!(follower.hear(&sealed(&other)), Heard::Other);
    assert_eq!(follower.due(at(2)), Due::At(at(61)));
    // It has not come instead of what the node tells.
    assert_eq!(
        follower.hear(&sealed(&changed(1, 1, 6))),
        Heard::News { missed: 0 }
    );
    // A node that tells none over a bus: whatever comes there is not its own.
    let mut without = Follower::new(CHECK);
    without.link(true);
    ask(
        &mut without,
        1,
        NodeVersion {
            key: None,
            ..told(1, 5)
        },
    );
    assert_eq!(without.hear(&sealed(&changed(1, 1, 6))), Heard::Other);
    assert_eq!(without.due(at(2)), Due::Waiting);
}

#[test]
fn what_comes_while_a_question_is_under_way_is_asked_for_again() {
    let mut follower = following();
    follower.hear(&sealed(&changed(1, 1, 6)));
    follower.asks();
    follower.hear(&sealed(&changed(1, 2, 7)));
    follower.answered(at(2), told(1, 6));
    assert_eq!(follower.due(at(2)), Due::Now(Why::News));
    ask(&mut follower, 2, told(1, 7));
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
}

#[test]
fn a_node_that_was_started_anew_is_asked_and_notices_of_before_are_late() {
    let mut follower = following();
    assert_eq!(
        follower.hear(&sealed(&changed(2, 1, 1))),
        Heard::News { missed: 0 }
    );
    assert_eq!(follower.hear(&sealed(&changed(2, 2, 2))), Heard::Known);
    ask(&mut follower, 2, told(2, 2));
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
    assert_eq!(follower.hear(&sealed(&changed(1, 9, 90))), Heard::Late);
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
    assert_eq!(
        follower.hear(&sealed(&changed(2, 3, 3))),
        Heard::News { missed: 0 }
    );
    // An old notice that somebody kept makes one question, once.
    let mut follower = following();
    assert_eq!(
        follower.hear(&sealed(&changed(7, 9, 90))),
        Heard::News { missed: 0 }
    );
    ask(&mut follower, 2, told(1, 5));
    assert_eq!(follower.hear(&sealed(&changed(7, 10, 91))), Heard::Late);
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
    // Of an epoch that was heard of while a question was under way the next question tells.
    follower.asks();
    assert_eq!(
        follower.hear(&sealed(&changed(8, 1, 1))),
        Heard::News { missed: 0 }
    );
    follower.answered(at(3), told(1, 5));
    assert_eq!(follower.due(at(3)), Due::Now(Why::News));
    ask(&mut follower, 4, told(8, 1));
    assert_eq!(follower.due(at(4)), Due::At(at(64)));
}

#[test]
fn the_end_of_a_nodes_connection_makes_one_question() {
    let mut follower = following();
    assert_eq!(
        follower.hear(&sealed(&gone(1, 1))),
        Heard::News { missed: 0 }
    );
    assert_eq!(follower.due(at(2)), Due::Now(Why::Gone));
    follower.asks();
    follower.failed();
    assert_eq!(follower.due(at(2)), Due::Now(Why::Unknown));
    ask(&mut follower, 3, told(1, 5));
    assert_eq!(follower.hear(&sealed(&gone(1, 1))), Heard::Known);
    assert_eq!(follower.due(at(3)), Due::At(at(63)));
    assert_eq!(
        follower.hear(&sealed(&gone(1, 2))),
        Heard::News { missed: 0 }
    );
    assert_eq!(follower.hear(&sealed(&gone(1, 1))), Heard::Late);
    // It counts apart from what changes.
    assert_eq!(
        follower.hear(&sealed(&changed(1, 1, 6))),
        Heard::News { missed: 0 }
    );
}

#[test]
fn without_a_link_the_node_is_waited_at_and_a_gap_is_asked_for() {
    let mut follower = following();
    follower.link(false);
    assert_eq!(follower.due(at(2)), Due::Now(Why::Gap));
    ask(&mut follower, 2, told(1, 5));
    assert_eq!(follower.due(at(2)), Due::Waiting);
    assert!(!follower.goes_by_notices());
    follower.link(true);
    assert_eq!(follower.due(at(3)), Due::Now(Why::Gap));
    ask(&mut follower, 3, told(1, 6));
    assert_eq!(follower.due(at(3)), Due::At(at(63)));
    assert!(follower.goes_by_notices());
}

#[test]
fn a_broker_that_is_away_for_long_costs_no_more_than_waiting_at_the_node() {
    let mut follower = following();
    follower.link(false);
    // A week, in which the node changes each hour.
    for hour in 1..=168 {
        ask(&mut follower, hour * 3_600, told(1, 5 + hour));
        assert_eq!(follower.due(at(hour * 3_600)), Due::Waiting);
    }
    follower.link(true);
    assert_eq!(follower.due(at(605_000)), Due::Now(Why::Gap));
    ask(&mut follower, 605_000, told(1, 173));
    // What the broker had kept from before it went.
    assert_eq!(follower.hear(&sealed(&changed(1, 2, 7))), Heard::Known);
    assert_eq!(follower.due(at(605_000)), Due::At(at(605_060)));
}
