//! Values for the parameters `$1`, `$2`, … of a statement.

use crate::columns::time_type;
use crate::error::{Error, Result};
use crate::placeholders::position;
use crate::rewrites::times;
use crate::zones::cast_in;
use arrow::datatypes::{DataType, Field, IntervalUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use headwater_columnar::type_name;
use headwater_wire::zone::Zone;

/// Values for `$1`, `$2`, …
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    values: Vec<ScalarValue>,
}

impl Parameters {
    /// An empty list of parameters.
    #[must_use]
    pub fn none() -> Parameters {
        Parameters::default()
    }

    /// Parameters in order, `$1` first.
    #[must_use]
    pub fn positional(values: Vec<ScalarValue>) -> Parameters {
        Parameters { values }
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &[ScalarValue] {
        &self.values
    }

    /// Converts the values to the types of the parameters; a text is parsed as the parameter's
    /// type, instants by the clocks of the zone.
    ///
    /// # Errors
    /// When the number of values differs, or a value is not of its type.
    pub(crate) fn in_types(self, types: &[DataType], zone: &Zone) -> Result<Parameters> {
        if self.values.len() != types.len() {
            return Err(Error::parameters(format!(
                "the statement has {} parameters, but {} values were given",
                types.len(),
                self.values.len()
            )));
        }
        let typed = self.values.into_iter().zip(types).enumerate();
        let values = typed.map(|(at, (value, wanted))| {
            // A decimal keeps the digits that were sent.
            if value.data_type() == *wanted
                || (value.data_type().is_decimal() && wanted.is_decimal())
            {
                return Ok(value);
            }
            check_endless(at, &value, wanted)?;
            if wanted.is_list() {
                check_list(at, &value)?;
            }
            in_type(&value, wanted, zone).map_err(|error| {
                Error::parameters(format!(
                    "parameter ${} must be of type {wanted}: {}",
                    at + 1,
                    Error::from(error).message
                ))
            })
        });
        Ok(Parameters {
            values: values.collect::<Result<_>>()?,
        })
    }

    /// The plan with the values in place of its parameters. The statement has `written` parameters;
    /// the plan may have omitted some of them.
    pub(crate) fn apply(self, plan: LogicalPlan, written: usize) -> Result<LogicalPlan> {
        let planned = count(&plan)?;
        let wanted = planned.max(written);
        if wanted != self.values.len() {
            return Err(Error::parameters(format!(
                "the statement has {wanted} parameters, but {} values were given",
                self.values.len()
            )));
        }
        if planned == 0 {
            return Ok(plan);
        }
        let told = match self.values.iter().any(is_endless) {
            true => types(&plan)?,
            false => Vec::new(),
        };
        for (at, value) in self.values.iter().enumerate() {
            if let Some(Some(of)) = told.get(at) {
                check_endless(at, value, of)?;
            }
        }
        let mut told = vec![None; wanted];
        by_place(&plan, &mut told)?;
        let mut values = self.values;
        for (at, value) in values.iter_mut().enumerate() {
            let of = told.get(at).and_then(Option::as_ref);
            if let Some(of) = of.filter(|of| of.is_list()) {
                check_list(at, value)?;
                if value.data_type() != *of {
                    *value = value.cast_to(of).map_err(|why| {
                        Error::parameters(format!("parameter ${}: {why}", at + 1))
                    })?;
                }
            }
        }
        let plan = counted_rows(plan, &values)?;
        Ok(plan.replace_params_with_values(&ParamValues::from(values))?)
    }
}

/// The plan with values for parameters that are numbers of rows (`LIMIT $1`): as in PostgreSQL, a
/// fraction is rounded, and a text is parsed.
fn counted_rows(plan: LogicalPlan, values: &[ScalarValue]) -> Result<LogicalPlan> {
    let value_of = |rows: &Expr| -> Result<Option<Expr>> {
        let Expr::Placeholder(place) = rows else {
            return Ok(None);
        };
        let at = position(&place.id)?;
        let Some(value) = values.get(at - 1) else {
            return Ok(None);
        };
        let rounded = match value {
            ScalarValue::Float32(_) | ScalarValue::Float64(_) => {
                let number = value.cast_to(&DataType::Float64)?;
                match number {
                    ScalarValue::Float64(Some(number)) => {
                        ScalarValue::Float64(Some(number.round_ties_even()))
                    }
                    other => other,
                }
            }
            ScalarValue::Utf8(Some(text)) => ScalarValue::Utf8(Some(text.trim().to_owned())),
            other => other.clone(),
        };
        let number = rounded.cast_to(&DataType::Int64).map_err(|_| {
            Error::parameters(format!(
                "parameter ${at} is a number of rows: expected a whole number, found {value}"
            ))
        })?;
        Ok(Some(Expr::Literal(number, None)))
    };
    let changed = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Limit(mut limit) = node else {
            return Ok(Transformed::no(node));
        };
        let mut changed = false;
        for rows in [&mut limit.skip, &mut limit.fetch].into_iter().flatten() {
            if let Some(value) = value_of(rows)? {
                **rows = value;
                changed = true;
            }
        }
        Ok(Transformed::new_transformed(
            LogicalPlan::Limit(limit),
            changed,
        ))
    })?;
    Ok(changed.data)
}

