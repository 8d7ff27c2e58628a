//! Logging in, step by step, with servers of all manners; and who may answer a question.

use headwater_protocol::xmpp::{Element, Happened, IqKind, Jid, Login, Session, XmppError};

const HEAD: &str = "<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0' from='b.example' id='1'>";
const TLS: &str = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls>";
const PROCEED: &str = "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
const SUCCESS: &str = "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>";
const BIND: &str = "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>";

fn login(is_secured: bool, may_be_clear: bool) -> Login {
    Login {
        account: "north@b.example".parse().unwrap(),
        password: "secret".to_owned(),
        resource: "r1".to_owned(),
        nonce: "abc".to_owned(),
        is_secured,
        may_be_clear,
    }
}

fn offers(inner: &str) -> String {
    format!("{HEAD}<stream:features>{inner}</stream:features>")
}

fn mechanisms(names: &[&str]) -> String {
    let names = names
        .iter()
        .map(|name| format!("<mechanism>{name}</mechanism>"));
    let names: String = names.collect();
    format!("<mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{names}</mechanisms>")
}

fn sent(session: &mut Session) -> String {
    String::from_utf8(session.take_output()).unwrap()
}

/// A session that is logged in, by PLAIN over TLS.
fn ready() -> Session {
    let mut session = Session::new(login(true, false));
    sent(&mut session);
    session
        .feed(offers(&mechanisms(&["PLAIN"])).as_bytes())
        .unwrap();
    assert!(sent(&mut session).contains("mechanism='PLAIN'"));
    session.feed(SUCCESS.as_bytes()).unwrap();
    assert!(sent(&mut session).starts_with("<?xml"));
    session.feed(offers(BIND).as_bytes()).unwrap();
    assert!(sent(&mut session).contains("<resource>r1</resource>"));
    let bound = "<iq type='result' id='q1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><jid>north@b.example/r1</jid></bind></iq>";
    session.feed(bound.as_bytes()).unwrap();
    assert_eq!(session.next_happened(), Some(Happened::Ready));
    assert!(session.is_ready());
    session
}

#[test]
fn tls_is_begun_where_it_is_offered_and_demanded_where_it_is_not() {
    let mut session = Session::new(login(false, false));
    assert!(sent(&mut session).contains("to='b.example'"));
    let both = format!("{TLS}{}", mechanisms(&["SCRAM-SHA-1", "PLAIN"]));
    session.feed(offers(&both).as_bytes()).unwrap();
    assert_eq!(
        sent(&mut session),
        "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"
    );
    session.feed(PROCEED.as_bytes()).unwrap();
    assert_eq!(session.next_happened(), Some(Happened::NeedsTls));
    // In clear nothing counts any more.
    assert!(session.feed(b" ").is_err());
    session.secured();
    assert!(sent(&mut session).starts_with("<?xml"));

    for offered in ["", &mechanisms(&["SCRAM-SHA-1", "PLAIN"])] {
        let mut session = Session::new(login(false, false));
        sent(&mut session);
        let over = session.feed(offers(offered).as_bytes());
        assert_eq!(over, Err(XmppError::NoTls));
        assert_eq!(sent(&mut session), "");
    }
    let mut session = Session::new(login(false, true));
    sent(&mut session);
    session.feed(offers(TLS).as_bytes()).unwrap();
    let no = "<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
    assert_eq!(session.feed(no.as_bytes()), Err(XmppError::NoTls));
}

#[test]
fn what_follows_the_consent_to_tls_in_clear_ends_the_session() {
    let mut session = Session::new(login(false, false));
    session.feed(offers(TLS).as_bytes()).unwrap();
    let injected = format!("{PROCEED}<stream:features/>");
    assert!(matches!(
        session.feed(injected.as_bytes()),
        Err(XmppError::Unexpected(..))
    ));
    assert_eq!(session.next_happened(), None);
}

#[test]
fn a_password_is_not_told_without_tls() {
    // On this machine one may go without, but by proof alone.
    let mut session = Session::new(login(false, true));
    sent(&mut session);
    let over = session.feed(offers(&mechanisms(&["PLAIN", "X-OTHER"])).as_bytes());
    assert_eq!(
        over,
        Err(XmppError::NoMechanism("PLAIN X-OTHER".to_owned()))
    );
    assert_eq!(sent(&mut session), "");
    for (offered, taken) in [
        (
            &["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"][..],
            "SCRAM-SHA-256",
        ),
        (&["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-1-PLUS"], "SCRAM-SHA-1"),
    ] {
        let mut session = Session::new(login(false, true));
        sent(&mut session);
        session
            .feed(offers(&mechanisms(offered)).as_bytes())
            .unwrap();
        assert!(sent(&mut session).contains(&format!("mechanism='{taken}'")));
        // Success without a proof of the server is none.
        assert!(session.feed(SUCCESS.as_bytes()).is_err());
    }
}

