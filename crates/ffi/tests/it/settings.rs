//! Every setting of the engine can be set from C, Go and Python: none is forgotten when one comes.

use headwater::settings::{SETTINGS, SettingKind};
use std::path::Path;

fn read(path: &str) -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(top.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_setting_of_the_engine_has_a_field_in_c() {
    let header = read("crates/ffi/include/headwater.h");
    let (_, options) = header.split_once("typedef struct hw_options {").unwrap();
    let (options, _) = options.split_once("} hw_options;").unwrap();
    for setting in SETTINGS {
        let field = match setting.kind {
            SettingKind::Span { .. } => format!(" {}_ns;", setting.field),
            _ => format!(" {};", setting.field),
        };
        assert!(options.contains(&field), "hw_options has no{field}");
    }
}

#[test]
fn every_setting_of_the_engine_has_an_option_in_go() {
    let options = read("bindings/go/options.go");
    for setting in SETTINGS {
        let names = [
            format!("o.{} = ", setting.field),
            format!("o.{}_ns = ", setting.field),
            format!("options.{} = ", setting.field),
        ];
        let is_there = names.iter().any(|name| options.contains(name));
        assert!(is_there, "options.go sets no {}", setting.field);
    }
}

#[test]
fn every_setting_of_the_engine_is_on_the_page_of_python() {
    let pages = [
        read("docs/embed/python.md"),
        read("bindings/python/python/headwater/_database.py"),
    ];
    for setting in SETTINGS {
        let name = setting
            .field
            .replace("memory_budget_bytes", "memory_budget");
        let is_there = pages.iter().any(|page| {
            page.contains(&format!("`{name}`")) || page.contains(&format!(":param {name}:"))
        });
        assert!(is_there, "Python's pages do not name {name}");
    }
}
