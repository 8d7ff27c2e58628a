//! Planning of the clause: its expressions over rows, symbols and matches.
//!
//! Failure: unsupported parts are refused by name.

use super::node::{Answers, Computed, Pattern, PatternSpec, Skip, Slot};
use super::program::Program;
use super::regex::{self, Pattern as Written};
use super::slots::{self, Names, Of, Slots, Tally};
use crate::columns::time_type;
use crate::error::{Error, Result as OwnResult};
use crate::rewrites::folded;
use crate::rewrites::lengths;
use crate::syntax::{APART, SOURCE};
use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, ExprSchema, Result, TableReference};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable, Extension, LogicalPlan, SortExpr};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;

/// The planner of the clause.
#[derive(Debug)]
pub(crate) struct Clauses;

impl RelationPlanner for Clauses {
    fn plan_relation(
        &self,
        relation: ast::TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        match relation {
            ast::TableFactor::MatchRecognize {
                table,
                mut partition_by,
                order_by,
                measures,
                rows_per_match,
                after_match_skip,
                pattern,
                symbols,
                alias,
            } => {
                let input = context.plan(source(*table, &mut partition_by))?;
                let text = text_of(&pattern)?;
                let parts = Parts::read(text, &symbols)?;
                let mut clause = Clause {
                    schema: Arc::clone(input.schema()),
                    context,
                    parts,
                };
                let partition = clause.columns(partition_by, "PARTITION BY")?;
                let order = clause.order(order_by)?;
                let answers = answers(rows_per_match.as_ref(), &clause.parts.written)?;
                let skip = clause.skip(after_match_skip.as_ref())?;
                let shape = Shape {
                    partition,
                    order,
                    answers,
                    skip,
                };
                let node = clause.plan(input, shape, measures, symbols)?;
                let plan = LogicalPlan::Extension(Extension {
                    node: Arc::new(node),
                });
                let planned = PlannedRelation::new(plan, alias);
                Ok(RelationPlanning::Planned(Box::new(planned)))
            }
            other => Ok(RelationPlanning::Original(Box::new(other))),
        }
    }
}

/// The source of the rows: a subquery is encoded as the first column of the partition.
fn source(table: ast::TableFactor, partition: &mut Vec<ast::Expr>) -> ast::TableFactor {
    let is_query = matches!(&table, ast::TableFactor::Table { name, .. }
        if name.0.last().and_then(|part| part.as_ident()).is_some_and(|n| n.value == SOURCE));
    match (table, partition.first()) {
        (ast::TableFactor::Table { alias, .. }, Some(ast::Expr::Exists { subquery, .. }))
            if is_query =>
        {
            let subquery = subquery.clone();
            partition.remove(0);
            ast::TableFactor::Derived {
                lateral: false,
                subquery,
                alias,
                sample: None,
            }
        }
        (table, _) => table,
    }
}

/// The quoted name that encodes the pattern.
fn text_of(pattern: &ast::MatchRecognizePattern) -> Result<&str> {
    match pattern {
        ast::MatchRecognizePattern::Symbol(ast::MatchRecognizeSymbol::Named(name)) => {
            Ok(&name.value)
        }
        _ => Err(Error::internal("a pattern that was not read").into()),
    }
}

/// The pattern, and the parts after it.
struct Parts {
    written: Written,
    subsets: Vec<(String, Vec<usize>)>,
    within: Option<i64>,
}

impl Parts {
    fn read(text: &str, defined: &[ast::SymbolDefinition]) -> OwnResult<Parts> {
        let mut parts = text.split(APART);
        let (pattern, within, subset) = (parts.next(), parts.next(), parts.next());
        let written = regex::read(pattern.unwrap_or(""))?;
        for symbol in defined {
            let name = folded(&symbol.symbol);
            if !written.symbols.contains(&name) {
                return Err(Error::invalid(format!(
                    "DEFINE names `{name}`, which is not a symbol of the pattern"
                )));
            }
        }
        let within = within.unwrap_or("").trim();
        let subset = subset.unwrap_or("").trim();
        Ok(Parts {
            within: if within.is_empty() {
                None
            } else {
                Some(length(within)?)
            },
            subsets: if subset.is_empty() {
                Vec::new()
            } else {
                subsets(subset, &written)?
            },
            written,
        })
    }
}

/// The nanoseconds of `INTERVAL '…'`.
fn length(text: &str) -> OwnResult<i64> {
    let quoted = text.split('\'').collect::<Vec<&str>>();
    let read = match quoted.as_slice() {
        [interval, length, unit] if interval.trim().eq_ignore_ascii_case("interval") => {
            let unit = unit.trim();
            match unit.is_empty() {
                true => lengths::nanoseconds(length),
                false => lengths::nanoseconds(&format!("{length} {unit}")),
            }
        }
        _ => None,
    };
    read.ok_or_else(|| {
        Error::invalid_value(format!("WITHIN: expected a length of time, found {text}"))
            .with_hint("for example: WITHIN INTERVAL '1 minute'; a month has no fixed length")
    })
}

