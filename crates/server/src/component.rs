//! A component is a part of a node that opens with its database, publishes metrics, runs until the
//! stop, and ends with it.
//!
//! Invariants: components begin in the order in which they were added. A route finds the state of
//! its component by type ([`Components::get`]). Concurrency: components are shared by all requests;
//! values that a component consumes at its start are under a lock until then. Failure: a component
//! that cannot open ends the start with its error; workers log errors and retry.

use futures_util::future::BoxFuture;
use headwater_shell::Work;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// A part of a node. Every method has an empty default.
pub(crate) trait Component<A>: Any + fmt::Debug + Send + Sync {
    /// Registers the metrics that `/metrics` publishes.
    fn register(&self, _registry: &mut Registry) {}

    /// Adds the workers and front ends that run until the stop.
    fn begin(&self, _app: &Arc<A>, _work: &mut Work) {}

    /// Collects metrics that take locks or I/O; called on a thread that may block.
    fn collect(&self) {}

    /// Address of the component's own front end.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// Name and value of the component's member in the report of `/api/v1/storage`.
    fn report(&self, _app: &A) -> Option<(&'static str, Value)> {
        None
    }

    /// Connection over which other components publish messages.
    #[allow(dead_code, reason = "used by optional components")]
    fn publisher(&self) -> Option<&dyn MessagePublisher> {
        None
    }

    /// Becomes the reason for stopping the node when a component demands that itself.
    fn stop_reason(&self) -> Option<watch::Receiver<Option<String>>> {
        None
    }
}

/// Connection to a message broker.
#[allow(dead_code, reason = "used by optional components")]
pub(crate) trait MessagePublisher: Send + Sync {
    /// True while connected.
    fn is_connected(&self) -> bool;

    /// Sends a message: true after the broker has acknowledged it, false when the connection ended
    /// earlier.
    fn publish<'a>(&'a self, topic: &'a str, payload: String) -> BoxFuture<'a, bool>;
}

/// The components of a node, in the order in which they begin.
#[derive(Debug)]
pub(crate) struct Components<A>(Vec<Arc<dyn Component<A>>>);

impl<A> Default for Components<A> {
    fn default() -> Self {
        Components(Vec::new())
    }
}

impl<A> Clone for Components<A> {
    fn clone(&self) -> Self {
        Components(self.0.clone())
    }
}

#[cfg_attr(
    not(any(feature = "mqtt", feature = "sql")),
    allow(dead_code, reason = "components with state are optional")
)]
impl<A: 'static> Components<A> {
    /// Adds a component, which begins after the previously added ones.
    pub(crate) fn add(&mut self, component: impl Component<A>) {
        self.0.push(Arc::new(component));
    }

    /// The component of a type; `None` where the node runs without it.
    pub(crate) fn get<T: Component<A>>(&self) -> Option<&T> {
        self.0.iter().find_map(|component| {
            let component: &dyn Any = component.as_ref();
            component.downcast_ref()
        })
    }

    /// The component of a type that every node has whose program has the feature.
    ///
    /// # Panics
    /// When `components::open` did not add it.
    #[allow(
        clippy::expect_used,
        reason = "an invariant of the list, whatever the settings"
    )]
    pub(crate) fn required<T: Component<A>>(&self) -> &T {
        self.get().expect("`components::open` adds it")
    }

    /// Registers the metrics of all.
    pub(crate) fn register(&self, registry: &mut Registry) {
        for component in &self.0 {
            component.register(registry);
        }
    }

    /// Adds the workers and front ends of all.
    pub(crate) fn begin(&self, app: &Arc<A>, work: &mut Work) {
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

    /// Address of the first component with its own front end.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.0.iter().find_map(|component| component.address())
    }

    /// Value that a component reports under this name.
    pub(crate) fn report(&self, name: &str, app: &A) -> Option<Value> {
        let reports = self.0.iter().filter_map(|component| component.report(app));
        reports
            .into_iter()
            .find_map(|(of, value)| (of == name).then_some(value))
    }

    /// Connection of the first component that publishes messages.
    #[allow(dead_code, reason = "used by optional components")]
    pub(crate) fn publisher(&self) -> Option<&dyn MessagePublisher> {
        self.0.iter().find_map(|component| component.publisher())
    }

    /// Stop reasons of the components that have one.
    pub(crate) fn stop_reasons(&self) -> Option<watch::Receiver<Option<String>>> {
        self.0.iter().find_map(|component| component.stop_reason())
    }
}
