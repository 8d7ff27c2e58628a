//! What a node publishes: the newest of each stream, few at a time, and what a slow bus replaces is
//! told by numbers.

use super::value;
use headwater_protocol::live::{
    HeardOutcome, PublishAnswer, PublisherLimits, ValueListener, ValuePublisher, ValueRequest,
    topic_of,
};
use headwater_testing::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const LIMITS: PublisherLimits = PublisherLimits {
    streams: 3,
    in_flight: 2,
    retry: Duration::from_secs(10),
    retry_max: Duration::from_secs(15),
};
const START: Duration = Duration::ZERO;

fn names(streams: &[&str]) -> BTreeSet<String> {
    streams.iter().map(|name| (*name).to_owned()).collect()
}

fn publisher(streams: &[&str]) -> ValuePublisher {
    let mut publisher = ValuePublisher::new(LIMITS, 1, 2);
    publisher.select(&names(streams));
    publisher
}

/// Stream and number of the next item.
fn next(publisher: &mut ValuePublisher, now: Duration) -> Option<(String, u64)> {
    match publisher.next(now)? {
        ValueRequest::Publish(item) => Some((item.stream, item.number)),
        ValueRequest::Retract(stream) => panic!("{stream} is withdrawn"),
    }
}

fn of(stream: &str, number: u64) -> Option<(String, u64)> {
    Some((stream.to_owned(), number))
}

#[test]
fn the_newest_of_a_stream_replaces_an_older_one() {
    let mut publisher = publisher(&["a", "b"]);
    for number in 0..3 {
        publisher.offer("a", vec![value("f", number, 1.0)]);
    }
    assert_eq!(publisher.next(START), None, "not connected");
    publisher.set_connected(true);
    assert_eq!(next(&mut publisher, START), of("a", 3));
    assert_eq!(publisher.counts().replaced, 2);
    // Only one of a stream is on its way.
    publisher.offer("a", vec![value("f", 3, 1.0)]);
    publisher.offer("a", vec![value("f", 4, f64::NAN)]);
    publisher.offer("a", vec![value("f", 4, f64::NAN)]);
    assert_eq!(publisher.next(START), None);
    publisher.answered(START, "a", false, PublishAnswer::Done);
    assert_eq!(next(&mut publisher, START), of("a", 5));
    publisher.answered(START, "a", false, PublishAnswer::Done);
    assert_eq!(publisher.next(START), None);
    let counts = publisher.counts();
    assert_eq!(
        (counts.published, counts.replaced, counts.refused),
        (2, 3, 0)
    );
    // A new connection gets the newest again.
    publisher.set_connected(false);
    assert_eq!(publisher.next(START), None);
    publisher.set_connected(true);
    assert_eq!(next(&mut publisher, START), of("a", 5));
    assert_eq!(publisher.counts().replaced, 3, "it was published");
}

#[test]
fn a_bounded_number_of_requests_waits() {
    let mut publisher = publisher(&["a", "b", "c", "d"]);
    assert_eq!(
        (publisher.counts().streams, publisher.counts().beyond),
        (3, 1)
    );
    for stream in ["a", "b", "c", "d"] {
        publisher.offer(stream, vec![value("f", 1, 1.0)]);
    }
    publisher.set_connected(true);
    assert_eq!(next(&mut publisher, START), of("a", 1));
    assert_eq!(next(&mut publisher, START), of("b", 1));
    assert_eq!(publisher.next(START), None);
    publisher.answered(START, "b", false, PublishAnswer::Done);
    assert_eq!(next(&mut publisher, START), of("c", 1));
    // Known streams stay, and there is room for another once one of them has gone.
    publisher.select(&names(&["0", "a", "b", "c"]));
    assert_eq!(publisher.streams().collect::<Vec<_>>(), ["a", "b", "c"]);
    publisher.select(&names(&["0", "a", "c"]));
    assert_eq!(publisher.streams().collect::<Vec<_>>(), ["0", "a", "c"]);
    assert_eq!(publisher.counts().beyond, 0);
}

#[test]
fn a_refused_stream_is_tried_again_with_its_newest_values() {
    let mut publisher = publisher(&["a", "b"]);
    publisher.set_connected(true);
    publisher.offer("a", vec![value("f", 1, 1.0)]);
    assert_eq!(next(&mut publisher, START), of("a", 1));
    publisher.answered(START, "a", false, PublishAnswer::NoTopic);
    publisher.offer("a", vec![value("f", 2, 1.0)]);
    publisher.offer("b", vec![value("f", 1, 1.0)]);
    assert_eq!(next(&mut publisher, START), of("b", 1), "others go on");
    assert_eq!(publisher.next(START), None);
    assert_eq!(publisher.due(), Some(LIMITS.retry));
    assert_eq!(next(&mut publisher, LIMITS.retry), of("a", 2));
    publisher.answered(LIMITS.retry, "a", false, PublishAnswer::Done);
    assert_eq!(publisher.due(), None);
    assert_eq!(
        (publisher.counts().refused, publisher.counts().published),
        (1, 1)
    );
}

