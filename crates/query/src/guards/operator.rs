//! Operators with large results or patterns, as guarded functions: `||` between texts, and `~`,
//! `LIKE`, `ILIKE` and `SIMILAR TO` unless the pattern is a short constant.
//!
//! Invariant: an operator has the same meaning, and its column the same name, as without the guard.

use super::call::guarded_call;
use super::function_cost::states;
use arrow::array::RecordBatch;
use arrow::array::RecordBatchOptions;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::Result;
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Like, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{self, Column, Literal};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

/// Patterns with more states than this, about, are checked before they are matched.
const STATES_SIMPLE: usize = 64;

/// Operation between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OperationKind {
    Binary(Operator),
    Like { negated: bool, any_case: bool },
}

/// An operator as a function; `||` has two or more operands.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Operation {
    kind: OperationKind,
    signature: Signature,
}

impl Operation {
    fn of(kind: OperationKind, left: Expr, right: Expr) -> Expr {
        let operation = Operation {
            kind,
            signature: Signature::user_defined(Volatility::Immutable),
        };
        let func = Arc::new(ScalarUDF::new_from_impl(operation));
        Expr::ScalarFunction(ScalarFunction {
            func,
            args: vec![left, right],
        })
    }

    fn symbol(&self) -> &'static str {
        match self.kind {
            OperationKind::Binary(Operator::StringConcat) => "||",
            OperationKind::Binary(Operator::RegexIMatch) => "~*",
            OperationKind::Binary(Operator::RegexNotMatch) => "!~",
            OperationKind::Binary(Operator::RegexNotIMatch) => "!~*",
            OperationKind::Binary(_) => "~",
            OperationKind::Like { negated, any_case } => match (negated, any_case) {
                (false, false) => "LIKE",
                (true, false) => "NOT LIKE",
                (false, true) => "ILIKE",
                (true, true) => "NOT ILIKE",
            },
        }
    }

    fn evaluate(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        let mut sides: Vec<Arc<dyn PhysicalExpr>> = Vec::with_capacity(2);
        for arg in args.args {
            sides.push(match arg {
                ColumnarValue::Scalar(value) => Arc::new(Literal::new(value)),
                ColumnarValue::Array(array) => {
                    let name = format!("c{}", columns.len());
                    let side = Column::new(&name, columns.len());
                    fields.push(Field::new(name, array.data_type().clone(), true));
                    columns.push(array);
                    Arc::new(side)
                }
            });
        }
        let mut sides = sides.into_iter();
        let two = || crate::error::Error::internal("an operator has two sides");
        let (left, right) = (sides.next().ok_or_else(two)?, sides.next().ok_or_else(two)?);
        let schema = Arc::new(Schema::new(fields));
        let options = RecordBatchOptions::new().with_row_count(Some(args.number_rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
        let expr = match self.kind {
            OperationKind::Binary(op) => {
                let first = expressions::binary(left, op, right, &schema)?;
                sides.try_fold(first, |left, right| {
                    expressions::binary(left, op, right, &schema)
                })?
            }
            OperationKind::Like { negated, any_case } => {
                expressions::like(negated, any_case, left, right, &schema)?
            }
        };
        expr.evaluate(&batch)
    }
}

impl ScalarUDFImpl for Operation {
    fn name(&self) -> &str {
        self.symbol()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names: Vec<String> = args.iter().map(|a| a.schema_name().to_string()).collect();
        Ok(names.join(&format!(" {} ", self.symbol())))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match (self.kind, types) {
            (OperationKind::Binary(op), [left, right]) => {
                let (left, right) = BinaryTypeCoercer::new(left, &op, right).get_input_types()?;
                Ok(vec![left, right])
            }
            (OperationKind::Binary(op), [_, _, _, ..]) => {
                let all = self.return_type(types)?;
                let types = types.iter().map(|of| {
                    let (_, right) = BinaryTypeCoercer::new(&all, &op, of).get_input_types()?;
                    Ok(right)
                });
                types.collect()
            }
            // These functions are created with known types.
            (_, types) => Ok(types.to_vec()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.kind, types) {
            (OperationKind::Binary(op), [left, rest @ ..]) => {
                rest.iter().try_fold(left.clone(), |left, right| {
                    BinaryTypeCoercer::new(&left, &op, right).get_result_type()
                })
            }
            _ => Ok(DataType::Boolean),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|f| f.data_type().clone())
            .collect();
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(
            self.name(),
            self.return_type(&types)?,
            nullable,
        )))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let cost_of = match self.kind {
            OperationKind::Binary(Operator::StringConcat) => "||",
            _ => "~",
        };
        let volatility = self.signature.volatility;
        guarded_call(cost_of, volatility, args, &|args| self.evaluate(args))
    }
}

/// `left || right` between texts, as a function without a guard.
pub(super) fn concatenation(left: Expr, right: Expr) -> Expr {
    Operation::of(OperationKind::Binary(Operator::StringConcat), left, right)
}

/// Whether a function without its guard is `||` between texts.
pub(super) fn is_concatenation(function: &ScalarUDF) -> bool {
    let own = function.inner().downcast_ref::<Operation>();
    own.is_some_and(|own| own.kind == OperationKind::Binary(Operator::StringConcat))
}

fn is_simple(pattern: &Expr) -> bool {
    let Expr::Literal(value, _) = pattern else {
        return false;
    };
    match value {
        ScalarValue::Dictionary(_, value) => value
            .try_as_str()
            .flatten()
            .is_none_or(|p| states(p) <= STATES_SIMPLE),
        value => value
            .try_as_str()
            .flatten()
            .is_none_or(|p| states(p) <= STATES_SIMPLE),
    }
}

/// True when the expression is an operator that needs a guard.
pub(super) fn needs_guard(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            op:
                Operator::RegexMatch
                | Operator::RegexIMatch
                | Operator::RegexNotMatch
                | Operator::RegexNotIMatch,
            right,
            ..
        }) => !is_simple(right),
        // Other escapes are an error when the expression is built.
        Expr::Like(like) => like.escape_char.is_none_or(|c| c == '\\') && !is_simple(&like.pattern),
        Expr::SimilarTo(like) => like.escape_char.is_none() && !is_simple(&like.pattern),
        _ => false,
    }
}

/// The operator as a guarded function; its operands have the required types.
pub(super) fn guard(expr: Expr) -> Expr {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            Operation::of(OperationKind::Binary(op), *left, *right)
        }
        Expr::Like(Like {
            negated,
            expr,
            pattern,
            case_insensitive: any_case,
            ..
        }) => Operation::of(OperationKind::Like { negated, any_case }, *expr, *pattern),
        Expr::SimilarTo(Like {
            negated,
            expr,
            pattern,
            case_insensitive,
            ..
        }) => {
            let op = match (negated, case_insensitive) {
                (false, false) => Operator::RegexMatch,
                (false, true) => Operator::RegexIMatch,
                (true, false) => Operator::RegexNotMatch,
                (true, true) => Operator::RegexNotIMatch,
            };
            Operation::of(OperationKind::Binary(op), *expr, *pattern)
        }
        other => other,
    }
}
