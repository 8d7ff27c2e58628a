//! Settings of the shell, as plain values. The program reads them from its own sources.

use crate::access::rights::RightsPolicy;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Requests that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRequests {
    /// No request is logged.
    None,
    /// Requests that failed inside the server, or took longer than a second.
    Failed,
    /// Every request.
    All,
}

/// The settings of a shell.
#[derive(Debug, Clone)]
pub struct ShellSettings {
    /// Address to listen on. Port 0 selects any free port.
    pub http_addr: SocketAddr,
    /// Serve other machines without tokens.
    pub allow_open: bool,
    /// Serve other machines without TLS.
    pub allow_plaintext: bool,
    /// Names under which requests without a token are admitted, in addition to the names of this
    /// machine.
    pub hosts: Vec<String>,
    /// Origins whose pages may send requests to this server, in lower case.
    pub cors_origins: Vec<String>,
    /// Refuses every change, whatever a token allows.
    pub read_only: bool,
    /// Maximum connections at once.
    pub connections_max: usize,
    /// Maximum requests at once.
    pub requests_max: usize,
    /// Longest time until the head of an answer.
    pub request_timeout: Duration,
    /// Longest time to send the head of a request, waiting for its beginning included.
    pub header_timeout: Duration,
    /// Longest time that running requests have to end after a stop begins.
    pub shutdown_timeout: Duration,
    /// Requests that are logged.
    pub log_requests: LogRequests,
    /// Use of lists of rights that other nodes send.
    pub rights: RightsPolicy,
    /// The certificates of TLS, in PEM; `None` = no TLS.
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificates.
    pub tls_key: Option<PathBuf>,
}

impl Default for ShellSettings {
    /// Any free port of loopback, and the limits that servers have by default.
    fn default() -> ShellSettings {
        ShellSettings {
            http_addr: (Ipv4Addr::LOCALHOST, 0).into(),
            allow_open: false,
            allow_plaintext: false,
            hosts: Vec::new(),
            cors_origins: Vec::new(),
            read_only: false,
            connections_max: 4096,
            requests_max: 1024,
            request_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(75),
            shutdown_timeout: Duration::from_secs(10),
            log_requests: LogRequests::Failed,
            rights: RightsPolicy::default(),
            tls_cert: None,
            tls_key: None,
        }
    }
}
