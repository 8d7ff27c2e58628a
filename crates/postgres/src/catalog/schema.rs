//! The schemas `pg_catalog` and `information_schema` as the planner sees them.

use super::columns::{CATALOG, Definition, INFORMATION};
use super::listing::Listing;
use super::rows::Rows;
use super::{information_schema, pg_catalog};
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use std::sync::Arc;

/// The schemas of a session, by name.
#[must_use]
pub fn schemas(listing: &Arc<dyn Listing>) -> Vec<(String, Arc<dyn SchemaProvider>)> {
    let schema = |name: &'static str, tables| {
        let provider = Provider {
            name,
            tables,
            listing: Arc::clone(listing),
        };
        (
            name.to_owned(),
            Arc::new(provider) as Arc<dyn SchemaProvider>,
        )
    };
    vec![
        schema("pg_catalog", CATALOG),
        schema("information_schema", INFORMATION),
    ]
}

#[derive(Debug)]
struct Provider {
    name: &'static str,
    tables: &'static [Definition],
    listing: Arc<dyn Listing>,
}

#[async_trait]
impl SchemaProvider for Provider {
    fn table_names(&self) -> Vec<String> {
        self.tables.iter().map(|t| t.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(definition) = self.tables.iter().find(|table| table.name == name) else {
            return Ok(None);
        };
        let mut rows = Rows::new(definition);
        match self.name {
            "pg_catalog" => pg_catalog::fill(&mut rows, name, self.listing.as_ref())?,
            _ => information_schema::fill(&mut rows, name, self.listing.as_ref())?,
        }
        let (schema, batch) = rows.finish()?;
        let table = MemTable::try_new(schema, vec![vec![batch]])?;
        Ok(Some(Arc::new(table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name == name)
    }
}
