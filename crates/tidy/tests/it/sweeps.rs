//! Power cuts of the engine's tests: `make soak` meets each of them.

use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use tidy::{assert_none, files, read};

/// What cuts the power of a simulated disk at a chosen operation.
const CUT: &str = "crash_at";
const TESTS: &str = "crates/engine/tests/it/";

/// The words of which one has to stand in the path of a test for `make soak` to run it with a cut
/// at every operation.
fn words_of_soak(makefile: &str) -> Vec<String> {
    let command = makefile.split_once("HEADWATER_CRASH_EVERY=");
    let (_, command) = command.expect("the Makefile asks for a cut at every operation");
    let command = command.split("\n\n").next().unwrap_or(command);
    let (_, words) = command
        .split_once(" -- ")
        .expect("it says which tests it wants");
    words.split_whitespace().map(ToOwned::to_owned).collect()
}

/// The functions of a source: what each calls, and whether it is a test.
#[derive(Default)]
struct Functions {
    calls: BTreeMap<String, BTreeSet<String>>,
    tests: BTreeSet<String>,
    /// The one that is being read.
    within: Option<String>,
}

impl Functions {
    fn read(text: &str) -> Functions {
        let parsed = syn::parse_file(text).expect("the source of a test");
        let mut functions = Functions::default();
        functions.visit_file(&parsed);
        functions
    }

    fn enter(&mut self, name: &syn::Ident, read: impl FnOnce(&mut Self)) {
        let outer = self.within.replace(name.to_string());
        self.calls.entry(name.to_string()).or_default();
        read(self);
        self.within = outer;
    }

    fn call(&mut self, name: &syn::Ident) {
        if let Some(within) = &self.within {
            let calls = self.calls.entry(within.clone()).or_default();
            calls.insert(name.to_string());
        }
    }

    /// The tests that call `what`, themselves or through functions of this source.
    fn tests_that_reach(&self, what: &str) -> Vec<&str> {
        let mut reach = BTreeSet::from([what]);
        loop {
            let before = reach.len();
            for (name, calls) in &self.calls {
                if calls.iter().any(|called| reach.contains(called.as_str())) {
                    reach.insert(name);
                }
            }
            if reach.len() == before {
                break;
            }
        }
        let tests = self.tests.iter().map(String::as_str);
        tests.filter(|test| reach.contains(test)).collect()
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if item.attrs.iter().any(|a| a.path().is_ident("test")) {
            self.tests.insert(item.sig.ident.to_string());
        }
        self.enter(&item.sig.ident, |of| visit::visit_item_fn(of, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.enter(&item.sig.ident, |of| visit::visit_impl_item_fn(of, item));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.call(&call.method);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        if let Some(last) = path.path.segments.last() {
            self.call(&last.ident);
        }
        visit::visit_expr_path(self, path);
    }
}

#[test]
fn soak_meets_every_test_that_cuts_the_power() {
    let words = words_of_soak(&read("Makefile"));
    let mut offences = Vec::new();
    let mut met = 0;
    for source in files(TESTS, ".rs") {
        let module = source.trim_start_matches(TESTS).trim_end_matches(".rs");
        for test in Functions::read(&read(&source)).tests_that_reach(CUT) {
            let path = format!("{}::{test}", module.replace('/', "::"));
            if words.iter().any(|word| path.contains(word)) {
                met += 1;
            } else {
                offences.push(format!(
                    "{path}: put one of {words:?} into its name, or `make soak` never runs it"
                ));
            }
        }
    }
    assert!(met > 30 || !offences.is_empty(), "{met} tests were found");
    assert_none("power cuts that `make soak` does not meet", &offences);
}

#[test]
fn calls_are_followed_through_functions_of_the_source() {
    let source = "
        fn at(disk: &Disk) { disk.crash_at(3) }
        struct Sweep; impl Sweep { fn run(&self) { for d in disks() { at(&d) } } }
        #[test] fn direct() { disk().crash_at(1) }
        #[test] fn through() { Sweep.run() }
        #[test] fn handed() { all().for_each(at) }
        #[test] fn another() { disk().crash_now() }
    ";
    let functions = Functions::read(source);
    let found = functions.tests_that_reach(CUT);
    assert_eq!(found, ["direct", "handed", "through"]);
    let makefile = "soak:\n\tHEADWATER_CRASH_EVERY=1 \\\n\t  cargo test -- crash cut\n\nfuzz:\n";
    assert_eq!(words_of_soak(makefile), ["crash", "cut"]);
}
