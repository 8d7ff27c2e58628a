//! Databases as InfluxDB's clients name them, stored in a note of the server's database.
//!
//! Invariants: the name of a database is durable before any write under the name is; a name whose
//! first writes were all refused is removed again, so that the writes leave no trace; changes of
//! names are serialised. A database with tables from before names were stored maps all names to the
//! same tables. Concurrency: readers take the newest list; changes are serialised. `changing` is
//! locked before `young`. Failure: a change that cannot be stored is not in force. A name that
//! cannot be removed stays, with a message in the log; so does a name after a crash before its
//! first row.

use crate::access::Access;
use crate::access::rules::Action;
use crate::error::ApiError;
use crate::settings::{Apart, Settings};
use crate::start_error::StartError;
use axum::http::StatusCode;
use headwater::Database;
use headwater_ask::{Databases, Error, Names, QueryErrorKind, Result, Space};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Key of the note that stores the names.
const NOTE: &str = "databases";

/// Database names of a server.
#[derive(Debug)]
pub(crate) struct DatabaseNames {
    db: Database,
    /// Tells whether names are separate, if names are stored with the database; `None` = as in the
    /// settings.
    apart: Option<bool>,
    names: RwLock<Arc<Names>>,
    changing: Mutex<()>,
    /// Names that were created by a write and have no stored rows yet, with the number of writes in
    /// flight.
    young: Mutex<BTreeMap<String, usize>>,
}

/// Write in flight under a name without data. When the last of them is dropped without
/// [`FirstWrite::stored`], the name is removed.
#[derive(Debug)]
pub(crate) struct FirstWrite {
    names: Arc<DatabaseNames>,
    name: String,
}

impl FirstWrite {
    /// Makes the name permanent, after rows were stored under it.
    pub(crate) fn stored(&self) {
        self.names.young.lock().remove(&self.name);
    }
}

impl Drop for FirstWrite {
    fn drop(&mut self) {
        let (names, name) = (Arc::clone(&self.names), std::mem::take(&mut self.name));
        if !names.young.lock().contains_key(&name) {
            return;
        }
        // Removing the name waits for a disk, which is not allowed on threads of a runtime.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || names.end_write(&name))),
            Err(_) => names.end_write(&name),
        }
    }
}

impl DatabaseNames {
    /// Opens the names of the settings, or the stored ones.
    ///
    /// # Errors
    /// When the names cannot be read, or have an unknown format.
    pub(crate) fn open(db: Database, settings: &Settings) -> std::result::Result<Self, StartError> {
        let (names, apart) = match (&settings.write_database, settings.write_databases) {
            (Some(only), _) => (Names::only(only), None),
            (None, Apart::Together) => (Names::together(), None),
            (None, how) => {
                let apart = how == Apart::Apart;
                (read_names(&db, apart, settings.read_only)?, Some(apart))
            }
        };
        Ok(DatabaseNames {
            db,
            apart,
            names: RwLock::new(Arc::new(names)),
            changing: Mutex::new(()),
            young: Mutex::default(),
        })
    }

    /// Reloads the names stored with a newer state of the database, which another process writes.
    ///
    /// # Errors
    /// When the names cannot be read, or have an unknown format.
    pub(crate) fn reload(&self, db: &Database) -> std::result::Result<(), StartError> {
        if let Some(apart) = self.apart {
            *self.names.write() = Arc::new(read_names(db, apart, true)?);
        }
        Ok(())
    }

    /// True when [`DatabaseNames::to_write`] may wait for a disk: this client's write creates the
    /// name, or the name has no stored rows yet.
    pub(crate) fn may_wait(&self, name: &str, access: &Access) -> bool {
        self.may_create(name, access) || self.young.lock().contains_key(name)
    }

    /// True when a write of this client creates the name.
    fn may_create(&self, name: &str, access: &Access) -> bool {
        let names = self.names();
        names.is_new(name) && access.any_with_prefix(Action::Write, &names.beginning(name))
    }

