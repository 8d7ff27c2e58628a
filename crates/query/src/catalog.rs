//! The tables of a statement's view as a catalog of the SQL planner: catalog `headwater`, schema
//! `public`; and a schema for each prefix before a dot in the names of tables, so that the table
//! `yard.cpu` needs no quotes.

use crate::table::Table;
use crate::view::View;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::Result;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The catalog's name.
pub const CATALOG: &str = "headwater";
/// The schema that holds the tables.
pub const SCHEMA: &str = "public";

fn provider(view: &View, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let table = view.table(name)?;
    Ok(table.map(|t| Arc::new(Table::new(t)) as Arc<dyn TableProvider>))
}

/// The schema `public` of a statement.
#[derive(Debug)]
struct Public {
    view: Arc<View>,
}

#[async_trait]
impl SchemaProvider for Public {
    fn table_names(&self) -> Vec<String> {
        self.view.table_names().unwrap_or_else(|error| {
            // The planner does not accept an error here; a read of the tables reports it again.
            tracing::error!(%error, "the tables cannot be listed");
            Vec::new()
        })
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        provider(&self.view, name)
    }

    fn table_exist(&self, name: &str) -> bool {
        matches!(self.view.table(name), Ok(Some(_)))
    }
}

/// The tables whose names begin with this prefix and a dot.
#[derive(Debug)]
struct Dotted {
    view: Arc<View>,
    before: String,
}

impl Dotted {
    fn whole(&self, name: &str) -> String {
        format!("{}.{name}", self.before)
    }
}

#[async_trait]
impl SchemaProvider for Dotted {
    fn table_names(&self) -> Vec<String> {
        // The schema `public` lists all tables.
        Vec::new()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        provider(&self.view, &self.whole(name))
    }

    fn table_exist(&self, name: &str) -> bool {
        matches!(self.view.table(&self.whole(name)), Ok(Some(_)))
    }
}

/// All objects that a statement can name.
#[derive(Debug)]
pub(crate) struct Catalog {
    view: Arc<View>,
    schemas: BTreeMap<String, Arc<dyn SchemaProvider>>,
}

impl Catalog {
    pub(crate) fn new(
        view: Arc<View>,
        more: impl IntoIterator<Item = (String, Arc<dyn SchemaProvider>)>,
    ) -> Catalog {
        let mut schemas: BTreeMap<String, Arc<dyn SchemaProvider>> = more.into_iter().collect();
        schemas.insert(
            SCHEMA.to_owned(),
            Arc::new(Public {
                view: Arc::clone(&view),
            }),
        );
        Catalog { view, schemas }
    }
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        self.schemas.keys().cloned().collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let known = self.schemas.get(name).cloned();
        known.or_else(|| {
            Some(Arc::new(Dotted {
                view: Arc::clone(&self.view),
                before: name.to_owned(),
            }))
        })
    }
}

/// A list of the one catalog.
#[derive(Debug)]
pub(crate) struct Catalogs(pub(crate) Arc<Catalog>);

impl CatalogProviderList for Catalogs {
    fn register_catalog(
        &self,
        _: String,
        _: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::clone(&self.0) as Arc<dyn CatalogProvider>)
    }
}
