//! `headwater sync fetched`: what a cloud fetched from edges for readers on this day, by token.

use super::ListFormat;
use crate::failure::Failure;
use crate::grid::{Heading, bytes, render};
use crate::output::{print, print_json};
use crate::server::Server;
use headwater_cluster::TokenFetched;

fn cells(one: &TokenFetched) -> Vec<String> {
    let token = one.token.as_deref();
    vec![
        token.unwrap_or("(without a token)").to_owned(),
        bytes(one.bytes),
        one.per_day.map_or_else(|| "unlimited".to_owned(), bytes),
        if one.is_spent { "yes" } else { "no" }.to_owned(),
    ]
}

pub(super) fn fetched(server: &Server, format: ListFormat) -> Result<(), Failure> {
    let fetched = server.sync_status()?.fetched;
    let fetched = fetched.ok_or_else(|| {
        Failure::failed("this node fetches nothing for readers: only a cloud (--role cloud) does")
    })?;
    if format == ListFormat::Json {
        return print_json(&fetched);
    }
    let headings = [
        Heading::text("token"),
        Heading::number("fetched today"),
        Heading::number("of"),
        Heading::text("spent"),
    ];
    let rows: Vec<Vec<String>> = fetched.tokens.iter().map(cells).collect();
    print(&render(&headings, &rows))
}
