//! An edge's settings of its cloud: `DIR/uplink.json`.
//!
//! Invariant: only its owner may read it, since it has the key that the edge shows. Format:
//! docs/format/fleet.md.

use crate::error::FleetError;
use crate::private::{self, VERSION, check_version};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Its name in the directory of the database.
pub const UPLINK_FILE: &str = "uplink.json";

/// Where the cloud is, and who this edge is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkFile {
    version: u32,
    /// The address of the cloud.
    pub url: String,
    /// The cloud's name for this edge.
    pub edge: String,
    /// The key that says who it is.
    pub key: String,
    /// Certificates that the cloud's is signed by, in PEM; `None` = those that the system trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Nothing is sent for now.
    #[serde(default)]
    pub is_paused: bool,
    /// The cloud is to put its copy aside, and to start over, at the next connection.
    #[serde(default)]
    pub begins_anew: bool,
    /// Of an edge that is relayed: ranges that the cloud requests and that are missing here are
    /// requested from the edge.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gets: bool,
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
            is_paused: false,
            begins_anew: false,
            gets: false,
        }
    }

    /// Where it is, for the database in a directory.
    #[must_use]
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(UPLINK_FILE)
    }

    /// Reads it; `None` when no cloud was joined.
    ///
    /// # Errors
    /// `io` when it cannot be read, or is not what joining writes.
    pub fn read(dir: &Path) -> Result<Option<UplinkFile>, FleetError> {
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
    pub fn write(&self, dir: &Path) -> Result<(), FleetError> {
        private::replace(&UplinkFile::path(dir), self)
    }

    /// Forgets the cloud. Its copy stays there.
    ///
    /// # Errors
    /// `io`.
    pub fn forget(dir: &Path) -> Result<(), FleetError> {
        private::remove(&UplinkFile::path(dir))
    }
}
