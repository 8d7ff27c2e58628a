//! Copies of edges, and closed parts, that a cloud node relays to another one: for each, files as
//! for an edge in `DIR/relays/FOLDER`, and a connection.
//!
//! Invariants: a relay belongs to the folder of a copy: it goes on when the edge of the copy is
//! renamed, replaced or removed, and ends when the copy is deleted here. Each relay has a budget of
//! its own. The node's own database may be relayed too, under [`OWN_DATABASE`], which is no folder
//! of a copy.
//! Concurrency: a task for each relay, and one that starts and ends these. Failure: a failure of
//! the connection is reported in the relay's status; the other relays continue.

use crate::copies::EdgeCopies;
use crate::error::{ClusterError, ClusterErrorKind};
use crate::origin::Origin;
use crate::status::RelayStatus;
use crate::uplink::{Uplink, UplinkSettings, join};
use crate::uplink_file::UplinkFile;
use crate::waiting::{blocking, stopped};
use headwater_engine::Database;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Name of the relay of the node's own database, and of its folder.
pub(crate) const OWN_DATABASE: &str = ".own";

/// Interval of checks of the list of relays.
const LOOK: Duration = Duration::from_secs(1);

/// Settings of a new relay.
#[derive(Clone, Debug, Default)]
pub struct RelaySpec {
    /// The invitation of the other cloud.
    pub invitation: String,
    /// Address of the other cloud, if it differs from the invitation's.
    pub url: Option<String>,
    /// Certificates that its certificate is signed by, if others than the invitation has.
    pub ca: Option<String>,
    /// The copy of the other cloud becomes a closed part, and a new one begins.
    pub replaces_copy: bool,
    /// Ranges that the other cloud requests and that are missing here are requested from the edge.
    pub fetches_requested: bool,
}

/// A relay that runs.
#[derive(Debug)]
struct Running {
    uplink: Arc<Uplink>,
    stop: watch::Sender<bool>,
}

/// The relays of a cloud node.
#[derive(Debug)]
pub struct Relays {
    fleet: Arc<EdgeCopies>,
    own: Database,
    dir: PathBuf,
    settings: UplinkSettings,
    running: Mutex<BTreeMap<String, Running>>,
}

impl Relays {
    /// Opens the relays of the node whose database is in a directory. The limits of the settings
    /// apply to each.
    ///
    /// # Errors
    /// `io` when a file of a relay cannot be read.
    pub fn open(
        fleet: &Arc<EdgeCopies>,
        own: Database,
        dir: &Path,
        settings: UplinkSettings,
    ) -> Result<Relays, ClusterError> {
        let relays = Relays {
            fleet: Arc::clone(fleet),
            own,
            dir: dir.join("relays"),
            settings,
            running: Mutex::default(),
        };
        // Before any data of an edge arrives: its deletes are remembered for a later copy.
        for folder in relays.folders() {
            if relays.file_of(&folder)?.is_some() {
                relays.begin(&folder)?;
            }
        }
        Ok(relays)
    }

    fn dir_of(&self, folder: &str) -> PathBuf {
        self.dir.join(folder)
    }

    /// Folders of everything that may be relayed.
    fn folders(&self) -> Vec<String> {
        let mut folders = self.fleet.copy_folders();
        folders.push(OWN_DATABASE.to_owned());
        folders
    }

    /// Source of a relay.
    pub(crate) fn origin(&self, folder: &str) -> Origin {
        match folder {
            OWN_DATABASE => Origin::Database(self.own.clone()),
            folder => Origin::Copy(Arc::clone(&self.fleet), folder.to_owned()),
        }
    }

    /// The file of the relay of a folder, if it is relayed.
    ///
    /// # Errors
    /// `io` when the file cannot be read.
    pub(crate) fn file_of(&self, folder: &str) -> Result<Option<UplinkFile>, ClusterError> {
        UplinkFile::read(&self.dir_of(folder))
    }

    /// Whether the other cloud does not know the key of a relay.
    pub(crate) fn is_denied(&self, folder: &str) -> bool {
        let running = self.running.lock();
        let relay = running.get(folder);
        relay.is_some_and(|relay| relay.uplink.is_denied())
    }

