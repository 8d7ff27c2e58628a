//! Finds grouped queries that the pyramid can answer.
//!
//! Invariants: a replacement has the query's columns, names and types; a query with any unsupported
//! part is unchanged.

use super::plan::{Computed, End, Function, Grouped, Key, Of};
use super::provider::PyramidTable;
use crate::columns::time_type;
use crate::settings::Switches;
use crate::table::{Condition, Table};
use crate::view::{Role, TableView};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchemaRef, Result, ScalarValue};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::expr::{AggregateFunction, Cast, NullTreatment, ScalarFunction};
use datafusion::logical_expr::{
    Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Projection, TableScan,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use headwater::{Bins, FieldType};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The rule; runs last, since conditions must have been pushed down to the tables.
#[derive(Debug)]
pub(crate) struct UsePyramid;

impl OptimizerRule for UsePyramid {
    fn name(&self) -> &str {
        "use_pyramid"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let options = config.options();
        let on = options.extensions.get::<Switches>();
        if !on.is_none_or(|switches| switches.use_pyramid) {
            return Ok(Transformed::no(plan));
        }
        if let LogicalPlan::Aggregate(aggregate) = &plan
            && let Some(grouped) = understand(aggregate)
        {
            return Ok(Transformed::yes(replace(grouped, &aggregate.schema)?));
        }
        Ok(Transformed::no(plan))
    }
}

/// Name of the replacement in a plan. The SQL library treats two reads with one name as equal, so
/// the name contains everything that the replacement computes.
fn name_of(grouped: &Grouped) -> String {
    let Grouped {
        table,
        filters,
        bins,
        keys,
        computed,
        fields,
        ends,
        schema: _,
    } = grouped;
    let mut hasher = DefaultHasher::new();
    filters.hash(&mut hasher);
    let rest = format!("{bins:?} {keys:?} {computed:?} {fields:?} {ends:?}");
    rest.hash(&mut hasher);
    format!("pyramid of {} ({:016x})", table.name, hasher.finish())
}

/// A table's answer with the columns of the replaced plan.
fn replace(grouped: Grouped, schema: &DFSchemaRef) -> Result<LogicalPlan> {
    let names: Vec<String> = {
        let fields = grouped.schema.fields().iter();
        fields.map(|f| f.name().clone()).collect()
    };
    let name = datafusion::common::TableReference::bare(name_of(&grouped));
    let source = provider_as_source(Arc::new(PyramidTable::new(grouped)));
    let scan = LogicalPlanBuilder::scan(name.clone(), source, None)?.build()?;
    let columns = names.iter().zip(schema.iter());
    let columns = columns.map(|(own, (qualifier, field))| {
        Expr::Column(Column::new(Some(name.clone()), own))
            .alias_qualified(qualifier.cloned(), field.name())
    });
    let columns: Vec<Expr> = columns.collect();
    let projection = Projection::try_new_with_schema(columns, Arc::new(scan), Arc::clone(schema))?;
    Ok(LogicalPlan::Projection(projection))
}

/// A read of one table, with each of its columns expressed in the table's columns.
struct Source<'a> {
    scan: &'a TableScan,
    columns: Vec<Expr>,
}

