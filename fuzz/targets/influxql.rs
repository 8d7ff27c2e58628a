//! Statements of InfluxQL: what is read prints as text that reads back to the same; mistakes lie
//! within the text.
#![no_main]

use headwater_fuzz as _;
use headwater_wire::influxql::{Expression, Parameters, Statement, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // A line of JSON in front gives values for names.
    let (head, rest) = text.split_once('\n').unwrap_or(("", text));
    let parameters = Parameters::parse(head).unwrap_or_default();
    let has_values = parameters != Parameters::default();
    let text = if has_values { rest } else { text };
    match parse(text, &parameters) {
        Ok(statements) => {
            assert!(!statements.is_empty());
            for statement in &statements {
                if let Statement::Select(select) = statement {
                    assert!(!select.fields.is_empty() && !select.sources.is_empty());
                    for field in &select.fields {
                        depth(&field.expression);
                    }
                }
                // A value may hold what no text can, such as a regular expression that begins like
                // a comment.
                let printed = statement.to_string();
                if !has_values {
                    let back = parse(&printed, &parameters);
                    assert_eq!(
                        back.as_deref(),
                        Ok(std::slice::from_ref(statement)),
                        "{printed}"
                    );
                }
            }
        }
        Err(error) => {
            assert!(error.offset <= text.len(), "{error}");
            assert!(error.line <= text.matches('\n').count() + 1, "{error}");
            assert!(!error.message.is_empty());
        }
    }
});

/// Whoever walks an expression may recurse.
fn depth(expression: &Expression) -> usize {
    let below = match expression {
        Expression::Literal(_) | Expression::Wildcard(_) | Expression::Reference { .. } => 0,
        Expression::Call {
            arguments: parts, ..
        }
        | Expression::All(parts)
        | Expression::Any(parts) => parts.iter().map(depth).max().unwrap_or(0),
        Expression::Binary { left, right, .. } => depth(left).max(depth(right)),
    };
    assert!(below < 1_000);
    below + 1
}
