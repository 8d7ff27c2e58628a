//! Reading live values never panics, what is read is written and read to the same, and a listener
//! stores it once.
#![no_main]

use headwater_protocol::live::{HeardOutcome, NewestValues, ValueListener, topic_of};
use headwater_protocol::xmpp::{Element, Limits, Read, Reader};
use libfuzzer_sys::fuzz_target;
use std::time::Duration;

/// Elements inside a stream whose beginning is right.
fn stanzas(data: &[u8]) -> Vec<Element> {
    let mut reader = Reader::new(Limits::default());
    reader.push(b"<s xmlns='jabber:client'>");
    reader.push(data);
    let mut all = Vec::new();
    while let Ok(Some(read)) = reader.next() {
        if let Read::Stanza(stanza) = read {
            all.push(stanza);
        }
    }
    all
}

fuzz_target!(|data: &[u8]| {
    let mut listener = ValueListener::default();
    for stanza in stanzas(data) {
        let Ok(item) = NewestValues::read(&stanza) else {
            continue;
        };
        let mut text = String::new();
        item.element().write("jabber:client", &mut text);
        let again = stanzas(text.as_bytes());
        assert_eq!(again.len(), 1, "{text}");
        let again = NewestValues::read(&again[0]);
        assert_eq!(format!("{again:?}"), format!("Ok({item:?})"));
        let topic = topic_of("v", &item.stream);
        let mut hear = || listener.receive(Duration::ZERO, ("v", &topic), &stanza);
        if matches!(hear(), HeardOutcome::News { .. }) {
            assert_eq!(hear(), HeardOutcome::AlreadyKnown);
        }
    }
});
