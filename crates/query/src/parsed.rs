//! A parsed statement: its text, its weight, and its kind.
//!
//! Invariant: a statement whose parsed form was dropped keeps its text, and is parsed again when it
//! runs.

use crate::complexity::Weight;
use crate::error::{Error, Result};
use crate::placeholders::Written;
use crate::rewrites::names::Labels;
use crate::syntax::{About, AboutWatch};
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast;

/// A parsed statement.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    /// Text of the statement, unchanged.
    pub(crate) text: String,
    pub(crate) weight: Weight,
    pub(crate) kind: StatementKind,
    /// Names of the columns of the answer.
    pub(crate) labels: Labels,
    /// Parameters as the statement writes them.
    pub(crate) written: Written,
}

impl Parsed {
    /// Drops everything but the text of a large statement, which is then parsed again when it runs.
    pub(crate) fn drop_if_large(&mut self) {
        if self.weight.is_much() {
            self.kind = StatementKind::Text;
        }
    }

    /// Whether it must be parsed again.
    pub(crate) fn is_text_only(&self) -> bool {
        matches!(self.kind, StatementKind::Text)
    }

    /// Memory of the cached statement, approximately.
    pub(crate) fn bytes(&self) -> usize {
        match self.kind {
            StatementKind::Text => self.text.len(),
            _ => self.text.len() + self.weight.bytes(),
        }
    }

    /// Whether it may need much of the stack or of memory to be planned.
    pub(crate) fn is_large(&self) -> bool {
        self.weight.large
    }

    /// The text of the statement, unchanged.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The query of the statement.
    pub(crate) fn query(&self) -> Result<Parse> {
        match &self.kind {
            StatementKind::Select(parsed) => Ok(parsed.clone()),
            _ => Err(Error::internal(
                "a statement that is no query was run as one",
            )),
        }
    }
}

/// Kinds of statements.
#[derive(Clone, Debug)]
pub(crate) enum StatementKind {
    /// Only the text, which is parsed again when the statement runs.
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
    /// With the query of `RETURNING`, over the table.
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
    /// Indexes of one table, or of all tables.
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
