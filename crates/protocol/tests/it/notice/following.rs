//! One follower, one case each.

use crate::notice::world::{
    at, changed, disconnect_notice, key, reported_version, sealed, sealed_by,
};
use headwater_protocol::notice::{Due, Follower, NodeVersion, NoticeOutcome, QueryReason};
use std::time::Duration;

const CHECK: Duration = Duration::from_secs(60);

/// One that knows version 5 of epoch 1, by a link.
fn following() -> Follower {
    let mut follower = Follower::new(CHECK);
    assert_eq!(follower.due(at(0)), Due::Now(QueryReason::Unknown));
    follower.link(true);
    follower.begin_query();
    follower.answered(at(1), reported_version(1, 5));
    assert_eq!(follower.due(at(1)), Due::At(at(61)));
    follower
}

fn query(follower: &mut Follower, seconds: u64, answer: NodeVersion) {
    follower.begin_query();
    follower.answered(at(seconds), answer);
}

#[test]
fn news_is_asked_for_at_once_and_then_it_is_quiet() {
    let mut follower = following();
    assert_eq!(
        follower.receive(&sealed(&changed(1, 1, 6))),
        NoticeOutcome::News { missed: 0 }
    );
    assert_eq!(follower.due(at(2)), Due::Now(QueryReason::News));
    query(&mut follower, 2, reported_version(1, 6));
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
    assert_eq!(follower.due(at(62)), Due::Now(QueryReason::Check));
}

#[test]
fn doubled_late_and_known_notices_make_nobody_ask() {
    let mut follower = following();
    assert_eq!(
        follower.receive(&sealed(&changed(1, 3, 8))),
        NoticeOutcome::News { missed: 0 }
    );
    query(&mut follower, 2, reported_version(1, 9));
    assert_eq!(
        follower.receive(&sealed(&changed(1, 3, 8))),
        NoticeOutcome::AlreadyKnown
    );
    assert_eq!(
        follower.receive(&sealed(&changed(1, 2, 7))),
        NoticeOutcome::Late
    );
    assert_eq!(
        follower.receive(&sealed(&changed(1, 4, 9))),
        NoticeOutcome::AlreadyKnown
    );
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
    // Two are missing before this one, and what they said is in the answer.
    assert_eq!(
        follower.receive(&sealed(&changed(1, 7, 12))),
        NoticeOutcome::News { missed: 2 }
    );
    assert_eq!(follower.due(at(3)), Due::Now(QueryReason::News));
}

#[test]
fn forged_notices_and_those_of_others_make_nobody_ask() {
    let mut follower = following();
    let forged = sealed_by(&key(9), &changed(1, 1_000, 1_000_000));
    assert_eq!(follower.receive(&forged), NoticeOutcome::Forged);
    let mut other = changed(1, 1, 6);
    other.identity += 1;
    assert_eq!(
        follower.receive(&sealed(&other)),
        NoticeOutcome::NotThisNode
    );
    assert_eq!(follower.due(at(2)), Due::At(at(61)));
    // It has not come instead of what the node tells.
    assert_eq!(
        follower.receive(&sealed(&changed(1, 1, 6))),
        NoticeOutcome::News { missed: 0 }
    );
    // A node that tells none over a bus: whatever comes there is not its own.
    let mut without = Follower::new(CHECK);
    without.link(true);
    query(
        &mut without,
        1,
        NodeVersion {
            key: None,
            ..reported_version(1, 5)
        },
    );
    assert_eq!(
        without.receive(&sealed(&changed(1, 1, 6))),
        NoticeOutcome::NotThisNode
    );
    assert_eq!(without.due(at(2)), Due::Waiting);
}

#[test]
fn what_comes_while_a_question_is_under_way_is_asked_for_again() {
    let mut follower = following();
    follower.receive(&sealed(&changed(1, 1, 6)));
    follower.begin_query();
    follower.receive(&sealed(&changed(1, 2, 7)));
    follower.answered(at(2), reported_version(1, 6));
    assert_eq!(follower.due(at(2)), Due::Now(QueryReason::News));
    query(&mut follower, 2, reported_version(1, 7));
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
}

