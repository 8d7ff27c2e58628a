//! Server in the role of a dispatcher: the dispatcher of the cluster with this server's settings,
//! page and list of endpoints.

use crate::components::page;
use crate::rights_state as rights;
use crate::routes::{self, health, openapi};
use crate::settings::Settings;
use crate::start_error::StartError;
use headwater_cluster::dispatcher::{Dispatcher, DispatcherConfig};
use headwater_shell::{Bound, Listener};

/// Creates the dispatcher of the settings.
///
/// # Errors
/// When its token, its certificates or its key cannot be read.
pub(crate) fn begin(
    settings: &Settings,
    listener: Listener,
) -> Result<(Bound, Dispatcher), StartError> {
    let own = [page::routes(), health::routes(), openapi::routes()];
    let source = rights::source(settings)?;
    let config = DispatcherConfig {
        rights: source.zip(rights::receiver(settings)),
        dispatch: &settings.dispatch,
        notices: &settings.notices,
        dir: settings.db(),
        forwarded: routes::all().into_iter().map(|r| r.endpoint).collect(),
        own: own.into_iter().flatten().collect(),
    };
    Ok(Dispatcher::begin(config, listener)?)
}
