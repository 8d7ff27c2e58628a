//! The stream as XML: cut anywhere, written and read again, too large, and what XMPP forbids.

use headwater_protocol::xmpp::{Element, Limits, Node, Read, Reader, XmlError};
use proptest::prelude::*;

const BEGIN: &str =
    "<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='s' id=\"1\">";

fn read_in(text: &[u8], cuts: impl Iterator<Item = usize>) -> Result<Vec<Read>, XmlError> {
    let mut reader = Reader::new(Limits::default());
    let mut all = Vec::new();
    let mut rest = text;
    for cut in cuts.chain([usize::MAX]) {
        let (now, later) = rest.split_at(cut.min(rest.len()));
        rest = later;
        reader.push(now);
        while let Some(read) = reader.next()? {
            all.push(read);
        }
    }
    Ok(all)
}

fn read(text: &str) -> Result<Vec<Read>, XmlError> {
    let whole = read_in(text.as_bytes(), std::iter::empty());
    let bytewise = read_in(text.as_bytes(), (0..text.len()).map(|_| 1));
    assert_eq!(whole, bytewise, "{text}");
    whole
}

fn stanza(text: &str) -> Result<Element, XmlError> {
    let all = read(&format!("{BEGIN}{text}"))?;
    match all.into_iter().nth(1) {
        Some(Read::Stanza(stanza)) => Ok(stanza),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_stream_with_all_that_is_allowed() {
    let text = format!(
        "{BEGIN} \n<a x = 'it&apos;s &#x41;' y=\"a>b\" xml:lang='en' z:q='1' xmlns:z='zz'>1 &lt; 2<![CDATA[<&]]]]><z:b/>\r\nend</a ><stream:features/></stream:stream >  "
    );
    let all = read(&text).unwrap();
    assert_eq!(all.len(), 4);
    let Read::StreamStart(opened) = &all[0] else {
        panic!()
    };
    assert!(opened.is("s", "stream") && opened.attribute("id") == Some("1"));
    let Read::Stanza(a) = &all[1] else { panic!() };
    assert!(a.is("jabber:client", "a"));
    let attributes = [("x", "it's A"), ("y", "a>b"), ("xml:lang", "en")];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(a.attributes, attributes);
    assert_eq!(a.children[0], Node::Text("1 < 2<&]]".to_owned()));
    assert!(a.child("zz", "b").is_some());
    assert_eq!(a.children[2], Node::Text("\nend".to_owned()));
    let Read::Stanza(features) = &all[2] else {
        panic!()
    };
    assert!(features.is("s", "features"));
    assert_eq!(all[3], Read::Closed);
}

#[test]
fn what_xmpp_forbids_ends_the_stream() {
    for (text, what) in [
        ("<!DOCTYPE a [<!ENTITY x 'y'>]>", "declarations of types"),
        ("<a><!-- x --></a>", "comments"),
        ("<?php x ?>", "instructions"),
        ("<a>&x;</a>", "entity declarations"),
        ("<a b='&x;'/>", "entity declarations"),
    ] {
        assert_eq!(
            read(&format!("{BEGIN}{text}")),
            Err(XmlError::Forbidden(what)),
            "{text}"
        );
    }
    assert!(read("<!DOCTYPE x><a>").is_err());
}

#[test]
fn what_is_no_xml_is_refused() {
    for text in [
        "text",
        "<a>&#0;</a>",
        "<a>&#xD800;</a>",
        "<a>&#x110000;</a>",
        "<a>&#+5;</a>",
        "<a>&lt</a>",
        "<a></b>",
        "</a>",
        "<a b></a>",
        "<a b=c></a>",
        "<a b='1' b='2'/>",
        "<a b='1'c='2'/>",
        "<a b='<'/>",
        "<a>\u{1}</a>",
        "<a b='\u{2}'/>",
        "<x:a/>",
        "< a/>",
        "<a:b:c/>",
        "<1/>",
        "<>",
        "<a b='1'/ >",
        "</stream:stream>more",
        "<![CDATA[x]]>",
        "<a><![cdata[x]]></a>",
    ] {
        assert!(read(&format!("{BEGIN}{text}")).is_err(), "{text}");
    }
    for text in [
        "<?xml version='1.0'?><?xml version='1.0'?>",
        "<?pi x?>",
        "x",
        "<stream/>",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
    let broken = [BEGIN.as_bytes(), b"<a>\xff</a>"].concat();
    assert!(read_in(&broken, std::iter::empty()).is_err());
    // Once over, over for good.
    let mut reader = Reader::new(Limits::default());
    reader.push(b"<a><!x");
    assert!(matches!(reader.next(), Ok(Some(Read::StreamStart(_)))));
    let error = reader.next().unwrap_err();
    reader.push(b"<b/>");
    assert_eq!(reader.next(), Err(error));
}

#[test]
fn what_is_too_large_is_refused_before_it_is_there() {
    let limits = Limits {
        bytes: 100,
        depth: 4,
        attributes: 2,
    };
    let told = |text: &str| {
        let mut reader = Reader::new(limits);
        reader.push(b"<s>");
        reader.next().unwrap();
        reader.push(text.as_bytes());
        reader.next()
    };
    for begun in ["<a>", "<a b='", "<a><![CDATA[", "<a "] {
        assert_eq!(
            told(&format!("{begun}{}", "x".repeat(200))),
            Err(XmlError::Bytes),
            "{begun}"
        );
        assert_eq!(
            told(&format!("{begun}{}", "x".repeat(50))),
            Ok(None),
            "{begun}"
        );
    }
    assert_eq!(
        told(&format!("<a>{}", "<b/>".repeat(40))),
        Err(XmlError::Bytes)
    );
    assert_eq!(told("<a><b><c><d>"), Err(XmlError::Depth));
    assert_eq!(told("<a b='1' c='2' d='3'>"), Err(XmlError::Attributes));
    // Each piece has the limit for itself, and blanks between them count for nothing.
    let mut reader = Reader::new(limits);
    reader.push(b"<s>");
    reader.next().unwrap();
    for _ in 0..20 {
        reader.push(" ".repeat(500).as_bytes());
        reader.push(b"<a>12345678901234567890</a>");
        assert!(matches!(reader.next(), Ok(Some(Read::Stanza(_)))));
    }
}

fn any_element() -> impl Strategy<Value = Element> {
    let name = "[a-z][a-z0-9.-]{0,6}";
    let text = "[ -~äß€😀\\t\\n\\r]{0,12}";
    let ns = prop_oneof![
        Just("jabber:client".to_owned()),
        Just(String::new()),
        "[a-z:&'<]{1,8}"
    ];
    let attributes = proptest::collection::btree_map(name, text, 0..3);
    let leaf = (ns.clone(), name, attributes.clone()).prop_map(|(ns, name, attributes)| Element {
        ns,
        name,
        attributes: attributes
            .into_iter()
            .filter(|(n, _)| n != "xmlns")
            .collect(),
        children: Vec::new(),
    });
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let child = prop_oneof![inner.prop_map(Node::Element), text.prop_map(Node::Text),];
        let children = proptest::collection::vec(child, 0..4);
        (ns.clone(), name, attributes.clone(), children).prop_map(|(ns, name, attributes, all)| {
            let mut element = Element {
                ns,
                name,
                attributes: attributes
                    .into_iter()
                    .filter(|(n, _)| n != "xmlns")
                    .collect(),
                children: Vec::new(),
            };
            for node in all {
                // Texts beside one another are one when they are read.
                match (element.children.last_mut(), node) {
                    (_, Node::Text(text)) if text.is_empty() => {}
                    (Some(Node::Text(before)), Node::Text(text)) => before.push_str(&text),
                    (_, node) => element.children.push(node),
                }
            }
            element
        })
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(element in any_element()) {
        let mut text = String::new();
        element.write("jabber:client", &mut text);
        prop_assert_eq!(stanza(&text), Ok(element));
    }

    #[test]
    fn where_it_is_cut_changes_nothing(
        text in "(<|>|/|a|b='|'|\"|&|;|x|!|\\[CDATA\\[|\\]\\]>|-|\\?|\\n| |<a>|</a>|<b/>|é|&lt;){0,40}",
        cuts in proptest::collection::vec(0_usize..9, 0..40),
    ) {
        let text = format!("{BEGIN}{text}");
        // The error may be told sooner, what was read before it and whether there is one are equal.
        let all = |cuts: Vec<usize>| {
            let mut reader = Reader::new(Limits::default());
            let mut read = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                rest = later;
                reader.push(now);
                loop {
                    match reader.next() {
                        Ok(Some(one)) => read.push(one),
                        Ok(None) => break,
                        Err(error) => return (read, Some(error)),
                    }
                }
            }
            (read, None)
        };
        prop_assert_eq!(all(Vec::new()), all(cuts));
    }
}
