//! A lake in a bucket: its objects, and commits of metadata.
//!
//! Invariants: an object is created and never replaced, except the hint, which only increases. Of
//! two writers of the same metadata one wins: the put is conditional on the object not existing.
//! Failure: transient errors are retried a few times. A put without an answer may be carried out
//! later: its bytes are not removed, and a writer whose name already exists compares the contents.
//! Lists may omit new objects: they are used only to find garbage.

use crate::error::{LakeError, Result};
use crate::folder::Listed;
use crate::names::{HINT, METADATA, metadata_file, version_of};
use headwater::Timestamp;
use headwater_bucket::{Object, ObjectStore, Page, Put, StoreFailure};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Most attempts of a request.
const ATTEMPTS: u32 = 6;
/// Wait before the next attempt; twice as long each time.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of an object that are read at once.
const PART: u64 = 8 << 20;

/// The part of a bucket that has a lake.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    store: Arc<dyn ObjectStore>,
    /// Prefix of all locations, without a `/` at the end.
    base: String,
    pub(crate) pause: Duration,
}

impl Bucket {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, base: &str) -> Bucket {
        Bucket {
            store,
            base: base.trim_end_matches('/').to_owned(),
            pause: PAUSE,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        PathBuf::from(&self.base)
    }

    /// The key of a location.
    fn key<'p>(&self, path: &'p Path) -> Result<&'p str> {
        let text = path.to_str();
        let key = text.and_then(|text| text.strip_prefix(&self.base)?.strip_prefix('/'));
        key.ok_or_else(|| {
            let expected = format!("a location below {}", self.base);
            LakeError::format(path, expected, path.display())
        })
    }

    /// Retries until there is an answer, or a retry is in vain. The call gets the number of the
    /// attempt.
    fn with_retries<T>(
        &self,
        path: &Path,
        mut what: impl FnMut(u32) -> std::result::Result<T, StoreFailure>,
    ) -> Result<T> {
        let mut pause = self.pause;
        let mut attempt = 0;
        loop {
            let failure = match what(attempt) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            attempt += 1;
            if failure.is_final || attempt >= ATTEMPTS {
                return Err(LakeError::bucket(path, failure));
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
    }

    fn get(&self, path: &Path) -> Result<Option<Object>> {
        let key = self.key(path)?;
        self.with_retries(path, |_| self.store.get(key))
    }

    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let found = self.get(path)?;
        Ok(found.ok_or_else(|| LakeError::missing(path))?.bytes)
    }

    /// Creates an object with a unique name.
    pub(crate) fn put(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let key = self.key(path)?;
        self.create(path, &mut || self.store.create(key, bytes))
    }

    /// As [`Self::put`], with the content of a file.
    pub(crate) fn put_file(&self, path: &Path, file: &File) -> Result<()> {
        let key = self.key(path)?;
        self.create(path, &mut || self.store.create_from(key, file))
    }

    fn create(
        &self,
        path: &Path,
        put: &mut dyn FnMut() -> std::result::Result<Put, StoreFailure>,
    ) -> Result<()> {
        // An attempt before may have been carried out without an answer.
        let is_there = self.with_retries(path, |attempt| {
            put().map(|put| attempt > 0 || put != Put::Refused)
        })?;
        match is_there {
            true => Ok(()),
            false => Err(LakeError::format(
                path,
                "an unused name",
                "an existing object",
            )),
        }
    }

    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        let key = self.key(path)?;
        self.with_retries(path, |_| self.store.delete(key))
    }

    /// An object as a local file without a name, which is removed when closed.
    pub(crate) fn fetch(&self, path: &Path, bytes: u64) -> Result<File> {
        let key = self.key(path)?;
        let mut file = nameless()?;
        let io = |e| LakeError::io(path, e);
        let mut from = 0;
        while from < bytes {
            let part = PART.min(bytes - from);
            let got = self.with_retries(path, |_| self.store.get_range(key, from, part))?;
            let got = got.ok_or_else(|| LakeError::missing(path))?;
            file.write_all(&got).map_err(io)?;
            from += part;
        }
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        Ok(file)
    }

    /// Some bytes of an object.
    pub(crate) fn range(&self, path: &Path, from: u64, bytes: u64) -> Result<Vec<u8>> {
        let key = self.key(path)?;
        let got = self.with_retries(path, |_| self.store.get_range(key, from, bytes))?;
        got.ok_or_else(|| LakeError::missing(path))
    }

    fn page(&self, path: &Path, prefix: &str, after: &str) -> Result<Page> {
        self.with_retries(path, |_| self.store.list(prefix, after))
    }

    /// Prefix of the keys below a location.
    fn below(&self, path: &Path) -> Result<String> {
        if path.to_str() == Some(&self.base) {
            return Ok(String::new());
        }
        Ok(format!("{}/", self.key(path)?))
    }

    /// All objects below a location.
    pub(crate) fn each(
        &self,
        path: &Path,
        see: &mut dyn FnMut(Listed, Option<Timestamp>),
    ) -> Result<()> {
        let prefix = self.below(path)?;
        let mut after = String::new();
        loop {
            let page = self.page(path, &prefix, &after)?;
            let last = page.objects.last().map(|object| object.key.clone());
            for object in page.objects {
                let listed = Listed {
                    path: self.root().join(&object.key),
                    bytes: object.bytes,
                };
                see(listed, object.modified);
            }
            match last {
                Some(last) if page.more => after = last,
                _ => return Ok(()),
            }
        }
    }

    /// Names between a location and the next `/`, each once: the folders of the location.
    pub(crate) fn folders(&self, of: &Path) -> Result<Vec<String>> {
        let prefix = self.below(of)?;
        let mut names: Vec<String> = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.page(of, &prefix, &after)?;
            let Some(last) = page.objects.last().map(|object| object.key.clone()) else {
                break;
            };
            for object in &page.objects {
                let rest = object.key.strip_prefix(&prefix);
                if let Some((name, _)) = rest.and_then(|rest| rest.split_once('/'))
                    && names.last().is_none_or(|last| last != name)
                {
                    names.push(name.to_owned());
                }
            }
            if !page.more {
                break;
            }
            // After all keys below the last one: `0` follows `/`.
            let rest = last.strip_prefix(&prefix).unwrap_or(&last);
            after = match rest.split_once('/') {
                Some((name, _)) => format!("{prefix}{name}0"),
                None => last,
            };
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Newest metadata of a table, and its number of commits; `None` = the table does not exist.
    pub(crate) fn newest(&self, dir: &Path) -> Result<Option<(u64, Vec<u8>)>> {
        let told = self.hint_version(dir)?;
        let of = |version: u64| self.get(&metadata_file(dir, version));
        let mut found = None;
        if let Some(version) = told {
            found = of(version)?.map(|object| (version, object.bytes));
        }
        if found.is_none() {
            // There is no hint yet, or the hint is so old that its versions were removed. A list
            // may omit the newest.
            let mut listed = 1;
            self.each(&dir.join(METADATA), &mut |object, _| {
                let name = object.path.file_name().and_then(|name| name.to_str());
                listed = listed.max(name.and_then(version_of).unwrap_or(0));
            })?;
            found = of(listed)?.map(|object| (listed, object.bytes));
        }
        while let Some((version, _)) = &found {
            let version = version + 1;
            match of(version)? {
                Some(object) => found = Some((version, object.bytes)),
                None => break,
            }
        }
        Ok(found)
    }

    /// Creates the metadata of a version; false if another writer has created it, and then no state
    /// is changed.
    pub(crate) fn commit(&self, dir: &Path, version: u64, bytes: &[u8]) -> Result<bool> {
        let path = metadata_file(dir, version);
        let key = self.key(&path)?;
        let mut attempts = 0;
        let put = self.with_retries(&path, |attempt| {
            attempts = attempt;
            self.store.create(key, bytes)
        })?;
        match put {
            Put::Stored(_) => Ok(true),
            Put::Refused if attempts == 0 => Ok(false),
            // An earlier attempt may have been carried out.
            Put::Refused => Ok(self.read(&path)? == bytes),
        }
    }

    /// Version in the hint, the object for readers that do not list.
    pub(crate) fn hint_version(&self, dir: &Path) -> Result<Option<u64>> {
        let found = self.get(&dir.join(METADATA).join(HINT))?;
        Ok(found.as_ref().and_then(version_in))
    }

    /// Updates the hint, an object of its own, to the newest metadata: this version, or a newer
    /// one.
    pub(crate) fn write_version_hint(&self, dir: &Path, version: u64) -> Result<()> {
        let path = dir.join(METADATA).join(HINT);
        let key = self.key(&path)?;
        let text = version.to_string();
        loop {
            let found = self.get(&path)?;
            let put = match &found {
                Some(object) if version_in(object).is_some_and(|told| told >= version) => {
                    return Ok(());
                }
                Some(object) => self.with_retries(&path, |_| {
                    self.store.replace(key, text.as_bytes(), &object.etag)
                })?,
                None => self.with_retries(&path, |_| self.store.create(key, text.as_bytes()))?,
            };
            if put != Put::Refused {
                return Ok(());
            }
            // Another writer put the hint, or an earlier attempt was carried out: then the hint has
            // the version.
        }
    }
}

fn version_in(hint: &Object) -> Option<u64> {
    std::str::from_utf8(&hint.bytes).ok()?.trim().parse().ok()
}

/// A temporary file without a name.
pub(crate) fn nameless() -> Result<File> {
    let folder = std::env::temp_dir();
    tempfile::tempfile_in(&folder).map_err(|e| LakeError::io(&folder, e))
}
