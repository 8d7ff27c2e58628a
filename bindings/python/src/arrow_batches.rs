//! Batches of Arrow as parts of a batch of ours: which columns are time, tags and fields.
//!
//! Failure: `Problem` with the name of the column.

use crate::arrow_columns::{codes, each_text, text_type, times};
use crate::errors::{Outcome, Problem};
use crate::input::{Field, Source, TableRows, Tag, Tags};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use headwater::FieldType;
use std::borrow::Cow;
use std::collections::HashMap;

/// A tag from a column of strings.
pub(crate) fn tag(name: &str, array: &ArrayRef) -> Outcome<Tag<'static>> {
    if text_type(array.data_type()) != Some(FieldType::String) {
        return Err(Problem::invalid(format!(
            "column `{name}` has Arrow type {}: expected a string or a dictionary of strings for a tag",
            array.data_type()
        )));
    }
    let owned = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let (codes, values) = if let DataType::Dictionary(..) = array.data_type() {
        let (mut codes, values) = codes(array)?;
        let mut known: Vec<Option<String>> = Vec::with_capacity(values.len());
        each_text(&**values, &mut |v| known.push(v.map(owned)));
        for code in &mut codes {
            let absent =
                usize::try_from(*code).is_ok_and(|c| known.get(c).is_some_and(Option::is_none));
            if absent {
                *code = -1;
            }
        }
        (
            codes,
            known.into_iter().map(Option::unwrap_or_default).collect(),
        )
    } else {
        let mut values: Vec<String> = Vec::new();
        let mut known: HashMap<&[u8], i32> = HashMap::new();
        let mut codes: Vec<i32> = Vec::with_capacity(array.len());
        each_text(&**array, &mut |v: Option<&[u8]>| {
            codes.push(v.map_or(-1, |v| {
                *known.entry(v).or_insert_with(|| {
                    values.push(owned(v));
                    i32::try_from(values.len() - 1).unwrap_or(i32::MAX)
                })
            }));
        });
        (codes, values)
    };
    Ok(Tag {
        key: name.to_owned(),
        codes: Cow::Owned(codes),
        values,
    })
}

/// Roles of the columns of Arrow data.
pub(crate) struct Roles {
    time: usize,
    tags: Vec<usize>,
    fields: Vec<usize>,
}

impl Roles {
    pub(crate) fn new(
        schema: &arrow_schema::Schema,
        time: &str,
        tags: &[String],
        fields: Option<&[String]>,
    ) -> Outcome<Roles> {
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let find = |name: &str| {
            let at = names.iter().position(|n| *n == name);
            at.ok_or_else(|| {
                Problem::invalid(format!(
                    "there is no column `{name}`; there are: {}",
                    names.join(", ")
                ))
            })
        };
        let time = find(time)?;
        let tags: Vec<usize> = tags.iter().map(|t| find(t)).collect::<Outcome<_>>()?;
        let fields = match fields {
            Some(fields) => fields.iter().map(|f| find(f)).collect::<Outcome<_>>()?,
            None => (0..names.len())
                .filter(|at| *at != time && !tags.contains(at))
                .collect(),
        };
        Ok(Roles { time, tags, fields })
    }

    /// The rows of a batch.
    pub(crate) fn part<'a>(
        &self,
        batch: &'a RecordBatch,
        table: &str,
        fixed: &Tags,
    ) -> Outcome<TableRows<'a>> {
        let schema = batch.schema_ref();
        let name = |at: usize| schema.field(at).name();
        let tags: Vec<Tag<'a>> = self
            .tags
            .iter()
            .map(|at| tag(name(*at), batch.column(*at)))
            .collect::<Outcome<_>>()?;
        let fields = self.fields.iter().map(|at| Field {
            name: name(*at).clone(),
            source: Source::Arrow(batch.column(*at)),
            absent: None,
        });
        Ok(TableRows {
            table: table.to_owned(),
            fixed: fixed.clone(),
            tags,
            times: times(name(self.time), batch.column(self.time))?,
            fields: fields.collect(),
        })
    }
}
