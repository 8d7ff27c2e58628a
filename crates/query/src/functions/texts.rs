//! `string_agg`, with its own order independent of other aggregates.
//!
//! The SQL library needs the rows of all aggregates of a query sorted in the order of `string_agg`,
//! and refuses two of them with different orders. This one sorts its own input if necessary.
//!
//! Invariant: everything else is the library's.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, Signature,
};
use std::sync::Arc;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct StringAgg {
    inner: Arc<AggregateUDF>,
}

impl StringAgg {
    pub(super) fn new() -> StringAgg {
        StringAgg {
            inner: string_agg_udaf(),
        }
    }

    fn library(&self) -> &dyn AggregateUDFImpl {
        self.inner.inner().as_ref()
    }
}

impl AggregateUDFImpl for StringAgg {
    fn name(&self) -> &str {
        self.library().name()
    }

    fn aliases(&self) -> &[String] {
        self.library().aliases()
    }

    fn signature(&self) -> &Signature {
        self.library().signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.library().return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.library().state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.library().accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.library().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.library().create_groups_accumulator(args)
    }

    /// Sorts its own input, whatever the order of the rows.
    fn with_beneficial_ordering(
        self: Arc<Self>,
        _: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::SoftRequirement
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.library().documentation()
    }
}