/// The sets of symbols: `s = (a, b), t = (c)`.
fn subsets(text: &str, written: &Written) -> OwnResult<Vec<(String, Vec<usize>)>> {
    let wrong = |what: &str| {
        Error::syntax(format!("SUBSET: {what}")).with_hint("for example: SUBSET s = (a, b)")
    };
    let name = |text: &str| {
        let text = text.trim();
        match text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
        {
            Some(quoted) => quoted.to_owned(),
            None => text.to_lowercase(),
        }
    };
    let mut sets = Vec::new();
    for part in text.split_terminator(')') {
        let Some((set, symbols)) = part.split_once('(') else {
            return Err(wrong("expected symbols in brackets"));
        };
        let set = set.trim().trim_start_matches(',').trim();
        let Some(set) = set
            .strip_suffix('=')
            .map(name)
            .filter(|set| !set.is_empty())
        else {
            return Err(wrong("expected a name and ="));
        };
        let symbols = symbols.split(',').map(|symbol| {
            let symbol = name(symbol);
            let found = written.symbols.iter().position(|known| *known == symbol);
            found.ok_or_else(|| wrong(&format!("`{symbol}` is not a symbol of the pattern")))
        });
        if written.symbols.contains(&set) {
            return Err(wrong(&format!("`{set}` is already a symbol")));
        }
        sets.push((set, symbols.collect::<OwnResult<_>>()?));
    }
    Ok(sets)
}

fn answers(rows: Option<&ast::RowsPerMatch>, written: &Written) -> OwnResult<Answers> {
    use ast::{EmptyMatchesMode as Mode, RowsPerMatch};
    let answers = match rows {
        None | Some(RowsPerMatch::OneRow) => Answers {
            rows: false,
            empty: true,
            unmatched: false,
        },
        Some(RowsPerMatch::AllRows(mode)) => Answers {
            rows: true,
            empty: !matches!(mode, Some(Mode::Omit)),
            unmatched: matches!(mode, Some(Mode::WithUnmatched)),
        },
    };
    if answers.unmatched && written.regex.excludes() {
        return Err(Error::unsupported(
            "a pattern with {- … -} excludes rows: it cannot be combined with WITH UNMATCHED ROWS",
        ));
    }
    Ok(answers)
}

/// Partition, order and output of the clause.
struct Shape {
    partition: Vec<Column>,
    order: Vec<SortExpr>,
    answers: Answers,
    skip: Skip,
}

struct Clause<'a> {
    schema: Arc<DFSchema>,
    context: &'a mut dyn RelationPlannerContext,
    parts: Parts,
}

