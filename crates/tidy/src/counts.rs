//! Counts of constructs that the rules of a crate want seldom in its code: for the counts that may
//! only fall (tests/it/ratchets.rs).
//!
//! Invariant: code for tests only does not count.

use crate::modules::is_for_tests;
use crate::{files, read};
use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, Stmt};

/// The counted construct, in the words of the messages.
pub const CASTS: &str = "`as` between numbers, which cuts without a word";
/// See [`CASTS`].
pub const INDEXING: &str = "`a[i]`, which panics without a reason";
/// See [`CASTS`].
pub const DEFAULTED: &str = "`get(..).unwrap_or_default()`, which hides a broken invariant";
/// See [`CASTS`].
pub const SKIPPED: &str = "`else { continue }`, which skips in silence";
/// See [`CASTS`].
pub const LONG_FUNCTIONS: &str = "functions of more than 70 lines";
/// See [`CASTS`].
pub const MANY_ARGUMENTS: &str = "functions of seven arguments and more";
/// See [`CASTS`].
pub const WIDE_COMMENTS: &str = "comments beyond column 100";
/// See [`CASTS`].
pub const FRAGMENTS: &str = "doc comments of one word, or that begin in the middle of a sentence";
/// See [`CASTS`].
pub const BARE_INSTANTS: &str = "instants in signatures and fields that are `i64`, not `Timestamp`";

/// Names of instants. Columns of times are numbers, and so is what has its unit in its name.
const INSTANTS: [&str; 20] = [
    "arrival",
    "at",
    "believed",
    "cut",
    "end",
    "expires_at",
    "first",
    "first_time",
    "from",
    "generation",
    "instant",
    "last",
    "last_time",
    "newest",
    "now",
    "oldest",
    "time",
    "to",
    "until",
    "watermark",
];

const LONG_FUNCTION: usize = 70;
const ARGUMENTS: usize = 7;
const COLUMNS: usize = 100;

/// Each count of the sources below a folder; every one of the constants above has an entry.
#[must_use]
pub fn of(folder: &str) -> BTreeMap<&'static str, usize> {
    let mut counts = Counts::default();
    for name in [
        CASTS,
        INDEXING,
        DEFAULTED,
        SKIPPED,
        LONG_FUNCTIONS,
        MANY_ARGUMENTS,
        WIDE_COMMENTS,
        FRAGMENTS,
        BARE_INSTANTS,
    ] {
        counts.found.insert(name, 0);
    }
    for source in files(&format!("{folder}/src"), ".rs") {
        if !is_of_tests(&source) {
            counts.visit_file(&parsed(&source));
        }
        counts.comments(&read(&source));
    }
    for source in files(&format!("{folder}/tests"), ".rs") {
        counts.comments(&read(&source));
    }
    counts.found
}

/// Functions of a crate that have more lines than this, tests left out, as `file: name, lines`.
#[must_use]
pub fn functions_beyond(folder: &str, most: usize) -> Vec<String> {
    let mut out = Vec::new();
    for source in files(&format!("{folder}/src"), ".rs") {
        if is_of_tests(&source) {
            continue;
        }
        let mut counts = Counts::default();
        counts.visit_file(&parsed(&source));
        let long = counts
            .lengths
            .into_iter()
            .filter(|(_, lines)| *lines > most);
        out.extend(long.map(|(name, lines)| format!("{source}: `{name}` has {lines} lines")));
    }
    out
}

fn is_of_tests(source: &str) -> bool {
    source.ends_with("/tests.rs") || source.contains("/tests/")
}

fn parsed(source: &str) -> syn::File {
    syn::parse_file(&read(source)).unwrap_or_else(|error| panic!("{source}: {error}"))
}

/// Lines between the braces of a function.
fn lines_of(block: &syn::Block) -> usize {
    let span = block.brace_token.span;
    span.close().end().line - span.open().start().line
}

