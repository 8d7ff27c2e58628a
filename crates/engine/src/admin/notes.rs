//! Notes: small values that the program around a database keeps with it, such as names that mean
//! something to its users.
//!
//! Invariants: a note that was set is found at every later opening and in every later backup; the
//! engine never looks into one. A database rebuilt from its segments has none.
//! Concurrency: one change of the metadata at a time.
//! Failure: a change that failed may be on the medium all the same, so the database takes no more
//! writes then.

use crate::{Database, Error, Reader, Result};

/// Most notes of a database.
const NOTES_MAX: u64 = 64;
/// Longest name of a note in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Longest note in bytes.
const NOTE_BYTES_MAX: usize = 256 << 10;

impl Database {
    /// The note of this name that [`Database::set_note`] left; `None` when there is none.
    ///
    /// # Errors
    /// `io` and `corrupt` when the metadata cannot be read.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.core().meta.note(name)
    }

    /// Keeps a small value with the database, for the program around it: durable when this returns,
    /// and part of every backup. `None` takes the note of this name away. At most 64 notes of 256
    /// KiB each; their names are 1 to 64 bytes long.
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
                "note `{name}` has {len} bytes: at most {NOTE_BYTES_MAX} are kept"
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
            "note `{name}` would be one more than {NOTES_MAX}: take another away first"
        )))
    }
}

impl Reader {
    /// The note of this name, as [`Database::note`] gives it, in the state that was looked at last.
    ///
    /// # Errors
    /// `io` and `corrupt` when the metadata cannot be read.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.core().meta.note(name)
    }
}
