//! Settings of a node among nodes: dispatching, notices with the login at their broker, and the
//! bucket of a cloud. Values only; a program parses them from its own files and options.
//!
//! Failure: none here. A value that cannot be used is reported where it is opened.

use crate::subscription::StreamShare;
use headwater_shell::access::rules::Pattern;
use headwater_shell::access::ticket::PublicKey;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Login at a broker.
#[derive(Debug, Clone)]
pub struct BrokerLogin {
    /// The broker; `None` = no connection.
    pub broker: Option<Broker>,
    /// The name of this server's session at the broker.
    pub client_id: String,
    /// User name at the broker.
    pub user: String,
    /// The password, if it is not in a file.
    pub password: Secret,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// CA certificates for verifying the broker, in PEM; `None` = certificates that the system
    /// trusts.
    pub ca: Option<PathBuf>,
    /// Client certificate.
    pub cert: Option<PathBuf>,
    /// Private key of the client certificate.
    pub key: Option<PathBuf>,
    /// Keep-alive interval of the connection.
    pub keep_alive: Duration,
    /// Time that the broker retains the session of a disconnected server.
    pub session_expiry: Duration,
    /// Maximum unacknowledged messages in flight.
    pub receive_max: u16,
    /// Largest packet in bytes.
    pub packet_max: usize,
}

impl Default for BrokerLogin {
    fn default() -> BrokerLogin {
        BrokerLogin {
            broker: None,
            client_id: String::new(),
            user: String::new(),
            password: Secret::default(),
            password_file: None,
            ca: None,
            cert: None,
            key: None,
            keep_alive: Duration::from_secs(30),
            session_expiry: Duration::from_secs(7 * 86_400),
            receive_max: 1024,
            packet_max: 1 << 20,
        }
    }
}

/// The address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// TLS or not.
    pub tls: bool,
    /// Host name or address; an IPv6 address in brackets.
    pub host: String,
    /// Port of the broker.
    pub port: u16,
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "mqtts" } else { "mqtt" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// Text that is not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "hidden" })
    }
}

/// Bus of notices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NoticeBus {
    /// The node itself: followers wait there.
    #[default]
    Hub,
    /// An MQTT 5 broker.
    Mqtt,
    /// The publish-subscribe of an XMPP server.
    Xmpp,
}

/// Settings of publishing and receiving notices.
#[derive(Debug, Clone)]
pub struct NoticeSettings {
    /// Bus of notices.
    pub bus: NoticeBus,
    /// Name of this node there; its notices are under it.
    pub name: String,
    /// Prefix of the topics of all nodes.
    pub topic: String,
    /// Interval of asking a silent node.
    pub check: Duration,
    /// Login to the broker of either kind.
    pub login: BrokerLogin,
    /// The XMPP server; the rest of the login is in `login`. TLS here means TLS from the first byte
    /// on.
    pub xmpp: Option<Broker>,
    /// Domain of publish-subscribe at the server; empty = `pubsub.` before the domain of the
    /// account.
    pub service: String,
    /// Streams whose newest values are published; empty = none.
    pub values: Vec<Pattern>,
    /// Interval of publishing newest values.
    pub values_interval: Duration,
    /// Prefix of the topics of streams.
    pub values_topic: String,
    /// Hears newest values of all streams that the account may hear.
    pub hears_values: bool,
    /// Publishes the list of rights of this cloud, or hears that of a cloud.
    pub rights: bool,
    /// Prefix of the topics of lists of rights.
    pub rights_topic: String,
    /// Applies the access lists of all topics at the server, as the list of rights says.
    pub applies_lists: bool,
}

impl Default for NoticeSettings {
    fn default() -> NoticeSettings {
        NoticeSettings {
            bus: NoticeBus::default(),
            name: String::new(),
            topic: "headwater/notices".to_owned(),
            check: Duration::from_secs(60),
            login: BrokerLogin::default(),
            xmpp: None,
            service: String::new(),
            values: Vec::new(),
            values_interval: Duration::from_secs(1),
            values_topic: "headwater/values".to_owned(),
            hears_values: false,
            rights: false,
            rights_topic: "headwater/rights".to_owned(),
            applies_lists: false,
        }
    }
}

/// Maximum nodes of a dispatcher.
pub const NODES_MAX: usize = 64;

/// Node that a dispatcher sends queries to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchNode {
    /// Address for the dispatcher.
    pub url: String,
    /// Address for clients.
    pub public_url: String,
}

/// Settings of a dispatcher.
#[derive(Debug, Clone)]
pub struct DispatchSettings {
    /// The nodes, in the order of preference.
    pub nodes: Vec<DispatchNode>,
    /// File with the token for requests to nodes.
    pub token_file: Option<PathBuf>,
    /// CA certificates for verifying nodes, in PEM; `None` = certificates that the system trusts.
    pub ca: Option<PathBuf>,
    /// Maximum answers that are relayed at once.
    pub relays_max: usize,
    /// Maximum bytes a second of all relayed answers; `None` = no limit.
    pub relay_rate: Option<u64>,
    /// Keys whose tickets this node accepts, in addition to keys of dispatchers that follow it.
    pub ticket_keys: Vec<PublicKey>,
}

impl Default for DispatchSettings {
    fn default() -> DispatchSettings {
        DispatchSettings {
            nodes: Vec::new(),
            token_file: None,
            ca: None,
            relays_max: 256,
            relay_rate: None,
            ticket_keys: Vec::new(),
        }
    }
}

/// Settings of the peer of a cloud node.
#[derive(Debug, Clone, Default)]
pub struct PeerSettings {
    /// Address of the cloud that gets a copy of everything that this one has; `None` = no peer.
    pub url: Option<String>,
    /// Name of this node at its peer; empty = digits of its identity.
    pub name: String,
    /// File with a token of the peer that may manage everything.
    pub token_file: Option<PathBuf>,
    /// File with CA certificates for verifying the peer, in PEM; `None` = certificates that the
    /// system trusts.
    pub ca: Option<PathBuf>,
    /// Extent of the data that the peer copies.
    pub want: StreamShare,
}

/// Event after which an edge is told that the cloud has its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Confirm {
    /// After the data is on the cloud's disk.
    Disk,
    /// After the data is in the bucket.
    #[default]
    Bucket,
    /// After the data is on the disk of the peer, too.
    Peer,
}

/// Settings of a cloud with a bucket.
#[derive(Debug, Clone)]
pub struct BucketSettings {
    /// Location of the bucket; `None` = no bucket.
    pub bucket: Option<String>,
    /// Event after which an edge is told that the cloud has its data.
    pub confirm: Confirm,
    /// Interval of commits to the bucket.
    pub commit_every: Duration,
    /// Validity of the lease of the group without renewal.
    pub lease: Duration,
    /// Group of copies of the bucket that this node owns, one node at a time.
    pub group: u32,
}

impl Default for BucketSettings {
    fn default() -> BucketSettings {
        BucketSettings {
            bucket: None,
            confirm: Confirm::default(),
            commit_every: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            group: 0,
        }
    }
}
