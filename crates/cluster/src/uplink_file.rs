//! An edge's settings of its cloud: `DIR/uplink.json`.
//!
//! Invariant: only its owner may read it, since it has the edge's key. Format:
//! docs/format/fleet.md.

use crate::error::ClusterError;
use crate::private::{self, VERSION, check_version};
use headwater_shell::access::rights::received::RIGHTS_FILE;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of the file in the directory of the database.
pub const UPLINK_FILE: &str = "uplink.json";

/// Address of the cloud, and identity of this edge at the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkFile {
    version: u32,
    /// The address of the cloud.
    pub url: String,
    /// The cloud's name for this edge.
    pub edge: String,
    /// Key that authenticates the edge.
    pub key: String,
    /// Certificates that sign the cloud's certificate, in PEM; `None` = those that the system
    /// trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Key that signed the cloud's list of rights when this node joined, as 64 hexadecimal digits;
    /// `None` = the key of the first list is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights_key: Option<String>,
    /// Sending is paused.
    #[serde(default)]
    pub is_paused: bool,
    /// At the next connection, the copy of the cloud becomes a closed part, and a new one begins.
    #[serde(default)]
    pub begins_anew: bool,
    /// For a relayed edge: ranges that the cloud requests and that are missing here are requested
    /// from the edge.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gets: bool,
    /// For a relayed copy: the other cloud is this node's peer, which keeps the same edges and
    /// closed parts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_peer: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !value
}

impl UplinkFile {
    /// The file after joining.
    pub(crate) fn new(url: &str, edge: &str, key: String, ca: Option<String>) -> UplinkFile {
        UplinkFile {
            version: VERSION,
            url: url.to_owned(),
            edge: edge.to_owned(),
            key,
            ca,
            rights_key: None,
            is_paused: false,
            begins_anew: false,
            gets: false,
            is_peer: false,
        }
    }

    /// Where it is, for the database in a directory.
    #[must_use]
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(UPLINK_FILE)
    }

    /// Reads the file; `None` if no cloud was joined.
    ///
    /// # Errors
    /// `io` if the file cannot be read, or its content is not as written by joining.
    pub fn read(dir: &Path) -> Result<Option<UplinkFile>, ClusterError> {
        let path = UplinkFile::path(dir);
        let read: Option<UplinkFile> = private::read(&path)?;
        if let Some(file) = &read {
            check_version(&path, file.version)?;
        }
        Ok(read)
    }

    /// Writes it.
    ///
    /// # Errors
    /// `io`.
    pub fn write(&self, dir: &Path) -> Result<(), ClusterError> {
        private::replace(&UplinkFile::path(dir), self)
    }

    /// Removes the settings of the cloud, and its list of rights. Its copy is not removed.
    ///
    /// # Errors
    /// `io`.
    pub fn forget(dir: &Path) -> Result<(), ClusterError> {
        private::remove(&dir.join(RIGHTS_FILE))?;
        private::remove(&UplinkFile::path(dir))
    }
}
