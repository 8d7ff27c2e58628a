//! Placeholder at `/` for servers without the page.
//!
//! Invariants: the placeholder is self-contained, and lists the routes that work without the page.

use axum::response::Html;
use headwater_shell::{Needs, Route};

/// Instructions for building the page, and a note that the rest works.
const TEXT: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>Headwater</title>
<h1>Headwater is running</h1>
<p>This program was built without its page. Build the page with <code>make web</code>, and rebuild the program with
<code>cargo build --release --package headwater-cli</code>; <code>make run</code> does both.</p>
<p>Everything else works: <a href=\"api/openapi.json\">what there is</a>, <a href=\"health\">health</a>,
<a href=\"metrics\">metrics</a>.</p>
</html>
";

/// The answer in place of the page.
pub(crate) fn answer() -> Html<&'static str> {
    Html(TEXT)
}

/// Route of a program without the page's files.
#[allow(dead_code, reason = "used where the page is not built in")]
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Vec<Route<S>> {
    vec![Route::get("/", Needs::Public, async || answer())]
}
