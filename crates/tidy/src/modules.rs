//! Dependencies between the modules of a crate, read from the parsed sources: arrows from a module
//! to those it names.
//!
//! A path that begins with `crate` or `super` leads to a module; one that names an item which the
//! crate's root passes on leads to where the root has it from. Code for tests only does not count:
//! a test may look at anything.
//!
//! Invariant: paths within macros count too, as far as their tokens stand beside each other.

use crate::{files, read};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// An arrow from a module to another, and where it was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    /// Path of the module that names, as from the root of the crate: `["read", "walk"]`.
    pub from: Vec<String>,
    /// Path that is named, as from the root: modules, and an item at its end.
    pub to: Vec<String>,
    /// The source, by its path from the top folder, and the line.
    pub at: (String, usize),
}

/// The modules of a crate and their arrows.
#[derive(Clone, Debug, Default)]
pub struct Crate {
    /// Every module by its path from the root.
    pub modules: BTreeSet<Vec<String>>,
    /// Every arrow, items that the root passes on followed to their modules.
    pub arrows: Vec<Arrow>,
}

/// True when an item is compiled for tests only.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Meta>()
                    .is_ok_and(|meta| match meta {
                        syn::Meta::Path(path) => path.is_ident("test"),
                        syn::Meta::List(list) => {
                            list.path.is_ident("all")
                                && list.tokens.to_string().split(", ").any(|t| t == "test")
                        }
                        syn::Meta::NameValue(_) => false,
                    }))
    })
}

impl Crate {
    /// Reads a crate by its folder, as `crates/engine`.
    #[must_use]
    pub fn read(folder: &str) -> Crate {
        let src = format!("{folder}/src");
        let sources = files(&src, ".rs").into_iter().map(|source| {
            let inner = source.strip_prefix(&format!("{src}/")).unwrap().to_owned();
            let text = read(&source);
            (source, inner, text)
        });
        Crate::of(sources)
    }

    /// Of sources: each with the name to report, its path from the crate's root, and its text.
    #[must_use]
    pub fn of(sources: impl IntoIterator<Item = (String, String, String)>) -> Crate {
        let mut out = Crate::default();
        // By the path of the module that has them: names, and what they stand for.
        let mut passed_on: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>> = BTreeMap::new();
        let mut for_tests = BTreeSet::new();
        let mut seen = Vec::new();
        for (source, inner, text) in sources {
            let path = path_of(&inner);
            let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{source}: {error}"));
            for item in &parsed.items {
                if let Item::Mod(module) = item
                    && is_for_tests(&module.attrs)
                {
                    for_tests.insert(joined(&path, &[module.ident.to_string()]));
                }
            }
            seen.push((source, path, parsed));
        }
        seen.retain(|(_, path, _)| !for_tests.iter().any(|test| path.starts_with(test)));
        for (source, path, parsed) in &seen {
            out.modules.insert(path.clone());
            let mut walk = Walk {
                module: path.clone(),
                source,
                arrows: Vec::new(),
                names: BTreeMap::new(),
            };
            walk.visit_file(parsed);
            out.arrows.append(&mut walk.arrows);
            passed_on.insert(path.clone(), walk.names);
        }
        let modules = out.modules.clone();
        for arrow in &mut out.arrows {
            // As often as a module passes on what another passes on.
            for _ in 0..8 {
                let Some(at) = (0..arrow.to.len()).rev().find(|n| {
                    let parent = &arrow.to[..*n];
                    !modules.contains(&arrow.to[..=*n])
                        && passed_on
                            .get(parent)
                            .is_some_and(|names| names.contains_key(&arrow.to[*n]))
                }) else {
                    break;
                };
                let named = &passed_on[&arrow.to[..at]][&arrow.to[at]];
                if named[..] == arrow.to[..=at] {
                    break;
                }
                let mut to = named.clone();
                to.extend_from_slice(&arrow.to[at + 1..]);
                arrow.to = to;
            }
        }
        out
    }

    /// The arrows between the children of a module, each pair once with one place where it is seen.
    #[must_use]
    pub fn between(&self, parent: &[String]) -> BTreeMap<(String, String), (String, usize)> {
        let mut out = BTreeMap::new();
        for arrow in &self.arrows {
            let depth = parent.len();
            let (Some(from), Some(to)) = (arrow.from.get(depth), arrow.to.get(depth)) else {
                continue;
            };
            let inside = arrow.from.starts_with(parent) && arrow.to.starts_with(parent);
            let is_module = self.modules.contains(&arrow.to[..=depth]);
            if inside && is_module && from != to {
                out.entry((from.clone(), to.clone()))
                    .or_insert_with(|| arrow.at.clone());
            }
        }
        out
    }

    /// The names of a module's children.
    #[must_use]
    pub fn children(&self, parent: &[String]) -> BTreeSet<String> {
        let depth = parent.len();
        self.modules
            .iter()
            .filter(|path| path.len() > depth && path.starts_with(parent))
            .map(|path| path[depth].clone())
            .collect()
    }

    /// The children of a module from the ground up; those of a circle are left out.
    #[must_use]
    pub fn order(&self, parent: &[String]) -> Vec<String> {
        let arrows: BTreeSet<(String, String)> = self.between(parent).into_keys().collect();
        let mut left = self.children(parent);
        let mut out: Vec<String> = Vec::new();
        while let Some(next) = left
            .iter()
            .find(|name| arrows.iter().all(|(a, b)| a != *name || out.contains(b)))
            .cloned()
        {
            left.remove(&next);
            out.push(next);
        }
        out
    }

