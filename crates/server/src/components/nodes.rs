//! The connections of a node with others: edges and their copies of a cloud, the uplink of an edge,
//! relays.

use super::Opening;
use crate::app::App;
use crate::component::Component;
use crate::settings::{Confirm, NodeRole};
use crate::start_error::StartError;
use headwater_cluster::{EdgeCopies, Peers, Relays, Uplink, UplinkFile};
use headwater_shell::Work;
use std::sync::Arc;

/// The workers of a node's connections.
#[derive(Debug)]
pub(super) struct Nodes {
    relays: Option<Arc<Relays>>,
    peers: Option<Arc<Peers>>,
    uplink: Option<Arc<Uplink>>,
}

impl Nodes {
    /// Opens the databases of the node's role, and passes them to the later components.
    pub(super) fn open(opening: &mut Opening<'_>) -> Result<Nodes, StartError> {
        let (settings, env, db) = (opening.settings, opening.env, &opening.db);
        let dir = settings.db();
        match settings.sync.role {
            NodeRole::Cloud => {
                let reader = settings.engine.clone();
                let fleet = Arc::new(EdgeCopies::open(env.clone(), dir, reader)?);
                let (identity, _) =
                    headwater_cluster::database_of(db).map_err(|source| StartError::Database {
                        dir: dir.display().to_string(),
                        source,
                    })?;
                fleet.set_node(identity);
                fleet.set_fetch_limit(settings.sync.fetch_per_day);
                if settings.cloud.confirm == Confirm::Peer {
                    fleet.confirm_when_at_peer();
                }
                let relays = Relays::open(&fleet, db.clone(), dir, settings.sync.uplink()?)?;
                let relays = Arc::new(relays);
                let peers = Peers::of(&settings.peer, &fleet, &relays, db.clone())?;
                opening.peers = peers.map(Arc::new);
                (opening.fleet, opening.relays) = (Some(fleet), Some(relays));
            }
            NodeRole::Edge => {
                let mut limits = settings.sync.uplink()?;
                limits.rights = opening.receiver.clone();
                let uplink = Uplink::new(db.clone(), env.clone(), dir, limits)?;
                opening.uplink = Some(Arc::new(uplink));
            }
            NodeRole::Single if UplinkFile::read(dir)?.is_some() => tracing::warn!(
                "this database has joined a cloud, but nothing is sent to it: start with --role edge"
            ),
            NodeRole::Single | NodeRole::Dispatcher => {}
        }
        Ok(Nodes {
            relays: opening.relays.clone(),
            peers: opening.peers.clone(),
            uplink: opening.uplink.clone(),
        })
    }
}

impl Component<App> for Nodes {
    fn begin(&self, app: &Arc<App>, work: &mut Work) {
        if let Some(uplink) = &self.uplink {
            let run = Arc::clone(uplink).run(app.shell.stopping());
            work.workers.push(Box::pin(run));
        }
        if let Some(peers) = &self.peers {
            let run = Arc::clone(peers).run(app.shell.stopping());
            work.workers.push(Box::pin(run));
        }
        if let Some(relays) = &self.relays {
            let run = Arc::clone(relays).run(app.shell.stopping());
            work.workers.push(Box::pin(run));
        }
    }
}
