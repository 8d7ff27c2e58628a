//! Extracts the parts of conditions and measures that depend on a match: each part becomes a
//! column, a slot, and the rest of the expression is computed over the slots.

use super::regex::Pattern;
use crate::error::{Error, Result};
use crate::rewrites::folded;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, Value, VisitMut,
    VisitorMut,
};
use std::ops::ControlFlow;

/// Part of the names of slots, and of functions that were marked `FINAL`; a typed name cannot
/// contain it.
pub(super) const MARK: char = '\u{1}';

/// Aggregates over the rows of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tally {
    Count,
    Sum,
    Mean,
    Least,
    Greatest,
}

/// The rows of a match: rows of these symbols, or all.
pub(super) type Of = Option<Vec<usize>>;

/// A part whose value depends on the match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    /// A column of a row.
    Value {
        column: Expr,
        of: Of,
        /// True: counted from the first of those rows; false: from the last.
        first: bool,
        /// Number of those rows after the first, or before the last.
        steps: usize,
        /// Shift by this many rows of the partition.
        shift: i64,
        whole: bool,
    },
    /// An aggregate of all of those rows.
    Tally {
        tally: Tally,
        of: Of,
        /// `None` = the rows themselves.
        value: Option<Expr>,
        whole: bool,
    },
    /// The symbol of the row.
    Classifier,
    /// The number of the match.
    Number,
}

/// The symbols of a pattern, and sets of them.
pub(super) struct Names<'a> {
    pub(super) pattern: &'a Pattern,
    pub(super) subsets: &'a [(String, Vec<usize>)],
}

impl Names<'_> {
    /// The symbols of a qualifier.
    pub(super) fn of(&self, name: &str) -> Option<Vec<usize>> {
        let symbols = &self.pattern.symbols;
        if let Some(symbol) = symbols.iter().position(|symbol| symbol == name) {
            return Some(vec![symbol]);
        }
        let subset = self.subsets.iter().find(|(subset, _)| subset == name);
        subset.map(|(_, symbols)| symbols.clone())
    }
}

/// Extracts the slots of expressions.
pub(super) struct Slots<'a> {
    names: Names<'a>,
    pub(super) all: Vec<Slot>,
    /// True for a condition, in which symbols and the end of the match are not available.
    pub(super) condition: bool,
}

fn wrong(message: String) -> Error {
    Error::unsupported(message)
}

