//! Lets the program be built anew when the page was.
#![allow(clippy::disallowed_methods, reason = "a build script")]

fn main() {
    let dist = "../../web/dist";
    // A path that is not there would make every build a new one; `make web` touches this file when
    // it makes the folder.
    println!("cargo::rerun-if-changed=build.rs");
    if std::path::Path::new(dist).is_dir() {
        println!("cargo::rerun-if-changed={dist}");
    }
}