#[test]
fn a_login_that_is_refused_is_told_with_its_reason() {
    let mut session = Session::new(login(true, false));
    session
        .feed(offers(&mechanisms(&["PLAIN"])).as_bytes())
        .unwrap();
    let no = "<failure xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><not-authorized/><text>no</text></failure>";
    let over = session.feed(no.as_bytes()).unwrap_err();
    assert_eq!(over, XmppError::Login("not-authorized".to_owned()));
    let mut session = ready();
    let over =
        "<stream:error><conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>";
    let over = session.feed(over.as_bytes()).unwrap_err();
    assert_eq!(over, XmppError::Stream("conflict".to_owned()));
}

#[test]
fn steps_out_of_order_and_old_streams_end_it() {
    let bad = [
        SUCCESS.to_owned(),
        format!("{HEAD}{SUCCESS}"),
        format!("{HEAD}{PROCEED}"),
        format!("{HEAD}<message/>"),
        HEAD.replace("version='1.0' from", "from"),
        HEAD.replace("http://etherx.jabber.org/streams", "other"),
    ];
    for text in bad {
        let mut session = Session::new(login(false, false));
        assert!(session.feed(text.as_bytes()).is_err(), "{text}");
    }
    for answer in [
        "<iq type='error' id='q1'/>",
        "<iq type='result' id='q9'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><jid>north@b.example/r</jid></bind></iq>",
        "<iq type='result' id='q1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><jid>south@b.example/r</jid></bind></iq>",
    ] {
        let mut session = Session::new(login(true, false));
        session
            .feed(offers(&mechanisms(&["PLAIN"])).as_bytes())
            .unwrap();
        session.feed(SUCCESS.as_bytes()).unwrap();
        session.feed(offers(BIND).as_bytes()).unwrap();
        let over = session.feed(answer.as_bytes());
        assert!(matches!(over, Err(XmppError::NoAddress(_))), "{answer}");
    }
}

#[test]
fn only_who_was_asked_answers() {
    let mut session = ready();
    let service: Jid = "pubsub.b.example".parse().unwrap();
    let what = Element::new("x", "query");
    let number = session.request(IqKind::Get, Some(&service), what).unwrap();
    let question = sent(&mut session);
    assert!(question.contains("to='pubsub.b.example'") && question.contains("<query xmlns='x'/>"));
    let answer = |from: &str, id: u64| format!("<iq type='result' id='q{id}'{from}/>");
    for (from, id) in [
        (" from='eve@b.example/x'", number),
        (" from='b.example'", number),
        (" from='pubsub.b.example'", number + 1),
    ] {
        session.feed(answer(from, id).as_bytes()).unwrap();
        assert_eq!(session.next_happened(), None, "{from}");
    }
    session
        .feed(answer(" from='pubsub.b.example'", number).as_bytes())
        .unwrap();
    let Some(Happened::Answer { answer: Ok(_), .. }) = session.next_happened() else {
        panic!()
    };
    // The second one is none.
    session
        .feed(answer(" from='pubsub.b.example'", number).as_bytes())
        .unwrap();
    assert_eq!((session.next_happened(), session.waits_for()), (None, 0));

    let number = session.ping().unwrap();
    let refused = format!(
        "<iq type='error' id='q{number}' from='b.example'><error type='cancel'><text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'>x</text><forbidden xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
    );
    session.feed(refused.as_bytes()).unwrap();
    let Some(Happened::Answer {
        answer: Err(why), ..
    }) = session.next_happened()
    else {
        panic!()
    };
    assert_eq!(why.condition, "forbidden");
}

#[test]
fn what_others_ask_is_refused_and_a_ping_is_answered() {
    let mut session = ready();
    session
        .feed(b"<iq type='get' id='p' from='b.example'><ping xmlns='urn:xmpp:ping'/></iq>")
        .unwrap();
    assert_eq!(
        sent(&mut session),
        "<iq type='result' id='p' to='b.example'/>"
    );
    session
        .feed(b"<iq type='set' id='r'><query xmlns='jabber:iq:roster'/></iq>")
        .unwrap();
    assert!(sent(&mut session).contains("service-unavailable"));
    session
        .feed(b"<presence from='x@b.example'/><message type='error'/><message from='x'/>")
        .unwrap();
    assert!(matches!(
        session.next_happened(),
        Some(Happened::Message(_))
    ));
    assert_eq!(session.next_happened(), None);
    assert!(session.feed(b"<other/>").is_err());
}

#[test]
fn addresses() {
    for (text, local, domain) in [
        ("North@B.Example", "north", "b.example"),
        ("b.example", "", "b.example"),
        ("n@127.0.0.1/Res/x@y", "n", "127.0.0.1"),
    ] {
        let jid: Jid = text.parse().unwrap();
        assert_eq!((jid.local(), jid.domain()), (local, domain));
        assert_eq!(jid.bare().to_string().parse::<Jid>().unwrap(), jid.bare());
    }
    for bad in [
        "", "@b", "a@", "a@b/", "a b@c", "a@b@c", "ä@b", "a@b\n", "/r", "a'@b",
    ] {
        assert!(bad.parse::<Jid>().is_err(), "{bad}");
    }
}
