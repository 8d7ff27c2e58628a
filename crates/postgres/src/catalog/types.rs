//! PostgreSQL's types: their mapping to Headwater's types, and the rows of `pg_type`.

use super::columns::TYPE;
use arrow::datatypes::{DataType, Field};

/// A type as in `pg_type`. The OIDs are the fixed ones of PostgreSQL, which drivers know.
#[derive(Debug, PartialEq, Eq)]
pub struct PgType {
    /// OID of the type.
    pub oid: u32,
    /// Name in `pg_type`.
    pub name: &'static str,
    /// Name in SQL.
    pub sql: &'static str,
    /// Bytes of a value; -1 = variable.
    pub size: i16,
    /// The letter of its category.
    pub category: char,
    /// Type of its arrays; 0 = none.
    pub array: u32,
}

macro_rules! types {
    ($($constant:ident $oid:literal $name:literal $sql:literal $size:literal $category:literal $array:literal;)*) => {
        impl PgType {
            $(
                #[doc = concat!("`", $sql, "`")]
                pub const $constant: &'static PgType = &PgType {
                    oid: $oid, name: $name, sql: $sql, size: $size, category: $category, array: $array,
                };
            )*
            /// All types except arrays.
            pub const ALL: &'static [&'static PgType] = &[$(PgType::$constant),*];
        }
    };
}

types! {
    BOOL 16 "bool" "boolean" 1 'B' 1000;
    BYTEA 17 "bytea" "bytea" -1 'U' 1001;
    CHAR 18 "char" "\"char\"" 1 'Z' 1002;
    NAME 19 "name" "name" 64 'S' 1003;
    INT8 20 "int8" "bigint" 8 'N' 1016;
    INT2 21 "int2" "smallint" 2 'N' 1005;
    INT2VECTOR 22 "int2vector" "int2vector" -1 'A' 1006;
    INT4 23 "int4" "integer" 4 'N' 1007;
    REGPROC 24 "regproc" "regproc" 4 'N' 1008;
    TEXT 25 "text" "text" -1 'S' 1009;
    OID 26 "oid" "oid" 4 'N' 1028;
    OIDVECTOR 30 "oidvector" "oidvector" -1 'A' 1013;
    JSON 114 "json" "json" -1 'U' 199;
    FLOAT4 700 "float4" "real" 4 'N' 1021;
    FLOAT8 701 "float8" "double precision" 8 'N' 1022;
    UNKNOWN 705 "unknown" "unknown" -2 'X' 0;
    BPCHAR 1042 "bpchar" "character" -1 'S' 1014;
    VARCHAR 1043 "varchar" "character varying" -1 'S' 1015;
    DATE 1082 "date" "date" 4 'D' 1182;
    TIME 1083 "time" "time without time zone" 8 'D' 1183;
    TIMESTAMP 1114 "timestamp" "timestamp without time zone" 8 'D' 1115;
    TIMESTAMPTZ 1184 "timestamptz" "timestamp with time zone" 8 'D' 1185;
    INTERVAL 1186 "interval" "interval" 16 'T' 1187;
    NUMERIC 1700 "numeric" "numeric" -1 'N' 1231;
    REGCLASS 2205 "regclass" "regclass" 4 'N' 2210;
    REGTYPE 2206 "regtype" "regtype" 4 'N' 2211;
    RECORD 2249 "record" "record" -1 'P' 2287;
    UUID 2950 "uuid" "uuid" 16 'U' 2951;
    JSONB 3802 "jsonb" "jsonb" -1 'U' 3807;
}

