//! Golden bytes of messages, and bytes that are refused.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]
use super::*;
use crate::replication::missing_ranges::Outlook;

fn hole(from: u64, until: u64, outlook: Outlook) -> MissingRange {
    MissingRange {
        range: ByteRange::new(from, until),
        outlook,
    }
}

fn all() -> Vec<Message> {
    let state = StateName {
        identity: 77,
        incarnation: 0x1111_2222_3333_4444,
        opening: 5,
        number: 9,
        sequence: 1_000,
        view: 6,
    };
    let ranges = vec![
        SegmentRange {
            segment: 4,
            offset: 64,
            bytes: 1 << 20,
        },
        SegmentRange {
            segment: 1 << 40,
            offset: u64::MAX,
            bytes: u32::MAX,
        },
    ];
    let challenged = ranges.clone();
    let request = 3;
    vec![
        Message::Hello(state),
        Message::AskState {
            request,
            known_state: None,
        },
        Message::AskState {
            request,
            known_state: Some(state),
        },
        Message::State {
            request,
            bytes: b"a state".to_vec(),
        },
        Message::Fetch {
            request,
            state,
            ranges: ranges.clone(),
        },
        Message::Bytes {
            request,
            segment: 4,
            offset: 64,
            bytes: b"bytes".to_vec(),
        },
        Message::AskTail {
            request,
            state: 1_000,
            known_end: None,
        },
        Message::AskTail {
            request,
            state: 1_000,
            known_end: Some(TailPoint {
                until: 1_007,
                last: None,
            }),
        },
        Message::AskTail {
            request,
            state: 1_000,
            known_end: Some(TailPoint {
                until: 1_007,
                last: Some(TailMark {
                    sequence: 1_005,
                    crc: 0x0102_0304,
                }),
            }),
        },
        Message::Tail {
            request,
            bytes: b"newest".to_vec(),
        },
        Message::Unavailable { request },
        Message::Wait {
            request,
            millis: 1500,
        },
        Message::Done { request },
        Message::Confirm {
            state,
            segments: vec![(4, 900), (6, 1 << 33)],
            proofs: vec![(6, [5; 32])],
        },
        Message::Compare {
            request,
            state,
            ranges,
        },
        Message::Digests {
            request,
            digests: vec![[7; 32], [8; 32]],
        },
        Message::Refused {
            request,
            code: REFUSED_HISTORY.into(),
            text: "why".into(),
        },
        Message::MissingRanges {
            segment: 6,
            stretch: ByteRange::new(64, 1 << 33),
            missing: vec![
                hole(64, 900, Outlook::Subscribed),
                hole(900, 1_000, Outlook::OnRequest),
                hole(1_001, 1 << 33, Outlook::Never),
            ],
        },
        Message::Challenge {
            request,
            nonce: [9; 32],
            ranges: challenged,
        },
        Message::ChallengeAnswer {
            request,
            digests: vec![[1; 32], [2; 32]],
        },
    ]
}

#[test]
fn messages_come_back_and_their_bytes_do_not_change() {
    let mut text = String::new();
    for message in all() {
        let bytes = encode(&message);
        assert_eq!(decode(&bytes).unwrap(), message);
        for byte in &bytes {
            text += &format!("{byte:02x}");
        }
        text.push('\n');
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 4;
            assert!(decode(&other).is_err() && decode(&bytes[..at]).is_err());
        }
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/messages.hex");
    if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text, known,
        "the bytes changed: give the new shape a new version, and keep reading the old one"
    );
}

#[test]
fn messages_of_version_1_are_read() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/messages_v1.hex");
    let text = std::fs::read_to_string(path).unwrap();
    let old = text.lines().map(|line| {
        let digits = line.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        decode(&digits.map(byte).collect::<Vec<u8>>()).unwrap()
    });
    let without_view = |message: Message| match message {
        Message::Hello(name) => Message::Hello(StateName { view: 0, ..name }),
        other => other,
    };
    let is_old = |message: &Message| {
        !matches!(
            message,
            Message::MissingRanges { .. }
                | Message::AskTail { .. }
                | Message::Tail { .. }
                | Message::Challenge { .. }
                | Message::ChallengeAnswer { .. }
        )
    };
    let now = all().into_iter().filter(is_old).map(without_view);
    let now: Vec<Message> = now.collect();
    let old: Vec<Message> = old.collect();
    assert_eq!((old.len(), &old[0]), (now.len(), &now[0]));
    let kinds = |all: &[Message]| all.iter().map(std::mem::discriminant).collect::<Vec<_>>();
    assert_eq!(kinds(&old), kinds(&now));
}
