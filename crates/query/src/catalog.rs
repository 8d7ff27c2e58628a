//! The tables of a statement's view as a catalog of the SQL planner: catalog `headwater`, schema
//! `public`.

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

/// The schema `public` of a statement.
#[derive(Debug)]
struct Public {
    view: Arc<View>,
}

#[async_trait]
impl SchemaProvider for Public {
    fn table_names(&self) -> Vec<String> {
        self.view.table_names().unwrap_or_else(|error| {
            // The planner has no way to take an error here; a read of the tables will tell it
            // again.
            tracing::error!(%error, "the tables cannot be listed");
            Vec::new()
        })
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let table = self.view.table(name)?;
        Ok(table.map(|t| Arc::new(Table::new(t)) as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        matches!(self.view.table(name), Ok(Some(_)))
    }
}

/// All that a statement can name.
#[derive(Debug)]
pub(crate) struct Catalog {
    schemas: BTreeMap<String, Arc<dyn SchemaProvider>>,
}

impl Catalog {
    pub(crate) fn new(
        view: Arc<View>,
        more: impl IntoIterator<Item = (String, Arc<dyn SchemaProvider>)>,
    ) -> Catalog {
        let mut schemas: BTreeMap<String, Arc<dyn SchemaProvider>> = more.into_iter().collect();
        schemas.insert(SCHEMA.to_owned(), Arc::new(Public { view }));
        Catalog { schemas }
    }
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        self.schemas.keys().cloned().collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        self.schemas.get(name).cloned()
    }
}

/// The one catalog.
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
