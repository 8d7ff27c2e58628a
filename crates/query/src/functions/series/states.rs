//! `state_agg(time, state)`: the duration of each state, from its row to the next one.
//!
//! Among several rows of one instant the greatest state is used, so that the order of rows does not
//! matter.

use super::counters::fields;
use super::points::{list, numbers};
use super::signature::{expected, is_instant};
use crate::columns::time_type;
use arrow::array::{
    Array, ArrayRef, AsArray, DurationNanosecondArray, Int64Array, StringArray, StructArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Approximate bytes of a state besides its text.
const STATE_BYTES: usize = 64;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::functions) struct StateAgg {
    signature: Signature,
}

impl StateAgg {
    pub(in crate::functions) fn new() -> StateAgg {
        StateAgg {
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

/// The fields of a state in the list.
fn state_fields() -> Fields {
    fields(&[
        ("state", DataType::Utf8),
        ("duration", DataType::Duration(TimeUnit::Nanosecond)),
    ])
}

fn list_of(of: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(of, true)))
}

impl AggregateUDFImpl for StateAgg {
    fn name(&self) -> &str {
        "state_agg"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [time, _] if is_instant(time) => Ok(vec![time_type(), DataType::Utf8]),
            _ => Err(expected(
                "state_agg",
                "a timestamp and a state",
                "state_agg(time, state)",
            )),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(list_of(DataType::Struct(state_fields())))
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(States::default()))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |what: &str, of: DataType| {
            Arc::new(Field::new(
                format!("{}[{what}]", args.name),
                list_of(of),
                true,
            ))
        };
        Ok(vec![
            field("times", DataType::Int64),
            field("states", DataType::Utf8),
        ])
    }
}

/// Beginnings of the states.
#[derive(Debug, Default)]
struct States {
    all: Vec<(i64, Box<str>)>,
    bytes: usize,
}

impl States {
    fn add(&mut self, times: &ArrayRef, states: &ArrayRef) -> Result<()> {
        let times = numbers(times)?;
        let states = cast(states, &DataType::Utf8)?;
        for (ns, state) in times.iter().zip(states.as_string::<i32>()) {
            if let (Some(ns), Some(state)) = (ns, state) {
                self.bytes += state.len();
                self.all.push((ns, state.into()));
            }
        }
        Ok(())
    }
}

impl Accumulator for States {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match values {
            [times, states] => self.add(times, states),
            _ => Ok(()),
        }
    }

    fn merge_batch(&mut self, parts: &[ArrayRef]) -> Result<()> {
        let [times, states] = parts else {
            return Ok(());
        };
        for (times, states) in times
            .as_list::<i32>()
            .iter()
            .zip(states.as_list::<i32>().iter())
        {
            if let (Some(times), Some(states)) = (times, states) {
                self.add(&times, &states)?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let times = Int64Array::from_iter_values(self.all.iter().map(|(ns, _)| *ns));
        let states = StringArray::from_iter_values(self.all.iter().map(|(_, state)| state));
        Ok(vec![list(Arc::new(times)), list(Arc::new(states))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.all.sort_unstable();
        // The greatest state of an instant is the last.
        let mut lasted: BTreeMap<&str, i64> = BTreeMap::new();
        for ((begin, state), (end, _)) in self.all.iter().zip(self.all.iter().skip(1)) {
            let known = lasted.entry(state).or_default();
            *known = known.saturating_add(end.saturating_sub(*begin));
        }
        let Some((_, last)) = self.all.last() else {
            return ScalarValue::try_new_null(&list_of(DataType::Struct(state_fields())));
        };
        lasted.entry(last).or_default();
        let states = StringArray::from_iter_values(lasted.keys());
        let durations = DurationNanosecondArray::from_iter_values(lasted.into_values());
        let columns: Vec<ArrayRef> = vec![Arc::new(states), Arc::new(durations)];
        Ok(list(Arc::new(StructArray::try_new(
            state_fields(),
            columns,
            None,
        )?)))
    }

    fn size(&self) -> usize {
        self.bytes + self.all.capacity() * STATE_BYTES
    }
}

/// Duration of a state in a list of states.
pub(super) fn duration_in(states: &ArrayRef, wanted: Option<&str>) -> Option<i64> {
    let wanted = wanted?;
    let states = states.as_struct_opt()?;
    let names = states.column_by_name("state")?.as_string_opt::<i32>()?;
    let lasted = states.column_by_name("duration")?;
    let lasted = lasted.as_any().downcast_ref::<DurationNanosecondArray>()?;
    let mut pairs = names.iter().zip(lasted.iter());
    let found = pairs.find_map(|(name, lasted)| (name == Some(wanted)).then_some(lasted));
    found.unwrap_or(Some(0))
}
