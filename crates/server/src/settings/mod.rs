//! Settings of a server, and the source of each value.
//!
//! Purpose: one table ([`table`]) names every setting; flags, environment variables, the file, the
//! page `docs/operate/settings.md` and `headwater config` are generated from it. A list, whose
//! entries have several keys each, is allowed in the file only, and has a separate table
//! ([`Subscription`]).
//!
//! Invariants: the order of precedence is: flag, environment, file, default. An unknown key is an
//! error that names the nearest one. A value is checked where it is read, and again by the engine.
//!
//! Failure: [`SettingError`] names the key, its source, and the allowed values.

mod cloud;
mod dispatch;
mod engine;
mod engine_text;
mod lake;
mod load;
mod mqtt;
mod notices;
mod page;
mod refusal;
mod rights;
mod setting;
mod subscription;
mod sync;
mod table;
pub(crate) mod values;
mod watch;

pub use headwater_cluster::settings::{
    Broker, BrokerLogin, BucketSettings, Confirm, DispatchNode, DispatchSettings, NODES_MAX,
    NoticeBus, NoticeSettings, PeerSettings, Secret,
};
pub use lake::Lake;
pub use load::{Loaded, SettingsInput, load};
pub use mqtt::Mqtt;
pub use notices::xmpp_server;
pub use page::page;
pub use refusal::{SettingError, Source};
pub use rights::Rights;
pub use setting::Setting;
pub use subscription::Subscription;
pub use sync::{NodeRole, Sync};
pub use table::table;
pub use watch::Watch;

pub use headwater_shell::{LogFormat, LogRequests};

use headwater::Options;
use headwater_shell::ShellSettings;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Whether names of databases, which InfluxDB's clients use, separate measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apart {
    /// Separate where the database was created since names are stored.
    Auto,
    /// Every name has separate tables.
    Apart,
    /// All names refer to the same tables.
    Together,
}

impl Apart {
    const ALL: [Apart; 3] = [Apart::Auto, Apart::Apart, Apart::Together];

    /// Value of the setting.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Apart::Auto => "auto",
            Apart::Apart => "apart",
            Apart::Together => "together",
        }
    }

    fn named(name: &str) -> Option<Apart> {
        Apart::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The database: its directory, and the options of the engine.
    pub engine: Options,
    /// Address to listen on. Port 0 selects any free port.
    pub http_addr: SocketAddr,
    /// Serve other machines without tokens.
    pub allow_open: bool,
    /// Serve other machines without TLS.
    pub allow_plaintext: bool,
    /// Names under which requests without a token are accepted, in addition to the names of this
    /// machine.
    pub hosts: Vec<String>,
    /// Origins whose pages may send requests to this server, in lower case.
    pub cors_origins: Vec<String>,
    /// Refuse every change by clients, regardless of their tokens.
    pub read_only: bool,
    /// Interval of refreshing a read-only database; `None` = never.
    pub read_only_refresh: Option<Duration>,
    /// Largest body of a request, unpacked, in bytes.
    pub body_max: usize,
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
    /// Longest line of line protocol in bytes.
    pub write_line_max: usize,
    /// Bytes of formatted tiles that are cached.
    pub tile_cache: usize,
    /// Only name of a database or bucket that writes may use; `None` = any name, which is ignored.
    pub write_database: Option<String>,
    /// Whether names of databases separate measurements.
    pub write_databases: Apart,
    /// Maximum writes that wait for a thread.
    pub write_queue_max: usize,
    /// Maximum bytes of bodies of writes in memory at once.
    pub write_bytes_max: usize,
    /// Threads that parse and write; 0 = one for each processor.
    pub write_threads: usize,
    /// Maximum clients that subscribe to new data at once.
    pub live_clients_max: usize,
    /// Memory in bytes of one query of InfluxQL or OpenTSDB.
    pub query_memory: usize,
    /// Memory in bytes of all queries together.
    pub query_memory_all: usize,
    /// Memory in bytes of one statement of SQL.
    pub sql_memory: usize,
    /// Memory in bytes of all statements together.
    pub sql_memory_all: usize,
    /// Longest time of a statement.
    pub sql_timeout: Duration,
    /// Maximum statements at once.
    pub sql_statements_max: usize,
    /// Address to listen on for clients of PostgreSQL; `None` = no listener.
    pub postgres_addr: Option<SocketAddr>,
    /// Maximum connections of PostgreSQL's protocol at once.
    pub postgres_connections_max: usize,
    /// Longest time from a connection of that protocol to its session, TLS and password included.
    pub postgres_startup_timeout: Duration,
    /// Longest silence of a session of that protocol.
    pub postgres_idle_timeout: Duration,
    /// Log messages to write: a level, or directives as for `HEADWATER_LOG`.
    pub log_level: String,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Requests that are logged.
    pub log_requests: LogRequests,
    /// The certificates of TLS, in PEM; `None` = no TLS.
    pub tls_cert: Option<PathBuf>,
    /// Certificates by which the next certificate of a cloud is going to be verified.
    pub tls_next_ca: Option<PathBuf>,
    /// Private key of the certificates.
    pub tls_key: Option<PathBuf>,
    /// Messages from a broker.
    pub mqtt: Mqtt,
    /// Replication settings.
    pub sync: Sync,
    /// Lists of rights of other nodes.
    pub rights: Rights,
    /// Allowed targets of events of watches.
    pub watch: Watch,
    /// Settings of the lake.
    pub lake: Lake,
    /// Settings of a cloud with a bucket.
    pub cloud: BucketSettings,
    /// Settings of the peer of a cloud.
    pub peer: PeerSettings,
    /// Settings of a dispatcher, and of the tickets that are accepted.
    pub dispatch: DispatchSettings,
    /// Settings of notices.
    pub notices: NoticeSettings,
}