impl PgType {
    /// The scalar type with this OID.
    #[must_use]
    pub fn of_oid(oid: u32) -> Option<&'static PgType> {
        PgType::ALL.iter().copied().find(|t| t.oid == oid)
    }

    /// The type of the elements of the array type with this number.
    #[must_use]
    pub fn of_array(oid: u32) -> Option<&'static PgType> {
        PgType::ALL
            .iter()
            .copied()
            .find(|t| t.array != 0 && t.array == oid)
    }

    /// The type with this name, of `pg_type` or of SQL.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static PgType> {
        PgType::ALL
            .iter()
            .copied()
            .find(|t| t.name == name || t.sql == name)
    }

    /// The type in which values of a Headwater type are sent; lists are arrays of the type of their
    /// elements.
    #[must_use]
    pub fn of(data_type: &DataType) -> &'static PgType {
        match data_type {
            DataType::Boolean => PgType::BOOL,
            DataType::Int8 | DataType::UInt8 | DataType::Int16 => PgType::INT2,
            DataType::UInt16 | DataType::Int32 => PgType::INT4,
            DataType::UInt32 | DataType::Int64 => PgType::INT8,
            // PostgreSQL does not have an unsigned type of 64 bits.
            DataType::UInt64
            | DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => PgType::NUMERIC,
            DataType::Float16 | DataType::Float32 => PgType::FLOAT4,
            DataType::Float64 => PgType::FLOAT8,
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => PgType::BYTEA,
            DataType::Date32 | DataType::Date64 => PgType::DATE,
            DataType::Time32(_) | DataType::Time64(_) => PgType::TIME,
            DataType::Timestamp(_, None) => PgType::TIMESTAMP,
            DataType::Timestamp(_, Some(_)) => PgType::TIMESTAMPTZ,
            DataType::Interval(_) | DataType::Duration(_) => PgType::INTERVAL,
            DataType::Dictionary(_, values) => PgType::of(values),
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::FixedSizeList(field, _) => PgType::of(field.data_type()),
            _ => PgType::TEXT,
        }
    }

    /// The number that values of a column are announced with.
    #[must_use]
    pub fn oid_of_field(field: &Field) -> u32 {
        match vector(field) {
            Some(vector) => vector.oid,
            None => PgType::oid_of(field.data_type()),
        }
    }

    /// OID with which values of a Headwater type are announced.
    #[must_use]
    pub fn oid_of(data_type: &DataType) -> u32 {
        let plain = PgType::of(data_type);
        match is_list(data_type) {
            true => plain.array,
            false => plain.oid,
        }
    }

    /// Headwater's type for a parameter of the type with this OID; `None` = unknown, so that the
    /// statement must determine it.
    #[must_use]
    pub fn parameter(oid: u32) -> Option<DataType> {
        use arrow::datatypes::{Field, IntervalUnit, TimeUnit};
        if let Some(element) = PgType::of_array(oid) {
            let element = PgType::parameter(element.oid)?;
            let field = Field::new_list_field(element, true);
            return Some(DataType::List(field.into()));
        }
        Some(match oid {
            16 => DataType::Boolean,
            17 => DataType::Binary,
            // The last three do not have a separate type here.
            18 | 19 | 25 | 1042 | 1043 | 114 | 2950 | 3802 => DataType::Utf8,
            21 => DataType::Int16,
            23 => DataType::Int32,
            20 | 26 => DataType::Int64,
            700 => DataType::Float32,
            701 => DataType::Float64,
            1082 => DataType::Date32,
            1083 => DataType::Time64(TimeUnit::Nanosecond),
            1114 => DataType::Timestamp(TimeUnit::Nanosecond, None),
            1184 => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            1186 => DataType::Interval(IntervalUnit::MonthDayNano),
            // A decimal has the digits of the received value.
            1700 => DataType::Decimal128(38, 10),
            _ => return None,
        })
    }
}

/// The type of a column that is a vector: an array that is written without braces.
pub(crate) fn vector(field: &Field) -> Option<&'static PgType> {
    let declared = field.metadata().get(TYPE)?;
    PgType::named(declared).filter(|_| is_list(field.data_type()))
}

/// Modifier of a type, as in `atttypmod`; -1 = none. Unsigned numbers are `numeric(20,0)`, so that
/// clients treat them as integers.
pub(crate) fn modifier(data_type: &DataType) -> i32 {
    match data_type {
        DataType::UInt64 => numeric_modifier(20, 0),
        DataType::Dictionary(_, values) => modifier(values),
        _ => -1,
    }
}

/// Length of the header of a value, which modifiers include.
const VARHDRSZ: i32 = 4;

fn numeric_modifier(precision: i32, scale: i32) -> i32 {
    ((precision << 16) | scale) + VARHDRSZ
}

/// True when values are sent as arrays.
pub(super) fn is_list(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => true,
        DataType::Dictionary(_, values) => is_list(values),
        _ => false,
    }
}

/// The name of a type by its number, as `format_type` has it.
pub(super) fn format_type(oid: i64, modifier: Option<i64>) -> String {
    let Ok(oid) = u32::try_from(oid) else {
        return "???".to_owned();
    };
    if oid == PgType::NUMERIC.oid
        && let Some(modifier) = modifier.and_then(|m| m.checked_sub(VARHDRSZ.into()))
        && modifier >= 0
    {
        return format!("numeric({},{})", modifier >> 16, modifier & 0xffff);
    }
    match (PgType::of_oid(oid), PgType::of_array(oid)) {
        (Some(plain), _) => plain.sql.to_owned(),
        (None, Some(element)) => format!("{}[]", element.sql),
        (None, None) => match oid {
            0 => "-".to_owned(),
            _ => "???".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn numbers_of_types_are_those_of_once_each() {
        let mut seen = std::collections::BTreeSet::new();
        for pg in PgType::ALL {
            assert!(seen.insert(pg.oid), "{}", pg.name);
            assert!(pg.array == 0 || seen.insert(pg.array), "{}", pg.name);
            assert_eq!(PgType::named(pg.name), Some(*pg));
            assert_eq!(PgType::named(pg.sql), Some(*pg));
        }
        assert_eq!(format_type(1184, None), "timestamp with time zone");
        assert_eq!(format_type(1009, Some(-1)), "text[]");
        assert_eq!(format_type(99, None), "???");
        let u64 = i64::from(modifier(&DataType::UInt64));
        assert_eq!(format_type(1700, Some(u64)), "numeric(20,0)");
    }

    #[test]
    fn parameters_come_as_what_they_are_sent_as() {
        for oid in [
            16, 17, 21, 23, 20, 700, 701, 25, 1082, 1114, 1184, 1186, 1700, 1009, 1007,
        ] {
            let ours = PgType::parameter(oid).unwrap();
            assert_eq!(PgType::oid_of(&ours), oid);
        }
        assert_eq!(PgType::parameter(0), None);
        assert_eq!(PgType::oid_of(&DataType::UInt64), 1700);
    }
}
