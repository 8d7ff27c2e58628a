//! The page of settings is what the table says.

use std::path::Path;

/// After a change on purpose: `UPDATE_DOCS=1 cargo test -p headwater-server settings`.
#[test]
fn the_page_of_settings_is_made_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/settings.md");
    let page = headwater_server::settings::page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, page, "UPDATE_DOCS=1 makes the page anew");
}
