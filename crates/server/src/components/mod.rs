//! List of the components of a node. Only this module connects optional features to the server.
//!
//! Invariants: components open in the order of [`open`], so that a component may use those before
//! it; a group of copies and ports are acquired before the database opens ([`Reserved`]).
//! Concurrency: see `component`. Failure: the first component that cannot open ends the start.

#[cfg(feature = "bucket")]
pub(crate) mod bucket;
#[cfg(feature = "sql")]
pub(crate) mod lake;
#[cfg(feature = "mqtt")]
pub(crate) mod mqtt;
mod nodes;
#[cfg(feature = "sql")]
mod postgres;
#[cfg(feature = "sql")]
pub(crate) mod sql;
#[cfg(feature = "sql")]
pub(crate) mod watches;

use crate::app::App;
use crate::component::{Component, Components};
use crate::settings::Settings;
use crate::start_error::StartError;
use futures_util::future::BoxFuture;
use headwater::{Database, Reader};
use headwater_fleet::{Fleet, Relays, Uplink};
use headwater_io::Env;
use headwater_shell::Work;
use std::sync::Arc;

/// Inputs of components when they open.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) env: &'a Env,
    pub(crate) db: Database,
    /// Set where the database is only read.
    #[cfg_attr(not(feature = "sql"), allow(dead_code, reason = "only SQL needs it"))]
    pub(crate) reader: Option<Reader>,
    /// Edges of a cloud and their copies, after they are opened.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// Connections that pass edges on to another cloud.
    pub(crate) relays: Option<Arc<Relays>>,
    /// The connection of an edge to its cloud.
    pub(crate) uplink: Option<Arc<Uplink>>,
}

/// Lease and ports that a node takes before it opens its database, so that a refusal precedes a
/// recovery, which may take long.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    #[cfg(feature = "bucket")]
    bucket: Option<Arc<bucket::Bucket>>,
    #[cfg(feature = "sql")]
    postgres: Option<tokio::net::TcpListener>,
}

impl Reserved {
    /// Acquires the group of copies; before the node listens, so that no client reaches a waiting
    /// node.
    #[cfg_attr(
        not(feature = "bucket"),
        allow(clippy::unused_async, unused_variables, reason = "nothing to take")
    )]
    pub(crate) async fn take(settings: &Settings, env: &Env) -> Result<Reserved, StartError> {
        #[allow(unused_mut, reason = "changed by optional features")]
        let mut reserved = Reserved::default();
        #[cfg(feature = "bucket")]
        {
            reserved.bucket = bucket::take(settings, env).await?;
        }
        Ok(reserved)
    }

    /// Binds the ports of front ends other than HTTP.
    #[cfg_attr(
        not(feature = "sql"),
        allow(clippy::unused_async, unused_variables, reason = "nothing to bind")
    )]
    pub(crate) async fn bind(&mut self, settings: &Settings) -> Result<(), StartError> {
        #[cfg(feature = "sql")]
        {
            self.postgres = postgres::bind(settings).await?;
        }
        Ok(())
    }
}

/// Opens the components, in the order in which they use each other.
#[cfg_attr(
    not(any(feature = "bucket", feature = "sql")),
    allow(
        clippy::unused_async,
        unused_variables,
        reason = "nothing was reserved"
    )
)]
pub(crate) async fn open(
    reserved: Reserved,
    opening: &mut Opening<'_>,
) -> Result<Components<App>, StartError> {
    let mut all = Components::default();
    // Copies are restored from the bucket before the fleet opens them.
    #[cfg(feature = "bucket")]
    let restored = bucket::restore(reserved.bucket, opening.settings).await?;
    all.add(nodes::Nodes::open(opening)?);
    all.add(Task("notices", |app| {
        Some(Box::pin(crate::change_notifier::run(app)))
    }));
    all.add(Task("revocations", |app| {
        Some(Box::pin(crate::revocation::run(app)))
    }));
    #[cfg(feature = "bucket")]
    if let Some(restored) = restored {
        all.add(bucket::BucketOfCopies::open(restored, opening));
    }
    #[cfg(feature = "mqtt")]
    all.add(mqtt::Broker::open(opening.settings)?);
    all.add(Task("reader", read_again));
    #[cfg(feature = "sql")]
    {
        all.add(sql::Sql::open(opening)?);
        all.add(watches::WatchRunner::default());
        all.add(lake::LakeWriter::open(opening.settings)?);
        all.add(postgres::PostgresFrontEnd::open(reserved.postgres));
    }
    Ok(all)
}

/// Future of a worker; `None` = without work.
type Run = Option<BoxFuture<'static, ()>>;

/// A component that is one worker without state, with its name.
#[derive(Debug)]
struct Task(&'static str, fn(Arc<App>) -> Run);

impl Component<App> for Task {
    fn begin(&self, app: &Arc<App>, work: &mut Work) {
        if let Some(run) = (self.1)(Arc::clone(app)) {
            tracing::debug!(worker = self.0, "begins");
            work.workers.push(run);
        }
    }
}

/// Reads the database again and again where another process owns it.
fn read_again(app: Arc<App>) -> Run {
    let (reader, every) = (app.reader.clone()?, app.settings.read_only_refresh?);
    Some(Box::pin(crate::refresh::run(app, reader, every)))
}
