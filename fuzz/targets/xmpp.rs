//! Reading what an XMPP server sends never panics, where it is cut changes nothing, and a session
//! tells nobody the password in clear.
#![no_main]

use headwater_fuzz::split_mode;
use headwater_protocol::xmpp::{
    Element, Happened, Limits, Login, Read, Reader, Session, XmlError, pubsub,
};
use libfuzzer_sys::fuzz_target;

const PASSWORD: &str = "a-password-of-the-node";
const LIMITS: Limits = Limits {
    bytes: 4_096,
    depth: 8,
    attributes: 6,
};

/// All that is read, in pieces of a size.
fn read(data: &[u8], size: usize) -> (Vec<Read>, Option<XmlError>) {
    let mut reader = Reader::new(LIMITS);
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

fn look(stanza: &Element) {
    let _ = (
        pubsub::items_of_message(stanza),
        pubsub::items_of_answer(stanza),
        pubsub::nodes_of(stanza),
    );
    let _ = (pubsub::affiliated(stanza), pubsub::differences(stanza));
    // What was read can be written, and is read again as it was.
    let mut text = String::from("<s xmlns='jabber:client'>");
    stanza.write("jabber:client", &mut text);
    let mut reader = Reader::new(Limits::default());
    reader.push(text.as_bytes());
    assert!(matches!(reader.next(), Ok(Some(Read::StreamStart(_)))));
    match reader.next() {
        Ok(Some(Read::Stanza(again))) => assert_eq!(&again, stanza),
        other => panic!("{other:?} of {text}"),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((is_secured, rest)) = split_mode(data) else {
        return;
    };
    let whole = read(rest, rest.len());
    assert_eq!(whole, read(rest, 1));
    assert_eq!(whole, read(rest, 7));
    for read in &whole.0 {
        if let Read::Stanza(stanza) = read {
            look(stanza);
        }
    }
    let Ok(account) = "north@b.example".parse() else {
        return;
    };
    let mut session = Session::new(Login {
        account,
        password: PASSWORD.to_owned(),
        resource: "r".to_owned(),
        nonce: "n".to_owned(),
        is_secured,
        may_be_clear: true,
    });
    let mut told = session.take_output();
    let mut is_clear = !is_secured;
    // Pieces stand for what comes before and behind each step of logging in.
    for piece in rest.split(|byte| *byte == 0) {
        let over = session.feed(piece).is_err();
        while let Some(happened) = session.next_happened() {
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
    let is_there = |word: &[u8]| told.windows(word.len()).any(|part| part == word);
    let plain = Element::new("", "x").carrying(format!("\0north\0{PASSWORD}").as_bytes());
    assert!(!is_there(PASSWORD.as_bytes()) && !is_there(plain.text().as_bytes()));
});