#[derive(Default)]
struct Counts {
    found: BTreeMap<&'static str, usize>,
    /// Lines of each function, by its name.
    lengths: Vec<(String, usize)>,
}

impl Counts {
    fn add(&mut self, what: &'static str) {
        *self.found.entry(what).or_default() += 1;
    }

    fn comments(&mut self, text: &str) {
        let mut before = "";
        let mut lines = text.lines().map(str::trim_start).peekable();
        for line in text.lines() {
            let trimmed = line.trim_start();
            lines.next();
            if trimmed.starts_with("//") && line.chars().count() > COLUMNS && !is_table(trimmed) {
                self.add(WIDE_COMMENTS);
            }
            let is_first = !before.starts_with("///");
            let is_last = !lines.peek().is_some_and(|next| next.starts_with("///"));
            if let Some(doc) = trimmed.strip_prefix("/// ") {
                let starts_inside = doc.starts_with('…') || doc.starts_with("...");
                let one_word = is_last && doc.split_whitespace().count() == 1;
                if is_first && (starts_inside || one_word) {
                    self.add(FRAGMENTS);
                }
            }
            before = trimmed;
        }
    }

    fn instant(&mut self, name: &syn::Ident, ty: &syn::Type) {
        if is_bare(ty) && INSTANTS.iter().any(|instant| name == instant) {
            self.add(BARE_INSTANTS);
        }
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = lines_of(block);
        self.lengths.push((signature.ident.to_string(), lines));
        if lines > LONG_FUNCTION {
            self.add(LONG_FUNCTIONS);
        }
        if signature.inputs.len() >= ARGUMENTS {
            self.add(MANY_ARGUMENTS);
        }
        for input in &signature.inputs {
            if let syn::FnArg::Typed(typed) = input
                && let syn::Pat::Ident(name) = &*typed.pat
            {
                self.instant(&name.ident, &typed.ty);
            }
        }
    }
}

/// `i64`, or an option of one.
fn is_bare(ty: &syn::Type) -> bool {
    let syn::Type::Path(path) = ty else {
        return false;
    };
    let Some(last) = path.path.segments.last() else {
        return false;
    };
    match &last.arguments {
        syn::PathArguments::AngleBracketed(inner) if last.ident == "Option" => {
            inner.args.iter().any(|argument| match argument {
                syn::GenericArgument::Type(ty) => is_bare(ty),
                _ => false,
            })
        }
        _ => last.ident == "i64",
    }
}

/// Rows of tables and addresses cannot be broken.
fn is_table(comment: &str) -> bool {
    let said = comment.trim_start_matches(['/', '!']).trim_start();
    said.starts_with('|') || said.contains("://")
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Counts {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.function(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            self.instant(name, &field.ty);
        }
        visit::visit_field(self, field);
    }

    fn visit_expr_cast(&mut self, cast: &'ast syn::ExprCast) {
        self.add(CASTS);
        visit::visit_expr_cast(self, cast);
    }

    fn visit_expr_index(&mut self, index: &'ast syn::ExprIndex) {
        self.add(INDEXING);
        visit::visit_expr_index(self, index);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "unwrap_or_default" && ends_in_get(&call.receiver) {
            self.add(DEFAULTED);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let otherwise = local.init.as_ref().and_then(|init| init.diverge.as_ref());
        if let Some((_, otherwise)) = otherwise
            && let Expr::Block(block) = &**otherwise
            && let [Stmt::Expr(Expr::Continue(_), _)] = &block.block.stmts[..]
        {
            self.add(SKIPPED);
        }
        visit::visit_local(self, local);
    }
}

/// `get(..)`, or it with `copied()` and the like behind it.
fn ends_in_get(receiver: &Expr) -> bool {
    match receiver {
        Expr::MethodCall(call) if call.method == "get" => true,
        Expr::MethodCall(call)
            if call.method == "copied" || call.method == "cloned" || call.method == "map" =>
        {
            ends_in_get(&call.receiver)
        }
        _ => false,
    }
}
