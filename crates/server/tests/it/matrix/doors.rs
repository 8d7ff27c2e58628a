//! SQL, over HTTP and by PostgreSQL's protocol.

use super::requests::SUBJECTS;
use super::same_answer;
use super::statements::{CHANGES, FUNCTIONS, READS};
use super::world::{Request, SECRET, Token, TokenKind, World, worlds};
use crate::postgres::raw::{Client, lines, message, texts};

/// Statements for everything there is to ask for, without doubles.
fn texts_of(statements: &[&str]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for text in statements
        .iter()
        .flat_map(|s| SUBJECTS.iter().map(|t| t.fill(s)))
    {
        if !out.contains(&text) {
            out.push(text);
        }
    }
    out
}

pub(super) fn over_http(statements: &[&str]) -> Vec<Request> {
    let ask = |text: String| Request {
        method: "POST".to_owned(),
        target: "/api/v1/sql".to_owned(),
        headers: Vec::new(),
        body: text.into_bytes(),
    };
    texts_of(statements).into_iter().map(ask).collect()
}

#[test]
fn no_statement_that_changes_something_tells_what_a_token_may_not_see() {
    let (worlds, tokens) = worlds();
    for token in tokens.iter().filter(|t| t.kind != TokenKind::ReadsAll) {
        for ask in over_http(CHANGES) {
            same_answer(&worlds, token, &ask);
        }
    }
}

/// A session of this token, and all that was said when it began.
fn enter(world: &World, token: &Token) -> (Option<Client>, Vec<String>) {
    let mut client = Client::connect(world.server.postgres.unwrap());
    client.begin(&[("user", "anyone"), ("database", "plant")]);
    client.next().unwrap();
    client.send(&[message(
        b'p',
        &texts(&[token.text.as_deref().unwrap_or("")]),
    )]);
    let answers = client.until_ready();
    let is_in = answers.last().is_some_and(|last| last.kind == 'Z');
    (is_in.then_some(client), lines(&answers))
}

#[test]
fn by_the_protocol_of_postgresql_a_token_is_told_the_same_in_both_worlds() {
    let (worlds, tokens) = worlds();
    let (mut rows, mut differ) = (0, 0);
    for token in &tokens {
        let [with, without] = worlds.each_ref().map(|world| enter(world, token));
        assert_eq!(with.1, without.1, "{}", token.name);
        let (Some(mut with), Some(mut without)) = (with.0, without.0) else {
            continue;
        };
        let sees = token.kind == TokenKind::ReadsAll;
        let changes: &[&str] = if sees { &[] } else { CHANGES };
        for sql in texts_of(&[READS, FUNCTIONS, changes].concat()) {
            let [with, without] = [&mut with, &mut without].map(|client| client.query(&sql));
            if sees {
                differ += usize::from(with != without);
                continue;
            }
            assert_eq!(with, without, "{}: {sql}", token.name);
            rows += with.iter().filter(|line| line.starts_with('D')).count();
            let tells = with.iter().any(|line| line.contains(SECRET));
            assert!(
                !tells || sql.contains(SECRET),
                "{}: {sql}: {with:?}",
                token.name
            );
        }
    }
    assert!(
        rows > 100 && differ > 20,
        "{rows} rows, {differ} answers that differ"
    );
}
