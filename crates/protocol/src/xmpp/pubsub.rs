//! Publish-subscribe (XEP-0060): requests, and their answers.
//!
//! Invariants: a node that is created here admits only the accounts of its list (whitelist), lets
//! only publishers of the list publish, and retains one item: the newest. Concurrency: plain data.

use crate::xmpp::element::Element;
use crate::xmpp::jid::Jid;
use std::collections::BTreeMap;
use std::fmt;

const PUBSUB: &str = "http://jabber.org/protocol/pubsub";
const OWNER: &str = "http://jabber.org/protocol/pubsub#owner";
const EVENT: &str = "http://jabber.org/protocol/pubsub#event";
const ITEMS: &str = "http://jabber.org/protocol/disco#items";
const FORM: &str = "jabber:x:data";

/// Name of the only item of a node.
const NEWEST: &str = "newest";

/// Right of an account at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Affiliation {
    /// All rights, including setting the rights of others.
    Owner,
    /// Publish and hear.
    Publisher,
    /// May only publish.
    PublishOnly,
    /// May hear.
    Member,
    /// No rights of its own.
    None,
    /// No rights, whatever the rights of others.
    Outcast,
}

impl Affiliation {
    const ALL: [Affiliation; 6] = [
        Affiliation::Owner,
        Affiliation::Publisher,
        Affiliation::PublishOnly,
        Affiliation::Member,
        Affiliation::None,
        Affiliation::Outcast,
    ];

    fn name(self) -> &'static str {
        match self {
            Affiliation::Owner => "owner",
            Affiliation::Publisher => "publisher",
            Affiliation::PublishOnly => "publish-only",
            Affiliation::Member => "member",
            Affiliation::None => "none",
            Affiliation::Outcast => "outcast",
        }
    }
}

impl fmt::Display for Affiliation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings of a node that retains only the newest notice.
const SETTINGS: [(&str, &str); 7] = [
    ("pubsub#access_model", "whitelist"),
    ("pubsub#publish_model", "publishers"),
    ("pubsub#max_items", "1"),
    ("pubsub#persist_items", "1"),
    ("pubsub#deliver_payloads", "1"),
    ("pubsub#notify_retract", "0"),
    ("pubsub#notification_type", "headline"),
];

fn form(kind: &str) -> Element {
    let mut form = Element::new(FORM, "x").with("type", "submit");
    let kind = format!("{PUBSUB}#{kind}");
    let all = std::iter::once(("FORM_TYPE", kind.as_str())).chain(SETTINGS);
    for (name, value) in all {
        let value = Element::new(FORM, "value").saying(value);
        form = form.with_child(
            Element::new(FORM, "field")
                .with("var", name)
                .with_child(value),
        );
    }
    form
}

/// Creates a node.
#[must_use]
pub fn create(node: &str) -> Element {
    let create = Element::new(PUBSUB, "create").with("node", node);
    let configure = Element::new(PUBSUB, "configure").with_child(form("node_config"));
    Element::new(PUBSUB, "pubsub")
        .with_child(create)
        .with_child(configure)
}

/// Sets a node that is there as a new one would be.
#[must_use]
pub fn configure(node: &str) -> Element {
    let configure = Element::new(OWNER, "configure").with("node", node);
    Element::new(OWNER, "pubsub").with_child(configure.with_child(form("node_config")))
}

/// Requests the configuration of a node.
#[must_use]
pub fn configuration(node: &str) -> Element {
    let configure = Element::new(OWNER, "configure").with("node", node);
    Element::new(OWNER, "pubsub").with_child(configure)
}

/// Settings of a node that differ from the required ones, as `NAME = VALUE`. Settings that decide
/// about access must be present; the others are compared only if the server has them.
#[must_use]
pub fn differences(answer: &Element) -> Vec<String> {
    let form = answer
        .child(OWNER, "pubsub")
        .and_then(|pubsub| pubsub.child(OWNER, "configure"))
        .and_then(|configure| configure.child(FORM, "x"));
    let fields = form.into_iter().flat_map(Element::elements);
    let settings: BTreeMap<String, String> = fields
        .filter_map(|field| {
            let name = field.attribute("var")?;
            let value = field
                .child(FORM, "value")
                .map_or_else(String::new, Element::text);
            Some((name.to_owned(), value))
        })
        .collect();
    let mut found = Vec::new();
    for (name, wanted) in SETTINGS {
        let must_be = matches!(name, "pubsub#access_model" | "pubsub#publish_model");
        match settings.get(name).map(String::as_str) {
            None if must_be => found.push(format!("{name} is missing")),
            Some(value)
                if value != wanted
                    && !(wanted == "1" && value == "true")
                    && !(wanted == "0" && value == "false") =>
            {
                found.push(format!("{name} = {value}"));
            }
            _ => {}
        }
    }
    found
}

