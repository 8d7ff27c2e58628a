//! The catalog: tables are found by the names that engines ask for, and by no others.

use crate::support::{Bench, START, metadata, options};
use headwater::StreamName;
use headwater_lake::{Catalog, OWN_NAMESPACE, folder_of, folder_of_edge, write};
use std::fs;

fn names(catalog: &Catalog, namespace: &str) -> Vec<(String, String)> {
    let told = catalog.tables(namespace).unwrap().unwrap();
    assert!(told.unreadable.is_empty(), "{told:?}");
    let tables = told.tables.into_iter();
    tables.map(|table| (table.name, table.table)).collect()
}

fn filled() -> Bench {
    let bench = Bench::new();
    for table in ["pumps", "a/b é", "_edges", ".."] {
        let stream = StreamName::new(table, [("id", "1")]);
        bench.row(&stream, START, &[("rpm", 1.0.into())]);
    }
    bench
}

#[test]
fn tables_are_found_by_their_names_and_their_newest_metadata_are_told() {
    let bench = filled();
    let catalog = Catalog::new(&bench.lake());
    // Nothing was written yet.
    assert_eq!(catalog.namespaces().unwrap(), [OWN_NAMESPACE]);
    assert!(names(&catalog, OWN_NAMESPACE).is_empty());
    assert_eq!(catalog.load(OWN_NAMESPACE, "pumps").unwrap(), None);
    bench.write();
    let found = names(&catalog, OWN_NAMESPACE);
    let mut wanted: Vec<(String, String)> = ["pumps", "a/b é", "_edges", ".."]
        .map(|table| (folder_of(table), table.to_owned()))
        .into();
    wanted.sort();
    assert_eq!(found, wanted);
    for (name, table) in found {
        let loaded = catalog.load(OWN_NAMESPACE, &name).unwrap().unwrap();
        assert_eq!(loaded.table, table);
        assert_eq!(
            Some(&loaded.metadata),
            metadata(&bench.lake(), &table).as_ref()
        );
        let file: serde_json::Value =
            serde_json::from_slice(&fs::read(&loaded.path).unwrap()).unwrap();
        assert_eq!(loaded.metadata, file);
    }
    // A commit is seen by the next who asks.
    let before = catalog.load(OWN_NAMESPACE, "pumps").unwrap().unwrap();
    let pump = StreamName::new("pumps", [("id", "1")]);
    bench.row(&pump, START + 1, &[("rpm", 2.0.into())]);
    bench.write();
    let after = catalog.load(OWN_NAMESPACE, "pumps").unwrap().unwrap();
    assert_ne!(before.path, after.path);
    assert_ne!(
        before.metadata["current-snapshot-id"],
        after.metadata["current-snapshot-id"]
    );
}

#[test]
fn edges_have_namespaces_of_their_own() {
    let bench = filled();
    bench.write();
    let edge = folder_of_edge(&bench.lake(), "north 1");
    write(&|| bench.db().snapshot(), &edge, &options()).unwrap();
    let catalog = Catalog::new(&bench.lake());
    let namespaces = catalog.namespaces().unwrap();
    assert_eq!(namespaces, [OWN_NAMESPACE, "edge_north~201"]);
    let found = names(&catalog, "edge_north~201");
    assert_eq!(found, names(&catalog, OWN_NAMESPACE));
    let of_edge = catalog.load("edge_north~201", "pumps").unwrap().unwrap();
    assert!(of_edge.path.starts_with(edge.canonicalize().unwrap()));
}

#[test]
fn nothing_but_tables_of_the_lake_is_found_whatever_is_asked_for() {
    let bench = filled();
    bench.write();
    let lake = bench.lake();
    // Another lake beside it, which a path would reach.
    let other = lake.parent().unwrap().join("other");
    write(&|| bench.db().snapshot(), &other, &options()).unwrap();
    fs::create_dir_all(lake.join("empty/metadata")).unwrap();
    fs::write(lake.join("file"), "").unwrap();
    let catalog = Catalog::new(&lake);
    for name in [
        "",
        ".",
        "..",
        "../other/pumps",
        "./pumps",
        "pumps/",
        "pumps/metadata",
        "/",
        "empty",
        "file",
        "none",
        "pumps\0",
        "_edges",
    ] {
        assert_eq!(catalog.load(OWN_NAMESPACE, name).unwrap(), None, "{name}");
    }
    for namespace in ["", "none", "edge_", "edge_..", "edge_../other", "_edges"] {
        assert!(catalog.tables(namespace).unwrap().is_none(), "{namespace}");
        assert_eq!(catalog.load(namespace, "pumps").unwrap(), None);
    }
}

#[test]
fn a_table_that_cannot_be_read_is_told_of_beside_the_others() {
    let bench = filled();
    bench.write();
    let lake = bench.lake();
    fs::write(lake.join("pumps/metadata/v9.metadata.json"), "{").unwrap();
    let moved = lake.join("moved");
    fs::rename(lake.join(folder_of("a/b é")), &moved).unwrap();
    let catalog = Catalog::new(&lake);
    let told = catalog.tables(OWN_NAMESPACE).unwrap().unwrap();
    let mut unreadable: Vec<_> = told
        .unreadable
        .iter()
        .map(|(n, e)| (&**n, e.code()))
        .collect();
    unreadable.sort_unstable();
    assert_eq!(
        unreadable,
        [("moved", "lake.moved"), ("pumps", "lake.format")]
    );
    assert_eq!(told.tables.len(), 2);
    assert!(catalog.load(OWN_NAMESPACE, "pumps").is_err());
}