    /// Target of a write under a name. A new name is created if the client may write under it;
    /// otherwise the target is one where the client may not write either, so that the refusal does
    /// not reveal which names exist. The returned guard lives until the write is decided.
    ///
    /// # Errors
    /// When the name is invalid, or is not the only allowed name.
    pub(crate) fn to_write(
        self: &Arc<Self>,
        name: Option<&str>,
        access: &Access,
    ) -> std::result::Result<(Space, Option<FirstWrite>), ApiError> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok((Space::Main, None));
        };
        let first = match self.may_wait(name, access) {
            true => self.begin_write(name, access).map_err(refused)?,
            false => None,
        };
        if first.is_none() && self.names().is_new(name) {
            return Ok((Space::Other(name.to_owned()), None));
        }
        let space = self.names().space(Some(name)).map_err(refused)?;
        Ok((space, first))
    }

    /// Creates a name for a write, or counts the write where another one in flight created the
    /// name.
    fn begin_write(self: &Arc<Self>, name: &str, access: &Access) -> Result<Option<FirstWrite>> {
        let _turn = self.changing.lock();
        let made = self.may_create(name, access);
        if made {
            self.replace(&mut |names| names.add(name))?;
        }
        let mut young = self.young.lock();
        match young.get_mut(name) {
            Some(writes) => *writes += 1,
            None if made => drop(young.insert(name.to_owned(), 1)),
            // Rows were stored under the name since.
            None => return Ok(None),
        }
        Ok(Some(FirstWrite {
            names: Arc::clone(self),
            name: name.to_owned(),
        }))
    }

    /// Ends a write under a name, of which no row was stored.
    fn end_write(&self, name: &str) {
        let _turn = self.changing.lock();
        match self.young.lock().get_mut(name) {
            None => return,
            Some(writes @ 2..) => {
                *writes -= 1;
                return;
            }
            // Stays listed as young until it is removed, so that no write intervenes.
            Some(_) => {}
        }
        let taken_back = self.replace(&mut |names| {
            names.remove(name);
            Ok(())
        });
        if let Err(error) = taken_back {
            tracing::warn!(
                "the database name {name:?} was registered for a write that failed and cannot be removed: {error}"
            );
        }
        self.young.lock().remove(name);
    }

    /// Changes the names; the caller has `changing` locked.
    fn replace(&self, change: &mut dyn FnMut(&mut Names) -> Result<()>) -> Result<()> {
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

impl Databases for DatabaseNames {
    fn names(&self) -> Arc<Names> {
        Arc::clone(&self.names.read())
    }

    fn change(&self, change: &mut dyn FnMut(&mut Names) -> Result<()>) -> Result<()> {
        let _turn = self.changing.lock();
        // A name that a statement creates or mentions stays although it has no rows.
        self.young.lock().clear();
        self.replace(change)
    }
}

/// Names in the note. Without a note: separate, if `apart` says so or the database is new.
fn read_names(
    db: &Database,
    apart: bool,
    read_only: bool,
) -> std::result::Result<Names, StartError> {
    let failed = |source| StartError::Names { source };
    let note = db.note(NOTE).map_err(|error| failed(error.into()))?;
    let known = match note {
        None => None,
        Some(note) => {
            let text =
                String::from_utf8(note).map_err(|_| "the database names are not UTF-8".to_owned());
            let names = text.and_then(|text| Names::parse(&text));
            Some(names.map_err(|why| failed(Error::new(QueryErrorKind::Internal, why)))?)
        }
    };
    let names = match known {
        Some(names) if names.is_apart() || !apart => return Ok(names),
        // Set to separate since.
        Some(_) => Names::apart(),
        None if apart || db.tables().is_empty() => Names::apart(),
        None => Names::together(),
    };
    if !read_only {
        // Stored so that a later start, which finds tables, knows which names writers used.
        db.set_note(NOTE, Some(names.text().as_bytes()))
            .map_err(|error| failed(error.into()))?;
    }
    Ok(names)
}

fn refused(error: Error) -> ApiError {
    match error.kind() {
        QueryErrorKind::NotFound => {
            ApiError::new(StatusCode::NOT_FOUND, "E_NOT_FOUND", error.to_string())
        }
        QueryErrorKind::Invalid => {
            ApiError::new(StatusCode::BAD_REQUEST, "E_NAME", error.to_string())
        }
        _ => error.into(),
    }
}
