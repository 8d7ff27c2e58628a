//! A statement that was read: its text, its weight, and what kind it is.
//!
//! Invariant: a statement that forgot what it is keeps its text, and is read again when it is run.

use crate::error::{Error, Result};
use crate::gate::Weight;
use crate::placeholders::Written;
use crate::syntax::{About, AboutWatch};
use crate::wording::names::Labels;
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast;

/// A statement that was read.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    /// As it was written.
    pub(crate) text: String,
    pub(crate) weight: Weight,
    pub(crate) kind: Kind,
    /// What the columns of its answer are called.
    pub(crate) labels: Labels,
    /// What is written of its parameters.
    pub(crate) written: Written,
}

impl Parsed {
    /// Lets go of everything but the text, where there is much of it: it is read again when it is
    /// run.
    pub(crate) fn forget(&mut self) {
        if self.weight.is_much() {
            self.kind = Kind::Text;
        }
    }

    /// Whether it is to be read again.
    pub(crate) fn is_forgotten(&self) -> bool {
        matches!(self.kind, Kind::Text)
    }

    /// Bytes that it takes while it is kept, about.
    pub(crate) fn bytes(&self) -> usize {
        match self.kind {
            Kind::Text => self.text.len(),
            _ => self.text.len() + self.weight.bytes(),
        }
    }

    /// Whether it may need much of the stack or of memory to be planned.
    pub(crate) fn is_large(&self) -> bool {
        self.weight.large
    }

    /// The statement as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The query that it is.
    pub(crate) fn query(&self) -> Result<Parse> {
        match &self.kind {
            Kind::Select(parsed) => Ok(parsed.clone()),
            _ => Err(Error::internal(
                "a statement that is no query was run as one",
            )),
        }
    }
}

/// What kind of statement it is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// What stands in the text.
    Text,
    /// `SELECT`, `VALUES`, `WITH`.
    Select(Parse),
    Explain(Parse),
    Describe(ast::ObjectName),
    ShowTables(Option<ast::ShowStatementFilterPosition>),
    ShowColumns(Parse),
    ShowSetting(String),
    Set(String, String),
    Reset(String),
    /// With what is asked of the rows by `RETURNING`, as a query of the table.
    Insert(Box<ast::Insert>, Option<Box<Parsed>>),
    Delete(Box<ast::Delete>),
    Create(Box<ast::CreateTable>),
    Alter(Box<ast::AlterTable>),
    CreateView(Box<ast::CreateView>),
    DropView {
        names: Vec<ast::ObjectName>,
        if_exists: bool,
    },
    ShowViews,
    CreateIndex(Box<ast::CreateIndex>),
    DropIndex {
        names: Vec<ast::ObjectName>,
        if_exists: bool,
    },
    /// Of one table, or of all.
    ShowIndexes(Option<String>),
    /// About named snapshots.
    Snapshots(About),
    /// About watches.
    Watches(AboutWatch),
    Drop {
        names: Vec<ast::ObjectName>,
        if_exists: bool,
    },
}
