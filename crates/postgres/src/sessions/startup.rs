//! From a connection to a session: TLS, authentication, and the first messages. All within one time
//! limit.

use super::connection::Connection;
use super::errors::{fatal, information, of_malformed};
use super::front_end::{Begins, FrontEnd};
use super::link::{Link, Stream};
use super::names::{Names, SessionListing};
use crate::catalog::{VariableError, Variables};
use crate::host::Grant;
use crate::messages::{First, Message, Notice, TransactionStatus, Writer, first, message};
use parking_lot::RwLock;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;

/// Error for a token that allows nothing.
const WITHOUT_RIGHTS: &str = "this token may not read, write or manage anything: none of its rules \
    allows it; use a token with such a rule (`headwater token create`)";

/// Longest message with a password.
const PASSWORD_MAX: u32 = 10_000;
/// Time that a refused client is listened to.
const REFUSAL: Duration = Duration::from_secs(2);

fn too_many() -> Notice {
    fatal(
        "53300",
        "too many connections: see the setting postgres.connections_max",
    )
}

/// Refuses a connection because the limit is reached.
pub(super) async fn refuse(mut stream: TcpStream) {
    let told = async {
        let mut bytes = Vec::new();
        // Closing with unread bytes would cut off sent data.
        stream.read_buf(&mut bytes).await?;
        send_notice(&mut stream, &too_many()).await
    };
    match tokio::time::timeout(REFUSAL, told).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection above the limit ended early"),
        Err(_) => tracing::debug!("a connection above the limit sent nothing"),
    }
}

async fn send_notice<S: Stream>(stream: &mut S, notice: &Notice) -> io::Result<()> {
    let mut out = Writer::default();
    out.notice(notice);
    stream.write_all(out.bytes()).await?;
    stream.shutdown().await
}

/// Makes a session of a connection, and serves it.
pub(super) async fn session(begins: Begins, stream: TcpStream) -> io::Result<()> {
    let peer = stream.peer_addr()?;
    let begun = tokio::time::timeout(begins.limit, negotiate(&begins, stream, peer)).await;
    let Ok(begun) = begun else {
        begins.front_end.metrics.refused("startup_timeout");
        return Err(io::ErrorKind::TimedOut.into());
    };
    // Others may begin from now on.
    drop(begins);
    match begun? {
        Negotiated::Plain(connection) => connection.run().await,
        Negotiated::Tls(connection) => connection.run().await,
        Negotiated::NoSession => Ok(()),
    }
}

enum Negotiated {
    Plain(Box<Connection<TcpStream>>),
    Tls(Box<Connection<tokio_rustls::server::TlsStream<TcpStream>>>),
    /// The connection was not a session.
    NoSession,
}

async fn negotiate(
    begins: &Begins,
    mut stream: TcpStream,
    peer: SocketAddr,
) -> io::Result<Negotiated> {
    let front_end = &begins.front_end;
    let mut input = Vec::new();
    // TLS and GSSAPI may each be requested once.
    for _ in 0..3 {
        let Some(asked) = read_first(front_end, &mut stream, &mut input).await? else {
            return Ok(Negotiated::NoSession);
        };
        match (asked, front_end.host.tls()) {
            (First::Gss, _) | (First::Tls, None) => stream.write_all(b"N").await?,
            (First::Tls, Some(config)) => {
                if !input.is_empty() {
                    // Bytes from before the agreement on TLS may be an attacker's.
                    let notice = fatal("08P01", "received unencrypted data after the TLS request");
                    send_notice(&mut stream, &notice).await?;
                    return Ok(Negotiated::NoSession);
                }
                stream.write_all(b"S").await?;
                let mut stream = TlsAcceptor::from(config).accept(stream).await?;
                let first = read_first(front_end, &mut stream, &mut input).await?;
                let made = begin(begins, stream, input, first, peer, true).await?;
                return Ok(made.map_or(Negotiated::NoSession, |made| {
                    Negotiated::Tls(Box::new(made))
                }));
            }
            (first, _) => {
                let made = begin(begins, stream, input, Some(first), peer, false).await?;
                return Ok(made.map_or(Negotiated::NoSession, |made| {
                    Negotiated::Plain(Box::new(made))
                }));
            }
        }
    }
    Ok(Negotiated::NoSession)
}

/// Reads a first message; `None` = the client has disconnected, or was refused.
async fn read_first<S: Stream>(
    front_end: &FrontEnd,
    stream: &mut S,
    input: &mut Vec<u8>,
) -> io::Result<Option<First>> {
    loop {
        match first(input) {
            Ok(Some((first, taken))) => {
                input.drain(..taken);
                return Ok(Some(first));
            }
            Ok(None) => {}
            Err(why) => {
                front_end.metrics.refused("malformed");
                send_notice(stream, &of_malformed(&why)).await?;
                return Ok(None);
            }
        }
        if stream.read_buf(input).await? == 0 {
            return Ok(None);
        }
    }
}

