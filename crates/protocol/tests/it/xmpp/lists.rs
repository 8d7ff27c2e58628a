//! Publish-subscribe: what is asked, and what answers say.

use headwater_protocol::xmpp::pubsub::{self, Affiliation};
use headwater_protocol::xmpp::{Element, Limits, Read, Reader};

/// What a server sends, as it is read.
fn read(text: &str) -> Element {
    let mut reader = Reader::new(Limits::default());
    reader.push(b"<s xmlns='jabber:client'>");
    reader.next().unwrap();
    reader.push(text.as_bytes());
    match reader.next() {
        Ok(Some(Read::Stanza(stanza))) => stanza,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_published_and_what_is_kept() {
    let item =
        "<items node='t/north'><item id='newest'><notice xmlns='n'>AQID\n</notice></item></items>";
    let told = read(&format!(
        "<message><event xmlns='http://jabber.org/protocol/pubsub#event'>{item}</event></message>"
    ));
    let kept = read(&format!(
        "<iq><pubsub xmlns='http://jabber.org/protocol/pubsub'>{item}</pubsub></iq>"
    ));
    for all in [
        pubsub::items_of_message(&told),
        pubsub::items_of_answer(&kept),
    ] {
        let [(node, Some(payload))] = all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((node, payload.carried()), ("t/north", Some(vec![1, 2, 3])));
    }
    assert!(
        pubsub::items_of_message(&kept).is_empty() && pubsub::items_of_answer(&told).is_empty()
    );
    let none = read(
        "<message><event xmlns='http://jabber.org/protocol/pubsub#event'><items node='x'><retract id='1'/></items></event></message>",
    );
    assert!(pubsub::items_of_message(&none).is_empty());
    for bad in ["<a>AQI*</a>", "<a>AQID<b/></a>", "<a>AQI</a>"] {
        assert_eq!(read(bad).carried(), None, "{bad}");
    }
}

#[test]
fn nodes_and_who_may_do_what() {
    let nodes = read(
        "<iq><query xmlns='http://jabber.org/protocol/disco#items'><item jid='p' node='a'/><item jid='p'/><item node='b'/></query></iq>",
    );
    assert_eq!(pubsub::nodes_of(&nodes), ["a", "b"]);
    let owner = "http://jabber.org/protocol/pubsub#owner";
    let list = |inner: &str| {
        read(&format!(
            "<iq><pubsub xmlns='{owner}'><affiliations node='a'>{inner}</affiliations></pubsub></iq>"
        ))
    };
    let all = pubsub::affiliated(&list(
        "<affiliation jid='N@b' affiliation='publisher'/><affiliation jid='o@b' affiliation='owner'/>",
    ));
    let all = all.unwrap();
    assert_eq!(all[&"n@b".parse().unwrap()], Affiliation::Publisher);
    assert_eq!(all[&"o@b".parse().unwrap()], Affiliation::Owner);
    for bad in [
        "<affiliation jid='n@b' affiliation='king'/>",
        "<affiliation affiliation='owner'/>",
    ] {
        assert_eq!(pubsub::affiliated(&list(bad)), None, "{bad}");
    }
    let mut text = String::new();
    pubsub::affiliate("a", &all).write("jabber:client", &mut text);
    assert!(
        text.contains("<affiliation jid='n@b' affiliation='publisher'/>"),
        "{text}"
    );
}

#[test]
fn who_is_subscribed() {
    let owner = "http://jabber.org/protocol/pubsub#owner";
    let list = |inner: &str| {
        read(&format!(
            "<iq><pubsub xmlns='{owner}'><subscriptions node='a'>{inner}</subscriptions></pubsub></iq>"
        ))
    };
    let some = "<subscription jid='n@b' subscription='subscribed'/><subscription jid='m@b/r' subscription='none'/>";
    assert_eq!(
        pubsub::subscribed(&list(some)),
        Some(vec!["n@b".parse().unwrap()])
    );
    assert_eq!(pubsub::subscribed(&list("<subscription/>")), None);
    let mut text = String::new();
    pubsub::unsubscribe("a", &["n@b".parse().unwrap()]).write("jabber:client", &mut text);
    assert!(
        text.contains("<subscription jid='n@b' subscription='none'/>"),
        "{text}"
    );
}

#[test]
fn settings_that_let_in_others_are_found() {
    let owner = "http://jabber.org/protocol/pubsub#owner";
    let told = |fields: &[(&str, &str)]| {
        let fields = fields
            .iter()
            .map(|(name, value)| format!("<field var='{name}'><value>{value}</value></field>"));
        let fields: String = fields.collect();
        pubsub::differences(&read(&format!(
            "<iq><pubsub xmlns='{owner}'><configure node='a'><x xmlns='jabber:x:data'>{fields}</x></configure></pubsub></iq>"
        )))
    };
    let access = ("pubsub#access_model", "whitelist");
    let publish = ("pubsub#publish_model", "publishers");
    assert!(
        told(&[
            access,
            publish,
            ("pubsub#persist_items", "true"),
            ("other", "1")
        ])
        .is_empty()
    );
    assert_eq!(told(&[]).len(), 2);
    assert_eq!(
        told(&[("pubsub#access_model", "open"), publish]),
        ["pubsub#access_model = open"]
    );
    assert_eq!(
        told(&[access, publish, ("pubsub#max_items", "256")]),
        ["pubsub#max_items = 256"]
    );
}
