//! What all requests share, and the table of routes.

use crate::error::ApiError;
use crate::routes;
use crate::settings::Settings;
use axum::Router;
use headwater::Database;
use std::sync::Arc;

/// The state behind every route.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) db: Database,
    pub(crate) settings: Settings,
}

impl App {
    /// Runs a blocking call of the engine away from the runtime's threads.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = Arc::clone(self);
        match tokio::task::spawn_blocking(move || call(&app)).await {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "a request panicked");
                Err(ApiError::new(
                    axum::http::StatusCode::INTERNAL_SERVER_ERROR,
                    "E_INTERNAL",
                    "the request failed inside the server; its log says more",
                ))
            }
        }
    }
}

/// Every route of the server.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .merge(routes::health::router())
        .with_state(app)
}
