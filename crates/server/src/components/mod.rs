//! The components of a node: parts that open with the database, publish metrics, run until the
//! stop, and end with it. This list is the one place where optional features meet the server.
//!
//! Invariants: components open in the order of [`open`] and begin in the same one, so that a
//! component may use those before it. A route finds the state of its component by type
//! ([`Components::get`]).
//! Concurrency: components are shared by all requests; what a component consumes when it begins
//! stands behind a lock until then.
//! Failure: a component that cannot open ends the start with its error; workers report theirs in
//! the log and try again.

#[cfg(feature = "mqtt")]
mod broker;
#[cfg(feature = "bucket")]
mod bucket;
mod nodes;
#[cfg(feature = "sql")]
mod sql;

#[cfg(feature = "mqtt")]
pub(crate) use broker::Broker;
#[cfg(feature = "bucket")]
pub(crate) use bucket::BucketOfCopies;
#[cfg(feature = "sql")]
pub(crate) use sql::{Lake, Sql, WatchRunner};

use crate::app::App;
use crate::settings::Settings;
use crate::start_error::StartError;
use futures_util::future::BoxFuture;
use headwater::{Database, Reader};
use headwater_fleet::{Fleet, Relays, Uplink};
use headwater_io::Env;
use headwater_shell::Work;
use prometheus_client::registry::Registry;
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// A part of a node. Every method has a default that does nothing.
pub(crate) trait Component: Any + fmt::Debug + Send + Sync {
    /// Registers the metrics that `/metrics` publishes.
    fn register(&self, _registry: &mut Registry) {}

    /// Adds the workers and front ends that run until the stop.
    fn begin(&self, _app: &Arc<App>, _work: &mut Work) {}

    /// Collects metrics that take locks or I/O; called on a thread that may block.
    fn collect(&self) {}

    /// The address of a front end of its own.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// Becomes the reason why the node must stop, though nobody asked it to.
    fn ended(&self) -> Option<watch::Receiver<Option<String>>> {
        None
    }
}

/// The components of a node, in the order in which they begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Components(Vec<Arc<dyn Component>>);

impl Components {
    fn add(&mut self, component: impl Component) {
        self.0.push(Arc::new(component));
    }

    /// The component of a type; `None` where the node runs without it.
    pub(crate) fn get<T: Component>(&self) -> Option<&T> {
        self.0.iter().find_map(|component| {
            let component: &dyn Any = component.as_ref();
            component.downcast_ref()
        })
    }

    /// Registers the metrics of all.
    pub(crate) fn register(&self, registry: &mut Registry) {
        for component in &self.0 {
            component.register(registry);
        }
    }

    /// Adds the workers and front ends of all.
    pub(crate) fn begin(&self, app: &Arc<App>, work: &mut Work) {
        for component in &self.0 {
            component.begin(app, work);
        }
    }

    /// Collects the metrics of all.
    pub(crate) fn collect(&self) {
        for component in &self.0 {
            component.collect();
        }
    }

    /// The address of the first front end that has one of its own.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.0.iter().find_map(|component| component.address())
    }

    /// The reasons to stop of those that have one.
    pub(crate) fn ended(&self) -> Option<watch::Receiver<Option<String>>> {
        self.0.iter().find_map(|component| component.ended())
    }
}

/// Inputs of components when they open.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) env: &'a Env,
    pub(crate) db: Database,
    /// Set where the database is only read.
    pub(crate) reader: Option<Reader>,
    /// The edges of a cloud and their copies, once they are open.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// Connections that pass edges on to another cloud.
    pub(crate) relays: Option<Arc<Relays>>,
    /// The connection of an edge to its cloud.
    pub(crate) uplink: Option<Arc<Uplink>>,
}

/// Lease and ports that a node takes before it opens its database, so that a refusal comes before
/// a recovery that may last.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    #[cfg(feature = "bucket")]
    bucket: Option<Arc<crate::bucket::Bucket>>,
    #[cfg(feature = "sql")]
    postgres: Option<tokio::net::TcpListener>,
}

impl Reserved {
    /// Takes the group of copies; before the node listens, so that no client reaches a node that
    /// waits for its turn.
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

    /// Binds the ports of front ends beside HTTP.
    #[cfg_attr(
        not(feature = "sql"),
        allow(clippy::unused_async, unused_variables, reason = "nothing to bind")
    )]
    pub(crate) async fn bind(&mut self, settings: &Settings) -> Result<(), StartError> {
        #[cfg(feature = "sql")]
        {
            self.postgres = sql::bind(settings).await?;
        }
        Ok(())
    }
}

/// Opens the components, in the order in which they use each other.
pub(crate) async fn open(
    reserved: Reserved,
    opening: &mut Opening<'_>,
) -> Result<Components, StartError> {
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
        all.add(BucketOfCopies::open(restored, opening));
    }
    #[cfg(feature = "mqtt")]
    all.add(Broker::open(opening.settings)?);
    all.add(Task("reader", read_again));
    #[cfg(feature = "sql")]
    {
        all.add(Sql::open(opening)?);
        all.add(WatchRunner::default());
        all.add(Lake::open(opening.settings)?);
        all.add(sql::PostgresFrontEnd::open(reserved.postgres));
    }
    Ok(all)
}

/// The future of a worker; `None` = there is nothing to do.
type Run = Option<BoxFuture<'static, ()>>;

/// A component that is one worker without state, with its name.
#[derive(Debug)]
struct Task(&'static str, fn(Arc<App>) -> Run);

impl Component for Task {
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