    /// Groups of a module's children that lead to each other in a circle.
    #[must_use]
    pub fn circles(&self, parent: &[String]) -> Vec<Vec<String>> {
        let arrows: BTreeSet<(String, String)> = self.between(parent).into_keys().collect();
        let names: Vec<String> = self.children(parent).into_iter().collect();
        let mut reaches: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
        for name in &names {
            let mut open = vec![name];
            let mut found = BTreeSet::new();
            while let Some(at) = open.pop() {
                for (_, to) in arrows.iter().filter(|(from, _)| from == at) {
                    if found.insert(to) {
                        open.push(to);
                    }
                }
            }
            reaches.insert(name, found);
        }
        let mut out: Vec<Vec<String>> = Vec::new();
        for name in &names {
            if !reaches[name].contains(name) || out.iter().any(|c| c.contains(name)) {
                continue;
            }
            let circle = names
                .iter()
                .filter(|other| reaches[name].contains(other) && reaches[other].contains(name));
            out.push(circle.cloned().collect());
        }
        out
    }
}

fn joined(path: &[String], more: &[String]) -> Vec<String> {
    [path, more].concat()
}

/// The module that a source holds: `read/walk.rs` and `read/walk/mod.rs` hold `read::walk`.
fn path_of(inner: &str) -> Vec<String> {
    let mut parts: Vec<String> = inner
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    let last = parts.last().map(String::as_str);
    if last == Some("mod") || (parts.len() == 1 && matches!(last, Some("lib" | "main"))) {
        parts.pop();
    }
    parts
}

struct Walk<'a> {
    module: Vec<String>,
    source: &'a str,
    arrows: Vec<Arrow>,
    /// Names that `use` brings into the module, and their paths.
    names: BTreeMap<String, Vec<String>>,
}

impl Walk<'_> {
    /// A path as from the root; `None` when it leads out of the crate or is a local one.
    fn resolved(&self, segments: &[String]) -> Option<Vec<String>> {
        let mut base = match segments.first()?.as_str() {
            "crate" => return Some(segments[1..].to_vec()),
            "self" => return Some(joined(&self.module, &segments[1..])),
            "super" => self.module.clone(),
            _ => return None,
        };
        let supers = segments.iter().take_while(|s| *s == "super").count();
        for _ in 0..supers {
            base.pop()?;
        }
        Some(joined(&base, &segments[supers..]))
    }

    fn add(&mut self, segments: &[String], line: usize) {
        if let Some(to) = self.resolved(segments) {
            self.arrows.push(Arrow {
                from: self.module.clone(),
                to,
                at: (self.source.to_owned(), line),
            });
        }
    }

    fn add_use(&mut self, tree: &UseTree, before: &mut Vec<String>, line: usize) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_use(&path.tree, before, line);
                before.pop();
            }
            UseTree::Name(name) => self.add_name(&name.ident, &name.ident, before, line),
            UseTree::Rename(name) => self.add_name(&name.ident, &name.rename, before, line),
            UseTree::Glob(_) => self.add(before, line),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, before, line);
                }
            }
        }
    }

    fn add_name(&mut self, item: &syn::Ident, name: &syn::Ident, before: &[String], line: usize) {
        let mut path = before.to_vec();
        if item != "self" {
            path.push(item.to_string());
        }
        let name = match item == "self" {
            true => before.last().cloned().unwrap_or_default(),
            false => name.to_string(),
        };
        // A path without a keyword may begin with a child: `pub use error::Error`.
        let local = joined(&["self".to_owned()], &path);
        let whole = match path.first().map(String::as_str) {
            Some("crate" | "self" | "super") => path,
            _ => local,
        };
        if let Some(target) = self.resolved(&whole) {
            self.names.insert(name, target);
        }
        self.add(&whole, line);
    }

    fn add_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => {
                    self.add_tokens(group.stream());
                    at += 1;
                }
                TokenTree::Ident(first) if *first == "crate" || *first == "super" => {
                    let line = first.span().start().line;
                    let mut segments = vec![first.to_string()];
                    at += 1;
                    while let [
                        TokenTree::Punct(a),
                        TokenTree::Punct(b),
                        TokenTree::Ident(next),
                        ..,
                    ] = &tokens[at..]
                    {
                        if a.as_char() != ':' || b.as_char() != ':' {
                            break;
                        }
                        segments.push(next.to_string());
                        at += 3;
                    }
                    self.add(&segments, line);
                }
                _ => at += 1,
            }
        }
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[Attribute] = match item {
            Item::Const(i) => &i.attrs,
            Item::Enum(i) => &i.attrs,
            Item::Fn(i) => &i.attrs,
            Item::Impl(i) => &i.attrs,
            Item::Macro(i) => &i.attrs,
            Item::Mod(i) => &i.attrs,
            Item::Static(i) => &i.attrs,
            Item::Struct(i) => &i.attrs,
            Item::Trait(i) => &i.attrs,
            Item::Type(i) => &i.attrs,
            Item::Use(i) => &i.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_none() {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let line = item.use_token.span.start().line;
        self.add_use(&item.tree, &mut Vec::new(), line);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        let line = path
            .segments
            .first()
            .map_or(0, |s| s.ident.span().start().line);
        if segments.first().is_some_and(|s| s != "self") {
            self.add(&segments, line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, of: &'ast syn::Macro) {
        self.add_tokens(of.tokens.clone());
        visit::visit_macro(self, of);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }
}