/// A first message that begins a session.
struct Introduction {
    /// The minor version of the protocol.
    minor: u16,
    parameters: Vec<(String, String)>,
}

impl Introduction {
    /// Returns the value of a parameter, unless it is absent or empty.
    fn parameter(&self, name: &str) -> Option<String> {
        let found = self.parameters.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.clone())
            .filter(|value| !value.is_empty())
    }

    /// True when the client requests replication.
    fn requests_replication(&self) -> bool {
        self.parameter("replication")
            .is_some_and(|value| !["false", "off", "no", "0"].contains(&value.as_str()))
    }

    /// Answers a newer version, and unknown options of the protocol.
    fn negotiate(&self, out: &mut Writer) {
        let unknown: Vec<&str> = self
            .parameters
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| name.starts_with("_pq_."))
            .collect();
        if self.minor > 0 || !unknown.is_empty() {
            out.negotiate(0, &unknown);
        }
    }

    /// Creates the settings of the session, and reports them to the client; an error ends the
    /// session.
    fn settings(&self, user: &str, tls: bool, out: &mut Writer) -> Result<Variables, Notice> {
        let mut variables = Variables::new(user, tls);
        for notice in set_first(&mut variables, &self.parameters) {
            out.notice(&notice?);
        }
        variables.begin();
        for (name, value) in variables.reported() {
            out.parameter_status(name, value);
        }
        Ok(variables)
    }
}

/// Admits a client, or refuses it with the reason.
async fn begin<S: Stream>(
    begins: &Begins,
    mut stream: S,
    mut input: Vec<u8>,
    first: Option<First>,
    peer: SocketAddr,
    tls: bool,
) -> io::Result<Option<Connection<S>>> {
    let (front_end, cancels) = (&begins.front_end, &begins.cancels);
    let introduction = match first {
        Some(First::Begin { minor, parameters }) => Introduction { minor, parameters },
        Some(First::Cancel { process, secret }) => {
            cancels.cancel(process, &secret);
            return Ok(None);
        }
        _ => return Ok(None),
    };
    let user = introduction.parameter("user");
    let user = user.unwrap_or_else(|| "headwater".to_owned());
    let mut out = Writer::default();
    let Some((grant, place)) = let_in(
        begins,
        &introduction,
        &mut stream,
        &mut input,
        &mut out,
        (peer, tls),
    )
    .await?
    else {
        return Ok(None);
    };
    out.authentication_ok();
    let variables = match introduction.settings(&user, tls, &mut out) {
        Ok(variables) => variables,
        Err(notice) => {
            send_notice(&mut stream, &notice).await?;
            return Ok(None);
        }
    };
    let registered = cancels.register(front_end.host.as_ref())?;
    out.key_data(registered.process, registered.secret);
    out.ready(TransactionStatus::Idle);
    stream.write_all(out.bytes()).await?;
    stream.flush().await?;
    let seen = Arc::new(SessionListing {
        query: front_end.statements.query.clone(),
        access: grant.access(),
        database: introduction
            .parameter("database")
            .unwrap_or_else(|| user.clone()),
        user,
        variables: RwLock::new(variables),
    });
    let settings = &front_end.settings;
    let link = Link::new(
        stream,
        input,
        registered,
        settings.message_bytes_max,
        settings.idle_timeout,
        front_end.stopping.clone(),
    );
    Ok(Some(connection(front_end, grant, seen, link, place)))
}

/// Returns the rights of a client and its place among the sessions; `None` = it was refused.
async fn let_in<S: Stream>(
    begins: &Begins,
    introduction: &Introduction,
    stream: &mut S,
    input: &mut Vec<u8>,
    out: &mut Writer,
    (peer, tls): (SocketAddr, bool),
) -> io::Result<Option<(Arc<dyn Grant>, OwnedSemaphorePermit)>> {
    let front_end = &begins.front_end;
    if introduction.requests_replication() {
        let notice = fatal("0A000", "the replication protocol is not supported");
        send_notice(stream, &notice).await?;
        return Ok(None);
    }
    introduction.negotiate(out);
    let grant = match admit(front_end, stream, input, out, peer, tls).await? {
        Ok(grant) => grant,
        Err(notice) => {
            front_end.metrics.refused("denied");
            tracing::warn!(%peer, sqlstate = notice.sqlstate, "a session of PostgreSQL's protocol was refused");
            send_notice(stream, &notice).await?;
            return Ok(None);
        }
    };
    let Ok(place) = Arc::clone(&begins.slots).try_acquire_owned() else {
        front_end.metrics.refused("too_many");
        send_notice(stream, &too_many()).await?;
        return Ok(None);
    };
    Ok(Some((grant, place)))
}