#[test]
fn the_item_of_a_withdrawn_stream_is_removed_once_for_each_connection() {
    let mut publisher = publisher(&["a", "b"]);
    publisher.set_connected(true);
    publisher.offer("a", vec![value("f", 1, 1.0)]);
    assert_eq!(next(&mut publisher, START), of("a", 1));
    publisher.select(&names(&["b"]));
    publisher.withdraw("never");
    let retract = |stream: &str| Some(ValueRequest::Retract(stream.to_owned()));
    assert_eq!(publisher.next(START), retract("a"));
    assert_eq!(publisher.next(START), retract("never"));
    assert_eq!(publisher.next(START), None);
    // The answers come in order, the one of the item first.
    publisher.answered(START, "a", false, PublishAnswer::Done);
    publisher.answered(START, "a", true, PublishAnswer::Done);
    publisher.answered(START, "never", true, PublishAnswer::Refused);
    publisher.offer("a", vec![value("f", 2, 1.0)]);
    assert_eq!(publisher.next(START), None);
    publisher.set_connected(true);
    assert_eq!(publisher.next(START), retract("a"));
    assert_eq!(publisher.next(START), retract("never"));
    publisher.answered(START, "a", true, PublishAnswer::Done);
    // It is published again, and its numbers begin in another epoch.
    publisher.select(&names(&["a", "b"]));
    publisher.offer("a", vec![value("f", 3, 1.0)]);
    match publisher.next(START) {
        Some(ValueRequest::Publish(item)) => assert!(item.number == 1 && item.epoch != 2),
        other => panic!("{other:?}"),
    }
}

/// A bus that is away, slow, or refuses, by chance.
#[test]
fn over_any_bus_the_newest_arrives_and_the_numbers_tell_the_rest() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let streams = ["a", "b", "c"];
        let mut publisher = publisher(&streams);
        let mut listener = ValueListener::default();
        let mut offered: BTreeMap<&str, u64> = BTreeMap::new();
        let mut on_the_way = Vec::new();
        let (mut now, mut is_connected, mut news, mut missed) = (START, false, 0, 0);
        for step in 0..400_u64 {
            let is_over = step >= 380;
            now += Duration::from_secs(dice.below(4));
            if is_over || dice.below(20) == 0 {
                let is_up = is_over || !is_connected;
                if is_up != is_connected {
                    is_connected = is_up;
                    publisher.set_connected(is_up);
                    on_the_way.clear();
                }
            }
            if !is_over && dice.below(2) == 0 {
                let stream = streams[usize::try_from(dice.below(3)).unwrap()];
                *offered.entry(stream).or_default() += 1;
                publisher.offer(stream, vec![value("f", i64::try_from(step).unwrap(), 1.0)]);
            }
            while let Some(request) = publisher.next(now) {
                let ValueRequest::Publish(item) = request else {
                    panic!("{request:?}");
                };
                on_the_way.push(item);
                assert!(on_the_way.len() <= LIMITS.in_flight, "{seed}");
            }
            while !on_the_way.is_empty() && (is_over || dice.below(2) == 0) {
                let item = on_the_way.remove(0);
                let is_refused = !is_over && dice.below(8) == 0;
                let answer = match is_refused {
                    true => PublishAnswer::Refused,
                    false => PublishAnswer::Done,
                };
                if !is_refused {
                    match listener.receive(
                        now,
                        ("v", &topic_of("v", &item.stream)),
                        &item.element(),
                    ) {
                        HeardOutcome::News { missed: of } => {
                            (news, missed) = (news + 1, missed + of)
                        }
                        HeardOutcome::AlreadyKnown => {}
                        other => panic!("{seed} {step} {other:?}"),
                    }
                }
                publisher.answered(now, &item.stream, false, answer);
                if is_over {
                    now += LIMITS.retry_max;
                }
            }
        }
        for (stream, number) in &offered {
            let heard = listener.get(stream).unwrap();
            assert_eq!(heard.item.number, *number, "{seed} {stream}");
        }
        // Everything was heard, or is told to be missing, or came before the first.
        let told: u64 = listener.all().map(|heard| heard.missed).sum();
        assert_eq!(told, missed);
        assert!(news + missed <= offered.values().sum(), "{seed}");
    }
}
