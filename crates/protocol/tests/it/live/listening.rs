//! What a node has heard: bounded, in order, and nothing under the topic of another stream.

use super::value;
use headwater_protocol::live::{
    HEARD_BYTES_MAX, HEARD_STREAMS_MAX, HeardOutcome, ITEM_BYTES_MAX, NewestValues, ValueListener,
    topic_of,
};
use headwater_protocol::xmpp::Element;
use headwater_types::Value;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(7);

fn receive(listener: &mut ValueListener, stream: &str, item: &Element) -> HeardOutcome {
    listener.receive(NOW, ("v", &topic_of("v", stream)), item)
}

fn item(stream: &str, epoch: u64, number: u64) -> NewestValues {
    NewestValues {
        stream: stream.to_owned(),
        source: 1,
        epoch,
        number,
        omitted: 0,
        values: vec![value("f", 5, 1.0)],
    }
}

#[test]
fn the_newest_stays_whatever_the_order() {
    let mut listener = ValueListener::default();
    let mut hear = |epoch, number| receive(&mut listener, "a", &item("a", epoch, number).element());
    assert_eq!(hear(1, 5), HeardOutcome::News { missed: 0 });
    assert_eq!(hear(1, 5), HeardOutcome::AlreadyKnown);
    assert_eq!(hear(1, 4), HeardOutcome::Late);
    assert_eq!(hear(1, 9), HeardOutcome::News { missed: 3 });
    // The source was restarted: its numbers begin anew.
    assert_eq!(hear(2, 1), HeardOutcome::News { missed: 0 });
    assert_eq!(hear(2, 3), HeardOutcome::News { missed: 1 });
    let heard = listener.get("a").unwrap();
    assert_eq!((heard.missed, heard.heard, heard.item.number), (4, NOW, 3));
}

#[test]
fn an_item_belongs_to_the_stream_of_its_topic() {
    let mut listener = ValueListener::default();
    let heard = receive(&mut listener, "b", &item("a", 1, 1).element());
    assert_eq!(heard, HeardOutcome::Garbled);
    assert!(listener.is_empty());
}

#[test]
fn streams_and_bytes_are_bounded() {
    let mut listener = ValueListener::default();
    for number in 0..HEARD_STREAMS_MAX {
        let name = format!("s{number}");
        let heard = receive(&mut listener, &name, &item(&name, 1, 1).element());
        assert_eq!(heard, HeardOutcome::News { missed: 0 });
    }
    assert_eq!(
        receive(&mut listener, "x", &item("x", 1, 1).element()),
        HeardOutcome::Full
    );
    assert_eq!(
        receive(&mut listener, "s1", &item("s1", 1, 2).element()),
        HeardOutcome::News { missed: 0 }
    );
    listener.retain(|stream| stream == "s7");
    assert_eq!(listener.len(), 1);
    // After a while only bytes are short.
    let mut bytes = 0;
    for number in 0..HEARD_STREAMS_MAX {
        let name = format!("t{number}");
        let mut large = item(&name, 1, 1);
        let text = "x".repeat(ITEM_BYTES_MAX - 100);
        large.values = vec![value("f", 1, Value::String(text))];
        if receive(&mut listener, &name, &large.element()) == HeardOutcome::Full {
            break;
        }
        bytes += large.size();
        assert!(bytes <= HEARD_BYTES_MAX);
    }
    assert!(bytes > HEARD_BYTES_MAX - 2 * ITEM_BYTES_MAX, "{bytes}");
    listener.retain(|_| false);
    let heard = receive(&mut listener, "x", &item("x", 1, 1).element());
    assert_eq!(heard, HeardOutcome::News { missed: 0 });
}
