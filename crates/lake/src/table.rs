//! A table in a folder: its newest metadata, and commits of new ones.
//!
//! ```text
//! TABLE/metadata/vN.metadata.json    the table after N commits; the largest N counts
//! TABLE/metadata/version-hint.text   N, or a smaller one, for readers that do not look
//! TABLE/metadata/*.avro              manifests and lists of them
//! TABLE/data/time_day=DAY/*.parquet  rows
//! ```
//!
//! Invariants: a commit is the atomic creation of one name: everything it names is on the device
//! before. Of two commits on top of the same version, one finds that the name exists and changes
//! nothing. Failure: files of an incomplete commit are unnamed; [`crate::sweep`] finds them.

use crate::columns::Columns;
use crate::day::Day;
use crate::error::{LakeError, Result};
use crate::location::LakeLocation;
use crate::manifest::{self, DataFile, Entry, Manifest, Status};
use crate::metadata::{Metadata, NewSnapshot, Recorded, Snapshot};
use crate::names::{METADATA, metadata_file};
use crate::steps::Steps;
use headwater_types::invariant::wide;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Number of manifests of a snapshot above which they are merged.
const MANIFESTS_MAX: usize = 64;

/// A table as of its last read.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) location: LakeLocation,
    pub(crate) dir: PathBuf,
    /// Number of commits; 0 = the table does not exist.
    pub(crate) version: u64,
    pub(crate) metadata: Metadata,
}

/// Changes of a commit.
pub(crate) struct Change {
    pub(crate) database: u64,
    pub(crate) table: String,
    /// The table is a rollup.
    pub(crate) is_rollup: bool,
    pub(crate) columns: Columns,
    /// Sources of all days of the table afterwards.
    pub(crate) days: BTreeMap<Day, Recorded>,
    /// Days whose files are removed.
    pub(crate) replaced: BTreeSet<Day>,
    pub(crate) added: Vec<DataFile>,
    /// Up to which record of its log the database was read.
    pub(crate) sequence: u64,
    /// Random number with which the names of its files start.
    pub(crate) prefix: String,
    pub(crate) snapshot_id: i64,
    pub(crate) now_ms: i64,
    /// Snapshots older than this are expired.
    pub(crate) keep_from_ms: i64,
}

impl Table {
    /// The table in a folder; `None` = it does not exist.
    pub(crate) fn find(place: &LakeLocation, dir: &Path) -> Result<Option<Table>> {
        let Some((version, bytes)) = place.newest(dir)? else {
            return Ok(None);
        };
        let path = metadata_file(dir, version);
        let metadata = Metadata::parse(&path, &bytes)?;
        if Some(metadata.location.as_str()) != dir.to_str() {
            return Err(LakeError::Moved {
                path: dir.to_owned(),
                made_in: metadata.location,
            });
        }
        Ok(Some(Table {
            location: place.clone(),
            dir: dir.to_owned(),
            version,
            metadata,
        }))
    }

    /// A table that does not exist yet.
    pub(crate) fn new(
        place: &LakeLocation,
        dir: &Path,
        uuid: String,
        now_ms: i64,
    ) -> Result<Table> {
        let location = dir.to_str();
        let location =
            location.ok_or_else(|| LakeError::format(dir, "a path in UTF-8", "other bytes"))?;
        Ok(Table {
            location: place.clone(),
            dir: dir.to_owned(),
            version: 0,
            metadata: Metadata::new(location, uuid, now_ms),
        })
    }

    /// The manifests of a snapshot.
    pub(crate) fn manifests(&self, of: &Snapshot) -> Result<Vec<Manifest>> {
        let path = Path::new(&of.manifest_list);
        manifest::list(path, &self.location.read(path)?)
    }

    /// The files of a manifest that are live.
    pub(crate) fn entries(&self, of: &Manifest) -> Result<Vec<Entry>> {
        let path = Path::new(&of.path);
        manifest::live_entries(path, &self.location.read(path)?, of)
    }

