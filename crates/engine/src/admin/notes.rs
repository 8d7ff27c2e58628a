//! Notes: small values that the surrounding program stores with a database, such as names that are
//! meaningful to its users.
//!
//! Invariants: a note that was set exists at every later opening and in every later backup; the
//! engine never reads its contents. A database rebuilt from its segments has no notes. Concurrency:
//! one change of the metadata at a time. Failure: a failed change may be on the medium
//! nevertheless, so the database refuses writes then.

use crate::{Database, Error, Reader, Result};

/// Maximum notes of a database.
const NOTES_MAX: u64 = 64;
/// Maximum bytes of the name of a note.
const NAME_BYTES_MAX: usize = 64;
/// Maximum bytes of a note.
const NOTE_BYTES_MAX: usize = 256 << 10;

impl Database {
    /// The note of this name, set by [`Database::set_note`]; `None` when there is no such note.
    ///
    /// # Errors
    /// `io` and `corrupt` when the metadata cannot be read.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.core().meta.note(name)
    }

    /// Stores a small value with the database, for the surrounding program: durable when this
    /// returns, and part of every backup. `None` removes the note of this name. At most 64 notes of
    /// 256 KiB each; their names are 1 to 64 bytes long.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// db.set_note("site", Some(b"pump house 4"))?;
    /// assert_eq!(db.note("site")?.as_deref(), Some(&b"pump house 4"[..]));
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `invalid` beyond these limits; `io`, `full`, `closed`, `forked`.
    pub fn set_note(&self, name: &str, note: Option<&[u8]>) -> Result<()> {
        let core = self.own_core()?;
        core.log.check()?;
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(Error::invalid(format!(
                "the name of a note has {} bytes: expected 1 to {NAME_BYTES_MAX}",
                name.len()
            )));
        }
        if let Some(len) = note.map(<[u8]>::len).filter(|len| *len > NOTE_BYTES_MAX) {
            return Err(Error::invalid(format!(
                "note `{name}` has {len} bytes: at most {NOTE_BYTES_MAX} are allowed"
            )));
        }
        core.check_space()?;
        let _one_at_a_time = core.commits.begin();
        let put = core.meta.put_note(name, note, NOTES_MAX);
        let put = put.inspect_err(|error| core.log.latch(error.clone()))?;
        if put {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "cannot store note `{name}`: there are already {NOTES_MAX} notes, the maximum: remove one first"
        )))
    }
}

impl Reader {
    /// The note of this name, like [`Database::note`], in the state of the last refresh.
    ///
    /// # Errors
    /// `io` and `corrupt` when the metadata cannot be read.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.core().meta.note(name)
    }
}