impl Clause<'_> {
    fn columns(&mut self, exprs: Vec<ast::Expr>, what: &str) -> Result<Vec<Column>> {
        let mut columns = Vec::with_capacity(exprs.len());
        for expr in exprs {
            match self.context.sql_to_expr(expr.clone(), &self.schema)? {
                Expr::Column(column) => columns.push(column),
                _ => {
                    return Err(Error::unsupported(format!(
                        "MATCH_RECOGNIZE: {what} must be columns, found {expr}"
                    ))
                    .with_hint("compute it in a subquery: FROM (SELECT …) MATCH_RECOGNIZE (…)")
                    .into());
                }
            }
        }
        Ok(columns)
    }

    fn order(&mut self, by: Vec<ast::OrderByExpr>) -> Result<Vec<SortExpr>> {
        if by.is_empty() {
            return Err(Error::invalid("MATCH_RECOGNIZE needs ORDER BY")
                .with_hint("MATCH_RECOGNIZE (PARTITION BY id ORDER BY time …)")
                .into());
        }
        let mut sorts = Vec::with_capacity(by.len());
        for by in by {
            let descends = by.options.asc == Some(false);
            let column = self.columns(vec![by.expr], "ORDER BY")?;
            // NULL is the greatest value, as everywhere.
            let first = by.options.nulls_first.unwrap_or(descends);
            let sort = column
                .into_iter()
                .map(|c| SortExpr::new(Expr::Column(c), !descends, first));
            sorts.extend(sort);
        }
        if self.parts.within.is_some() {
            let of = match sorts.first() {
                Some(sort) => sort.expr.get_type(&self.schema)?,
                None => DataType::Null,
            };
            if of != time_type() {
                return Err(Error::type_mismatch(
                    "WITHIN needs rows that are ordered by a timestamp",
                )
                .with_hint("ORDER BY time")
                .into());
            }
        }
        Ok(sorts)
    }

    fn skip(&self, skip: Option<&ast::AfterMatchSkip>) -> OwnResult<Skip> {
        use ast::AfterMatchSkip;
        let rows = |name: &ast::Ident| {
            let name = folded(name);
            let names = Names {
                pattern: &self.parts.written,
                subsets: &self.parts.subsets,
            };
            let found = names.of(&name).ok_or_else(|| {
                Error::unknown_column(format!("AFTER MATCH SKIP TO: `{name}` is not a symbol"))
            });
            found.map(|rows| (rows, name))
        };
        Ok(match skip {
            None | Some(AfterMatchSkip::PastLastRow) => Skip::PastLastRow,
            Some(AfterMatchSkip::ToNextRow) => Skip::ToNextRow,
            Some(AfterMatchSkip::ToFirst(name)) => {
                let (rows, name) = rows(name)?;
                Skip::ToFirst(rows, name)
            }
            Some(AfterMatchSkip::ToLast(name)) => {
                let (rows, name) = rows(name)?;
                Skip::ToLast(rows, name)
            }
        })
    }

    fn plan(
        mut self,
        input: LogicalPlan,
        shape: Shape,
        measures: Vec<ast::Measure>,
        defined: Vec<ast::SymbolDefinition>,
    ) -> Result<Pattern> {
        let program = Program::of(&self.parts.written.regex)?;
        let symbols = self.parts.written.symbols.clone();
        let names = Names {
            pattern: &self.parts.written,
            subsets: &self.parts.subsets,
        };
        let mut slots = Slots::new(names);
        let mut conditions: Vec<Option<ast::Expr>> = vec![None; symbols.len()];
        for definition in defined {
            let name = folded(&definition.symbol);
            let place = symbols.iter().position(|symbol| *symbol == name);
            match place.and_then(|place| conditions.get_mut(place)) {
                Some(known @ None) => *known = Some(slots.take_out(definition.definition)?),
                _ => {
                    return Err(Error::invalid(format!("DEFINE names `{name}` twice")).into());
                }
            }
        }
        slots.condition = false;
        let mut measured = Vec::with_capacity(measures.len());
        for measure in measures {
            measured.push((folded(&measure.alias), slots.take_out(measure.expr)?));
        }
        let taken = slots.all;
        let mut rows = Rows::default();
        let resolved = taken.into_iter().map(|slot| self.slot(slot, &mut rows));
        let (resolved, fields): (Vec<Slot>, Vec<Field>) =
            resolved.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let fields = fields
            .into_iter()
            .enumerate()
            .map(|(at, field)| (None, Arc::new(field.with_name(slots::slot_name(at)))));
        let slot_schema = DFSchema::new_with_metadata(fields.collect(), Default::default())?;
        let slot_schema = Arc::new(slot_schema);
        let mut typed_conditions = Vec::with_capacity(conditions.len());
        for condition in conditions {
            typed_conditions.push(match condition {
                None => None,
                Some(condition) => Some(self.condition(condition, &slot_schema)?),
            });
        }
        let mut typed_measures = Vec::with_capacity(measured.len());
        let mut measure_names = Vec::with_capacity(measured.len());
        for (name, measure) in measured {
            typed_measures.push(self.computed(measure, &slot_schema)?);
            measure_names.push(name);
        }
        let spec = PatternSpec {
            program,
            regex: self.parts.written.regex.clone(),
            symbols,
            conditions: typed_conditions,
            measures: typed_measures,
            slots: resolved,
            slot_schema,
            skip: shape.skip.clone(),
            answers: shape.answers,
            within: self.parts.within,
            before: 0,
        };
        answer(input, shape, rows.exprs, spec, &measure_names)
    }

    /// A slot with its index among the expressions over rows, and its type.
    fn slot(&mut self, slot: slots::Slot, rows: &mut Rows) -> Result<(Slot, Field)> {
        let mut place = |clause: &mut Self, expr: ast::Expr| -> Result<(usize, DataType)> {
            let expr = clause.context.sql_to_expr(expr, &clause.schema)?;
            let expr = coerced(expr, &clause.schema)?;
            let of = expr.get_type(&clause.schema)?;
            Ok((rows.index_of(expr), of))
        };
        let (slot, of) = match slot {
            slots::Slot::Value {
                column,
                of,
                first,
                steps,
                shift,
                whole,
            } => {
                let (column, data) = place(self, column)?;
                let slot = Slot::Value {
                    column,
                    of,
                    first,
                    steps,
                    shift,
                    whole,
                };
                (slot, data)
            }
            slots::Slot::Tally {
                tally,
                of,
                value,
                whole,
            } => {
                let value = value.map(|value| place(self, value)).transpose()?;
                let data = tally_type(tally, value.as_ref().map(|(_, of)| of))?;
                let slot = tally_slot(tally, of, value.map(|(at, _)| at), whole);
                (slot, data)
            }
            slots::Slot::Classifier => (Slot::Classifier, DataType::Utf8),
            slots::Slot::Number => (Slot::Number, DataType::Int64),
        };
        Ok((slot, Field::new("slot", of, true)))
    }

    fn computed(&mut self, expr: ast::Expr, slots: &Arc<DFSchema>) -> Result<Computed> {
        let expr = self.context.sql_to_expr(expr, slots)?;
        let windows = |part: &Expr| {
            matches!(
                part,
                Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::Unnest(_)
            )
        };
        if expr.exists(|part| Ok(windows(part)))? {
            return Err(Error::unsupported(
                "MATCH_RECOGNIZE supports count, sum, avg, min and max of matched rows, but no other aggregate and no window",
            )
            .into());
        }
        let typed = coerced(expr.clone(), slots)?;
        Ok(Computed {
            of: typed.get_type(slots)?,
            expr,
        })
    }

    fn condition(&mut self, expr: ast::Expr, slots: &Arc<DFSchema>) -> Result<Computed> {
        let computed = self.computed(expr, slots)?;
        match computed.of {
            DataType::Boolean | DataType::Null => Ok(Computed {
                of: DataType::Boolean,
                ..computed
            }),
            of => Err(Error::type_mismatch(format!(
                "DEFINE: a condition must be boolean, found {}",
                headwater_columnar::type_name(&of)
            ))
            .into()),
        }
    }
}