#[test]
fn a_node_that_was_started_anew_is_asked_and_notices_of_before_are_late() {
    let mut follower = following();
    assert_eq!(
        follower.receive(&sealed(&changed(2, 1, 1))),
        NoticeOutcome::News { missed: 0 }
    );
    assert_eq!(
        follower.receive(&sealed(&changed(2, 2, 2))),
        NoticeOutcome::AlreadyKnown
    );
    query(&mut follower, 2, reported_version(2, 2));
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
    assert_eq!(
        follower.receive(&sealed(&changed(1, 9, 90))),
        NoticeOutcome::Late
    );
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
    assert_eq!(
        follower.receive(&sealed(&changed(2, 3, 3))),
        NoticeOutcome::News { missed: 0 }
    );
    // An old notice that somebody kept makes one question, once.
    let mut follower = following();
    assert_eq!(
        follower.receive(&sealed(&changed(7, 9, 90))),
        NoticeOutcome::News { missed: 0 }
    );
    query(&mut follower, 2, reported_version(1, 5));
    assert_eq!(
        follower.receive(&sealed(&changed(7, 10, 91))),
        NoticeOutcome::Late
    );
    assert_eq!(follower.due(at(2)), Due::At(at(62)));
    // Of an epoch that was heard of while a question was under way the next question tells.
    follower.begin_query();
    assert_eq!(
        follower.receive(&sealed(&changed(8, 1, 1))),
        NoticeOutcome::News { missed: 0 }
    );
    follower.answered(at(3), reported_version(1, 5));
    assert_eq!(follower.due(at(3)), Due::Now(QueryReason::News));
    query(&mut follower, 4, reported_version(8, 1));
    assert_eq!(follower.due(at(4)), Due::At(at(64)));
}

#[test]
fn the_end_of_a_nodes_connection_makes_one_question() {
    let mut follower = following();
    assert_eq!(
        follower.receive(&sealed(&disconnect_notice(1, 1))),
        NoticeOutcome::News { missed: 0 }
    );
    assert_eq!(follower.due(at(2)), Due::Now(QueryReason::Disconnected));
    follower.begin_query();
    follower.failed();
    assert_eq!(follower.due(at(2)), Due::Now(QueryReason::Unknown));
    query(&mut follower, 3, reported_version(1, 5));
    assert_eq!(
        follower.receive(&sealed(&disconnect_notice(1, 1))),
        NoticeOutcome::AlreadyKnown
    );
    assert_eq!(follower.due(at(3)), Due::At(at(63)));
    assert_eq!(
        follower.receive(&sealed(&disconnect_notice(1, 2))),
        NoticeOutcome::News { missed: 0 }
    );
    assert_eq!(
        follower.receive(&sealed(&disconnect_notice(1, 1))),
        NoticeOutcome::Late
    );
    // It counts apart from what changes.
    assert_eq!(
        follower.receive(&sealed(&changed(1, 1, 6))),
        NoticeOutcome::News { missed: 0 }
    );
}

#[test]
fn without_a_link_the_node_is_waited_at_and_a_gap_is_asked_for() {
    let mut follower = following();
    follower.link(false);
    assert_eq!(follower.due(at(2)), Due::Now(QueryReason::Gap));
    query(&mut follower, 2, reported_version(1, 5));
    assert_eq!(follower.due(at(2)), Due::Waiting);
    assert!(!follower.goes_by_notices());
    follower.link(true);
    assert_eq!(follower.due(at(3)), Due::Now(QueryReason::Gap));
    query(&mut follower, 3, reported_version(1, 6));
    assert_eq!(follower.due(at(3)), Due::At(at(63)));
    assert!(follower.goes_by_notices());
}

#[test]
fn a_broker_that_is_away_for_long_costs_no_more_than_waiting_at_the_node() {
    let mut follower = following();
    follower.link(false);
    // A week, in which the node changes each hour.
    for hour in 1..=168 {
        query(&mut follower, hour * 3_600, reported_version(1, 5 + hour));
        assert_eq!(follower.due(at(hour * 3_600)), Due::Waiting);
    }
    follower.link(true);
    assert_eq!(follower.due(at(605_000)), Due::Now(QueryReason::Gap));
    query(&mut follower, 605_000, reported_version(1, 173));
    // What the broker had kept from before it went.
    assert_eq!(
        follower.receive(&sealed(&changed(1, 2, 7))),
        NoticeOutcome::AlreadyKnown
    );
    assert_eq!(follower.due(at(605_000)), Due::At(at(605_060)));
}
