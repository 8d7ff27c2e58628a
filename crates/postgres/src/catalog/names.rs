//! Names: quoting, and OIDs for tables, which do not have their own.

use std::collections::BTreeMap;

/// Smaller OIDs belong to PostgreSQL's own objects.
pub(super) const FIRST_OID: u32 = 16_384;
pub(super) const PUBLIC_OID: u32 = 2_200;
pub(super) const CATALOG_OID: u32 = 11;
pub(super) const INFORMATION_OID: u32 = 13_000;
pub(super) const USER_OID: u32 = 10;
pub(super) const DATABASE_OID: u32 = 5;

/// An OID for each of these names: the same each time, unless tables with the same hash are created
/// or dropped.
pub(super) fn oids<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<u32, &'a str> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let mut oids = BTreeMap::new();
    for name in names {
        let mut oid = FIRST_OID + hash(name) % (i32::MAX as u32 - FIRST_OID - 1_000_000);
        while oids.contains_key(&oid) {
            oid += 1;
        }
        oids.insert(oid, name);
    }
    oids
}

/// FNV-1a (Fowler, Noll, Vo), which need not resist anyone: a collision costs a step.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// A name quoted for SQL.
pub(super) fn quote_ident(name: &str) -> String {
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !name.is_empty()
        && !name.as_bytes()[0].is_ascii_digit()
        && !RESERVED.contains(&name);
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// A text quoted as an SQL literal.
pub(crate) fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Parses the SQL name of a table: its schema, if present, and its name.
pub(super) fn read_name(text: &str) -> (Option<String>, String) {
    let mut parts = parts_of_name(text);
    let name = parts.pop().unwrap_or_default();
    (parts.pop(), name)
}

/// Parts of an SQL name.
pub(super) fn parts_of_name(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut chars = text.trim().chars().peekable();
    while let Some(c) = chars.next() {
        let part = parts.len() - 1;
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                parts[part].push('"');
            }
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            c if quoted => parts[part].push(c),
            // Around dots.
            c if c.is_whitespace() => {}
            c => parts[part].extend(c.to_lowercase()),
        }
    }
    parts
}

/// Words that are not names unless quoted.
pub(super) const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_when_they_must_be() {
        for (name, wanted) in [
            ("cars", "cars"),
            ("Cars", "\"Cars\""),
            ("a b", "\"a b\""),
            ("a\"b", "\"a\"\"b\""),
            ("1a", "\"1a\""),
            ("user", "\"user\""),
            ("", "\"\""),
        ] {
            assert_eq!(quote_ident(name), wanted);
            if !name.is_empty() {
                assert_eq!(read_name(wanted), (None, name.to_owned()));
            }
        }
        assert_eq!(
            read_name("pg_catalog.\"A.b\""),
            (Some("pg_catalog".to_owned()), "A.b".to_owned())
        );
        assert_eq!(read_name("PG_class").1, "pg_class");
        assert_eq!(
            read_name("\"public\" . \"a b\""),
            (Some("public".to_owned()), "a b".to_owned())
        );
    }

    #[test]
    fn numbers_stay_when_others_come() {
        let few = oids(["a", "b"].into_iter());
        let many = oids(["c", "b", "a"].into_iter());
        for (oid, name) in few {
            assert!(oid >= FIRST_OID && i32::try_from(oid).is_ok());
            assert_eq!(many.get(&oid), Some(&name));
        }
    }
}
