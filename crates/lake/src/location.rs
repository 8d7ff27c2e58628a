//! Location of a lake: a folder of this machine, or a part of a bucket. Files are named by their
//! locations: absolute paths in a folder, `s3://BUCKET/…` in a bucket.
//!
//! Invariants: a file that is reported as written is durable. A commit is the creation of one name,
//! in which exactly one of several writers succeeds. Concurrency: shared freely.

use crate::bucket::{Bucket, nameless};
use crate::error::{LakeError, Result};
use crate::folder::{self, Listed};
use crate::names::{EDGES, HINT, METADATA, folder_of, metadata_file};
use crate::steps::Steps;
use headwater::Timestamp;
use headwater::io::SystemClock;
use headwater_bucket::{Address, ObjectStore, open_store};
use parquet::file::metadata::ParquetMetaDataReader;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Prefix of locations in buckets.
const S3: &str = "s3://";
/// Bytes at the end of a Parquet file that state the length of its footer.
const PARQUET_END: u64 = 8;

/// Where a lake is.
///
/// ```
/// use headwater_lake::LakeLocation;
/// let place = LakeLocation::open("/data/lake", &|_| None)?;
/// assert_eq!(place.to_string(), "/data/lake");
/// let refused = LakeLocation::open("s3://plants/lake", &|_| None).unwrap_err();
/// assert_eq!(refused.code(), "lake.address");
/// # Ok::<(), headwater_lake::LakeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LakeLocation {
    root: PathBuf,
    /// The bucket; `None` = the lake is a folder.
    bucket: Option<Bucket>,
    /// Settings with which readers access the lake.
    config: BTreeMap<String, String>,
}

impl std::fmt::Display for LakeLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.root.display().fmt(f)
    }
}

impl From<&Path> for LakeLocation {
    fn from(folder: &Path) -> LakeLocation {
        LakeLocation {
            root: folder.to_owned(),
            bucket: None,
            config: BTreeMap::new(),
        }
    }
}

impl From<&PathBuf> for LakeLocation {
    fn from(folder: &PathBuf) -> LakeLocation {
        LakeLocation::from(folder.as_path())
    }
}

impl From<&LakeLocation> for LakeLocation {
    fn from(place: &LakeLocation) -> LakeLocation {
        place.clone()
    }
}