    /// All files of the current snapshot, by day.
    pub(crate) fn files(&self) -> Result<BTreeMap<Day, Vec<DataFile>>> {
        let mut files: BTreeMap<Day, Vec<DataFile>> = BTreeMap::new();
        let Some(current) = self.metadata.current() else {
            return Ok(files);
        };
        for manifest in self.manifests(current)?.iter().filter(|m| m.has_live()) {
            for entry in self.entries(manifest)? {
                files.entry(entry.file.day()).or_default().push(entry.file);
            }
        }
        for of_day in files.values_mut() {
            of_day.sort_by(|a, b| a.path.cmp(&b.path));
        }
        Ok(files)
    }

    fn file(&self) -> PathBuf {
        metadata_file(&self.dir, self.version)
    }

    /// Commits a change on top of this state of the table; `None` = another writer was first, and
    /// no state is changed.
    pub(crate) fn commit(&self, change: Change, steps: &Steps) -> Result<Option<Table>> {
        self.location.make_table(&self.dir)?;
        let mut next = match self.version {
            0 => self.metadata.clone(),
            _ => {
                let before = self.file().to_string_lossy().into_owned();
                self.metadata.following(before, change.now_ms)
            }
        };
        next.set_source(change.database, &change.table, change.is_rollup);
        next.set_columns(&change.columns)?;
        next.set_days(&change.days)?;
        let mut made = Vec::new();
        if !change.replaced.is_empty() || !change.added.is_empty() {
            let snapshot = self.snapshot(&change, &next, &mut made, steps)?;
            next.add_snapshot(snapshot, change.now_ms, change.keep_from_ms);
        }
        let version = self.version + 1;
        let bytes = next.bytes()?;
        let named = (change.prefix.as_str(), bytes.as_slice());
        if !self.location.commit(&self.dir, version, named, steps)? {
            for path in &made {
                self.location.remove(path)?;
            }
            return Ok(None);
        }
        self.location
            .write_version_hint(&self.dir, version, &change.prefix)?;
        steps.at("hint written")?;
        Ok(Some(Table {
            location: self.location.clone(),
            dir: self.dir.clone(),
            version,
            metadata: next,
        }))
    }

    /// Writes the manifests of a new snapshot, and their list; the created files are added to
    /// `made`.
    fn snapshot(
        &self,
        change: &Change,
        next: &Metadata,
        created: &mut Vec<PathBuf>,
        steps: &Steps,
    ) -> Result<NewSnapshot> {
        let sequence = self.metadata.last_sequence_number + 1;
        let mut writer = ManifestWriter {
            location: &self.location,
            folder: self.dir.join(METADATA),
            change,
            schema_id: next.schema_id(),
            sequence,
            created,
        };
        let mut manifests = Vec::new();
        let mut removed = Removed::default();
        if !change.added.is_empty() {
            let added = change.added.iter().map(|file| Entry {
                status: Status::Added,
                snapshot_id: change.snapshot_id,
                sequence: None,
                file_sequence: None,
                file: file.clone(),
            });
            manifests.push(writer.write(added.collect())?);
        }
        if let Some(current) = self.metadata.current() {
            let before = self.manifests(current)?;
            let before: Vec<Manifest> = before.into_iter().filter(Manifest::has_live).collect();
            let merges = before.len() >= MANIFESTS_MAX;
            let mut merged = Vec::new();
            for manifest in before {
                if !merges && !may_have(&manifest, &change.replaced) {
                    manifests.push(manifest);
                    continue;
                }
                let mut entries = self.entries(&manifest)?;
                let is_touched = removed.take(&mut entries, change);
                if merges {
                    merged.append(&mut entries);
                } else if is_touched {
                    manifests.push(writer.write(entries)?);
                } else {
                    manifests.push(manifest);
                }
            }
            if !merged.is_empty() {
                manifests.push(writer.write(merged)?);
            }
        }
        steps.at("manifests written")?;
        let parent = self.metadata.current().map(|s| s.snapshot_id);
        let bytes = manifest::list_file(&manifests, change.snapshot_id, parent, sequence)?;
        let list = writer.put(&format!("{}-list.avro", change.prefix), &bytes)?;
        steps.at("list written")?;
        Ok(NewSnapshot {
            id: change.snapshot_id,
            summary: self.summary(change, &removed, &manifests),
            manifest_list: list,
        })
    }

