//! Reads the XML stream that a server sends, in parts of any size.
//!
//! Invariants: the result does not depend on how the input is split into parts. Buffers are bounded
//! by [`Limits`] before they grow. The accepted XML is that of RFC 6120: elements, attributes,
//! text, `CDATA`, the five entities that need no declaration, and character references; anything
//! else ends the stream. Namespaces are resolved; attributes of other namespaces than `xml` are
//! dropped. Concurrency: plain data. Failure: [`XmlError`], after which no input is read.

use crate::xmpp::element::{Element, Node, is_char};

const XML_NS: &str = "http://www.w3.org/XML/1998/namespace";

/// Limits of a server's stream.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a stanza, or of the beginning of the stream.
    pub bytes: usize,
    /// Elements inside one another, the stream among them.
    pub depth: usize,
    /// Attributes of an element, namespaces among them.
    pub attributes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes: 1 << 20,
            depth: 24,
            attributes: 32,
        }
    }
}

/// Why a stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum XmlError {
    /// A stanza is too large.
    #[error("an element of the stream is too large")]
    Bytes,
    /// A stanza is too deep.
    #[error("elements are nested too deeply")]
    Depth,
    /// An element has too many attributes.
    #[error("an element has too many attributes")]
    Attributes,
    /// XMPP forbids it.
    #[error("an XMPP stream must not contain {0}")]
    Forbidden(&'static str),
    /// The bytes are not XML.
    #[error("not valid XML: expected {0}")]
    Expected(&'static str),
}

/// Result of reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Start of the stream: its root element with attributes, without content.
    StreamStart(Element),
    /// A stanza as a whole.
    Stanza(Element),
    /// The stream has ended.
    Closed,
}

/// An element without its end tag so far.
#[derive(Debug)]
struct Open {
    element: Element,
    /// Name of the element as written.
    written: String,
    /// Declarations of namespaces before it.
    scopes: usize,
}

/// Reads a stream.
#[derive(Debug, Default)]
pub struct Reader {
    limits: Limits,
    /// Received bytes that are not parsed.
    buffer: Vec<u8>,
    /// Number of consumed bytes in `buffer`.
    start: usize,
    /// Number of bytes after `start` that were searched for the end of the token without success.
    looked: usize,
    /// The quote that is open there.
    quote: Option<u8>,
    /// Prefixes and their namespaces, the innermost last.
    scopes: Vec<(String, String)>,
    /// The stream first.
    open: Vec<Open>,
    /// Bytes of the stanza so far.
    spent: usize,
    has_root: bool,
    has_ended: bool,
    failed: Option<XmlError>,
}

/// Kind of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Text,
    Tag,
    Cdata,
    Declaration,
}

impl Reader {
    /// Reads a stream from its beginning.
    #[must_use]
    pub fn new(limits: Limits) -> Reader {
        Reader {
            limits,
            ..Reader::default()
        }
    }

    /// Appends received bytes. Call [`Reader::next`] until it returns `None` before appending more
    /// bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether unconsumed bytes other than whitespace are buffered.
    #[must_use]
    pub fn has_rest(&self) -> bool {
        self.rest().iter().any(|byte| !byte.is_ascii_whitespace())
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or(&[])
    }

