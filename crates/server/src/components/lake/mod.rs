//! Keeps the lake up to date with the databases.
//!
//! `turns` writes, `metrics` counts.

pub(super) mod iceberg;
mod metrics;
mod turns;

use crate::app::App;
use crate::component::Component;
use crate::settings::Settings;
use crate::start_error::StartError;
use headwater_shell::Work;
use metrics::LakeMetrics;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// The lake of a node, if the settings name one.
#[derive(Debug)]
pub(crate) struct LakeWriter {
    pub(crate) stats: LakeMetrics,
    /// Location of the lake; `None` = no lake.
    pub(crate) location: Option<headwater_lake::LakeLocation>,
}

impl LakeWriter {
    pub(super) fn open(settings: &Settings) -> Result<LakeWriter, StartError> {
        Ok(LakeWriter {
            stats: LakeMetrics::default(),
            location: turns::lake_location(settings)?,
        })
    }
}

impl Component<App> for LakeWriter {
    fn register(&self, registry: &mut Registry) {
        self.stats.register(registry);
    }

    fn begin(&self, app: &Arc<App>, work: &mut Work) {
        if let (Some(_), Some(every)) = (&self.location, app.settings.lake.every) {
            let run = turns::run(Arc::clone(app), every);
            work.workers.push(Box::pin(run));
        }
    }
}

impl App {
    /// The lake.
    pub(crate) fn lake(&self) -> &LakeWriter {
        self.components.required()
    }
}
