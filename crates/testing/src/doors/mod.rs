//! The table of front ends: requests of rows that are sent through every front end that takes rows,
//! and the state that must be stored afterwards.
//!
//! The cases lie in `tests/doors/cases.json`, where the packages of other languages read them too.
//! Go's package calls the library for C for each row, which has no column of its own for that
//! reason. Here are the model, which says what is stored after each, and the walk of one front end.
//!
//! Invariants: a front end names what its form cannot say ([`FrontEnd::unmet_needs`]); a case that
//! needs none of that is walked, so that a front end cannot leave one out by saying nothing.
//! Failure: a difference from the model is a panic that names the case.

mod cases;
mod cell;
mod contents;
mod lines;
mod model;

pub use cases::{Case, Need, Request, Row, cases};
pub use cell::Cell;
pub use contents::contents_of;
pub use lines::lines;
pub use model::{Rows, State, Table};

use std::collections::BTreeMap;

/// Answer of a front end to a request.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Rows that were refused; of a front end that takes all or none, any number when it refused.
    pub refused: usize,
    /// The codes of rows that were refused, where the front end returns codes of ours.
    pub codes: Option<Vec<String>>,
    /// Rows that replaced others of the request, where the front end counts them.
    pub replaced: Option<u64>,
}

/// A front end that takes rows.
pub trait FrontEnd {
    /// Its name in the table.
    fn name(&self) -> &'static str;

    /// The needs that its form cannot meet.
    fn unmet_needs(&self) -> &'static [Need];

    /// True when one refused row keeps all others of the request out.
    fn is_whole(&self) -> bool {
        false
    }

    /// True when the front end counts what replaces rows that were stored before, too.
    fn counts_all(&self) -> bool {
        false
    }

    /// The field that all values go to, where the form has no names of fields.
    fn only_field(&self) -> Option<&'static str> {
        None
    }

    /// Makes the tables of a case, for a front end that does not make them by itself.
    fn declare(&mut self, _tables: &State) {}

    /// Sends a request.
    fn send(&mut self, request: &Request) -> Outcome;

    /// Everything that is stored, after an opening of its own.
    fn stored(self: Box<Self>) -> State;
}

/// Takes a front end through all cases that its form can say. Returns their number.
pub fn walk(mut door: Box<dyn FrontEnd>) -> usize {
    let name = door.name();
    let mut expected = State::new();
    let mut walked = 0;
    for case in cases() {
        if case
            .needs
            .iter()
            .any(|need| door.unmet_needs().contains(need))
        {
            continue;
        }
        walked += 1;
        let case = case_for(case, door.as_ref(), walked);
        let mut after = State::new();
        let mut replaced = Vec::new();
        for request in &case.requests {
            let stored_before = model::apply(&mut after, request, door.is_whole());
            replaced.push(match door.counts_all() {
                true => stored_before,
                false => request.replaced,
            });
        }
        door.declare(&model::tables_of(&case, &after));
        for ((at, request), replaced) in case.requests.iter().enumerate().zip(replaced) {
            let told = door.send(request);
            check_answers((name, door.is_whole()), &case, (at, replaced), &told);
        }
        if door.unmet_needs().contains(&Need::NewFields) {
            expected.extend(model::tables_of(&case, &after));
        } else {
            expected.extend(after);
        }
    }
    let found = door.stored();
    let differing = model::differences(&expected, &found);
    assert!(differing.is_empty(), "{name}:\n{}", differing.join("\n"));
    walked
}

fn check_answers(
    (door, is_whole): (&str, bool),
    case: &Case,
    (at, wanted): (usize, u64),
    told: &Outcome,
) {
    let request = case.requests.get(at).unwrap();
    let place = format!("{door}: {}, request {}", case.name, at + 1);
    if is_whole {
        assert_eq!(
            told.refused > 0,
            !request.refused.is_empty(),
            "{place}: {told:?}"
        );
    } else {
        assert_eq!(told.refused, request.refused.len(), "{place}: {told:?}");
    }
    if let Some(codes) = &told.codes {
        let mut wanted: Vec<_> = request.refused.values().collect();
        let mut codes: Vec<_> = codes.iter().collect();
        wanted.sort();
        codes.sort();
        if is_whole {
            wanted.dedup();
            codes.dedup();
        }
        assert_eq!(codes, wanted, "{place}: {told:?}");
    }
    if let Some(replaced) = told.replaced.filter(|_| request.refused.is_empty()) {
        assert_eq!(replaced, wanted, "{place}: {told:?}");
    }
}

/// A case as a front end's form says it, with tables of its own.
fn case_for(mut case: Case, door: &dyn FrontEnd, number: usize) -> Case {
    let has_times = !door.unmet_needs().contains(&Need::Times);
    for row in case.requests.iter_mut().flat_map(|r| &mut r.rows) {
        row.table.push_str(&format!("_{number}"));
        if !has_times {
            row.time_ms = None;
        }
        if let Some(only) = door.only_field() {
            let values = std::mem::take(&mut row.fields);
            assert!(values.len() == 1, "{}: one field is needed", case.name);
            row.fields = values
                .into_values()
                .map(|value| (only.to_owned(), value))
                .collect::<BTreeMap<_, _>>();
        }
    }
    case
}
