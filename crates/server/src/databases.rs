//! What clients of InfluxDB call databases, as a server keeps it: in a note of its database.
//!
//! Invariants: a name that a write was stored under is durable before the write is; names change
//! one after another. A database that had tables before names were kept has all names together.
//! Concurrency: readers take the newest list; changes take turns.
//! Failure: what cannot be stored is not in force.

use crate::access::Access;
use crate::access::rules::Action;
use crate::error::ApiError;
use crate::settings::{Apart, Settings};
use crate::start_error::StartError;
use axum::http::StatusCode;
use headwater::Database;
use headwater_ask::{Databases, Error, Kind, Names, Result, Space};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// The note that holds the names.
const NOTE: &str = "databases";

/// The names of a server.
#[derive(Debug)]
pub(crate) struct KeptNames {
    db: Database,
    /// Whether names are apart, where they are kept with the database; `None` = settings say all.
    apart: Option<bool>,
    names: RwLock<Arc<Names>>,
    changing: Mutex<()>,
}

impl KeptNames {
    /// The names that the settings say, or those that were kept.
    ///
    /// # Errors
    /// When they cannot be read, or are not what this build writes.
    pub(crate) fn open(db: Database, settings: &Settings) -> std::result::Result<Self, StartError> {
        let (names, apart) = match (&settings.write_database, settings.write_databases) {
            (Some(only), _) => (Names::only(only), None),
            (None, Apart::Together) => (Names::together(), None),
            (None, how) => {
                let apart = how == Apart::Apart;
                (kept(&db, apart, settings.read_only)?, Some(apart))
            }
        };
        Ok(KeptNames {
            db,
            apart,
            names: RwLock::new(Arc::new(names)),
            changing: Mutex::new(()),
        })
    }

    /// Takes the names that are kept with a newer state of the database, which others write to.
    ///
    /// # Errors
    /// When they cannot be read, or are not what this build writes.
    pub(crate) fn look_again(&self, db: &Database) -> std::result::Result<(), StartError> {
        if let Some(apart) = self.apart {
            *self.names.write() = Arc::new(kept(db, apart, true)?);
        }
        Ok(())
    }

    /// True when a write of this asker under the name makes it one, which has to be stored.
    pub(crate) fn is_made_by(&self, name: &str, access: &Access) -> bool {
        let names = self.names();
        names.is_new(name) && access.any_behind(Action::Write, &names.beginning(name))
    }

    /// Where a write under a name goes. A new name is made to be one, if the asker may write
    /// something under it; else the write goes where the asker may not write either, so that
    /// nothing tells which names there are.
    ///
    /// # Errors
    /// When the name cannot be one, or is not the only one.
    pub(crate) fn to_write(
        &self,
        name: Option<&str>,
        access: &Access,
    ) -> std::result::Result<Space, ApiError> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(Space::Main);
        };
        if self.is_made_by(name, access) {
            self.change(&mut |names| names.add(name)).map_err(refused)?;
        } else if self.names().is_new(name) {
            return Ok(Space::Other(name.to_owned()));
        }
        self.names().space(Some(name)).map_err(refused)
    }
}

impl Databases for KeptNames {
    fn names(&self) -> Arc<Names> {
        Arc::clone(&self.names.read())
    }

    fn change(&self, change: &mut dyn FnMut(&mut Names) -> Result<()>) -> Result<()> {
        let _turn = self.changing.lock();
        let before = self.names();
        let mut names = Names::clone(&before);
        change(&mut names)?;
        if names == *before {
            return Ok(());
        }
        self.db.set_note(NOTE, Some(names.text().as_bytes()))?;
        *self.names.write() = Arc::new(names);
        Ok(())
    }
}

/// The names in the note. Without one: apart, if `apart` says so or the database is new.
fn kept(db: &Database, apart: bool, read_only: bool) -> std::result::Result<Names, StartError> {
    let failed = |source| StartError::Names { source };
    let note = db.note(NOTE).map_err(|error| failed(error.into()))?;
    let known = match note {
        None => None,
        Some(note) => {
            let text = String::from_utf8(note).map_err(|_| "they are no UTF-8".to_owned());
            let names = text.and_then(|text| Names::parse(&text));
            Some(names.map_err(|why| failed(Error::new(Kind::Internal, why)))?)
        }
    };
    let names = match known {
        Some(names) if names.is_apart() || !apart => return Ok(names),
        // Set to be apart since.
        Some(_) => Names::apart(),
        None if apart || db.tables().is_empty() => Names::apart(),
        None => Names::together(),
    };
    if !read_only {
        // So that a later start, which finds tables, knows what was said to those who wrote them.
        db.set_note(NOTE, Some(names.text().as_bytes()))
            .map_err(|error| failed(error.into()))?;
    }
    Ok(names)
}

fn refused(error: Error) -> ApiError {
    match error.kind() {
        Kind::NotFound => ApiError::new(StatusCode::NOT_FOUND, "E_NOT_FOUND", error.to_string()),
        Kind::Invalid => ApiError::new(StatusCode::BAD_REQUEST, "E_NAME", error.to_string()),
        _ => error.into(),
    }
}
