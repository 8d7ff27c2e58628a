//! The catalog of a lake: its tables, by the names for other engines, and the location of the
//! newest metadata of each.
//!
//! ```text
//! LAKE/TABLE                  the tables of the database itself, the namespace `headwater`
//! LAKE/_edges/EDGE/TABLE      a cloud's copy of an edge, the namespace `edge_EDGE`
//! ```
//!
//! Invariants: a listed table has committed metadata. The catalog is read-only. Access to a table
//! is decided by the caller: each table is listed with its name in its database. Concurrency: reads
//! concurrently with writes of the lake; a table is as of one commit. Failure: a folder that is not
//! a table of ours is ignored; a folder that cannot be read is reported beside the tables.

use crate::error::{LakeError, Result};
use crate::location::LakeLocation;
use crate::names::{EDGES, folder_of, metadata_file};
use crate::rollup::SUFFIX;
use crate::table::Table;
use std::path::{Path, PathBuf};

/// The namespace of the database's own tables.
pub const OWN_NAMESPACE: &str = "headwater";
/// Prefix of the names of their namespaces.
const EDGE_NAMESPACE: &str = "edge_";

/// Where in a lake the tables of an edge are, which a cloud writes of its copy.
#[must_use]
pub fn folder_of_edge(lake: &Path, edge: &str) -> PathBuf {
    lake.join(EDGES).join(folder_of(edge))
}

/// A table of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogTable {
    /// Name of the table in the catalog: its folder, which is its name for plain names.
    pub name: String,
    /// Name in its database of the table, or of the table with this rollup.
    pub table: String,
}

/// The tables of a namespace.
#[derive(Debug, Default)]
pub struct CatalogTables {
    /// Tables by name.
    pub tables: Vec<CatalogTable>,
    /// Folders of tables that cannot be read, and why.
    pub unreadable: Vec<(String, LakeError)>,
}

/// The newest metadata of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Name of the table in its database.
    pub table: String,
    /// Where they are.
    pub path: PathBuf,
    /// Iceberg's JSON.
    pub metadata: serde_json::Value,
}

/// The tables of a lake, by their names.
#[derive(Clone, Debug)]
pub struct Catalog {
    lake: LakeLocation,
}

impl Catalog {
    /// The catalog of a lake, which may not exist yet.
    #[must_use]
    pub fn new(lake: impl Into<LakeLocation>) -> Catalog {
        Catalog { lake: lake.into() }
    }

    /// All namespaces, the own one first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn namespaces(&self) -> Result<Vec<String>> {
        let edges = self.lake.folders(&self.lake.root().join(EDGES))?;
        let own = std::iter::once(OWN_NAMESPACE.to_owned());
        let edges = edges
            .into_iter()
            .map(|edge| format!("{EDGE_NAMESPACE}{edge}"));
        Ok(own.chain(edges).collect())
    }

    /// Tables of a namespace by name; `None` = the namespace does not exist.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn tables(&self, namespace: &str) -> Result<Option<CatalogTables>> {
        let Some((lake, folder)) = self.folder(namespace)? else {
            return Ok(None);
        };
        let mut told = CatalogTables::default();
        for name in lake.folders(&folder)? {
            match find(&lake, &folder, &name) {
                Ok(Some((_, table))) => told.tables.push(CatalogTable { name, table }),
                Ok(None) => {}
                Err(error) => told.unreadable.push((name, error)),
            }
        }
        Ok(Some(told))
    }

    /// Newest metadata of a table; `None` = the table does not exist.
    ///
    /// # Errors
    /// When the table cannot be read, or was made in another folder.
    pub fn load(&self, namespace: &str, name: &str) -> Result<Option<Loaded>> {
        let Some((lake, folder)) = self.folder(namespace)? else {
            return Ok(None);
        };
        let Some((found, table)) = find(&lake, &folder, name)? else {
            return Ok(None);
        };
        let path = metadata_file(&found.dir, found.version);
        let metadata = serde_json::to_value(&found.metadata);
        Ok(Some(Loaded {
            table,
            metadata: metadata.map_err(|e| LakeError::internal(e.to_string()))?,
            path,
        }))
    }

    /// Where the tables of a namespace are.
    fn folder(&self, namespace: &str) -> Result<Option<(LakeLocation, PathBuf)>> {
        let lake = self.lake.existing_or_new()?;
        let root = lake.root().to_owned();
        if namespace == OWN_NAMESPACE {
            return Ok(Some((lake, root)));
        }
        let Some(edge) = namespace.strip_prefix(EDGE_NAMESPACE) else {
            return Ok(None);
        };
        let edges = root.join(EDGES);
        // A name is one of the folder, never a path.
        let is_there = lake.folders(&edges)?.iter().any(|found| found == edge);
        Ok(is_there.then(|| (lake, edges.join(edge))))
    }
}

/// The table of a name in a folder, and its name in its database.
fn find(lake: &LakeLocation, folder: &Path, name: &str) -> Result<Option<(Table, String)>> {
    // Table names of the catalog are names that we give to folders: neither paths nor hidden.
    if name == EDGES || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
        return Ok(None);
    }
    let dir = folder.join(name);
    if name.is_empty() {
        return Ok(None);
    }
    let Some(found) = Table::find(lake, &dir)? else {
        return Ok(None);
    };
    let table = found.metadata.table().map(str::to_owned);
    let suffix = if found.metadata.is_rollup() {
        SUFFIX
    } else {
        ""
    };
    Ok(table
        .filter(|table| format!("{}{suffix}", folder_of(table)) == name)
        .map(|table| (found, table)))
}