    /// The next result, if all of it is there.
    ///
    /// # Errors
    /// If the bytes are not a stream of XMPP, or exceed a limit; every later call fails with the
    /// same error.
    #[expect(clippy::should_implement_trait, reason = "it goes on after None")]
    pub fn next(&mut self) -> Result<Option<Read>, XmlError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let read = self.read();
        self.failed = read.as_ref().err().copied();
        read
    }

    fn read(&mut self) -> Result<Option<Read>, XmlError> {
        loop {
            self.skip_blanks();
            if self.rest().is_empty() {
                return Ok(None);
            }
            if self.has_ended {
                return Err(XmlError::Expected("nothing after the end of the stream"));
            }
            let Some((token, length)) = self.find_end()? else {
                let is_over = self.spent + self.rest().len() > self.limits.bytes;
                return if is_over {
                    Err(XmlError::Bytes)
                } else {
                    Ok(None)
                };
            };
            self.spent += length;
            if self.spent > self.limits.bytes {
                return Err(XmlError::Bytes);
            }
            let bytes = self.rest().get(..length).unwrap_or(&[]).to_vec();
            self.start += length;
            (self.looked, self.quote) = (0, None);
            let text = std::str::from_utf8(&bytes).map_err(|_| XmlError::Expected("UTF-8"))?;
            if let Some(read) = self.take(token, text)? {
                self.spent = 0;
                return Ok(Some(read));
            }
        }
    }

    /// Skips whitespace between stanzas, which is only a sign of life.
    fn skip_blanks(&mut self) {
        if self.open.len() > 1 || self.looked > 0 {
            return;
        }
        let is_blank = |byte: &&u8| byte.is_ascii_whitespace();
        let blanks = self.rest().iter().take_while(is_blank).count();
        self.start += blanks;
    }

    /// Next token and its length; `None` = incomplete.
    fn find_end(&mut self) -> Result<Option<(Token, usize)>, XmlError> {
        let rest = self.rest();
        if rest.first() != Some(&b'<') {
            if self.open.len() < 2 {
                return Err(XmlError::Expected("< between the elements of a stream"));
            }
            let found = self.find(|byte| byte == b'<');
            return Ok(found.map(|at| (Token::Text, at)));
        }
        match rest.get(1) {
            None => return Ok(None),
            Some(b'!') => return self.find_cdata(),
            Some(b'?') if self.has_root => return Err(XmlError::Forbidden("instructions")),
            Some(b'?') => {
                let found = self.find(|byte| byte == b'>');
                return Ok(found.map(|at| (Token::Declaration, at + 1)));
            }
            Some(_) => {}
        }
        let mut quote = self.quote;
        let found = self.find(|byte| {
            match quote {
                Some(open) if byte == open => quote = None,
                Some(_) => {}
                None if matches!(byte, b'\'' | b'"') => quote = Some(byte),
                None => return byte == b'>',
            }
            false
        });
        self.quote = quote;
        Ok(found.map(|at| (Token::Tag, at + 1)))
    }

    /// First matching byte after the searched bytes.
    fn find(&mut self, mut is_it: impl FnMut(u8) -> bool) -> Option<usize> {
        let from = self.looked;
        let unseen = self.rest().get(from..).unwrap_or(&[]);
        let found = unseen.iter().position(|byte| is_it(*byte));
        let seen = unseen.len();
        match found {
            Some(at) => Some(from + at),
            None => {
                self.looked += seen;
                None
            }
        }
    }

    fn find_cdata(&mut self) -> Result<Option<(Token, usize)>, XmlError> {
        const BEGIN: &[u8] = b"<![CDATA[";
        const END: &[u8] = b"]]>";
        let rest = self.rest();
        let head = rest.get(..rest.len().min(BEGIN.len())).unwrap_or(rest);
        if !BEGIN.starts_with(head) {
            let is_comment = rest.get(2) == Some(&b'-');
            let what = if is_comment {
                "comments"
            } else {
                "declarations of types"
            };
            return Err(XmlError::Forbidden(what));
        }
        if head.len() < BEGIN.len() {
            return Ok(None);
        }
        if self.open.len() < 2 {
            return Err(XmlError::Expected(
                "no text between the elements of a stream",
            ));
        }
        let from = self.looked.max(BEGIN.len());
        let unseen = rest.get(from..).unwrap_or(&[]);
        if let Some(at) = unseen.windows(END.len()).position(|three| three == END) {
            return Ok(Some((Token::Cdata, from + at + END.len())));
        }
        // A prefix of the end marker may be in the buffer already.
        self.looked = from.max(rest.len().saturating_sub(END.len() - 1));
        Ok(None)
    }

    fn take(&mut self, token: Token, text: &str) -> Result<Option<Read>, XmlError> {
        match token {
            Token::Declaration => {
                self.has_root = true;
                let is_one = text.starts_with("<?xml ") && text.ends_with("?>");
                let expected = XmlError::Expected("the declaration of XML, or the stream");
                is_one.then_some(None).ok_or(expected)
            }
            Token::Text => {
                let text = unescape(text, false)?;
                self.add_text(&text);
                Ok(None)
            }
            Token::Cdata => {
                let inner = text.get(9..text.len().saturating_sub(3)).unwrap_or("");
                let inner = inner.replace("\r\n", "\n").replace('\r', "\n");
                if !inner.chars().all(is_char) {
                    return Err(XmlError::Expected("characters that XML allows"));
                }
                self.add_text(&inner);
                Ok(None)
            }
            Token::Tag => {
                self.has_root = true;
                let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or("");
                match inner.strip_prefix('/') {
                    Some(name) => self.end(name.trim_end_matches(is_blank)),
                    None => self.begin(inner),
                }
            }
        }
    }

    fn add_text(&mut self, text: &str) {
        let Some(open) = self.open.last_mut() else {
            return;
        };
        match open.element.children.last_mut() {
            Some(Node::Text(before)) => before.push_str(text),
            _ if text.is_empty() => {}
            _ => open.element.children.push(Node::Text(text.to_owned())),
        }
    }

    fn begin(&mut self, inner: &str) -> Result<Option<Read>, XmlError> {
        let (inner, is_whole) = match inner.strip_suffix('/') {
            Some(inner) => (inner, true),
            None => (inner, false),
        };
        if self.open.len() >= self.limits.depth {
            return Err(XmlError::Depth);
        }
        let end = inner.find(is_blank).unwrap_or(inner.len());
        let (written, rest) = inner.split_at(end);
        let all = attributes(rest, self.limits.attributes)?;
        let scopes = self.scopes.len();
        for (name, value) in &all {
            let prefix = match name.strip_prefix("xmlns") {
                Some("") => "",
                Some(prefix) => prefix.strip_prefix(':').unwrap_or(""),
                None => continue,
            };
            if prefix.is_empty() != (name == "xmlns") {
                continue;
            }
            self.scopes.push((prefix.to_owned(), value.clone()));
        }
        let (prefix, name) = split_name(written)?;
        let element = Element {
            ns: self.namespace(prefix)?.to_owned(),
            name: name.to_owned(),
            attributes: all
                .into_iter()
                .filter(|(name, _)| is_retained_attribute(name))
                .collect(),
            children: Vec::new(),
        };
        self.open.push(Open {
            element,
            written: written.to_owned(),
            scopes,
        });
        let opened = (self.open.len() == 1).then(|| self.open.first());
        let opened = opened.flatten().map(|open| open.element.clone());
        if is_whole {
            if opened.is_some() {
                return Err(XmlError::Expected("a stream that has something in it"));
            }
            return self.end(written);
        }
        Ok(opened.map(Read::StreamStart))
    }

    fn namespace(&self, prefix: &str) -> Result<&str, XmlError> {
        if prefix == "xml" {
            return Ok(XML_NS);
        }
        let found = self.scopes.iter().rev().find(|(own, _)| own == prefix);
        match found {
            Some((_, ns)) => Ok(ns),
            None if prefix.is_empty() => Ok(""),
            None => Err(XmlError::Expected("a declared prefix")),
        }
    }

    fn end(&mut self, written: &str) -> Result<Option<Read>, XmlError> {
        let unexpected = XmlError::Expected("the end tag of the innermost element");
        let open = self.open.pop().ok_or(unexpected)?;
        if open.written != written {
            return Err(unexpected);
        }
        self.scopes.truncate(open.scopes);
        match self.open.len() {
            0 => {
                self.has_ended = true;
                Ok(Some(Read::Closed))
            }
            1 => Ok(Some(Read::Stanza(open.element))),
            _ => {
                if let Some(around) = self.open.last_mut() {
                    around.element.children.push(Node::Element(open.element));
                }
                Ok(None)
            }
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

fn is_retained_attribute(name: &str) -> bool {
    name != "xmlns" && (!name.contains(':') || name == "xml:lang")
}

fn is_name(text: &str) -> bool {
    let is_first = |c: char| c.is_alphabetic() || c == '_';
    let is_other = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.starts_with(is_first) && text.chars().all(is_other)
}

fn split_name(written: &str) -> Result<(&str, &str), XmlError> {
    let (prefix, name) = written.split_once(':').unwrap_or(("", written));
    let is_fine = is_name(name) && (is_name(prefix) || !written.contains(':'));
    is_fine
        .then_some((prefix, name))
        .ok_or(XmlError::Expected("a name"))
}

fn attributes(text: &str, most: usize) -> Result<Vec<(String, String)>, XmlError> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start_matches(is_blank);
        if trimmed.is_empty() {
            return Ok(all);
        }
        if trimmed.len() == rest.len() {
            return Err(XmlError::Expected("a space before an attribute"));
        }
        if all.len() >= most {
            return Err(XmlError::Attributes);
        }
        let expected = XmlError::Expected("NAME='VALUE'");
        let (name, behind) = trimmed.split_once('=').ok_or(expected)?;
        let name = name.trim_end_matches(is_blank);
        split_name(name)?;
        let behind = behind.trim_start_matches(is_blank);
        let quote = behind.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let quote = quote.ok_or(expected)?;
        let inner = behind.get(1..).unwrap_or("");
        let (value, behind) = inner.split_once(quote).ok_or(expected)?;
        if all.iter().any(|(own, _)| own == name) {
            return Err(XmlError::Expected("each attribute once"));
        }
        all.push((name.to_owned(), unescape(value, true)?));
        rest = behind;
    }
}

