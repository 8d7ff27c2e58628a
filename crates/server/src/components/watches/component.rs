//! The component of watches.

use super::registry::Watches;
use crate::app::App;
use crate::component::Component;
use headwater_shell::Work;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// The watches of a node and their worker.
#[derive(Debug, Default)]
pub(crate) struct WatchRunner {
    pub(crate) watches: Watches,
}

impl Component<App> for WatchRunner {
    fn register(&self, registry: &mut Registry) {
        self.watches.metrics.register(registry);
    }

    /// The owner of the database follows its watches, and persists their events.
    fn begin(&self, app: &Arc<App>, work: &mut Work) {
        if app.reader.is_none() {
            let run = super::run(Arc::clone(app));
            work.workers.push(Box::pin(run));
        }
    }
}

impl App {
    /// The watches that are followed.
    pub(crate) fn watches(&self) -> &Watches {
        &self.components.required::<WatchRunner>().watches
    }
}
