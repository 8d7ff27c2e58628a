//! The connections of a node with others: edges and their copies of a cloud, the uplink of an edge,
//! relays.

use super::Opening;
use crate::app::App;
use crate::component::Component;
use crate::settings::NodeRole;
use crate::start_error::StartError;
use headwater_fleet::{Fleet, Relays, Uplink, UplinkFile};
use headwater_shell::Work;
use std::sync::Arc;

/// The workers of a node's connections.
#[derive(Debug)]
pub(super) struct Nodes {
    relays: Option<Arc<Relays>>,
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
                let fleet = Arc::new(Fleet::open(env.clone(), dir, reader)?);
                let (identity, _) =
                    headwater_fleet::database_of(db).map_err(|source| StartError::Database {
                        dir: dir.display().to_string(),
                        source,
                    })?;
                fleet.set_node(identity);
                let relays = Relays::open(&fleet, dir, settings.sync.uplink()?)?;
                (opening.fleet, opening.relays) = (Some(fleet), Some(Arc::new(relays)));
            }
            NodeRole::Edge => {
                let uplink = Uplink::new(db.clone(), env.clone(), dir, settings.sync.uplink()?)?;
                opening.uplink = Some(Arc::new(uplink));
            }
            NodeRole::Single if UplinkFile::read(dir)?.is_some() => tracing::warn!(
                "this database has joined a cloud, and nothing is sent there: start with --role edge"
            ),
            NodeRole::Single | NodeRole::Dispatcher => {}
        }
        Ok(Nodes {
            relays: opening.relays.clone(),
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
        if let Some(relays) = &self.relays {
            let run = Arc::clone(relays).run(app.shell.stopping());
            work.workers.push(Box::pin(run));
        }
    }
}