/// Resolves references in text. In attributes, all whitespace is read as spaces.
fn unescape(text: &str, is_attribute: bool) -> Result<String, XmlError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let plain = |part: &str, out: &mut String| {
        let mut was_return = false;
        for c in part.chars() {
            match c {
                _ if !is_char(c) => return Err(XmlError::Expected("characters that XML allows")),
                '<' => return Err(XmlError::Expected("no < in a value")),
                '\n' if was_return => {}
                '\r' | '\n' => out.push(if is_attribute { ' ' } else { '\n' }),
                '\t' if is_attribute => out.push(' '),
                _ => out.push(c),
            }
            was_return = c == '\r';
        }
        Ok(())
    };
    while let Some((before, behind)) = rest.split_once('&') {
        plain(before, &mut out)?;
        let expected = XmlError::Expected("; after the name of an entity");
        let (name, behind) = behind.split_once(';').ok_or(expected)?;
        out.push(character(name)?);
        rest = behind;
    }
    plain(rest, &mut out)?;
    Ok(out)
}

fn character(name: &str) -> Result<char, XmlError> {
    let number = match name {
        "lt" => return Ok('<'),
        "gt" => return Ok('>'),
        "amp" => return Ok('&'),
        "apos" => return Ok('\''),
        "quot" => return Ok('"'),
        _ => name.strip_prefix('#'),
    };
    let number = number.ok_or(XmlError::Forbidden("entity declarations"))?;
    let (digits, radix) = match number.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    let is_number = digits.chars().all(|c| c.is_digit(radix));
    let code = u32::from_str_radix(digits, radix)
        .ok()
        .filter(|_| is_number);
    let found = code.and_then(char::from_u32).filter(|c| is_char(*c));
    found.ok_or(XmlError::Expected("the number of a character"))
}
