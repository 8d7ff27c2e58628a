//! Names of tables and columns in forms that other programs accept.
//!
//! Invariants: two tables never have one folder; no two columns have names that differ in case
//! only, since Spark finds columns without regard to it.

use std::path::{Path, PathBuf};

/// Where a table has its metadata.
pub(crate) const METADATA: &str = "metadata";
/// The file in it for readers that do not look.
pub(crate) const HINT: &str = "version-hint.text";
/// Where the lakes of edges are. No table's folder is called so: `_` at the beginning is escaped.
pub(crate) const EDGES: &str = "_edges";

/// Metadata file of a version.
pub(crate) fn metadata_file(dir: &Path, version: u64) -> PathBuf {
    dir.join(METADATA).join(format!("v{version}.metadata.json"))
}

/// The number in the name of a file of metadata.
pub(crate) fn version_of(name: &str) -> Option<u64> {
    name.strip_prefix('v')?
        .strip_suffix(".metadata.json")?
        .parse()
        .ok()
}

/// Maximum length of a folder name, in bytes: file systems allow 255.
const FOLDER_MAX: usize = 200;

/// The folder of a table in a lake. Bytes that are not letters, digits, `_`, `-` or `.` in the
/// middle are written `~` and two hexadecimal digits: a path of them means the same to everyone.
///
/// ```
/// use headwater_lake::folder_of;
/// assert_eq!(folder_of("weather"), "weather");
/// assert_eq!(folder_of("a/b é"), "a~2fb~20~c3~a9");
/// assert_eq!(folder_of(".."), "~2e.");
/// ```
#[must_use]
pub fn folder_of(table: &str) -> String {
    let mut out = String::with_capacity(table.len());
    for (at, byte) in table.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric()
            || byte == b'-'
            || (at > 0 && (byte == b'_' || byte == b'.'));
        if is_plain {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("~{byte:02x}"));
        }
    }
    if out.is_empty() {
        out.push('~');
    }
    if out.len() > FOLDER_MAX {
        let hash = twox_hash::XxHash64::oneshot(0, table.as_bytes());
        out.truncate(FOLDER_MAX - 17);
        out.push_str(&format!("~{hash:016x}"));
    }
    out
}

/// Name of a column that is not `taken`: its own, or with the suffix `_1`, `_2` and so on.
pub(crate) fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let wanted = if name.is_empty() { "_" } else { name };
    headwater_wire::free_name(wanted, taken)
}
