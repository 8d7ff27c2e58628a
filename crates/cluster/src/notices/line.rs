//! Connection to an XMPP server: the socket, TLS, and the session over it.
//!
//! Invariants: TLS is verified for the domain of the account. Without TLS only a server on this
//! machine is used. Reads and writes are bounded in time; pending output is written as a whole
//! before the next read. Concurrency: one owner. Failure: texts for the log.

use crate::broker_login::{password, tls};
use crate::bus_budget::BusBudget;
use crate::settings::{Broker, NoticeSettings};
use crate::socket_bytes::Counted;
use headwater_protocol::xmpp::{
    Element, Happened, IqKind, Jid, Login as SessionLogin, Refusal, Session,
};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Longest time to log in.
const LOGIN_MAX: Duration = Duration::from_secs(20);
/// Longest time to write pending bytes.
const WRITE_MAX: Duration = Duration::from_secs(20);
/// Longest time until a request is answered.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Bytes per read.
const READ_BYTES: usize = 16 << 10;

trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Bytes for T {}

/// Account, and the server to log in to.
pub(super) struct Login {
    server: Broker,
    account: Jid,
    service: Jid,
    password: String,
    tls: Arc<ClientConfig>,
}

impl Login {
    /// Login of the settings, from files read again.
    ///
    /// # Errors
    /// Names the setting and the file that cannot be used.
    pub(super) fn of(settings: &NoticeSettings) -> Result<Login, String> {
        let server = settings.xmpp.clone();
        let server = server.ok_or("no XMPP server is configured (notices.broker)")?;
        let account = settings.login.user.parse::<Jid>();
        let account = account
            .map_err(|error| format!("notices.user: {error}"))?
            .bare();
        let service = match settings.service.as_str() {
            "" => format!("pubsub.{}", account.domain()),
            service => service.to_owned(),
        };
        let service = service.parse::<Jid>();
        let service = service.map_err(|error| format!("notices.service: {error}"))?;
        Ok(Login {
            server,
            account,
            service,
            password: password("notices", &settings.login)?,
            tls: Arc::new(tls("notices", &settings.login)?),
        })
    }

    /// True when the server is on this machine.
    fn is_here(&self) -> bool {
        let host = self
            .server
            .host
            .trim_start_matches('[')
            .trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// Connection to an XMPP server.
pub(super) struct Line {
    bytes: Box<dyn Bytes>,
    pub(super) session: Session,
    pub(super) account: Jid,
    pub(super) service: Jid,
    buffer: Vec<u8>,
}

async fn secure(bytes: Box<dyn Bytes>, login: &Login) -> Result<Box<dyn Bytes>, String> {
    let name = ServerName::try_from(login.account.domain().to_owned());
    let name = name.map_err(|error| format!("TLS: {error}"))?;
    let connector = TlsConnector::from(Arc::clone(&login.tls));
    let secured = connector.connect(name, bytes).await;
    Ok(Box::new(secured.map_err(|error| format!("TLS: {error}"))?))
}

impl Line {
    /// Connects and logs in.
    ///
    /// # Errors
    /// When the connection fails or times out.
    pub(super) async fn connect(login: &Login, link: Option<&BusBudget>) -> Result<Line, String> {
        let made = timeout(LOGIN_MAX, Line::begin(login, link)).await;
        made.map_err(|_| "the server does not answer in time".to_owned())?
    }

    async fn begin(login: &Login, link: Option<&BusBudget>) -> Result<Line, String> {
        let host = login
            .server
            .host
            .trim_start_matches('[')
            .trim_end_matches(']');
        let connected = TcpStream::connect((host, login.server.port)).await;
        let stream = connected.map_err(|error| error.to_string())?;
        // Notices are small, and urgent.
        stream
            .set_nodelay(true)
            .map_err(|error| error.to_string())?;
        let mut bytes: Box<dyn Bytes> = match link {
            Some(link) => Box::new(Counted::new(stream, Arc::clone(link.bytes()))),
            None => Box::new(stream),
        };
        if login.server.tls {
            bytes = secure(bytes, login).await?;
        }
        let chance =
            || headwater_shell::access::token::random_hex::<16>().map_err(|e| e.to_string());
        let session = Session::new(SessionLogin {
            account: login.account.clone(),
            password: login.password.clone(),
            resource: format!("headwater-{}", chance()?),
            nonce: chance()?,
            is_secured: login.server.tls,
            may_be_clear: login.is_here(),
        });
        let mut line = Line {
            bytes,
            session,
            account: login.account.clone(),
            service: login.service.clone(),
            buffer: vec![0; READ_BYTES],
        };
        loop {
            line.flush().await?;
            match line.session.next_happened() {
                Some(Happened::Ready) => return Ok(line),
                Some(Happened::NeedsTls) => {
                    let clear = std::mem::replace(&mut line.bytes, Box::new(tokio::io::empty()));
                    line.bytes = secure(clear, login).await?;
                    line.session.secured();
                }
                Some(Happened::Closed) => return Err("the server ends the stream".to_owned()),
                Some(_) => {}
                None => line.read().await?,
            }
        }
    }

    /// Writes pending output.
    pub(super) async fn flush(&mut self) -> Result<(), String> {
        let out = self.session.take_output();
        if out.is_empty() {
            return Ok(());
        }
        let written = async {
            self.bytes.write_all(&out).await?;
            self.bytes.flush().await
        };
        let written = timeout(WRITE_MAX, written).await;
        let written = written.map_err(|_| "the server accepts no data".to_owned())?;
        written.map_err(|error| error.to_string())
    }

    /// Waits for bytes and reads them. Cancel-safe: no bytes are lost.
    pub(super) async fn read(&mut self) -> Result<(), String> {
        let length = self.bytes.read(&mut self.buffer).await;
        let length = length.map_err(|error| error.to_string())?;
        if length == 0 {
            return Err("the server has closed the connection".to_owned());
        }
        let come = self.buffer.get(..length).unwrap_or(&[]);
        self.session.feed(come).map_err(|error| error.to_string())
    }

    /// Sends a request and waits for its answer; other input is dropped.
    ///
    /// # Errors
    /// When no answer arrives. A refusal is an answer.
    pub(super) async fn request(
        &mut self,
        kind: IqKind,
        what: Element,
    ) -> Result<Result<Element, Refusal>, String> {
        let service = self.service.clone();
        let asked = self.session.request(kind, Some(&service), what);
        let asked = asked.map_err(|error| error.to_string())?;
        let answered = async {
            loop {
                self.flush().await?;
                match self.session.next_happened() {
                    Some(Happened::Answer { number, answer }) if number == asked => {
                        return Ok(answer);
                    }
                    Some(Happened::Closed) => return Err("the server ends the stream".to_owned()),
                    Some(_) => {}
                    None => self.read().await?,
                }
            }
        };
        let answered = timeout(ANSWER_MAX, answered).await;
        answered.map_err(|_| "the server does not answer in time".to_owned())?
    }

    /// Ends the stream.
    pub(super) async fn end(mut self) {
        self.session.close();
        // The stream ends in either case.
        let _ = self.flush().await;
        let _ = self.bytes.shutdown().await;
    }
}