impl<'a> Slots<'a> {
    pub(super) fn new(names: Names<'a>) -> Slots<'a> {
        Slots {
            names,
            all: Vec::new(),
            condition: true,
        }
    }

    /// The expression with slots in place of the parts that depend on a match.
    pub(super) fn take_out(&mut self, mut expr: Expr) -> Result<Expr> {
        match expr.visit(self) {
            ControlFlow::Continue(()) => Ok(expr),
            ControlFlow::Break(error) => Err(error),
        }
    }

    fn slot(&mut self, slot: Slot) -> Expr {
        let known = self.all.iter().position(|known| *known == slot);
        let at = known.unwrap_or_else(|| {
            self.all.push(slot);
            self.all.len() - 1
        });
        Expr::Identifier(Ident::with_quote('"', slot_name(at)))
    }

    /// The slot of an expression.
    fn slot_of(&self, expr: &Expr) -> Option<&Slot> {
        let Expr::Identifier(ident) = expr else {
            return None;
        };
        let number = ident.value.strip_prefix("slot")?.strip_prefix(MARK)?;
        self.all.get(number.parse::<usize>().ok()?)
    }

    fn changed(&mut self, expr: &Expr) -> Result<Option<Expr>> {
        let column = |column: &Ident, of: Of| Slot::Value {
            column: Expr::Identifier(column.clone()),
            of,
            first: false,
            steps: 0,
            shift: 0,
            whole: false,
        };
        Ok(match expr {
            Expr::Identifier(ident) if self.slot_of(expr).is_none() => {
                Some(self.slot(column(ident, None)))
            }
            Expr::CompoundIdentifier(parts) => {
                let [of, name] = parts.as_slice() else {
                    return Err(wrong(format!(
                        "`{expr}` in MATCH_RECOGNIZE: write symbol.column"
                    )));
                };
                let Some(rows) = self.names.of(&folded(of)) else {
                    return Err(Error::unknown_column(format!(
                        "`{of}` is not a symbol of the pattern"
                    ))
                    .with_hint("write the column alone, or a symbol before it"));
                };
                Some(self.slot(column(name, Some(rows))))
            }
            Expr::Function(function) => self.call(function)?,
            _ => None,
        })
    }

    /// A call that depends on the match.
    fn call(&mut self, function: &Function) -> Result<Option<Expr>> {
        let [name] = function.name.0.as_slice() else {
            return Ok(None);
        };
        let Some(name) = name.as_ident().map(folded) else {
            return Ok(None);
        };
        let (whole, name) = match name.split_once(MARK) {
            Some((_, name)) => (true, name.to_lowercase()),
            None => (false, name),
        };
        if whole && self.condition {
            return Err(wrong(
                "FINAL is allowed in MEASURES, not in DEFINE".to_owned(),
            ));
        }
        let args = match &function.args {
            FunctionArguments::List(list) if list.duplicate_treatment.is_none() => {
                list.args.as_slice()
            }
            FunctionArguments::List(_) => {
                return Err(wrong(format!(
                    "{name} of DISTINCT values in MATCH_RECOGNIZE"
                )));
            }
            _ => &[],
        };
        let tally = match name.as_str() {
            "count" => Tally::Count,
            "sum" => Tally::Sum,
            "avg" => Tally::Mean,
            "min" => Tally::Least,
            "max" => Tally::Greatest,
            "prev" | "next" | "first" | "last" => {
                return self.navigate(&name, args, whole).map(Some);
            }
            "classifier" if !self.condition && args.is_empty() => {
                return Ok(Some(self.slot(Slot::Classifier)));
            }
            "match_number" if args.is_empty() => return Ok(Some(self.slot(Slot::Number))),
            "classifier" => {
                return Err(wrong(
                    "CLASSIFIER() is allowed in MEASURES only, without arguments".to_owned(),
                ));
            }
            _ if whole => return Err(wrong(format!("FINAL {name} is not supported"))),
            _ => return Ok(None),
        };
        if function.filter.is_some() || function.over.is_some() {
            return Err(wrong(format!(
                "{name} with FILTER or OVER in MATCH_RECOGNIZE"
            )));
        }
        self.tally(tally, &name, args, whole).map(Some)
    }

    /// `PREV`, `NEXT`, `FIRST` and `LAST` of an expression: applied to each column in it.
    fn navigate(&mut self, name: &str, args: &[FunctionArg], whole: bool) -> Result<Expr> {
        let (of, by) = match args {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(of))] => (of, None),
            [
                FunctionArg::Unnamed(FunctionArgExpr::Expr(of)),
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(by))),
            ] => (of, Some(&by.value)),
            _ => return Err(wrong(format!("{name} takes a column and a number of rows"))),
        };
        let by = match by {
            None => None,
            Some(Value::Number(by, _)) => Some(by.parse::<u32>().map_err(|_| {
                Error::invalid_value(format!(
                    "{name}: expected a whole number of rows, found {by}"
                ))
            })?),
            Some(other) => {
                return Err(Error::invalid_value(format!(
                    "{name}: expected a number of rows, found {other}"
                )));
            }
        };
        let physical = matches!(name, "prev" | "next");
        let mut moved = of.clone();
        let mut mover = Mover {
            slots: self,
            change: &|slot| match slot {
                Slot::Value {
                    column,
                    of,
                    first,
                    steps,
                    shift,
                    whole: was_whole,
                } => {
                    let rows = i64::from(by.unwrap_or(1));
                    let rows = if name == "prev" { -rows } else { rows };
                    let moved = shift != 0;
                    let navigated = first || steps > 0 || was_whole;
                    if moved || (navigated && !physical) {
                        return None;
                    }
                    Some(Slot::Value {
                        column,
                        of,
                        first: if physical { first } else { name == "first" },
                        steps: match physical {
                            true => steps,
                            false => usize::try_from(by.unwrap_or(0)).ok()?,
                        },
                        shift: if physical { rows } else { 0 },
                        whole: was_whole || whole,
                    })
                }
                _ => None,
            },
            any: false,
        };
        if moved.visit(&mut mover).is_break() {
            return Err(wrong(format!(
                "{name} takes a column, FIRST or LAST: {name}({of})"
            )));
        }
        if !mover.any {
            return Err(wrong(format!("{name} names no column")));
        }
        Ok(Expr::Nested(Box::new(moved)))
    }

    fn tally(
        &mut self,
        tally: Tally,
        name: &str,
        args: &[FunctionArg],
        whole: bool,
    ) -> Result<Expr> {
        let mut of: Option<Of> = None;
        let value = match args {
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if tally == Tally::Count => {
                of = Some(None);
                None
            }
            [FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(symbol))]
                if tally == Tally::Count =>
            {
                let symbol = symbol
                    .0
                    .first()
                    .and_then(|part| part.as_ident())
                    .map(folded);
                let rows = symbol.and_then(|symbol| self.names.of(&symbol));
                of = Some(Some(rows.ok_or_else(|| {
                    Error::unknown_column("count of rows of what is no symbol of the pattern")
                })?));
                None
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] => Some(value),
            _ => return Err(wrong(format!("{name} takes one value in MATCH_RECOGNIZE"))),
        };
        let value = match value {
            None => None,
            Some(value) => {
                let mut plain = value.clone();
                let mut back = Back {
                    slots: self,
                    of: None,
                };
                if plain.visit(&mut back).is_break() {
                    return Err(wrong(format!(
                        "{name} takes columns of one symbol, or of all rows"
                    )));
                }
                of = back.of;
                Some(plain)
            }
        };
        Ok(self.slot(Slot::Tally {
            tally,
            of: of.flatten(),
            value,
            whole,
        }))
    }
}

