//! A connection from its first byte on: TLS, login, an address of its own, then requests, answers
//! and messages of other accounts.
//!
//! Invariants: without TLS only the beginning of the stream is sent, unless the login says that the
//! connection needs none; a password is never sent in clear without TLS. Bytes that arrive in clear
//! before TLS are not trusted: bytes after the server's consent to TLS end the session. An answer
//! counts only from the address of the request. At most [`QUESTIONS_MAX`] requests wait for
//! answers, and requests of a server are refused. Concurrency: plain data, one owner. The caller
//! sends [`Session::take_output`], passes received bytes to [`Session::feed`], and reads
//! [`Session::next`]. Failure: [`XmppError`].

use crate::xmpp::element::Element;
use crate::xmpp::jid::Jid;
use crate::xmpp::reader::{Limits, Read, Reader, XmlError};
use crate::xmpp::scram::{Hash, Scram, ScramError, is_plain};
use data_encoding::BASE64;
use std::collections::{BTreeMap, VecDeque};

const CLIENT: &str = "jabber:client";
const STREAMS: &str = "http://etherx.jabber.org/streams";
const TLS: &str = "urn:ietf:params:xml:ns:xmpp-tls";
const SASL: &str = "urn:ietf:params:xml:ns:xmpp-sasl";
const BIND: &str = "urn:ietf:params:xml:ns:xmpp-bind";
const STANZAS: &str = "urn:ietf:params:xml:ns:xmpp-stanzas";
const STREAM_ERRORS: &str = "urn:ietf:params:xml:ns:xmpp-streams";
const PING: &str = "urn:xmpp:ping";

/// Most questions that wait for answers.
const QUESTIONS_MAX: usize = 8_192;

/// Why a session ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum XmppError {
    /// The server sends no stream.
    #[error("what the server sends cannot be read: {0}")]
    Xml(#[from] XmlError),
    /// The server has ended the stream, with a condition.
    #[error("the server ends the stream: {0}")]
    Stream(String),
    /// The server offers no TLS.
    #[error("the server offers no TLS, which is required for servers on other machines")]
    NoTls,
    /// The server does not offer a supported mechanism of login.
    #[error("the server offers no supported login mechanism: {0}")]
    NoMechanism(String),
    /// The server does not let us in.
    #[error("the server refuses the login: {0}")]
    Login(String),
    /// The proof of the password failed.
    #[error("logging in: {0}")]
    Scram(#[from] ScramError),
    /// An unexpected stanza.
    #[error("the server sends {0:?}: expected {1}")]
    Unexpected(String, &'static str),
    /// The server did not assign an address.
    #[error("the server assigns no address: {0}")]
    NoAddress(String),
    /// More questions than are answered.
    #[error(
        "too many requests wait for answers of the server; at most {QUESTIONS_MAX} are allowed"
    )]
    Questions,
}

/// Account and conditions of a login.
#[derive(Clone)]
pub struct Login {
    /// The account.
    pub account: Jid,
    /// Password of the account.
    pub password: String,
    /// Resource of this connection; random, so that two do not end one another.
    pub resource: String,
    /// Chance in printable characters without commas.
    pub nonce: String,
    /// The bytes go over TLS from the beginning.
    pub is_secured: bool,
    /// May continue without TLS: the connection cannot be intercepted.
    pub may_be_clear: bool,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

/// Why a question was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{condition}")]
pub struct Refusal {
    /// Condition of the error in XMPP: `forbidden`, `item-not-found` and others.
    pub condition: String,
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The following bytes need TLS: negotiate it, and then call [`Session::secured`].
    NeedsTls,
    /// Logged in.
    Ready,
    /// A question was answered.
    Answer {
        /// Number of the request.
        number: u64,
        /// The answer.
        answer: Result<Element, Refusal>,
    },
    /// A message of another account.
    Message(Element),
    /// The server ends the stream, without a reason.
    Closed,
}

#[derive(Debug)]
enum Stage {
    /// The stream was started; the server's features arrive next.
    Offers,
    /// TLS was requested.
    Tls,
    /// Waits for the TLS handshake of the caller.
    Securing,
    Proving(Scram),
    /// The password was sent.
    Proven,
    Binding,
    Ready,
    Ended,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    login: Login,
    reader: Reader,
    stage: Stage,
    is_secured: bool,
    is_proven: bool,
    has_opened: bool,
    out: String,
    happened: VecDeque<Happened>,
    number: u64,
    /// Requests without an answer, and the address of each.
    pending: BTreeMap<u64, Option<Jid>>,
}

fn condition(of: &Element, ns: &str) -> String {
    let found = of
        .elements()
        .find(|element| element.ns == ns && element.name != "text");
    found.map_or_else(
        || "without a reason".to_owned(),
        |element| element.name.clone(),
    )
}

impl Session {
    /// Creates a session.
    #[must_use]
    pub fn new(login: Login) -> Session {
        let mut session = Session {
            is_secured: login.is_secured,
            login,
            reader: Reader::new(Limits::default()),
            stage: Stage::Offers,
            is_proven: false,
            has_opened: false,
            out: String::new(),
            happened: VecDeque::new(),
            number: 0,
            pending: BTreeMap::new(),
        };
        session.open();
        session
    }

