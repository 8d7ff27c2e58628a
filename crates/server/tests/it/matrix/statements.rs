//! Statements of SQL that ask for things.

/// Those that read, for both doors.
pub(super) const READS: &[&str] = &[
    "SELECT * FROM \"{T}\" ORDER BY time LIMIT 3",
    "SELECT \"{F}\" FROM \"{T}\" ORDER BY time LIMIT 2",
    "SELECT \"{K}\", count(*) FROM \"{T}\" GROUP BY 1 ORDER BY 1",
    "SELECT count(*) FROM \"{T}\"",
    "SELECT count(\"{F}\"), max(\"{F}\") FROM \"{T}\"",
    "SELECT max(v) FROM \"{T}\" WHERE \"{K}\" = '{V}'",
    "SELECT nosuch FROM \"{T}\"",
    "SELECT \"{F}x\" FROM \"{T}\"",
    "SELECT * FROM \"{T}x\"",
    "SELECT a.\"{F}\" FROM cars a JOIN \"{T}\" b ON a.time = b.time LIMIT 1",
    "SELECT c.* FROM cars c ORDER BY c.time, c.id LIMIT 1",
    "EXPLAIN SELECT * FROM \"{T}\"",
    "EXPLAIN SELECT avg(\"{F}\") FROM \"{T}\" GROUP BY \"{K}\"",
    "SHOW TABLES",
    "SHOW COLUMNS FROM \"{T}\"",
    "DESCRIBE \"{T}\"",
    "SELECT * FROM information_schema.tables ORDER BY table_schema, table_name",
    "SELECT * FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position",
    "SELECT column_name FROM information_schema.columns WHERE table_name = '{T}' ORDER BY 1",
    "SELECT * FROM information_schema.schemata",
    "SELECT * FROM pg_catalog.pg_class ORDER BY oid",
    "SELECT * FROM pg_catalog.pg_attribute WHERE attrelid > 16383 ORDER BY attrelid, attnum",
    "SELECT * FROM pg_catalog.pg_description ORDER BY objoid, objsubid",
    "SELECT * FROM pg_catalog.pg_tables ORDER BY tablename",
    "SELECT * FROM pg_catalog.pg_stat_user_tables",
    "SELECT * FROM pg_catalog.pg_stat_activity",
    "SELECT to_regclass('{T}'), to_regclass('\"{T}\"')",
    "SELECT '{T}'::regclass::oid",
    "SELECT obj_description(to_regclass('{T}')::oid)",
    "SELECT col_description(to_regclass('{T}')::oid, 3)",
    "SELECT has_table_privilege('{T}', 'SELECT')",
    "SELECT pg_total_relation_size('{T}')",
];

/// Those that change something, by tokens that may not, or nothing of what may not be seen.
pub(super) const CHANGES: &[&str] = &[
    "INSERT INTO \"{T}\" (time, \"{K}\", \"{F}\") VALUES ('2023-11-14T00:00:00Z', '{V}', 1)",
    "INSERT INTO \"{T}\" (time, site, \"{F}\") VALUES ('2023-11-14T00:00:00Z', 'south', 't')",
    "DELETE FROM \"{T}\" WHERE time < '1900-01-01T00:00:00Z'",
    "DELETE FROM \"{T}\" WHERE \"{K}\" = '{V}' AND time < '1900-01-01T00:00:00Z'",
    "DROP TABLE \"{T}\"",
    "DROP TABLE IF EXISTS \"{T}\"",
    "ALTER TABLE \"{T}\" ADD COLUMN \"{F}\" DOUBLE",
    "ALTER TABLE \"{T}\" ADD COLUMN added DOUBLE",
    "ALTER TABLE \"{T}\" SET (retention = '1d')",
    "CREATE TABLE \"{T}\" (v DOUBLE)",
    "CREATE TABLE IF NOT EXISTS \"{T}\" (v DOUBLE)",
    "TRUNCATE \"{T}\"",
    "COPY \"{T}\" TO STDOUT",
];

/// As they are sent to the route.
pub(super) const HTTP: &[&str] =
    &["/api/v1/sql?format=csv\nSELECT * FROM \"{T}\" ORDER BY time LIMIT 3"];