/// Name of a slot.
pub(super) fn slot_name(at: usize) -> String {
    format!("slot{MARK}{at}")
}

impl VisitorMut for Slots<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        ControlFlow::Break(wrong(
            "a subquery in MATCH_RECOGNIZE is not supported".to_owned(),
        ))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match self.changed(expr) {
            Err(error) => return ControlFlow::Break(error),
            Ok(Some(made)) => *expr = made,
            Ok(None) => {}
        }
        ControlFlow::Continue(())
    }
}

/// Replaces the slots of an expression by other slots.
struct Mover<'a, 'b> {
    slots: &'a mut Slots<'b>,
    change: &'a dyn Fn(Slot) -> Option<Slot>,
    any: bool,
}

impl VisitorMut for Mover<'_, '_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Some(slot) = self.slots.slot_of(expr).cloned() else {
            return ControlFlow::Continue(());
        };
        match (self.change)(slot) {
            Some(slot) => {
                *expr = self.slots.slot(slot);
                self.any = true;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }
}

/// Replaces slots by their columns, all of the same rows.
struct Back<'a, 'b> {
    slots: &'a Slots<'b>,
    of: Option<Of>,
}

impl VisitorMut for Back<'_, '_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Some(slot) = self.slots.slot_of(expr) else {
            return ControlFlow::Continue(());
        };
        match slot {
            Slot::Value {
                column,
                of,
                first: false,
                steps: 0,
                shift: 0,
                whole: false,
            } if self.of.as_ref().is_none_or(|known| known == of) => {
                self.of = Some(of.clone());
                *expr = column.clone();
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(()),
        }
    }
}
