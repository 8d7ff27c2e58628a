//! The bucket in which a cloud keeps its copies: the lease of its group, and the keeper that
//! commits.

use crate::app::App;
use crate::component::Component;
use crate::components::Opening;
use crate::settings::Settings;
use crate::start_error::StartError;
use headwater_bucket::Contents;
use headwater_cluster::bucket::{Bucket, BucketMetrics, Keeper};
use headwater_io::Env;
use headwater_shell::Work;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use tokio::sync::watch;

/// The bucket of a cloud, with its lease.
#[derive(Debug)]
pub(crate) struct BucketOfCopies {
    bucket: Arc<Bucket>,
    /// `None` after the component has begun.
    keeper: Mutex<Option<Keeper>>,
    metrics: Arc<BucketMetrics>,
}

/// A bucket whose copies are in the folder of the node.
pub(super) struct Restored(Arc<Bucket>, Contents);

/// Waits for the lease of the group, where the settings name a bucket.
pub(super) async fn acquire_lease(
    settings: &Settings,
    env: &Env,
) -> Result<Option<Arc<Bucket>>, StartError> {
    let bucket = Bucket::open(&settings.cloud, settings.http_addr.to_string(), env)?;
    if let Some(bucket) = &bucket {
        bucket.take().await?;
    }
    Ok(bucket)
}

/// Fetches the copies that are missing in the folder.
pub(super) async fn restore(
    bucket: Option<Arc<Bucket>>,
    settings: &Settings,
) -> Result<Option<Restored>, StartError> {
    let Some(bucket) = bucket else {
        return Ok(None);
    };
    let (of, dir) = (Arc::clone(&bucket), settings.db().to_owned());
    let restored = tokio::task::spawn_blocking(move || of.restore(&dir)).await;
    let contents = restored.map_err(std::io::Error::other)??;
    Ok(Some(Restored(bucket, contents)))
}

impl BucketOfCopies {
    pub(super) fn open(Restored(bucket, contents): Restored, opening: &Opening<'_>) -> Self {
        let fleet = opening.fleet.as_ref();
        let keeper = fleet.map(|fleet| {
            Keeper::new(
                &bucket,
                fleet,
                &opening.settings.cloud,
                opening.settings.db(),
                contents,
            )
        });
        BucketOfCopies {
            bucket,
            keeper: Mutex::new(keeper),
            metrics: Arc::default(),
        }
    }
}

impl Component<App> for BucketOfCopies {
    fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Arc::clone(&self.metrics)));
    }

    fn begin(&self, app: &Arc<App>, work: &mut Work) {
        if let Some(keeper) = self.keeper.lock().take() {
            work.workers
                .push(Box::pin(keeper.run(app.shell.stopping())));
        }
    }

    fn collect(&self) {
        self.metrics.observe(&self.bucket);
    }

    fn stop_reason(&self) -> Option<watch::Receiver<Option<String>>> {
        Some(self.bucket.ended())
    }
}
