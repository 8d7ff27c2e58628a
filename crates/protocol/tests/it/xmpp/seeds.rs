//! The kept inputs of the fuzz target, and some changed by chance: a session never panics, never
//! tells the password in clear, and reads the same wherever the bytes are cut.

use headwater_protocol::xmpp::{Element, Happened, Limits, Login, Read, Reader, Session, XmlError};
use std::path::Path;

const PASSWORD: &str = "a-password-of-the-node";
/// Inputs made of each seed.
const CHANGED: u64 = 400;

fn read(data: &[u8], size: usize) -> (Vec<Read>, Option<XmlError>) {
    let limits = Limits {
        bytes: 4_096,
        depth: 8,
        attributes: 6,
    };
    let mut reader = Reader::new(limits);
    let mut all = Vec::new();
    for piece in data.chunks(size.max(1)) {
        reader.push(piece);
        loop {
            match reader.next() {
                Ok(Some(read)) => all.push(read),
                Ok(None) => break,
                Err(error) => return (all, Some(error)),
            }
        }
    }
    (all, None)
}

/// Whether the session came to be ready.
fn drive(is_secured: bool, rest: &[u8]) -> bool {
    let mut session = Session::new(Login {
        account: "north@b.example".parse().unwrap(),
        password: PASSWORD.to_owned(),
        resource: "r".to_owned(),
        nonce: "n".to_owned(),
        is_secured,
        may_be_clear: true,
    });
    let mut told = session.take_output();
    let mut is_clear = !is_secured;
    let mut was_ready = false;
    for piece in rest.split(|byte| *byte == 0) {
        let over = session.feed(piece).is_err();
        while let Some(happened) = session.next_happened() {
            was_ready |= happened == Happened::Ready;
            if happened == Happened::NeedsTls {
                assert!(is_clear);
                session.secured();
                is_clear = false;
            }
        }
        let out = session.take_output();
        if is_clear {
            told.extend_from_slice(&out);
        }
        if over {
            break;
        }
    }
    let plain = Element::new("", "x").carrying(format!("\0north\0{PASSWORD}").as_bytes());
    for word in [PASSWORD.as_bytes(), plain.text().as_bytes()] {
        assert!(!told.windows(word.len()).any(|part| part == word));
    }
    was_ready
}

fn is_consistent(data: &[u8]) -> bool {
    let Some((mode, rest)) = data.split_first() else {
        return false;
    };
    let whole = read(rest, rest.len());
    assert_eq!(whole, read(rest, 1));
    assert_eq!(whole, read(rest, 7));
    drive(mode & 1 == 1, rest)
}

/// A number by chance.
fn dice(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    usize::try_from(*state >> 40).unwrap()
}

#[test]
fn kept_inputs_and_what_is_made_of_them() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/xmpp");
    let mut seeds = 0;
    let mut ready = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let seed = std::fs::read(entry.unwrap().path()).unwrap();
        ready += u32::from(is_consistent(&seed));
        seeds += 1;
        for number in 0..CHANGED {
            let mut state = number;
            let mut changed = seed.clone();
            for _ in 0..1 + dice(&mut state) % 4 {
                let at = dice(&mut state) % changed.len();
                match dice(&mut state) % 3 {
                    0 => changed[at] = b"<>&'\"/= \0x;!?"[dice(&mut state) % 13],
                    1 => drop(changed.drain(at..(at + 5).min(changed.len()))),
                    _ => changed.truncate(at.max(1)),
                }
                if changed.is_empty() {
                    break;
                }
            }
            is_consistent(&changed);
        }
    }
    assert!(seeds >= 5 && ready >= 1, "{seeds} seeds, {ready} ready");
}
