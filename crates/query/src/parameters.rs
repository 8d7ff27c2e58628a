//! Values for the parameters `$1`, `$2`, … of a statement.

use crate::columns::time_type;
use crate::error::{Error, Result};
use crate::zones::cast_in;
use arrow::datatypes::{DataType, Field, IntervalUnit};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
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
    /// A list of no parameters.
    #[must_use]
    pub fn none() -> Parameters {
        Parameters::default()
    }

    /// The value of `$1` first.
    #[must_use]
    pub fn positional(values: Vec<ScalarValue>) -> Parameters {
        Parameters { values }
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &[ScalarValue] {
        &self.values
    }

    /// The values in the types of the parameters; text becomes what is wanted, instants by the
    /// clocks of the zone.
    ///
    /// # Errors
    /// When there is another number of them, or a value is not of its type.
    pub(crate) fn in_types(self, types: &[DataType], zone: &Zone) -> Result<Parameters> {
        if self.values.len() != types.len() {
            return Err(Error::parameters(format!(
                "the statement has {} parameters, {} values were given",
                types.len(),
                self.values.len()
            )));
        }
        let typed = self.values.into_iter().zip(types).enumerate();
        let values = typed.map(|(at, (value, wanted))| {
            if value.data_type() == *wanted {
                return Ok(value);
            }
            if wanted.is_list() {
                check_list(at, &value)?;
            }
            in_type(&value, wanted, zone).map_err(|error| {
                Error::parameters(format!(
                    "parameter ${} is wanted as {wanted}: {}",
                    at + 1,
                    Error::from(error).message
                ))
            })
        });
        Ok(Parameters {
            values: values.collect::<Result<_>>()?,
        })
    }

    /// The plan with the values in place of its parameters.
    pub(crate) fn apply(self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let wanted = count(&plan)?;
        if wanted != self.values.len() {
            return Err(Error::parameters(format!(
                "the statement has {wanted} parameters, {} values were given",
                self.values.len()
            )));
        }
        if wanted == 0 {
            return Ok(plan);
        }
        let mut told = vec![None; wanted];
        by_place(&plan, &mut told)?;
        for (at, value) in self.values.iter().enumerate() {
            if told
                .get(at)
                .is_some_and(|of| of.as_ref().is_some_and(DataType::is_list))
            {
                check_list(at, value)?;
            }
        }
        Ok(plan.replace_params_with_values(&ParamValues::from(self.values))?)
    }
}

/// A value in another type.
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

/// The types of `$1`, `$2`, …, where the statement tells them.
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

/// A text where a list is wanted would become a list of itself.
fn check_list(at: usize, value: &ScalarValue) -> Result<()> {
    if value.data_type().is_list() || value.is_null() {
        return Ok(());
    }
    Err(Error::parameters(format!(
        "parameter ${} is wanted as a list, found a value of type {}",
        at + 1,
        type_name(&value.data_type())
    ))
    .with_hint("write a parameter for each value: = ANY(make_array($1, $2)), or IN ($1, $2)"))
}

/// Parameters whose types their places tell: what is cast (`$1::int4`), lists (`x = ANY($1)`),
/// numbers of rows (`LIMIT $1`), widths of bins (`date_bin($1, time)`).
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
                            let element = match element.get_type(&schema)? {
                                DataType::Dictionary(_, of) => *of,
                                of => of,
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

/// The number of parameters: that of the highest.
fn count(plan: &LogicalPlan) -> Result<usize> {
    let mut highest = 0;
    for name in plan.get_parameter_names()? {
        highest = highest.max(position(&name)?);
    }
    Ok(highest)
}

fn position(name: &str) -> Result<usize> {
    let number = name.strip_prefix('$').and_then(|n| n.parse().ok());
    number
        .filter(|n| (1..=65_535).contains(n))
        .ok_or_else(|| Error::parameters(format!("parameters are $1, $2, …; found {name}")))
}