    /// Relays the copy in a folder to a cloud that knows it by a name and a key.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn set_file(&self, folder: &str, file: &UplinkFile) -> Result<(), ClusterError> {
        file.write(&self.dir_of(folder))
    }

    /// Folder of the copy of an edge or a closed part.
    fn folder(&self, name: &str) -> Result<String, ClusterError> {
        if name == OWN_DATABASE {
            return Ok(OWN_DATABASE.to_owned());
        }
        self.fleet.folder_of(name).ok_or_else(|| {
            ClusterError::new(
                ClusterErrorKind::NotFound,
                format!("there is no edge `{name}`; list the edges with `headwater edges`"),
            )
        })
    }

    /// Passes an edge on to another cloud, which has invited it.
    ///
    /// # Errors
    /// `not_found` for an unknown edge, `invalid` for an invalid invitation, `denied` if the other
    /// cloud does not know it, `unreachable`, `io`.
    pub async fn relay(&self, name: &str, spec: RelaySpec) -> Result<(), ClusterError> {
        let dir = self.dir_of(&self.folder(name)?);
        let url = spec.url.as_deref();
        let mut file = join(&dir, &spec.invitation, url, spec.ca, spec.replaces_copy).await?;
        file.gets = spec.fetches_requested;
        blocking(move || file.write(&dir)).await?
    }

    /// Makes the other cloud put its copy of an edge aside, and start over: for use after the copy
    /// here was started over.
    ///
    /// # Errors
    /// `not_found` when it is not relayed, `io`.
    pub fn replace_copy(&self, name: &str) -> Result<(), ClusterError> {
        let (folder, mut file) = self.file(name)?;
        file.begins_anew = true;
        self.set_file(&folder, &file)
    }

    fn file(&self, name: &str) -> Result<(String, UplinkFile), ClusterError> {
        let folder = self.folder(name)?;
        let file = self.file_of(&folder)?.ok_or_else(|| {
            ClusterError::new(
                ClusterErrorKind::NotFound,
                format!("the edge `{name}` is not relayed to another cloud"),
            )
        })?;
        Ok((folder, file))
    }

    /// Stops relaying an edge. The other cloud's copy is not removed.
    ///
    /// # Errors
    /// `not_found` when it is not relayed, `io`.
    pub fn stop(&self, name: &str) -> Result<(), ClusterError> {
        let (folder, _) = self.file(name)?;
        UplinkFile::forget(&self.dir_of(&folder))?;
        self.end(&folder);
        Ok(())
    }

    /// Status of each relay, with the names of edges and closed parts.
    ///
    /// # Errors
    /// The engine's own.
    pub fn status(&self) -> headwater_engine::Result<Vec<RelayStatus>> {
        let names = self.fleet.names_by_folder();
        let running = self.running.lock();
        let all = running.iter().map(|(folder, relay)| {
            Ok(RelayStatus {
                edge: names.get(folder).unwrap_or(folder).clone(),
                to: relay.uplink.status()?,
            })
        });
        all.collect()
    }

    fn begin(&self, folder: &str) -> Result<(), ClusterError> {
        let origin = self.origin(folder);
        let env = self.fleet.env().clone();
        let uplink = Uplink::of(origin, env, &self.dir_of(folder), self.settings.clone())?;
        let (stop, _) = watch::channel(false);
        let relay = Running {
            uplink: Arc::new(uplink),
            stop,
        };
        self.running.lock().insert(folder.to_owned(), relay);
        Ok(())
    }

    fn end(&self, folder: &str) {
        // The task that serves the relay ends when its sender is dropped.
        let Some(relay) = self.running.lock().remove(folder) else {
            return;
        };
        relay.stop.send_replace(true);
        if let Err(error) = self.origin(folder).remove_copy()
            && error.kind() != ClusterErrorKind::NotFound
        {
            tracing::warn!(folder, %error, "the copy at another cloud stays registered");
        }
    }

    /// Opens new relays, and ends removed ones; returns the relays to serve.
    fn look(&self) -> Vec<(Arc<Uplink>, watch::Receiver<bool>)> {
        let folders: BTreeSet<String> = self.folders().into_iter().collect();
        let gone: Vec<String> = {
            let running = self.running.lock();
            let gone = running.keys().filter(|folder| !folders.contains(*folder));
            gone.cloned().collect()
        };
        for folder in gone {
            // A later copy in the folder may be of another database.
            if let Err(error) = UplinkFile::forget(&self.dir_of(&folder)) {
                tracing::warn!(folder, %error, "a relay of a copy that was deleted");
            }
            self.end(&folder);
        }
        for folder in &folders {
            let is_running = self.running.lock().contains_key(folder);
            let begun = match self.file_of(folder) {
                Ok(Some(_)) if !is_running => self.begin(folder),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = begun {
                tracing::warn!(folder, %error, "a copy cannot be relayed");
            }
        }
        let running = self.running.lock();
        // A relay without a listener has no task yet.
        let new = running.values().filter(|r| r.stop.receiver_count() == 0);
        new.map(|relay| (Arc::clone(&relay.uplink), relay.stop.subscribe()))
            .collect()
    }

    /// Passes on which segments of edges the other clouds have proven to have.
    fn note_proven(&self) {
        let running = self.running.lock();
        for (folder, relay) in running.iter().filter(|(name, _)| *name != OWN_DATABASE) {
            if let Some(durable) = relay.uplink.proven() {
                self.fleet.set_at_peer(folder, durable);
            }
        }
    }

    /// Maintains all connections until the server stops.
    pub async fn run(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut tasks = tokio::task::JoinSet::new();
        while !*stopping.borrow() {
            let relays = Arc::clone(&self);
            match blocking(move || relays.look()).await {
                Ok(new) => {
                    for (uplink, stop) in new {
                        tasks.spawn(uplink.run(stop));
                    }
                }
                Err(error) => tracing::error!(%error, "relays cannot be read"),
            }
            while tasks.try_join_next().is_some() {}
            if self.fleet.waits_for_peer() {
                self.note_proven();
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                () = stopped(&mut stopping) => {}
            }
        }
        for relay in self.running.lock().values() {
            relay.stop.send_replace(true);
        }
        while tasks.join_next().await.is_some() {}
    }
}