impl LakeLocation {
    /// The lake at an address: `s3://BUCKET/PREFIX?endpoint=URL&region=NAME` with credentials of
    /// the environment, which `variable` returns, or the path of a folder. No request is sent yet.
    ///
    /// # Errors
    /// `lake.address` for an invalid address, or without credentials.
    pub fn open(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<LakeLocation> {
        if !text.starts_with(S3) {
            let folder = text.strip_prefix("file://").unwrap_or(text);
            return Ok(LakeLocation::from(Path::new(folder)));
        }
        let refused = |e: headwater_bucket::BucketError| LakeError::Address(e.to_string());
        let address: Address = text.parse().map_err(refused)?;
        let clock = Arc::new(SystemClock::new());
        let store = open_store(&address, variable, clock).map_err(refused)?;
        let Address::S3 { bucket, prefix, .. } = &address else {
            return Err(LakeError::internal(
                "an s3: address is parsed as another kind",
            ));
        };
        let mut place = LakeLocation::in_store(store, &format!("{S3}{bucket}/{prefix}"));
        place.config = config(&address, variable);
        Ok(place)
    }

    /// A location in an object store; all locations start with `base`, the address used by other
    /// programs.
    #[must_use]
    pub fn in_store(store: Arc<dyn ObjectStore>, base: &str) -> LakeLocation {
        let bucket = Bucket::new(store, base);
        LakeLocation {
            root: bucket.root(),
            bucket: Some(bucket),
            config: BTreeMap::new(),
        }
    }

    /// Sets the pause before the first retry of a request without an answer, which doubles with
    /// each further one.
    #[must_use]
    pub fn with_pause(mut self, pause: Duration) -> LakeLocation {
        if let Some(bucket) = &mut self.bucket {
            bucket.pause = pause;
        }
        self
    }

    /// Where in it the tables of an edge are, which a cloud writes of its copy.
    #[must_use]
    pub fn of_edge(&self, edge: &str) -> LakeLocation {
        LakeLocation {
            root: self.root.join(EDGES).join(folder_of(edge)),
            ..self.clone()
        }
    }

    /// Settings with which readers access the lake, with the names of Iceberg's catalogs. Contains
    /// no secrets.
    #[must_use]
    pub fn config(&self) -> &BTreeMap<String, String> {
        &self.config
    }

    pub(crate) fn is_bucket(&self) -> bool {
        self.bucket.is_some()
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The place by the name that its files call each other by; a folder has to be there.
    pub(crate) fn existing(&self) -> Result<LakeLocation> {
        let root = match self.bucket {
            Some(_) => self.root.clone(),
            None => (self.root.canonicalize()).map_err(|e| LakeError::io(&self.root, e))?,
        };
        Ok(LakeLocation {
            root,
            ..self.clone()
        })
    }

    /// As [`Self::existing`]; a folder that does not exist yet is used by its own name.
    pub(crate) fn existing_or_new(&self) -> Result<LakeLocation> {
        match self.existing() {
            // No write has happened yet.
            Err(LakeError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Ok(self.clone())
            }
            known => known,
        }
    }

    /// The place, ready to be written to.
    pub(crate) fn prepared(&self) -> Result<LakeLocation> {
        if self.bucket.is_none() {
            folder::make(&self.root)?;
        }
        self.existing()
    }

    /// Folders in a folder, sorted by name; empty if it does not exist.
    pub(crate) fn folders(&self, of: &Path) -> Result<Vec<String>> {
        match &self.bucket {
            Some(bucket) => bucket.folders(of),
            None => folder::folders(of),
        }
    }

    /// Newest metadata of a table, and its number of commits; `None` = the table does not exist.
    pub(crate) fn newest(&self, dir: &Path) -> Result<Option<(u64, Vec<u8>)>> {
        if let Some(bucket) = &self.bucket {
            return bucket.newest(dir);
        }
        let version = folder::newest(dir)?;
        let of = |version| Ok((version, folder::read(&metadata_file(dir, version))?));
        version.map(of).transpose()
    }

    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>> {
        match &self.bucket {
            Some(bucket) => bucket.read(path),
            None => folder::read(path),
        }
    }

    /// Writes a file with a unique name.
    pub(crate) fn put(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        match &self.bucket {
            Some(bucket) => bucket.put(path, bytes),
            None => folder::write(path, bytes),
        }
    }

    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        match &self.bucket {
            Some(bucket) => bucket.remove(path),
            None => folder::remove(path),
        }
    }

    /// A file to write to, which [`Self::keep`] moves to its location.
    pub(crate) fn begin(&self, path: &Path) -> Result<File> {
        match &self.bucket {
            Some(_) => nameless(),
            None => folder::create(path),
        }
    }

    /// Makes a written file durable; returns its size in bytes.
    pub(crate) fn keep(&self, path: &Path, file: &File) -> Result<u64> {
        let io = |e| LakeError::io(path, e);
        match &self.bucket {
            Some(bucket) => bucket.put_file(path, file)?,
            None => file.sync_all().map_err(io)?,
        }
        Ok(file.metadata().map_err(io)?.len())
    }

    /// Drops a file that was started and is not needed.
    pub(crate) fn give_up(&self, path: &Path) -> Result<()> {
        match &self.bucket {
            Some(_) => Ok(()),
            None => folder::remove(path),
        }
    }

    /// Makes the names in a folder durable, and the names of `levels` folders above it.
    pub(crate) fn sync(&self, of: &Path, levels: usize) -> Result<()> {
        match &self.bucket {
            Some(_) => Ok(()),
            None => folder::sync(of, levels),
        }
    }

    /// Creates the folders needed before metadata are written.
    pub(crate) fn make_table(&self, dir: &Path) -> Result<()> {
        match &self.bucket {
            Some(_) => Ok(()),
            None => folder::make(&dir.join(METADATA)),
        }
    }

    /// Creates the metadata of a version; false if that version exists, and then no state is
    /// changed.
    pub(crate) fn commit(
        &self,
        dir: &Path,
        version: u64,
        (prefix, bytes): (&str, &[u8]),
        steps: &Steps,
    ) -> Result<bool> {
        let Some(bucket) = &self.bucket else {
            return folder::commit(dir, version, (prefix, bytes), steps);
        };
        steps.at("metadata written")?;
        let was_first = bucket.commit(dir, version, bytes)?;
        if was_first {
            steps.at("committed")?;
        }
        Ok(was_first)
    }

    /// Updates the hint, a file of its own, to the newest metadata: this version, or a newer one.
    pub(crate) fn write_version_hint(&self, dir: &Path, version: u64, prefix: &str) -> Result<()> {
        match &self.bucket {
            Some(bucket) => bucket.write_version_hint(dir, version),
            None => folder::write_version_hint(dir, prefix),
        }
    }

    /// Version in the hint, the file for readers that do not list.
    pub(crate) fn hint_version(&self, dir: &Path) -> Result<Option<u64>> {
        match &self.bucket {
            Some(bucket) => bucket.hint_version(dir),
            None => Ok(folder::hint_version(dir)),
        }
    }

    /// Files below a folder of a table that were written before an instant.
    pub(crate) fn older(&self, of: &Path, before: Timestamp) -> Result<Vec<Listed>> {
        let mut found = Vec::new();
        match &self.bucket {
            Some(bucket) => bucket.each(of, &mut |listed, modified| {
                let is_hint = listed.path.ends_with(HINT);
                // A file of unknown age does not count as old.
                if !is_hint && modified.is_some_and(|at| at <= before) {
                    found.push(listed);
                }
            })?,
            None => folder::older(of, before, &mut found)?,
        }
        Ok(found)
    }

    /// A file of `bytes` bytes, to be read as a whole.
    pub(crate) fn fetch(&self, path: &Path, bytes: u64) -> Result<File> {
        match &self.bucket {
            Some(bucket) => bucket.fetch(path, bytes),
            None => File::open(path).map_err(|e| LakeError::io(path, e)),
        }
    }

    /// Number of rows of a Parquet file, from its footer. `bytes` is the size of the file.
    pub(crate) fn rows(&self, path: &Path, bytes: u64) -> Result<i64> {
        let parquet = |e| LakeError::parquet(path, e);
        let Some(bucket) = &self.bucket else {
            let file = self.fetch(path, bytes)?;
            let read = ParquetMetaDataReader::new().parse_and_finish(&file);
            return Ok(read.map_err(parquet)?.file_metadata().num_rows());
        };
        let short = || LakeError::format(path, "a file of Parquet", format!("{bytes} bytes"));
        let end = bytes.checked_sub(PARQUET_END).ok_or_else(short)?;
        let tail = bucket.range(path, end, PARQUET_END)?;
        let length = tail
            .first_chunk()
            .map(|first: &[u8; 4]| u32::from_le_bytes(*first));
        let length = u64::from(length.ok_or_else(short)?);
        let from = end.checked_sub(length).ok_or_else(short)?;
        let footer = bucket.range(path, from, length)?;
        let read = ParquetMetaDataReader::decode_metadata(&footer).map_err(parquet)?;
        Ok(read.file_metadata().num_rows())
    }

    /// Sizes of the files below a folder of a table, as listed; `None` = each is to be looked up.
    pub(crate) fn sizes(&self, of: &Path) -> Result<Option<BTreeMap<PathBuf, u64>>> {
        let Some(bucket) = &self.bucket else {
            return Ok(None);
        };
        let mut sizes = BTreeMap::new();
        bucket.each(of, &mut |listed, _| {
            sizes.insert(listed.path, listed.bytes);
        })?;
        Ok(Some(sizes))
    }
}

/// Settings of a bucket for readers, beside its name.
fn config(
    address: &Address,
    variable: &dyn Fn(&str) -> Option<String>,
) -> BTreeMap<String, String> {
    let Address::S3 {
        endpoint,
        region,
        is_path_style,
        ..
    } = address
    else {
        return BTreeMap::new();
    };
    let endpoint = endpoint.clone().or_else(|| variable("AWS_ENDPOINT_URL"));
    let region = region.clone().or_else(|| variable("AWS_REGION"));
    let is_path_style = is_path_style.unwrap_or(endpoint.is_some());
    let pairs = [
        ("s3.endpoint", endpoint),
        ("s3.region", region),
        ("s3.path-style-access", Some(is_path_style.to_string())),
    ];
    let known = pairs
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    known.collect()
}