    /// Opens a stream: at first, after TLS, and after the login.
    fn open(&mut self) {
        self.reader = Reader::new(Limits::default());
        self.has_opened = false;
        self.stage = Stage::Offers;
        self.out.push_str("<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0' to='");
        self.out.push_str(self.login.account.domain());
        self.out.push_str("'>");
    }

    fn send(&mut self, element: &Element) {
        element.write(CLIENT, &mut self.out);
    }

    /// Bytes to be sent.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out).into_bytes()
    }

    /// The next event, the oldest first.
    pub fn next_happened(&mut self) -> Option<Happened> {
        self.happened.pop_front()
    }

    /// True when requests may be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready)
    }

    /// Questions that wait for answers.
    #[must_use]
    pub fn waits_for(&self) -> usize {
        self.pending.len()
    }

    /// The bytes go over TLS from now on.
    pub fn secured(&mut self) {
        if matches!(self.stage, Stage::Securing) {
            self.is_secured = true;
            self.open();
        }
    }

    /// Announces presence, so that other accounts may send to this connection.
    pub fn appear(&mut self) {
        self.send(&Element::new(CLIENT, "presence"));
    }

    /// Ends the stream.
    pub fn close(&mut self) {
        self.out.push_str("</stream:stream>");
        self.stage = Stage::Ended;
    }

    /// Sends a request (`get` or `set`). The answer has the returned number.
    ///
    /// # Errors
    /// When too many questions wait.
    pub fn request(
        &mut self,
        kind: IqKind,
        of: Option<&Jid>,
        what: Element,
    ) -> Result<u64, XmppError> {
        if self.pending.len() >= QUESTIONS_MAX {
            return Err(XmppError::Questions);
        }
        self.number += 1;
        let mut question = Element::new(CLIENT, "iq")
            .with("type", kind.name())
            .with("id", &format!("q{}", self.number));
        if let Some(of) = of {
            question = question.with("to", &of.to_string());
        }
        self.send(&question.with_child(what));
        self.pending.insert(self.number, of.cloned());
        Ok(self.number)
    }

    /// Sends a ping to the server.
    ///
    /// # Errors
    /// When too many questions wait.
    pub fn ping(&mut self) -> Result<u64, XmppError> {
        let domain: Option<Jid> = self.login.account.domain().parse().ok();
        self.request(IqKind::Get, domain.as_ref(), Element::new(PING, "ping"))
    }

    /// Processes received bytes.
    ///
    /// # Errors
    /// When the session is over.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), XmppError> {
        if matches!(self.stage, Stage::Securing) {
            return Err(XmppError::Unexpected(
                "no unencrypted bytes".to_owned(),
                "TLS",
            ));
        }
        self.reader.push(bytes);
        while let Some(read) = self.reader.next()? {
            match read {
                Read::StreamStart(stream) => self.accept_stream(&stream)?,
                Read::Stanza(stanza) => self.receive(stanza)?,
                Read::Closed => {
                    self.stage = Stage::Ended;
                    self.happened.push_back(Happened::Closed);
                }
            }
        }
        Ok(())
    }

    fn accept_stream(&mut self, stream: &Element) -> Result<(), XmppError> {
        let is_new = stream.is(STREAMS, "stream") && !self.has_opened;
        let version = stream.attribute("version").unwrap_or("0.9");
        if !is_new || !version.starts_with("1.") {
            let sent = format!("{} {version}", stream.name);
            return Err(XmppError::Unexpected(sent, "a stream of version 1.0"));
        }
        self.has_opened = true;
        Ok(())
    }

    fn receive(&mut self, stanza: Element) -> Result<(), XmppError> {
        if stanza.is(STREAMS, "error") {
            return Err(XmppError::Stream(condition(&stanza, STREAM_ERRORS)));
        }
        match &mut self.stage {
            Stage::Offers if stanza.is(STREAMS, "features") => self.choose(&stanza),
            Stage::Tls if stanza.is(TLS, "proceed") => {
                if self.reader.has_rest() {
                    return Err(XmppError::Unexpected(
                        "no unencrypted bytes".to_owned(),
                        "TLS",
                    ));
                }
                self.stage = Stage::Securing;
                self.happened.push_back(Happened::NeedsTls);
                Ok(())
            }
            Stage::Tls if stanza.is(TLS, "failure") => Err(XmppError::NoTls),
            Stage::Proving(_) | Stage::Proven if stanza.is(SASL, "failure") => {
                Err(XmppError::Login(condition(&stanza, SASL)))
            }
            Stage::Proving(scram) if stanza.is(SASL, "challenge") => {
                let answer = scram.answer(&decoded(&stanza)?)?;
                let answer = BASE64.encode(answer.as_bytes());
                self.send(&Element::new(SASL, "response").saying(&answer));
                Ok(())
            }
            Stage::Proving(scram) if stanza.is(SASL, "success") => {
                scram.finish(&decoded(&stanza)?)?;
                self.proven()
            }
            Stage::Proven if stanza.is(SASL, "success") => self.proven(),
            Stage::Binding if stanza.is(CLIENT, "iq") => self.bound(&stanza),
            Stage::Ready => self.take_ready(stanza),
            Stage::Ended => Ok(()),
            _ => Err(XmppError::Unexpected(
                stanza.name,
                "the next step of logging in",
            )),
        }
    }

    /// Chooses among the features that the server offers.
    fn choose(&mut self, offers: &Element) -> Result<(), XmppError> {
        if self.is_proven {
            if offers.child(BIND, "bind").is_none() {
                return Err(XmppError::NoAddress("it offers none".to_owned()));
            }
            let resource = Element::new(BIND, "resource").saying(&self.login.resource);
            self.stage = Stage::Binding;
            self.request(
                IqKind::Set,
                None,
                Element::new(BIND, "bind").with_child(resource),
            )?;
            return Ok(());
        }
        if !self.is_secured {
            if offers.child(TLS, "starttls").is_some() {
                self.stage = Stage::Tls;
                self.send(&Element::new(TLS, "starttls"));
                return Ok(());
            }
            if !self.login.may_be_clear {
                return Err(XmppError::NoTls);
            }
        }
        let all = offers.child(SASL, "mechanisms");
        let all = all.into_iter().flat_map(Element::elements);
        let names: Vec<String> = all.map(Element::text).collect();
        let has = |name: &str| names.iter().any(|own| own == name);
        let (name, password) = (self.login.account.local(), &self.login.password);
        for hash in [Hash::Sha256, Hash::Sha1] {
            if !has(hash.mechanism()) {
                continue;
            }
            let scram = Scram::new(hash, name, password, &self.login.nonce)?;
            let first = BASE64.encode(scram.first().as_bytes());
            self.stage = Stage::Proving(scram);
            self.begin_login(hash.mechanism(), &first);
            return Ok(());
        }
        if !self.is_secured || !has("PLAIN") {
            return Err(XmppError::NoMechanism(names.join(" ")));
        }
        if !is_plain(password) {
            return Err(XmppError::Scram(ScramError::Characters));
        }
        let told = BASE64.encode(format!("\0{name}\0{password}").as_bytes());
        self.stage = Stage::Proven;
        self.begin_login("PLAIN", &told);
        Ok(())
    }

    fn begin_login(&mut self, mechanism: &str, first: &str) {
        let auth = Element::new(SASL, "auth").with("mechanism", mechanism);
        self.send(&auth.saying(first));
    }

    fn proven(&mut self) -> Result<(), XmppError> {
        if self.reader.has_rest() {
            return Err(XmppError::Unexpected("more".to_owned(), "a new stream"));
        }
        self.is_proven = true;
        self.open();
        Ok(())
    }

    fn bound(&mut self, stanza: &Element) -> Result<(), XmppError> {
        let is_answer = stanza.attribute("id") == Some(&format!("q{}", self.number));
        let address = stanza
            .child(BIND, "bind")
            .and_then(|bind| bind.child(BIND, "jid"));
        let address = address.and_then(|jid| jid.text().parse::<Jid>().ok());
        let is_ours = address.is_some_and(|jid| jid.bare() == self.login.account.bare());
        if !is_answer || stanza.attribute("type") != Some("result") || !is_ours {
            let why = stanza.child(CLIENT, "error");
            let why = why.map_or_else(String::new, |error| condition(error, STANZAS));
            return Err(XmppError::NoAddress(why));
        }
        self.pending.clear();
        self.stage = Stage::Ready;
        self.happened.push_back(Happened::Ready);
        Ok(())
    }

    fn take_ready(&mut self, stanza: Element) -> Result<(), XmppError> {
        match (stanza.name.as_str(), stanza.attribute("type")) {
            ("iq", Some("result" | "error")) => self.answered(stanza),
            ("iq", Some("get" | "set")) => self.refuse(&stanza),
            ("message", Some("error")) | ("presence", _) => {}
            ("message", _) if stanza.ns == CLIENT => {
                self.happened.push_back(Happened::Message(stanza));
            }
            _ => {
                return Err(XmppError::Unexpected(
                    stanza.name,
                    "an iq, a message or a presence",
                ));
            }
        }
        Ok(())
    }

    /// Processes an answer, which counts from the requested address only; the server answers for
    /// the account, too.
    fn answered(&mut self, stanza: Element) {
        let id = stanza.attribute("id").and_then(|id| id.strip_prefix('q'));
        let Some(number) = id.and_then(|id| id.parse::<u64>().ok()) else {
            return;
        };
        let from: Option<Jid> = stanza.attribute("from").and_then(|from| from.parse().ok());
        let is_from_asked = match (self.pending.get(&number), &from) {
            (None, _) => return,
            (Some(Some(asked)), Some(from)) => asked == from,
            (Some(None), Some(from)) => from.bare() == self.login.account.bare(),
            (Some(asked), None) => asked
                .as_ref()
                .is_none_or(|a| a.domain() == self.login.account.domain()),
        };
        if !is_from_asked {
            return;
        }
        self.pending.remove(&number);
        let answer = match stanza.attribute("type") {
            Some("result") => Ok(stanza),
            _ => {
                let error = stanza.child(CLIENT, "error");
                Err(Refusal {
                    condition: error.map_or_else(
                        || "without a reason".to_owned(),
                        |error| condition(error, STANZAS),
                    ),
                })
            }
        };
        self.happened.push_back(Happened::Answer { number, answer });
    }

    /// Answers a request of the server or of another account: a ping with a result, all others with
    /// a refusal.
    fn refuse(&mut self, question: &Element) {
        let is_ping = question.child(PING, "ping").is_some();
        let kind = if is_ping { "result" } else { "error" };
        let mut answer = Element::new(CLIENT, "iq").with("type", kind);
        for (from, to) in [("id", "id"), ("from", "to")] {
            if let Some(value) = question.attribute(from) {
                answer = answer.with(to, value);
            }
        }
        if !is_ping {
            let condition = Element::new(STANZAS, "service-unavailable");
            let error = Element::new(CLIENT, "error").with("type", "cancel");
            answer = answer.with_child(error.with_child(condition));
        }
        self.send(&answer);
    }
}

/// Which question it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IqKind {
    /// A request.
    Get,
    /// Something is to be done.
    Set,
}

impl IqKind {
    fn name(self) -> &'static str {
        match self {
            IqKind::Get => "get",
            IqKind::Set => "set",
        }
    }
}

fn decoded(stanza: &Element) -> Result<String, XmppError> {
    let text = stanza.text();
    let bytes = BASE64.decode(text.trim().as_bytes());
    let bytes = bytes.map_err(|_| ScramError::Message("base64"))?;
    let text = String::from_utf8(bytes).map_err(|_| ScramError::Message("UTF-8"))?;
    Ok(text)
}
