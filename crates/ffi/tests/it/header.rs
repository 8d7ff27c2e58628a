//! The header in the tree is the one that cbindgen makes of the sources.

use std::path::Path;

/// What cbindgen makes of the crate.
fn generated() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    config.header = Some(std::fs::read_to_string(root.join("include/preamble.h")).unwrap());
    let bindings = cbindgen::generate_with_config(root, config).unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/headwater.h");
    let current = generated();
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == current,
        "{} is not what the sources say: UPDATE_HEADER=1 cargo test -p headwater-ffi --test it -- header",
        path.display()
    );
}
