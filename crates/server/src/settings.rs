//! What can be set about a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the database.
    pub db: PathBuf,
    /// Where to listen. Port 0 takes any free one.
    pub http_addr: SocketAddr,
}

impl Settings {
    /// The defaults, for the database in `db`: loopback, port 7373.
    pub fn new(db: impl Into<PathBuf>) -> Settings {
        Settings {
            db: db.into(),
            http_addr: (Ipv4Addr::LOCALHOST, 7373).into(),
        }
    }
}
