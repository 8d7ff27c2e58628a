//! Catalog listing of a session.

use crate::catalog::{Listing, ShownIndex, ShownTable, ShownView, Variables, functions, schemas};
use datafusion::catalog::SchemaProvider;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::ScalarUDF;
use headwater_query::{Access, ColumnKind, Extension, Query, Zone};
use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;

/// Tables that a session sees, and its own properties.
pub(super) struct SessionListing {
    pub(super) query: Query,
    pub(super) access: Arc<dyn Access>,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) variables: RwLock<Variables>,
}

impl fmt::Debug for SessionListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Listing for SessionListing {
    fn tables(&self) -> Result<Vec<ShownTable>> {
        let tables = self.query.tables(&self.access).map_err(external)?;
        let shown = tables.into_iter().map(|table| {
            let columns = table.columns.into_iter().map(|column| {
                let what = match column.kind {
                    ColumnKind::Time => "time",
                    ColumnKind::Tag => "tag",
                    ColumnKind::Field => "field",
                };
                (column.name, column.data_type, what)
            });
            ShownTable {
                columns: columns.collect(),
                name: table.name,
            }
        });
        Ok(shown.collect())
    }

    fn views(&self) -> Result<Vec<ShownView>> {
        // A view may read the catalog, whose tables have the same columns for every listing.
        let nothing: Arc<dyn Listing> = Arc::new(Unlisted {
            variables: self.variables(),
            user: self.user(),
            database: self.database(),
        });
        let names = Arc::new(Names::new(nothing));
        let session = self.query.session_with(Arc::clone(&self.access), names);
        let views = session.views().map_err(external)?;
        let shown = views.into_iter().map(|view| ShownView {
            name: view.name,
            columns: view.columns,
            definition: view.definition,
        });
        Ok(shown.collect())
    }

    fn indexes(&self) -> Result<Vec<ShownIndex>> {
        let session = self.query.session(Arc::clone(&self.access));
        let indexes = session.indexes().map_err(external)?;
        let shown = indexes.into_iter().map(|index| ShownIndex {
            name: index.name,
            table: index.table,
            fields: index.fields,
            complete: index.complete,
        });
        Ok(shown.collect())
    }

    fn variables(&self) -> Variables {
        self.variables.read().clone()
    }

    fn user(&self) -> String {
        self.user.clone()
    }

    fn database(&self) -> String {
        self.database.clone()
    }
}

fn external(error: headwater_query::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// A session without visible tables: tables of the catalog have the same columns for it.
#[derive(Debug)]
struct Unlisted {
    variables: Variables,
    user: String,
    database: String,
}

impl Listing for Unlisted {
    fn tables(&self) -> Result<Vec<ShownTable>> {
        Ok(Vec::new())
    }

    fn variables(&self) -> Variables {
        self.variables.clone()
    }

    fn user(&self) -> String {
        self.user.clone()
    }

    fn database(&self) -> String {
        self.database.clone()
    }
}

/// The names that PostgreSQL's clients expect, for the planner.
pub(super) struct Names {
    listing: Arc<dyn Listing>,
    functions: Vec<Arc<ScalarUDF>>,
}

impl Names {
    pub(super) fn new(listing: Arc<dyn Listing>) -> Names {
        Names {
            functions: functions(&listing),
            listing,
        }
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl Extension for Names {
    /// Statements are already rewritten, see [`crate::rewrite`].
    fn rewrite(
        &self,
        _: &mut datafusion::sql::sqlparser::ast::Statement,
    ) -> headwater_query::Result<()> {
        Ok(())
    }

    fn schemas(&self) -> Vec<(String, Arc<dyn SchemaProvider>)> {
        schemas(&self.listing)
    }

    fn functions(&self) -> Vec<Arc<ScalarUDF>> {
        self.functions.clone()
    }

    /// All sessions share plans: values of one session are already texts in its statements, and its
    /// functions are not immutable.
    fn shared(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn zone(&self) -> Option<Zone> {
        Some(self.listing.variables().zone().clone())
    }

    fn uses_pyramid(&self) -> Option<bool> {
        Some(self.listing.variables().uses_pyramid())
    }

    fn allows_partial(&self) -> bool {
        self.listing.variables().allows_partial()
    }
}
