//! Relations of the database itself: tables, views and indexes, each with a number.
//!
//! Invariants: a view that a table hides is not listed; OIDs of tables and views are computed from
//! their names, OIDs of indexes from their names as indexes, so that an index may have the name of
//! a table; OIDs are unique. Failure: an error of the listing is returned unchanged.

use super::listing::{Listing, ShownIndex, ShownTable, ShownView};
use super::names::{oids, quote_ident};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use std::collections::BTreeMap;

/// Prefix of an index name before its OID is computed; SQL names do not contain it.
const INDEX: char = '\u{1}';

/// An entry of `pg_class`.
#[derive(Debug, Clone)]
pub(super) enum Relation {
    Table(ShownTable),
    View(ShownView),
    /// An index, with the indexed columns and their types.
    Index(ShownIndex, Vec<(String, DataType)>),
}

impl Relation {
    pub(super) fn name(&self) -> &str {
        match self {
            Relation::Table(table) => &table.name,
            Relation::View(view) => &view.name,
            Relation::Index(index, _) => &index.name,
        }
    }

    /// PostgreSQL's letter of its kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Relation::Table(_) => "r",
            Relation::View(_) => "v",
            Relation::Index(..) => "i",
        }
    }

    /// Columns: name, type, and whether every row has a value.
    pub(super) fn columns(&self) -> Vec<(&str, &DataType, bool)> {
        match self {
            Relation::Table(table) => {
                let columns = table.columns.iter();
                columns
                    .map(|(name, of, what)| (name.as_str(), of, *what == "time"))
                    .collect()
            }
            Relation::View(ShownView { columns, .. }) | Relation::Index(_, columns) => columns
                .iter()
                .map(|(name, of)| (name.as_str(), of, false))
                .collect(),
        }
    }

    /// Key from which the OID is computed.
    fn key(&self) -> String {
        match self {
            Relation::Index(index, _) => format!("{INDEX}{}", index.name),
            other => other.name().to_owned(),
        }
    }
}

/// All relations of the database that the session sees.
#[derive(Debug)]
pub(super) struct Relations(BTreeMap<u32, Relation>);

impl Relations {
    pub(super) fn of(listing: &dyn Listing) -> Result<Relations> {
        let tables = listing.tables()?;
        let views = listing.views()?.into_iter();
        let views = views.filter(|view| tables.iter().all(|table| table.name != view.name));
        let indexes: Vec<Relation> = listing
            .indexes()?
            .into_iter()
            .map(|index| {
                let of = tables.iter().find(|table| table.name == index.table);
                let columns = index.fields.iter().filter_map(|field| {
                    let (name, of, _) = of?.columns.iter().find(|(name, ..)| name == field)?;
                    Some((name.clone(), of.clone()))
                });
                let columns = columns.collect();
                Relation::Index(index, columns)
            })
            .collect();
        let views: Vec<Relation> = views.map(Relation::View).collect();
        let all = tables.into_iter().map(Relation::Table);
        let mut all: BTreeMap<String, Relation> = all
            .chain(views)
            .chain(indexes)
            .map(|relation| (relation.key(), relation))
            .collect();
        let keys: Vec<String> = all.keys().cloned().collect();
        let numbers = oids(keys.iter().map(String::as_str));
        let numbered = numbers
            .into_iter()
            .filter_map(|(oid, key)| Some((oid, all.remove(key)?)));
        Ok(Relations(numbered.collect()))
    }

    /// Relations with their OIDs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Relation)> {
        self.0.iter().map(|(oid, relation)| (*oid, relation))
    }

    pub(super) fn get(&self, oid: i64) -> Option<&Relation> {
        self.0.get(&u32::try_from(oid).ok()?)
    }

    /// OID of the table or view with this name, otherwise of the index.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let mut index = None;
        for (oid, relation) in self.iter().filter(|(_, other)| other.name() == name) {
            if relation.kind() != "i" {
                return Some(oid);
            }
            index = index.or(Some(oid));
        }
        index
    }

    /// The indexes: OID, index, OID of its table, and positions of its columns in the table, from
    /// 1.
    pub(super) fn indexes(&self) -> impl Iterator<Item = (u32, &ShownIndex, u32, Vec<i64>)> {
        self.iter().filter_map(|(oid, relation)| {
            let Relation::Index(index, _) = relation else {
                return None;
            };
            let table = self.number(&index.table)?;
            let columns = self.0.get(&table)?.columns();
            let place = |field: &String| {
                let at = columns.iter().position(|(name, ..)| name == field)?;
                i64::try_from(at + 1).ok()
            };
            let places = index.fields.iter().filter_map(place).collect();
            Some((oid, index, table, places))
        })
    }

    /// True when a table has an index.
    pub(super) fn has_index(&self, table: &str) -> bool {
        self.0
            .values()
            .any(|relation| matches!(relation, Relation::Index(index, _) if index.table == table))
    }
}

/// The statement that creates an index, as in `pg_get_indexdef`.
pub(super) fn index_definition(index: &ShownIndex) -> String {
    let fields: Vec<String> = index.fields.iter().map(|f| quote_ident(f)).collect();
    format!(
        "CREATE INDEX {} ON public.{} USING btree ({})",
        quote_ident(&index.name),
        quote_ident(&index.table),
        fields.join(", ")
    )
}