/// Creates the connection of an admitted client.
fn connection<S: Stream>(
    front_end: &Arc<FrontEnd>,
    grant: Arc<dyn Grant>,
    seen: Arc<SessionListing>,
    link: Link<S>,
    place: OwnedSemaphorePermit,
) -> Connection<S> {
    let names = Arc::new(Names::new(Arc::clone(&seen) as _));
    let query = &front_end.statements.query;
    let session = query.session_with(Arc::clone(&seen.access), names);
    Connection::new(Arc::clone(front_end), grant, seen, session, link, place)
}

/// Rights of a client, by the token in its password.
async fn admit<S: Stream>(
    front_end: &FrontEnd,
    stream: &mut S,
    input: &mut Vec<u8>,
    out: &mut Writer,
    peer: SocketAddr,
    tls: bool,
) -> io::Result<Result<Arc<dyn Grant>, Notice>> {
    let near = peer.ip().to_canonical().is_loopback();
    let settings = &front_end.settings;
    if front_end.host.is_open() {
        // The address was checked at the start; a proxy on this machine was not.
        return Ok(match front_end.host.admit(None) {
            Some(grant) if near || settings.allow_open => Ok(grant),
            _ => Err(fatal(
                "28000",
                "without tokens only clients on this machine are served: create one with `headwater token create`",
            )),
        });
    }
    if !tls && !near && !settings.allow_plaintext {
        return Ok(Err(fatal(
            "28000",
            "a token is accepted only over TLS: connect with sslmode=require",
        )));
    }
    out.authentication_password();
    stream.write_all(out.bytes()).await?;
    stream.flush().await?;
    out.clear();
    let password = loop {
        match message(input, PASSWORD_MAX) {
            Ok(Some((Message::Password(password), taken))) => {
                input.drain(..taken);
                break password;
            }
            Ok(Some((Message::Terminate, _))) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(Some(_)) => return Ok(Err(fatal("08P01", "expected a password"))),
            Ok(None) => {}
            Err(why) => return Ok(Err(of_malformed(&why))),
        }
        if stream.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let admitted = front_end.host.admit(Some(password));
    if admitted
        .as_ref()
        .is_some_and(|grant| !grant.allows_anything())
    {
        return Ok(Err(fatal("42501", WITHOUT_RIGHTS)));
    }
    Ok(admitted.ok_or_else(|| {
        let mut notice = fatal("28P01", "password authentication failed");
        notice.hint = Some(
            "the password is a token, see `headwater token create`; any user name will do"
                .to_owned(),
        );
        notice
    }))
}

/// Sets the settings of the first message. Values that would be refused later are only warnings
/// here, since drivers send more than they need; an unknown setting ends the session, and so does
/// an unknown time zone, with which instants would be parsed wrongly.
fn set_first(
    variables: &mut Variables,
    parameters: &[(String, String)],
) -> Vec<Result<Notice, Notice>> {
    let mut told = Vec::new();
    let mut set = |name: &str, value: &str| match variables.set(name, value) {
        Ok(_) => {}
        Err(why)
            if matches!(why, VariableError::Unknown(_))
                || name.eq_ignore_ascii_case("timezone") =>
        {
            told.push(Err(fatal(why.sqlstate(), why.to_string())));
        }
        Err(why) => told.push(Ok(information(format!(
            "{why}; the session continues without it"
        )))),
    };
    for (name, value) in parameters {
        match name.as_str() {
            "user" | "database" | "replication" => {}
            "options" => {
                for (name, value) in options(value) {
                    set(&name, &value);
                }
            }
            name if name.starts_with("_pq_.") => {}
            name => set(name, value),
        }
    }
    told
}

/// `-c name=value` and `--name=value`, with spaces escaped by backslashes.
fn options(text: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                if let (Some(word), Some(kept)) = (words.last_mut(), chars.next()) {
                    word.push(kept);
                }
            }
            c if c.is_whitespace() => words.push(String::new()),
            c => {
                if let Some(word) = words.last_mut() {
                    word.push(c);
                }
            }
        }
    }
    words
        .iter()
        .filter_map(|word| {
            let word = word
                .strip_prefix("--")
                .or_else(|| word.strip_prefix("-c"))
                .unwrap_or(word);
            let (name, value) = word.split_once('=')?;
            Some((name.replace('-', "_"), value.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let read = options("-c statement_timeout=5s --search-path=a\\ b  -cwork_mem=1MB x");
        let wanted = [
            ("statement_timeout", "5s"),
            ("search_path", "a b"),
            ("work_mem", "1MB"),
        ];
        let read: Vec<(&str, &str)> = read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(read, wanted);
    }
}
