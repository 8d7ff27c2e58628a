//! Edges that a cloud node relays to another one: for each, files as for an edge in
//! `DIR/relays/NAME`, and a connection.
//!
//! Invariants: a relay ends when its edge is removed here. Each relay has a budget of its own.
//! Concurrency: a task for each relay, and one that starts and ends these. Failure: a failure of
//! the connection is reported in the relay's status; the other relays continue.

use crate::copies::Fleet;
use crate::error::{FleetError, FleetErrorKind};
use crate::origin::Origin;
use crate::status::RelayStatus;
use crate::uplink::{Uplink, UplinkSettings, join};
use crate::uplink_file::UplinkFile;
use crate::waiting::{blocking, stopped};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

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
    /// The other cloud is to put its copy aside.
    pub begins_anew: bool,
    /// Ranges that the other cloud requests and that are missing here are requested from the edge.
    pub gets: bool,
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
    fleet: Arc<Fleet>,
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
        fleet: &Arc<Fleet>,
        dir: &Path,
        settings: UplinkSettings,
    ) -> Result<Relays, FleetError> {
        let relays = Relays {
            fleet: Arc::clone(fleet),
            dir: dir.join("relays"),
            settings,
            running: Mutex::default(),
        };
        // Before any data of an edge arrives: its deletes are remembered for a later copy.
        for edge in fleet.all_edges() {
            if UplinkFile::read(&relays.dir_of(&edge.name))?.is_some() {
                relays.begin(&edge.name)?;
            }
        }
        Ok(relays)
    }

    fn dir_of(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn known(&self, name: &str) -> Result<(), FleetError> {
        match self.fleet.edge(name) {
            Some(_) => Ok(()),
            None => Err(FleetError::new(
                FleetErrorKind::NotFound,
                format!("there is no edge `{name}`; `headwater edges` lists those there are"),
            )),
        }
    }

    /// Passes an edge on to another cloud, which has invited it.
    ///
    /// # Errors
    /// `not_found` for an unknown edge, `invalid` for an invalid invitation, `denied` if the other
    /// cloud does not know it, `unreachable`, `io`.
    pub async fn relay(&self, name: &str, spec: RelaySpec) -> Result<(), FleetError> {
        self.known(name)?;
        let dir = self.dir_of(name);
        let url = spec.url.as_deref();
        let mut file = join(&dir, &spec.invitation, url, spec.ca, spec.begins_anew).await?;
        file.gets = spec.gets;
        blocking(move || file.write(&dir)).await?
    }

    /// Makes the other cloud put its copy of an edge aside, and start over: for use after the copy
    /// here was started over.
    ///
    /// # Errors
    /// `not_found` when it is not relayed, `io`.
    pub fn begin_anew(&self, name: &str) -> Result<(), FleetError> {
        let dir = self.dir_of(name);
        let mut file = self.file(name)?;
        file.begins_anew = true;
        file.write(&dir)
    }

    fn file(&self, name: &str) -> Result<UplinkFile, FleetError> {
        self.known(name)?;
        UplinkFile::read(&self.dir_of(name))?.ok_or_else(|| {
            FleetError::new(
                FleetErrorKind::NotFound,
                format!("the edge `{name}` is not passed on to another cloud"),
            )
        })
    }

    /// Stops relaying an edge. The other cloud's copy is not removed.
    ///
    /// # Errors
    /// `not_found` when it is not relayed, `io`.
    pub fn stop(&self, name: &str) -> Result<(), FleetError> {
        self.file(name)?;
        UplinkFile::forget(&self.dir_of(name))?;
        self.end(name);
        Ok(())
    }

    /// Status of each relay, by the names of edges.
    ///
    /// # Errors
    /// The engine's own.
    pub fn status(&self) -> headwater_engine::Result<Vec<RelayStatus>> {
        let running = self.running.lock();
        let all = running.iter().map(|(name, relay)| {
            Ok(RelayStatus {
                edge: name.clone(),
                to: relay.uplink.status()?,
            })
        });
        all.collect()
    }

    fn begin(&self, name: &str) -> Result<(), FleetError> {
        let origin = Origin::Copy(Arc::clone(&self.fleet), name.to_owned());
        let env = self.fleet.env().clone();
        let uplink = Uplink::of(origin, env, &self.dir_of(name), self.settings.clone())?;
        let (stop, _) = watch::channel(false);
        let relay = Running {
            uplink: Arc::new(uplink),
            stop,
        };
        self.running.lock().insert(name.to_owned(), relay);
        Ok(())
    }

    fn end(&self, name: &str) {
        // The task that serves the relay ends when its sender is dropped.
        if let Some(relay) = self.running.lock().remove(name) {
            relay.stop.send_replace(true);
            self.fleet.held(name).set_relayed(false);
        }
    }

    /// Opens new relays, and ends removed ones; returns the relays to serve.
    fn look(&self) -> Vec<(Arc<Uplink>, watch::Receiver<bool>)> {
        let edges = self.fleet.all_edges();
        let gone: Vec<String> = {
            let running = self.running.lock();
            let names = running.keys();
            let gone = names.filter(|name| edges.iter().all(|edge| edge.name != **name));
            gone.cloned().collect()
        };
        for name in gone {
            // An edge of the same name may be another one.
            if let Err(error) = UplinkFile::forget(&self.dir_of(&name)) {
                tracing::warn!(edge = name, %error, "a relay of an edge that was taken out");
            }
            self.end(&name);
        }
        for edge in edges {
            let is_running = self.running.lock().contains_key(&edge.name);
            let begun = match UplinkFile::read(&self.dir_of(&edge.name)) {
                Ok(Some(_)) if !is_running => self.begin(&edge.name),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = begun {
                tracing::warn!(edge = edge.name, %error, "an edge is not passed on");
            }
        }
        let running = self.running.lock();
        // A relay without a listener has no task yet.
        let new = running.values().filter(|r| r.stop.receiver_count() == 0);
        new.map(|relay| (Arc::clone(&relay.uplink), relay.stop.subscribe()))
            .collect()
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
                Err(error) => tracing::error!(%error, "relays cannot be looked at"),
            }
            while tasks.try_join_next().is_some() {}
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