/// Sets rights at a node; accounts that are not listed are unchanged.
#[must_use]
pub fn affiliate(node: &str, who: &BTreeMap<Jid, Affiliation>) -> Element {
    let mut all = Element::new(OWNER, "affiliations").with("node", node);
    for (jid, may) in who {
        all = all.with_child(
            Element::new(OWNER, "affiliation")
                .with("jid", &jid.to_string())
                .with("affiliation", may.name()),
        );
    }
    Element::new(OWNER, "pubsub").with_child(all)
}

/// Requests the rights at a node.
#[must_use]
pub fn affiliations(node: &str) -> Element {
    let all = Element::new(OWNER, "affiliations").with("node", node);
    Element::new(OWNER, "pubsub").with_child(all)
}

/// Rights at a node, from the answer; `None` = malformed.
#[must_use]
pub fn affiliated(answer: &Element) -> Option<BTreeMap<Jid, Affiliation>> {
    let all = answer
        .child(OWNER, "pubsub")?
        .child(OWNER, "affiliations")?;
    all.elements()
        .map(|one| {
            let jid: Jid = one.attribute("jid")?.parse().ok()?;
            let name = one.attribute("affiliation")?;
            let may = Affiliation::ALL
                .into_iter()
                .find(|may| may.name() == name)?;
            Some((jid.bare(), may))
        })
        .collect()
}

/// Requests the subscribers of a node.
#[must_use]
pub fn subscriptions(node: &str) -> Element {
    let all = Element::new(OWNER, "subscriptions").with("node", node);
    Element::new(OWNER, "pubsub").with_child(all)
}

/// Subscribers of a node, from the answer; `None` = malformed.
#[must_use]
pub fn subscribed(answer: &Element) -> Option<Vec<Jid>> {
    let all = answer
        .child(OWNER, "pubsub")?
        .child(OWNER, "subscriptions")?;
    let is_none = |one: &&Element| one.attribute("subscription") == Some("none");
    let there = all.elements().filter(|one| !is_none(one));
    there
        .map(|one| one.attribute("jid")?.parse().ok())
        .collect()
}

/// Ends the subscriptions of others to a node.
#[must_use]
pub fn unsubscribe(node: &str, who: &[Jid]) -> Element {
    let mut all = Element::new(OWNER, "subscriptions").with("node", node);
    for jid in who {
        all = all.with_child(
            Element::new(OWNER, "subscription")
                .with("jid", &jid.to_string())
                .with("subscription", "none"),
        );
    }
    Element::new(OWNER, "pubsub").with_child(all)
}

/// Publishes at a node, replacing the current item.
#[must_use]
pub fn publish(node: &str, payload: Element) -> Element {
    let item = Element::new(PUBSUB, "item")
        .with("id", NEWEST)
        .with_child(payload);
    let publish = Element::new(PUBSUB, "publish")
        .with("node", node)
        .with_child(item);
    Element::new(PUBSUB, "pubsub").with_child(publish)
}

/// Removes the item that a node retains, without a message to its subscribers.
#[must_use]
pub fn retract(node: &str) -> Element {
    let item = Element::new(PUBSUB, "item").with("id", NEWEST);
    let retract = Element::new(PUBSUB, "retract").with("node", node);
    Element::new(PUBSUB, "pubsub").with_child(retract.with_child(item))
}

/// Subscribes an account to a node.
#[must_use]
pub fn subscribe(node: &str, account: &Jid) -> Element {
    let subscribe = Element::new(PUBSUB, "subscribe").with("node", node);
    Element::new(PUBSUB, "pubsub").with_child(subscribe.with("jid", &account.bare().to_string()))
}

/// Requests the retained items of a node.
#[must_use]
pub fn items(node: &str) -> Element {
    let items = Element::new(PUBSUB, "items")
        .with("node", node)
        .with("max_items", "1");
    Element::new(PUBSUB, "pubsub").with_child(items)
}

/// Requests the list of nodes.
#[must_use]
pub fn nodes() -> Element {
    Element::new(ITEMS, "query")
}

/// Which nodes there are, from the answer.
#[must_use]
pub fn nodes_of(answer: &Element) -> Vec<String> {
    let query = answer.child(ITEMS, "query");
    let all = query.into_iter().flat_map(Element::elements);
    let nodes = all.filter_map(|item| item.attribute("node"));
    nodes.map(str::to_owned).collect()
}

/// Something that was published: where, and the payload.
pub type Published<'a> = (&'a str, Option<&'a Element>);

fn published_in(around: Option<&Element>) -> Vec<Published<'_>> {
    let lists = around.into_iter().flat_map(Element::elements);
    let lists = lists.filter(|list| list.name == "items");
    let items = lists.flat_map(|list| {
        let node = list.attribute("node").unwrap_or("");
        let items = list.elements().filter(|item| item.name == "item");
        items.map(move |item| (node, item.elements().next()))
    });
    items.collect()
}

/// The items in an answer to [`items`].
#[must_use]
pub fn items_of_answer(answer: &Element) -> Vec<Published<'_>> {
    published_in(answer.child(PUBSUB, "pubsub"))
}

/// The items that a message publishes.
#[must_use]
pub fn items_of_message(message: &Element) -> Vec<Published<'_>> {
    published_in(message.child(EVENT, "event"))
}