/// Distinct expressions over rows.
#[derive(Default)]
struct Rows {
    exprs: Vec<Expr>,
}

impl Rows {
    fn index_of(&mut self, expr: Expr) -> usize {
        let known = self.exprs.iter().position(|known| *known == expr);
        known.unwrap_or_else(|| {
            self.exprs.push(expr);
            self.exprs.len() - 1
        })
    }
}

fn tally_slot(tally: Tally, of: Of, value: Option<usize>, whole: bool) -> Slot {
    Slot::Tally {
        tally,
        of,
        value,
        whole,
    }
}

fn tally_type(what: Tally, of: Option<&DataType>) -> Result<DataType> {
    Ok(match (what, of) {
        (Tally::Count, _) => DataType::Int64,
        (Tally::Sum, Some(of)) if of.is_integer() => DataType::Int64,
        (Tally::Sum | Tally::Mean, Some(of)) if of.is_numeric() => DataType::Float64,
        (Tally::Least | Tally::Greatest, Some(of)) => of.clone(),
        (_, of) => {
            let found = of.map_or_else(|| "nothing", headwater_columnar::type_name);
            return Err(Error::type_mismatch(format!(
                "MATCH_RECOGNIZE: sum and avg take numbers, found {found}"
            ))
            .into());
        }
    })
}

fn coerced(expr: Expr, schema: &Arc<DFSchema>) -> Result<Expr> {
    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(schema))
        .build();
    ExprSimplifier::new(context).coerce(expr, schema)
}

/// Qualifier of the columns of a clause without an alias. No name in a statement contains the last
/// character.
const UNNAMED: &str = "match_recognize\u{1f}";

/// The node: the columns of the partition, of the order, the measures, and the other columns if
/// every row is output.
fn answer(
    input: LogicalPlan,
    shape: Shape,
    rows: Vec<Expr>,
    mut spec: PatternSpec,
    measures: &[String],
) -> Result<Pattern> {
    let schema = Arc::clone(input.schema());
    let mut kept: Vec<Column> = shape.partition.clone();
    let mut before = kept.len();
    if shape.answers.rows {
        for sort in &shape.order {
            if let Expr::Column(column) = &sort.expr
                && !kept.contains(column)
            {
                kept.push(column.clone());
            }
        }
        before = kept.len();
        for column in schema.columns() {
            if !kept.contains(&column) {
                kept.push(column);
            }
        }
    }
    spec.before = before;
    // An unnamed table, so that its columns differ from those of subqueries.
    let named = TableReference::bare(UNNAMED);
    let mut fields = Vec::with_capacity(kept.len() + measures.len());
    for column in &kept {
        let field = schema.field_from_column(column)?;
        let field = Field::clone(field).with_name(&column.name);
        fields.push((Some(named.clone()), Arc::new(field)));
    }
    let computed = measures.iter().zip(&spec.measures);
    let computed = computed.map(|(name, computed)| {
        let field = Field::new(name, computed.of.clone(), true);
        (Some(named.clone()), Arc::new(field))
    });
    fields.splice(before..before, computed);
    let answered = DFSchema::new_with_metadata(fields, Default::default())?;
    Ok(Pattern {
        input: Arc::new(input),
        schema: Arc::new(answered),
        partition: shape.partition.into_iter().map(Expr::Column).collect(),
        order: shape.order,
        rows,
        output_columns: kept.into_iter().map(Expr::Column).collect(),
        spec: Arc::new(spec),
        tracked: None,
    })
}
