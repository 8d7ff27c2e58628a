//! An XML element: a name in a namespace, attributes, and content.
//!
//! Invariants: a written element is read back unchanged. Text and values are escaped; characters
//! that XML cannot represent (control characters) are omitted. Concurrency: plain data.

use data_encoding::BASE64;
use std::fmt::Write as _;

/// Content of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Another one.
    Element(Element),
    /// Text between elements.
    Text(String),
}

/// An element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Namespace of the element.
    pub ns: String,
    /// Local name of the element.
    pub name: String,
    /// Attributes without a namespace, and `xml:lang`.
    pub attributes: Vec<(String, String)>,
    /// Content in document order.
    pub children: Vec<Node>,
}

/// Whether XML can carry a character.
pub(crate) fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Whether XML can carry a text unchanged.
///
/// ```
/// use headwater_protocol::xmpp::is_xml_text;
/// assert!(is_xml_text("a < b\n") && !is_xml_text("\u{7}"));
/// ```
#[must_use]
pub fn is_xml_text(text: &str) -> bool {
    text.chars().all(is_char)
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars().filter(|c| is_char(*c)) {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            // XML parsers would normalise these to spaces or line ends.
            '\t' | '\n' | '\r' => {
                // Writing to a `String` cannot fail.
                let _ = write!(out, "&#{};", u32::from(c));
            }
            _ => out.push(c),
        }
    }
}

impl Element {
    /// An empty one.
    #[must_use]
    pub fn new(ns: &str, name: &str) -> Element {
        Element {
            ns: ns.to_owned(),
            name: name.to_owned(),
            ..Element::default()
        }
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Element {
        self.attributes.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Appends a child element.
    #[must_use]
    pub fn with_child(mut self, child: Element) -> Element {
        self.children.push(Node::Element(child));
        self
    }

    /// Appends text.
    #[must_use]
    pub fn saying(mut self, text: &str) -> Element {
        self.children.push(Node::Text(text.to_owned()));
        self
    }

    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether it has this namespace and name.
    #[must_use]
    pub fn is(&self, ns: &str, name: &str) -> bool {
        self.ns == ns && self.name == name
    }

    /// The elements inside.
    pub fn elements(&self) -> impl Iterator<Item = &Element> {
        self.children.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// The first one inside with this namespace and name.
    #[must_use]
    pub fn child(&self, ns: &str, name: &str) -> Option<&Element> {
        self.elements().find(|element| element.is(ns, name))
    }

    /// The text that is directly inside.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.children.iter().filter_map(|node| match node {
            Node::Text(text) => Some(text.as_str()),
            Node::Element(_) => None,
        });
        texts.collect()
    }

    /// Appends bytes in base64.
    #[must_use]
    pub fn carrying(self, bytes: &[u8]) -> Element {
        self.saying(&BASE64.encode(bytes))
    }

    /// Decoded base64 content; `None` = the element has other content.
    #[must_use]
    pub fn carried(&self) -> Option<Vec<u8>> {
        let mut text = self.text();
        text.retain(|c| !c.is_ascii_whitespace());
        let is_alone = self.elements().next().is_none();
        BASE64.decode(text.as_bytes()).ok().filter(|_| is_alone)
    }

    /// Writes the element; `around` is the namespace of its parent.
    pub fn write(&self, around: &str, out: &mut String) {
        out.push('<');
        out.push_str(&self.name);
        if self.ns != around {
            out.push_str(" xmlns='");
            escape(&self.ns, out);
            out.push('\'');
        }
        for (name, value) in &self.attributes {
            out.push(' ');
            out.push_str(name);
            out.push_str("='");
            escape(value, out);
            out.push('\'');
        }
        if self.children.is_empty() {
            out.push_str("/>");
            return;
        }
        out.push('>');
        for child in &self.children {
            match child {
                Node::Element(element) => element.write(&self.ns, out),
                Node::Text(text) => escape(text, out),
            }
        }
        out.push_str("</");
        out.push_str(&self.name);
        out.push('>');
    }
}
