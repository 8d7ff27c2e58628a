//! Notes: small values that the surrounding program stores with a database.
//!
//! Invariant: the engine never reads their contents.

use super::Meta;
use crate::{Error, Result};
use redb::{ReadableTableMetadata, TableDefinition};

const NOTES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("notes");

impl Meta {
    /// The note of this name.
    pub(crate) fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(notes) = self.table(NOTES)? else {
            return Ok(None);
        };
        let note = notes.get(name).map_err(Error::meta)?;
        Ok(note.map(|note| note.value().to_vec()))
    }

    /// Replaces a note, or removes it; durable when it returns. False, without a change, when there
    /// would be more than `max` notes.
    pub(crate) fn put_note(&self, name: &str, note: Option<&[u8]>, max: u64) -> Result<bool> {
        let transaction = self.begin_write()?;
        {
            let mut notes = transaction.open_table(NOTES).map_err(Error::meta)?;
            match note {
                None => drop(notes.remove(name).map_err(Error::meta)?),
                Some(note) => drop(notes.insert(name, note).map_err(Error::meta)?),
            }
            if note.is_some() && notes.len().map_err(Error::meta)? > max {
                drop(notes);
                transaction.abort().map_err(Error::meta)?;
                return Ok(false);
            }
        }
        transaction.commit().map_err(Error::meta)?;
        Ok(true)
    }
}
