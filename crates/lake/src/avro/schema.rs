//! Schemas of Avro, as far as manifests need them.
//!
//! Invariants: the definition of a name is stored once, however often the name is used, so a schema
//! needs memory in proportion to its text; types are nested at most [`DEPTH_MAX`] deep, so that
//! recursion along them ends on any stack.

use super::Parsed;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Greatest nesting of types, the types of names included.
const DEPTH_MAX: usize = 64;

/// A type of a schema.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Null,
    Boolean,
    /// Integers of any width, dates, enumerations.
    Number,
    /// Skipped numbers of this many bytes.
    Skipped(usize),
    Bytes,
    Text,
    Fixed(usize),
    Array(Arc<Type>),
    Map(Arc<Type>),
    Union(Arc<[Type]>),
    Record(Arc<[(Arc<str>, Type)]>),
}

/// A type, and the depth of its nested types.
#[derive(Clone)]
struct NestedType {
    of: Type,
    depth: usize,
}

/// Parses the text of a schema.
pub(super) fn parse(text: &[u8]) -> Parsed<Type> {
    let schema: Json = serde_json::from_slice(text).map_err(|e| format!("a schema: {e}"))?;
    Ok(deep(&schema, &mut BTreeMap::new())?.of)
}

/// A type around others.
fn around(of: Type, within: usize) -> Parsed<NestedType> {
    match within < DEPTH_MAX {
        true => Ok(NestedType {
            of,
            depth: within + 1,
        }),
        false => Err(format!(
            "types that lie at most {DEPTH_MAX} deep in each other"
        )),
    }
}

/// Type of a schema; `known` are the named types so far.
fn deep(schema: &Json, known: &mut BTreeMap<String, NestedType>) -> Parsed<NestedType> {
    let unknown = || format!("a schema, not {schema}");
    match schema {
        Json::String(name) => {
            let of = match name.as_str() {
                "null" => Type::Null,
                "boolean" => Type::Boolean,
                "int" | "long" => Type::Number,
                "float" => Type::Skipped(4),
                "double" => Type::Skipped(8),
                "bytes" => Type::Bytes,
                "string" => Type::Text,
                other => return known.get(other).cloned().ok_or_else(unknown),
            };
            around(of, 0)
        }
        Json::Array(types) => {
            let mut depth = 0;
            let mut all = Vec::with_capacity(types.len());
            for schema in types {
                let one = deep(schema, known)?;
                depth = depth.max(one.depth);
                all.push(one.of);
            }
            around(Type::Union(all.into()), depth)
        }
        Json::Object(parts) => {
            let part = |name: &str| parts.get(name).ok_or_else(unknown);
            let of = match part("type")?.as_str() {
                Some("array") => {
                    let item = deep(part("items")?, known)?;
                    around(Type::Array(Arc::new(item.of)), item.depth)?
                }
                Some("map") => {
                    let item = deep(part("values")?, known)?;
                    around(Type::Map(Arc::new(item.of)), item.depth)?
                }
                Some("enum") => around(Type::Number, 0)?,
                Some("fixed") => {
                    let size = part("size")?.as_u64().ok_or_else(unknown)?;
                    let size = usize::try_from(size).map_err(|_| unknown())?;
                    around(Type::Fixed(size), 0)?
                }
                Some("record") => {
                    let mut depth = 0;
                    let mut fields = Vec::new();
                    for field in part("fields")?.as_array().ok_or_else(unknown)? {
                        let of = field.get("type").ok_or_else(unknown)?;
                        let name = field.get("name").and_then(Json::as_str);
                        let name = Arc::from(name.ok_or_else(unknown)?);
                        let one = deep(of, known)?;
                        depth = depth.max(one.depth);
                        fields.push((name, one.of));
                    }
                    around(Type::Record(fields.into()), depth)?
                }
                // A type with attributes.
                _ => deep(part("type")?, known)?,
            };
            if let Some(name) = parts.get("name").and_then(Json::as_str) {
                known.insert(name.to_owned(), of.clone());
            }
            Ok(of)
        }
        _ => Err(unknown()),
    }
}
