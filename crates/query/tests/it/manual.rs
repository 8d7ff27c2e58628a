//! The examples of the manual: every statement runs, and answers what the page says.

use crate::support::{Lake, block_on};
use headwater_query::Parameters;

/// A block of statements, and what the last of them answers, where the page says it.
struct Example {
    sql: String,
    answer: Option<Vec<String>>,
}

fn page(name: &str) -> String {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

fn examples(page: &str) -> Vec<Example> {
    let mut out: Vec<Example> = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let kind = match line {
            "```sql" | "```text" => line,
            _ => continue,
        };
        let block: Vec<String> = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .map(str::to_owned)
            .collect();
        match kind {
            "```sql" => out.push(Example {
                sql: block.join("\n"),
                answer: None,
            }),
            _ => out.last_mut().unwrap().answer = Some(block),
        }
    }
    out
}

async fn run(lake: &Lake, page_name: &str) {
    let all = examples(&page(page_name));
    assert!(all.len() > 2, "{page_name} has examples");
    for example in all {
        let statements = headwater_query::statements(&example.sql).unwrap();
        let mut last = Vec::new();
        for statement in statements {
            let sql = &statement.text;
            let answer = lake.session.run(sql, Parameters::none()).await;
            let rows = match answer {
                Ok(answer) => answer.collect().await,
                Err(error) => Err(error),
            };
            last = match rows {
                Ok(rows) => crate::support::text(&rows),
                Err(error) => panic!("{page_name}: {sql}: {}: {error}", error.code),
            };
        }
        if let Some(answer) = example.answer {
            assert_eq!(last, answer, "{page_name}: {}", example.sql);
        }
    }
}

#[test]
fn every_example_of_the_manual_runs_and_answers_what_it_says() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE stations (station TAG, height DOUBLE)")
            .await;
        run(&lake, "sql.md").await;
        let lake = Lake::new();
        run(&lake, "sql-functions.md").await;
        let lake = Lake::new();
        run(&lake, "sql-patterns.md").await;
        let lake = Lake::new();
        run(&lake, "watches.md").await;
    });
}

/// The names of functions in the first column of a page's tables.
fn functions(page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let mut names = Vec::new();
    for row in rows {
        let cell = row.split(" | ").next().unwrap();
        for part in cell.split('`').skip(1).step_by(2) {
            if let Some((name, _)) = part.split_once('(')
                && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            {
                names.push(name.to_owned());
            }
        }
    }
    names
}

#[test]
fn every_function_of_the_manual_has_an_example() {
    let text = page("sql-functions.md");
    let sql: Vec<String> = examples(&text).into_iter().map(|e| e.sql).collect();
    let sql = sql.join("\n");
    let names = functions(&text);
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(sql.contains(&format!("{name}(")), "{name} has no example");
    }
}