    /// Summary of a snapshot: docs/format/lake.md.
    fn summary(
        &self,
        change: &Change,
        removed: &Removed,
        manifests: &[Manifest],
    ) -> BTreeMap<String, String> {
        let operation = match (change.added.is_empty(), removed.files) {
            (_, 0) => "append",
            (true, _) => "delete",
            (false, _) => "overwrite",
        };
        let mut all = BTreeMap::from([("operation".to_owned(), operation.to_owned())]);
        let mut put = |key: &str, value: u64| {
            all.insert(key.to_owned(), value.to_string());
        };
        let added_rows: u64 = change.added.iter().map(|f| f.rows).sum();
        let added_bytes: u64 = change.added.iter().map(|f| f.bytes).sum();
        let days: BTreeSet<Day> = change.added.iter().map(DataFile::day).collect();
        let days: BTreeSet<Day> = days.union(&change.replaced).copied().collect();
        let before = self.metadata.current().map(|s| &s.summary);
        let bytes_before = before.and_then(|s| s.get("total-files-size")?.parse::<u64>().ok());
        let files = manifests.iter().flat_map(|m| m.files.into_iter().take(2));
        put("added-data-files", wide(change.added.len()));
        put("added-records", added_rows);
        put("added-files-size", added_bytes);
        put("deleted-data-files", removed.files);
        put("deleted-records", removed.rows);
        put("removed-files-size", removed.bytes);
        put("changed-partition-count", wide(days.len()));
        put(
            "total-data-files",
            files.filter_map(|n| u64::try_from(n).ok()).sum(),
        );
        put(
            "total-records",
            change.days.values().map(|of| of.rows).sum(),
        );
        let total = bytes_before.unwrap_or(0) + added_bytes;
        put("total-files-size", total.saturating_sub(removed.bytes));
        put("total-delete-files", 0);
        put("total-position-deletes", 0);
        put("total-equality-deletes", 0);
        put("headwater.sequence", change.sequence);
        let days: Vec<String> = days.iter().map(Day::to_string).collect();
        all.insert("headwater.days".to_owned(), days.join(" "));
        all
    }
}

/// Files that a snapshot has removed.
#[derive(Default)]
struct Removed {
    files: u64,
    rows: u64,
    bytes: u64,
}

impl Removed {
    /// Marks entries of replaced days as deleted, and all others as existing; returns whether any
    /// entry was deleted.
    fn take(&mut self, entries: &mut [Entry], change: &Change) -> bool {
        let before = self.files;
        for entry in entries {
            entry.status = Status::Existing;
            if change.replaced.contains(&entry.file.day()) {
                entry.status = Status::Deleted;
                entry.snapshot_id = change.snapshot_id;
                self.files += 1;
                self.rows += entry.file.rows;
                self.bytes += entry.file.bytes;
            }
        }
        self.files > before
    }
}

/// Whether a manifest may have files of some days.
fn may_have(manifest: &Manifest, days: &BTreeSet<Day>) -> bool {
    match manifest.days {
        Some((first, last)) => {
            let range = Day::from_number(first)..=Day::from_number(last);
            days.range(range).next().is_some()
        }
        None => true,
    }
}

struct ManifestWriter<'a> {
    location: &'a LakeLocation,
    folder: PathBuf,
    change: &'a Change,
    schema_id: i32,
    sequence: i64,
    created: &'a mut Vec<PathBuf>,
}

impl ManifestWriter<'_> {
    fn write(&mut self, entries: Vec<Entry>) -> Result<Manifest> {
        let bytes = manifest::file(&entries, &self.change.columns, self.schema_id)?;
        let name = format!("{}-m{}.avro", self.change.prefix, self.created.len());
        let path = self.put(&name, &bytes)?;
        let written = (path, wide(bytes.len()));
        Ok(Manifest::of(
            &entries,
            written,
            (self.change.snapshot_id, self.sequence),
        ))
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<String> {
        let path = self.folder.join(name);
        self.location.put(&path, bytes)?;
        let text = path.to_str().map(str::to_owned);
        let text = text.ok_or_else(|| LakeError::format(&path, "a path in UTF-8", "other bytes"));
        self.created.push(path.clone());
        text
    }
}
