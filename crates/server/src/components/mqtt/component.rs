//! Messages from and to a broker.

use crate::app::App;
use crate::component::{Component, MessagePublisher};
use crate::components::mqtt::Source;
use crate::components::mqtt::metrics::BrokerMetrics;
use crate::components::mqtt::publisher::Publisher;
use crate::settings::Settings;
use crate::start_error::StartError;
use headwater_shell::Work;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::sync::Arc;

/// Connection to a broker, if the settings name one.
#[derive(Debug)]
pub(crate) struct Broker {
    /// `None` after the component has begun.
    source: Mutex<Option<Source>>,
    /// All zero without a broker.
    pub(crate) stats: Arc<BrokerMetrics>,
    /// Messages of this node.
    pub(crate) publisher: Publisher,
    has_source: bool,
}

impl Broker {
    pub(in crate::components) fn open(settings: &Settings) -> Result<Broker, StartError> {
        let source = Source::new(settings)?;
        let stats = source.as_ref().map(|source| Arc::clone(&source.metrics));
        Ok(Broker {
            stats: stats.unwrap_or_default(),
            publisher: Publisher::default(),
            has_source: source.is_some(),
            source: Mutex::new(source),
        })
    }
}

impl Component<App> for Broker {
    fn register(&self, registry: &mut Registry) {
        if self.has_source {
            self.stats.register(registry);
        }
    }

    fn report(&self, app: &App) -> Option<(&'static str, Value)> {
        let state = self.stats.state(&app.settings.mqtt)?;
        Some(("mqtt", serde_json::to_value(state).ok()?))
    }

    fn publisher(&self) -> Option<&dyn MessagePublisher> {
        Some(&self.publisher)
    }

    fn begin(&self, app: &Arc<App>, work: &mut Work) {
        if let Some(source) = self.source.lock().take() {
            work.workers.push(Box::pin(source.run(Arc::clone(app))));
        }
    }
}

impl App {
    /// Connection to the broker, if one is configured.
    pub(crate) fn broker(&self) -> &Broker {
        self.components.required()
    }
}
