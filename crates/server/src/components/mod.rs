//! List of the components of a node, with the routes of those that are optional. Only this module
//! connects optional features to the server; `built` has them as constants.
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
#[cfg(feature = "page")]
pub(crate) mod page;
#[cfg(feature = "sql")]
mod postgres;
#[cfg(feature = "sql")]
pub(crate) mod sql;
#[cfg(feature = "sql")]
pub(crate) mod watches;

#[cfg(not(feature = "page"))]
pub(crate) use crate::page_placeholder as page;

use crate::app::App;
use crate::columnar::ColumnarFormat;
use crate::component::{Component, Components};
use crate::error::ApiError;
use crate::settings::Settings;
use crate::start_error::StartError;
use axum::http::StatusCode;
use futures_util::future::BoxFuture;
use headwater::{Database, Reader};
use headwater_cluster::{EdgeCopies, Peers, Relays, RightsReceiver, Uplink};
use headwater_io::Env;
use headwater_shell::{Needs, Work};
use std::sync::Arc;

type Route = headwater_shell::Route<Arc<App>>;

/// Inputs of components when they open.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) env: &'a Env,
    pub(crate) db: Database,
    /// Set where the database is only read.
    #[cfg_attr(not(feature = "sql"), allow(dead_code, reason = "only SQL needs it"))]
    pub(crate) reader: Option<Reader>,
    /// Receiver of the list of rights of another node.
    pub(crate) receiver: Option<RightsReceiver>,
    /// Edges of a cloud and their copies, after they are opened.
    pub(crate) fleet: Option<Arc<EdgeCopies>>,
    /// Connections that pass edges on to another cloud.
    pub(crate) relays: Option<Arc<Relays>>,
    /// The peer of a cloud.
    pub(crate) peers: Option<Arc<Peers>>,
    /// The connection of an edge to its cloud.
    pub(crate) uplink: Option<Arc<Uplink>>,
}

/// Lease and ports that a node takes before it opens its database, so that a refusal precedes a
/// recovery, which may take long.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    #[cfg(feature = "bucket")]
    bucket: Option<Arc<headwater_cluster::bucket::Bucket>>,
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
    pub(crate) async fn reserve(settings: &Settings, env: &Env) -> Result<Reserved, StartError> {
        #[allow(unused_mut, reason = "changed by optional features")]
        let mut reserved = Reserved::default();
        #[cfg(feature = "bucket")]
        {
            reserved.bucket = bucket::acquire_lease(settings, env).await?;
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
    all.add(Task("live values for the bus", |app| {
        app.notices.values.publishes().then_some(())?;
        Some(Box::pin(crate::bus_values::run(app)))
    }));
    all.add(Task("access lists of the bus", |app| {
        app.settings.notices.applies_lists.then_some(())?;
        Some(Box::pin(crate::bus_lists::run(app)))
    }));
    all.add(Task("list of rights on the bus", |app| {
        app.settings.notices.rights.then_some(())?;
        Some(Box::pin(crate::bus_rights::run(app)))
    }));
    all.add(Task("live values of copies", |app| {
        app.fleet.as_ref()?;
        Some(Box::pin(crate::live_copies::run(app)))
    }));
    all.add(Task("room on the disk", |app| {
        app.settings.sync.loses_raw.then_some(())?;
        app.uplink.as_ref()?;
        Some(Box::pin(crate::room::run(app)))
    }));
    all.add(Task("conflicts", |app| {
        app.fleet.as_ref()?;
        Some(Box::pin(crate::conflict_report::run(app)))
    }));
    all.add(Task("propagation", |app| {
        Some(Box::pin(crate::propagation::run(app)))
    }));
    all.add(Task("list of rights", |app| {
        Some(Box::pin(async move {
            let (guard, stopping) = (app.shell.guard(), app.shell.stopping());
            app.rights.follow(guard, stopping).await;
        }))
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

/// Columnar formats of exports.
pub(crate) fn columnar_formats() -> &'static [ColumnarFormat] {
    #[cfg(feature = "sql")]
    return &sql::FORMATS;
    #[cfg(not(feature = "sql"))]
    return &[];
}

/// Routes of a feature. A program without the feature has them too, and answers that it was built
/// without.
macro_rules! routes_of {
    ($feature:literal, $without:literal, $($method:ident $path:literal $needs:ident $handler:path;)+) => {
        vec![$({
            #[cfg(feature = $feature)]
            let route = Route::$method($path, Needs::$needs, $handler);
            #[cfg(not(feature = $feature))]
            let route = Route::$method($path, Needs::$needs, async || not_built($without));
            route
        }),+]
    };
}

/// Routes of optional components.
pub(crate) fn optional_routes() -> Vec<Route> {
    let sql = routes_of!("sql", "SQL (the feature `sql`); /api/v1/scan, /api/v1/aggregate and /api/v1/last answer queries",
        // Open to a token of any kind: access depends on the statement.
        post "/api/v1/sql" Token sql::route::sql;
    );
    let watches = routes_of!("sql", "SQL (the feature `sql`), and so without watches",
        get "/api/v1/watches" Read watches::route::list;
        get "/api/v1/watches/{name}/events" Read watches::route::events;
        get "/api/v1/watches/{name}/dead" Read watches::route::dead;
        post "/api/v1/watches/{name}/retry" Manage watches::route::retry;
    );
    let iceberg = routes_of!("sql", "SQL (the feature `sql`), and so without lakes",
        get "/iceberg/v1/config" Read lake::iceberg::config;
        get "/iceberg/v1/namespaces" Read lake::iceberg::namespaces;
        get "/iceberg/v1/namespaces/{namespace}" Read lake::iceberg::namespace;
        get "/iceberg/v1/namespaces/{namespace}/tables" Read lake::iceberg::tables;
        get "/iceberg/v1/namespaces/{namespace}/tables/{table}" Read lake::iceberg::table;
        post "/iceberg/v1/namespaces/{namespace}/tables/{table}/metrics" Read lake::iceberg::metrics;
        get "/iceberg/v1/namespaces/{namespace}/views" Read lake::iceberg::views;
        get "/iceberg/v1/namespaces/{namespace}/views/{view}" Read lake::iceberg::view;
    );
    let sql: Vec<Route> = sql.into_iter().map(Route::with_rows).collect();
    [sql, watches, iceberg].into_iter().flatten().collect()
}

/// Answer to a request for a feature that this program does not have.
#[cfg_attr(feature = "sql", allow(dead_code, reason = "every feature is there"))]
fn not_built(without: &str) -> ApiError {
    let message = format!("this program was built without {without}");
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "E_NOT_BUILT", message)
}