impl Settings {
    /// The defaults, for the database in `db`: loopback, port 7373.
    pub fn new(db: impl Into<PathBuf>) -> Settings {
        let mut engine = Options::new(db);
        // Clocks of clients are trusted less than the clock of the program itself.
        engine.max_future = Some(Duration::from_secs(3600));
        let shell = ShellSettings::default();
        Settings {
            engine,
            http_addr: (Ipv4Addr::LOCALHOST, 7373).into(),
            allow_open: shell.allow_open,
            allow_plaintext: shell.allow_plaintext,
            hosts: shell.hosts,
            cors_origins: shell.cors_origins,
            read_only: shell.read_only,
            read_only_refresh: None,
            body_max: 64 << 20,
            connections_max: shell.connections_max,
            requests_max: shell.requests_max,
            request_timeout: shell.request_timeout,
            header_timeout: shell.header_timeout,
            shutdown_timeout: shell.shutdown_timeout,
            write_line_max: 1 << 20,
            tile_cache: 16 << 20,
            write_database: None,
            write_databases: Apart::Auto,
            write_queue_max: 1024,
            write_bytes_max: 128 << 20,
            write_threads: 0,
            live_clients_max: 256,
            query_memory: 128 << 20,
            query_memory_all: 256 << 20,
            sql_memory: 128 << 20,
            sql_memory_all: 256 << 20,
            sql_timeout: Duration::from_secs(30),
            sql_statements_max: 16,
            postgres_addr: None,
            postgres_connections_max: 100,
            postgres_startup_timeout: Duration::from_secs(10),
            postgres_idle_timeout: Duration::from_secs(3600),
            log_level: "info".to_owned(),
            log_format: LogFormat::Text,
            log_requests: shell.log_requests,
            tls_cert: shell.tls_cert,
            tls_next_ca: None,
            tls_key: shell.tls_key,
            mqtt: Mqtt::default(),
            sync: Sync::default(),
            rights: Rights::default(),
            watch: Watch::default(),
            lake: Lake::default(),
            cloud: BucketSettings::default(),
            peer: PeerSettings::default(),
            dispatch: DispatchSettings::default(),
            notices: NoticeSettings::default(),
        }
    }

    /// Settings of the HTTP server scaffold.
    pub(crate) fn shell(&self) -> ShellSettings {
        ShellSettings {
            http_addr: self.http_addr,
            allow_open: self.allow_open,
            allow_plaintext: self.allow_plaintext,
            hosts: self.hosts.clone(),
            cors_origins: self.cors_origins.clone(),
            read_only: self.read_only,
            connections_max: self.connections_max,
            requests_max: self.requests_max,
            request_timeout: self.request_timeout,
            header_timeout: self.header_timeout,
            shutdown_timeout: self.shutdown_timeout,
            log_requests: self.log_requests,
            rights: self.rights_policy(),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
        }
    }

    /// True where the database is opened read-only, not as its owner. A node of a fleet writes data
    /// of others, or retains sent data, even if clients may change nothing.
    pub(crate) fn is_only_read(&self) -> bool {
        self.read_only && self.sync.role == NodeRole::Single
    }

    /// Directory of the database.
    #[must_use]
    pub fn db(&self) -> &std::path::Path {
        &self.engine.dir
    }
}

/// Starts logging as configured; the variable `HEADWATER_LOG` overrides the level. No effect if the
/// program already logs in another way.
pub fn begin_logging(settings: &Settings) {
    headwater_shell::logging::begin(&settings.log_level, settings.log_format);
}
