//! Rows of a subquery that changes only their columns: read from storage as the outer query needs
//! them, so that they are not buffered.
//!
//! Invariant: the rows equal the answer of the subquery: rows that satisfy its condition and have a
//! value in at least one of its columns that are not tags.

use super::Evaluator;
use super::field::ReadField;
use super::measurements::{ChunkVisitor, HandsOn, Member};
use super::plan::{Node, Plan};
use super::raw;
use super::rows::{let_through, row_index};
use crate::error::Error;
use headwater::{ClosedRange, Column, FieldType, ScanChunk};
use std::rc::Rc;

/// A stored series with the columns of a subquery.
#[derive(Debug)]
pub(super) struct PassedRows {
    pub(super) stored: Box<Member>,
    pub(super) plan: Rc<Plan>,
    pub(super) range: ClosedRange,
}

/// The type of a column of such a subquery; `None` if it depends on values.
pub(super) fn type_of(plan: &Plan, node: &Node) -> Option<FieldType> {
    use super::arithmetic::type_of_operation;
    match node {
        Node::Field(place) => plan.read.get(*place).map(ReadField::field_type),
        Node::Tag(_) => Some(FieldType::String),
        Node::Value(value) => Some(value.as_ref().field_type()),
        Node::Operation(operator, left, right) => {
            type_of_operation(*operator, type_of(plan, left), type_of(plan, right))
        }
        Node::Math(_, inner) => type_of(plan, inner).filter(|t| *t == FieldType::F64),
        Node::Pair(..) => Some(FieldType::F64),
        Node::Absent | Node::Call(_) => None,
    }
}

impl PassedRows {
    /// The requested columns of existing rows.
    fn columns(
        &self,
        read: &[ReadField],
        (chunk, rows): (&ScanChunk, &[u32]),
        tag: &dyn Fn(&str, usize) -> Column,
    ) -> ScanChunk {
        let column = |field: &ReadField| {
            if field.is_tag {
                return tag(&field.name, rows.len());
            }
            let at = self.plan.names.iter().position(|name| *name == field.name);
            let computed = match at.and_then(|at| self.plan.nodes.get(at)) {
                Some(Node::Field(place)) => chunk.columns.get(*place).map(|c| c.gather(rows)),
                Some(node) => Some(self.computed(node, field.stored, chunk, rows)),
                None => None,
            };
            match computed {
                Some(column) => field.read(&column),
                None => Column::absent(field.field_type(), rows.len()),
            }
        };
        let times = rows
            .iter()
            .filter_map(|row| chunk.times.get(row_index(*row)));
        ScanChunk {
            columns: read.iter().map(column).collect(),
            times: times.copied().collect(),
        }
    }

    fn computed(
        &self,
        node: &Node,
        field_type: FieldType,
        chunk: &ScanChunk,
        rows: &[u32],
    ) -> Column {
        let mut out = Column::with_capacity(field_type, rows.len());
        for row in rows {
            let of = |column: usize| chunk.columns.get(column)?.get(row_index(*row));
            let value = raw::value(node, &self.stored, &of);
            if !value.is_some_and(|value| out.push(value.as_ref())) {
                out.push_absent(1);
            }
        }
        out
    }

    /// Whether a row of the subquery exists.
    fn is_row(&self, chunk: &ScanChunk, row: u32) -> bool {
        let of = |column: usize| chunk.columns.get(column)?.get(row_index(row));
        self.plan.nodes.iter().any(|node| match node {
            Node::Field(place) => of(*place).is_some(),
            Node::Tag(_) | Node::Value(_) | Node::Absent => false,
            node => raw::value(node, &self.stored, &of).is_some(),
        })
    }
}

impl HandsOn for PassedRows {
    fn each_chunk(
        &self,
        asker: &Evaluator<'_>,
        member: &Member,
        (read, range): (&[ReadField], ClosedRange),
        each: &mut ChunkVisitor<'_>,
    ) -> Result<(), Error> {
        let range = range.intersect(&self.range);
        let tag = |key: &str, rows: usize| member.tag_column(key, rows);
        let (mut there, mut chosen) = (Vec::new(), Vec::new());
        let inner = &self.plan.read;
        asker.each_chunk(&self.stored, inner, range, &[], &mut |chunk, rows| {
            there.clear();
            there.extend(rows.iter().copied().filter(|row| self.is_row(chunk, *row)));
            let chunk = self.columns(read, (chunk, &there), &tag);
            let_through(member, &chunk, &mut chosen);
            match chosen.is_empty() {
                true => Ok(true),
                false => each(&chunk, &chosen),
            }
        })
    }
}
