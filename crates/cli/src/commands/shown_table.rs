//! A table as it is shown to people and programs, whether it lies here or on a server.

use crate::grid::{Heading, grouped, render};
use headwater::TableInfo;
use headwater_wire::durations::format_duration_ns;
use headwater_wire::instant::format_instant;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Deserialize, Serialize)]
pub(super) struct ShownTable {
    pub(super) name: String,
    pub(super) duplicates: String,
    pub(super) leaf_events: u32,
    pub(super) streams: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retention: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cut: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) aged_to: Option<String>,
    pub(super) tags: Vec<String>,
    pub(super) fields: Vec<ShownField>,
}

#[derive(Deserialize, Serialize)]
pub(super) struct ShownField {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) type_name: String,
}

pub(super) fn lifetime(life: Duration) -> String {
    format_duration_ns(i64::try_from(life.as_nanos()).unwrap_or(i64::MAX))
}

impl ShownTable {
    pub(super) fn of(info: &TableInfo) -> ShownTable {
        ShownTable {
            name: info.name.clone(),
            duplicates: info.duplicates.name().to_owned(),
            leaf_events: info.leaf_events,
            streams: info.streams,
            retention: info.retention.map(lifetime),
            cut: info.cut.map(format_instant),
            raw_for: info.raw_for.map(lifetime),
            aged_to: info.aged_to.map(format_instant),
            tags: info.tags.clone(),
            fields: info
                .fields
                .iter()
                .map(|f| ShownField {
                    name: f.name.clone(),
                    type_name: f.field_type.name().to_owned(),
                })
                .collect(),
        }
    }
}

/// One line per table.
pub(super) fn table_list(tables: &[ShownTable]) -> String {
    let headings = [
        Heading::text("table"),
        Heading::number("streams"),
        Heading::number("fields"),
        Heading::text("tags"),
        Heading::text("duplicates"),
        Heading::number("leaf"),
    ];
    let rows: Vec<Vec<String>> = tables
        .iter()
        .map(|table| {
            vec![
                table.name.clone(),
                grouped(table.streams),
                table.fields.len().to_string(),
                table.tags.join(","),
                table.duplicates.clone(),
                table.leaf_events.to_string(),
            ]
        })
        .collect();
    render(&headings, &rows)
}