/// Whether a value is the text of an infinite instant.
fn is_endless(value: &ScalarValue) -> bool {
    let text = value.try_as_str().flatten().unwrap_or_default();
    matches!(times::word(text), Some(times::Word::End { .. }))
}

/// Refuses an infinite instant, which would be stored and returned as a finite one.
fn check_endless(at: usize, value: &ScalarValue, wanted: &DataType) -> Result<()> {
    let is_time = matches!(wanted, DataType::Timestamp(..) | DataType::Date32);
    if !is_time || !is_endless(value) {
        return Ok(());
    }
    let (first, last) = ("1677-09-21", "2262-04-11");
    let error = Error::new(
        "out_of_range",
        "22008",
        format!(
            "parameter ${} is an instant: expected one from {first} to {last}, found {value}",
            at + 1
        ),
    );
    Err(error.with_hint("leave the condition out, or send a finite instant"))
}

/// Casts a value to another type.
fn in_type(
    value: &ScalarValue,
    wanted: &DataType,
    zone: &Zone,
) -> datafusion::common::Result<ScalarValue> {
    if !matches!(wanted, DataType::Timestamp(..) | DataType::Interval(_)) {
        return value.cast_to(wanted);
    }
    let made = cast_in(zone, &value.to_array_of_size(1)?, wanted)?;
    ScalarValue::try_from_array(&made, 0)
}

/// The types of `$1`, `$2`, …, if the statement implies them.
pub(crate) fn types(plan: &LogicalPlan) -> Result<Vec<Option<DataType>>> {
    let mut out: Vec<Option<DataType>> = Vec::new();
    for (name, data_type) in plan.get_parameter_types()? {
        let at = position(&name)?;
        if out.len() < at {
            out.resize(at, None);
        }
        if let Some(slot) = out.get_mut(at - 1) {
            *slot = data_type;
        }
    }
    by_place(plan, &mut out)?;
    Ok(out)
}

/// Refuses a text for a parameter of a list type, which would become a list of that text.
fn check_list(at: usize, value: &ScalarValue) -> Result<()> {
    if value.data_type().is_list() || value.is_null() {
        return Ok(());
    }
    Err(Error::parameters(format!(
        "parameter ${} must be a list, found a value of type {}",
        at + 1,
        type_name(&value.data_type())
    ))
    .with_hint("write a parameter for each value: = ANY(make_array($1, $2)), or IN ($1, $2)"))
}

/// Types of parameters by their positions: casts (`$1::int4`), lists (`x = ANY($1)`), numbers of
/// rows (`LIMIT $1`), widths of bins (`date_bin($1, time)`).
fn by_place(plan: &LogicalPlan, out: &mut [Option<DataType>]) -> Result<()> {
    if out.iter().all(Option::is_some) {
        return Ok(());
    }
    let mut told = |placeholder: &Expr, list: DataType| -> datafusion::common::Result<()> {
        if let Expr::Placeholder(placeholder) = placeholder {
            let at = position(&placeholder.id)?;
            if let Some(slot) = out.get_mut(at - 1) {
                slot.get_or_insert(list);
            }
        }
        Ok(())
    };
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        if let LogicalPlan::Limit(limit) = node {
            for rows in [&limit.skip, &limit.fetch].into_iter().flatten() {
                told(rows, DataType::Int64)?;
            }
        }
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                match part {
                    Expr::Cast(cast) => {
                        told(&cast.expr, cast.field.data_type().clone())?;
                    }
                    Expr::ScalarFunction(function)
                        if matches!(
                            function.func.name(),
                            "date_bin" | "time_bucket" | "time_bucket_gapfill"
                        ) =>
                    {
                        for (at, arg) in function.args.iter().enumerate() {
                            let of = match at {
                                0 => DataType::Interval(IntervalUnit::MonthDayNano),
                                _ => time_type(),
                            };
                            told(arg, of)?;
                        }
                    }
                    Expr::ScalarFunction(function) if function.func.name() == "array_has" => {
                        if let [list @ Expr::Placeholder(_), element] = function.args.as_slice() {
                            // The operand of a row pattern is not a column of its input.
                            let element = match element.get_type(&schema) {
                                Ok(DataType::Dictionary(_, of)) => *of,
                                Ok(of) => of,
                                Err(_) => return Ok(TreeNodeRecursion::Continue),
                            };
                            told(
                                list,
                                DataType::List(Field::new_list_field(element, true).into()),
                            )?;
                        }
                    }
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// The number of parameters: the highest position.
fn count(plan: &LogicalPlan) -> Result<usize> {
    let mut highest = 0;
    for name in plan.get_parameter_names()? {
        highest = highest.max(position(&name)?);
    }
    Ok(highest)
}