impl<'a> Source<'a> {
    fn of(plan: &'a LogicalPlan) -> Option<Source<'a>> {
        match plan {
            LogicalPlan::TableScan(scan) if scan.fetch.is_none() => {
                let fields = scan.projected_schema.fields().iter();
                let columns =
                    fields.map(|f| Expr::Column(Column::new_unqualified(f.name().clone())));
                Some(Source {
                    scan,
                    columns: columns.collect(),
                })
            }
            LogicalPlan::SubqueryAlias(alias) => Source::of(&alias.input),
            LogicalPlan::Projection(projection) => {
                let below = Source::of(&projection.input)?;
                let schema = projection.input.schema();
                let columns = projection.expr.iter();
                let columns = columns.map(|expr| below.resolve(expr, schema));
                Some(Source {
                    columns: columns.collect::<Option<_>>()?,
                    scan: below.scan,
                })
            }
            _ => None,
        }
    }

    /// Rewrites an expression over the columns of `schema` to the table's columns.
    fn resolve(&self, expr: &Expr, schema: &DFSchemaRef) -> Option<Expr> {
        let mut known = true;
        let resolved = expr.clone().transform(|part| {
            let Expr::Column(column) = &part else {
                return Ok(Transformed::no(part));
            };
            let at = schema.maybe_index_of_column(column);
            match at.and_then(|at| self.columns.get(at)) {
                // The replacement has columns of the table, which must not be resolved again.
                Some(own) => Ok(Transformed::new(
                    own.clone(),
                    true,
                    datafusion::common::tree_node::TreeNodeRecursion::Jump,
                )),
                None => {
                    known = false;
                    Ok(Transformed::no(part))
                }
            }
        });
        resolved
            .ok()
            .filter(|_| known)
            .map(|r| r.data.unalias_nested().data)
    }
}

fn understand(aggregate: &Aggregate) -> Option<Grouped> {
    let source = Source::of(&aggregate.input)?;
    let provider = source_as_provider(&source.scan.source).ok()?;
    let any: &dyn std::any::Any = provider.as_ref();
    let table = Arc::clone(any.downcast_ref::<Table>()?.view());
    for filter in &source.scan.filters {
        match Condition::of(filter, &table)? {
            Condition::Time(_) | Condition::Tags => {}
            Condition::Fields(_) | Condition::AnyOf(_) => return None,
        }
    }
    let schema = aggregate.input.schema();
    let mut bins = Bins::Whole;
    let mut keys = Vec::new();
    for expr in &aggregate.group_expr {
        let expr = source.resolve(expr, schema)?;
        if crate::table::is_about_tags(&expr, &table) {
            keys.push(Key::Tags(expr));
            continue;
        }
        let found = bin(&expr, &table)?;
        if bins != Bins::Whole && bins != found {
            return None;
        }
        bins = found;
        keys.push(Key::Bin);
    }
    let mut inputs = Inputs::default();
    let mut computed = Vec::new();
    for expr in &aggregate.aggr_expr {
        let function = match expr {
            Expr::Alias(alias) => &*alias.expr,
            other => other,
        };
        let Expr::AggregateFunction(function) = function else {
            return None;
        };
        computed.push(match function.params.order_by.is_empty() {
            true => compute(function, &source, schema, &table, &mut inputs)?,
            false => {
                let end = end_in_order(function, &source, schema, &table, &keys)?;
                Computed::End(index_of(&mut inputs.ends, end))
            }
        });
    }
    let Inputs { fields, ends } = inputs;
    if !ends.is_empty() && bins != Bins::Whole {
        return None;
    }
    let columns = aggregate.schema.fields().iter().enumerate();
    let columns = columns.map(|(at, f)| {
        Field::new(format!("c{at}"), f.data_type().clone(), f.is_nullable())
            .with_metadata(f.metadata().clone())
    });
    let schema = Arc::new(Schema::new(columns.collect::<Vec<_>>()));
    if schema.fields().len() != keys.len() + computed.len() {
        // Grouping sets add columns of their own.
        return None;
    }
    Some(Grouped {
        table,
        filters: source.scan.filters.clone(),
        bins,
        keys,
        computed,
        fields,
        ends,
        schema,
    })
}

fn compute(
    function: &AggregateFunction,
    source: &Source<'_>,
    schema: &DFSchemaRef,
    table: &TableView,
    into: &mut Inputs,
) -> Option<Computed> {
    let params = &function.params;
    if params.distinct
        || params.filter.is_some()
        || !params.order_by.is_empty()
        || params.null_treatment.is_some()
    {
        return None;
    }
    if let Some(end) = end(function, source, schema, table) {
        return Some(Computed::End(index_of(&mut into.ends, end)));
    }
    let [argument] = &*params.args else {
        return None;
    };
    let wanted = match function.func.name() {
        "count" => Function::Count,
        "min" => Function::Min,
        "max" => Function::Max,
        "avg" => Function::Mean,
        "sum" => Function::Sum,
        "var" | "var_samp" => Function::Variance { sample: true },
        "var_pop" => Function::Variance { sample: false },
        "stddev" => Function::Deviation { sample: true },
        "stddev_pop" => Function::Deviation { sample: false },
        _ => return None,
    };
    let argument = source.resolve(argument, schema)?;
    let (column, widened) = match &argument {
        Expr::Literal(value, _) if wanted == Function::Count && !value.is_null() => {
            return Some(Computed::Rows);
        }
        Expr::Column(column) => (column, false),
        Expr::Cast(Cast { expr, field }) if field.data_type() == &DataType::Float64 => {
            match &**expr {
                Expr::Column(column) => (column, true),
                _ => return None,
            }
        }
        _ => return None,
    };
    let at = match table.role(&column.name)? {
        Role::Time if wanted == Function::Count => return Some(Computed::Rows),
        Role::Field(at) => at,
        _ => return None,
    };
    let (name, of) = table.fields.get(at)?;
    let number = matches!(of, FieldType::F64 | FieldType::I64 | FieldType::U64);
    let wanted = match wanted {
        Function::Count => wanted,
        // A boolean has extremes, but not a sum; a cast number would have another type.
        Function::Min | Function::Max if (number || *of == FieldType::Bool) && !widened => wanted,
        Function::Sum if number && widened => Function::SumOfFloats,
        Function::Sum | Function::Mean | Function::Variance { .. } | Function::Deviation { .. }
            if number =>
        {
            wanted
        }
        _ => return None,
    };
    Some(Computed::Of(
        wanted,
        index_of(&mut into.fields, name.clone()),
    ))
}

/// Fields and ends from which the columns are computed.
#[derive(Default)]
struct Inputs {
    fields: Vec<String>,
    ends: Vec<End>,
}

/// Index of an item in a list; a new item is appended.
fn index_of<T: PartialEq>(all: &mut Vec<T>, item: T) -> usize {
    match all.iter().position(|known| *known == item) {
        Some(at) => at,
        None => {
            all.push(item);
            all.len() - 1
        }
    }
}

/// `min(time)`, `max(time)`, `first(x, time)`, `last(x, time)`.
fn end(
    function: &AggregateFunction,
    source: &Source<'_>,
    schema: &DFSchemaRef,
    table: &TableView,
) -> Option<End> {
    let role = |argument: &Expr| match source.resolve(argument, schema)? {
        Expr::Column(column) => table.role(&column.name),
        _ => None,
    };
    let (last, of) = match (function.func.name(), &*function.params.args) {
        ("min", [argument]) => (false, role(argument)?),
        ("max", [argument]) => (true, role(argument)?),
        ("first", [argument, by]) if role(by)? == Role::Time => (false, role(argument)?),
        ("last", [argument, by]) if role(by)? == Role::Time => (true, role(argument)?),
        _ => return None,
    };
    let of = match of {
        Role::Time => Of::Time,
        Role::Field(at) if function.params.args.len() == 2 => Of::Field(at),
        _ => return None,
    };
    Some(End { last, of })
}

/// `first_value(x ORDER BY time DESC)`, which `DISTINCT ON` uses too: a value of the latest or the
/// earliest row. Grouping tags do not affect the order.
fn end_in_order(
    function: &AggregateFunction,
    source: &Source<'_>,
    schema: &DFSchemaRef,
    table: &TableView,
    keys: &[Key],
) -> Option<End> {
    let params = &function.params;
    let first = match function.func.name() {
        "first_value" => true,
        "last_value" => false,
        _ => return None,
    };
    if params.distinct
        || params.filter.is_some()
        || params.null_treatment == Some(NullTreatment::IgnoreNulls)
    {
        return None;
    }
    let mut rising = None;
    for key in &params.order_by {
        let by = source.resolve(&key.expr, schema)?;
        if keys.contains(&Key::Tags(by.clone())) {
            continue;
        }
        let is_time = matches!(
            &by,
            Expr::Column(column) if table.role(&column.name) == Some(Role::Time)
        );
        // The engine does not support an order of rows of one instant.
        if !is_time || rising.is_some() {
            return None;
        }
        rising = Some(key.asc);
    }
    let [argument] = &*params.args else {
        return None;
    };
    let Expr::Column(column) = source.resolve(argument, schema)? else {
        return None;
    };
    Some(End {
        last: rising? != first,
        of: match table.role(&column.name)? {
            Role::Time => Of::Time,
            Role::Tag(at) => Of::Tag(at),
            Role::Field(at) => Of::InRow(at),
        },
    })
}

/// The bins of an expression over time.
fn bin(expr: &Expr, table: &TableView) -> Option<Bins> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else {
        return None;
    };
    let is_time = |expr: &Expr| matches!(expr, Expr::Column(column) if table.role(&column.name) == Some(Role::Time));
    match (func.name(), &**args) {
        ("date_bin", [Expr::Literal(width, _), time]) if is_time(time) => Some(Bins::Every {
            width_ns: width_ns(width)?,
            origin_ns: 0,
        }),
        ("date_bin", [Expr::Literal(width, _), time, Expr::Literal(origin, _)])
            if is_time(time) =>
        {
            let ScalarValue::TimestampNanosecond(Some(origin), _) =
                origin.cast_to(&time_type()).ok()?
            else {
                return None;
            };
            Some(Bins::Every {
                width_ns: width_ns(width)?,
                origin_ns: origin,
            })
        }
        ("date_trunc", [Expr::Literal(unit, _), time]) if is_time(time) => {
            let unit = unit.try_as_str().flatten()?.to_lowercase();
            let width_ns = match unit.as_str() {
                "second" => 1_000_000_000,
                "minute" => 60_000_000_000,
                "hour" => 3_600_000_000_000,
                "day" => DAY_NS,
                _ => return None,
            };
            Some(Bins::Every {
                width_ns,
                origin_ns: 0,
            })
        }
        _ => None,
    }
}

const DAY_NS: i64 = 86_400_000_000_000;

/// The width of an interval of constant length.
fn width_ns(interval: &ScalarValue) -> Option<i64> {
    let width = match interval {
        ScalarValue::IntervalMonthDayNano(Some(i)) if i.months == 0 => i64::from(i.days)
            .checked_mul(DAY_NS)?
            .checked_add(i.nanoseconds)?,
        ScalarValue::IntervalDayTime(Some(i)) => i64::from(i.days)
            .checked_mul(DAY_NS)?
            .checked_add(i64::from(i.milliseconds).checked_mul(1_000_000)?)?,
        ScalarValue::DurationNanosecond(Some(ns)) => *ns,
        _ => return None,
    };
    (width > 0).then_some(width)
}
