//! Unnamed files: of writes that ended before their commit, and of expired snapshots.
//!
//! Invariant: a file is removed only if no snapshot of the newest metadata names it, and it is
//! older than the given age: a write in progress has younger files. Files with names in another
//! form than ours are not removed.

use crate::error::{LakeError, Result};
use crate::location::LakeLocation;
use crate::names::{METADATA, metadata_file, version_of};
use crate::report::Swept;
use crate::table::Table;
use headwater::Timestamp;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Removes old files of a table that no metadata name.
pub(crate) fn sweep(
    place: &LakeLocation,
    dir: &Path,
    now: Timestamp,
    age: Duration,
) -> Result<Swept> {
    let mut swept = Swept::default();
    let Some(table) = Table::find(place, dir)? else {
        return Ok(swept);
    };
    let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
    let before = Timestamp::from_nanos(now.as_nanos().saturating_sub(age));
    let mut old = place.older(&dir.join(METADATA), before)?;
    old.append(&mut place.older(&dir.join("data"), before)?);
    old.retain(|file| is_ours(&table, &file.path));
    if old.is_empty() {
        return Ok(swept);
    }
    let named = named(&table)?;
    for file in old.iter().filter(|file| !named.contains(&file.path)) {
        match place.remove(&file.path) {
            Ok(()) => {
                swept.files += 1;
                swept.bytes += file.bytes;
            }
            // Another write sweeps too.
            Err(LakeError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(swept)
}

/// True for a name in our form, except names of newer metadata than were read.
fn is_ours(table: &Table, path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(name) = name else {
        return false;
    };
    if let Some(version) = version_of(name) {
        return version < table.version;
    }
    // File names start with a random number of 16 digits.
    let random = name.strip_prefix('.').unwrap_or(name).split('-').next();
    let is_number = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let ending = path.extension().and_then(|ending| ending.to_str());
    random.is_some_and(is_number) && matches!(ending, Some("parquet" | "avro" | "tmp"))
}

/// All files that snapshots of a table name, and its metadata.
fn named(table: &Table) -> Result<HashSet<PathBuf>> {
    let mut named = HashSet::from([metadata_file(&table.dir, table.version)]);
    named.extend(table.metadata.remembered().map(PathBuf::from));
    for snapshot in &table.metadata.snapshots {
        named.insert(PathBuf::from(&snapshot.manifest_list));
        for manifest in table.manifests(snapshot)? {
            // Older snapshots share most of their manifests.
            if named.insert(PathBuf::from(&manifest.path)) {
                let entries = table.entries(&manifest)?;
                named.extend(
                    entries
                        .into_iter()
                        .map(|entry| PathBuf::from(entry.file.path)),
                );
            }
        }
    }
    Ok(named)
}
