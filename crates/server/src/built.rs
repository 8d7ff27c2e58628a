//! Features that this program was built with, for the checks of settings.

/// SQL, lakes, watches and the front end for clients of PostgreSQL.
pub(crate) const HAS_SQL: bool = cfg!(feature = "sql");
/// Messages from and to an MQTT broker.
pub(crate) const HAS_MQTT: bool = cfg!(feature = "mqtt");
/// Copies in a bucket.
pub(crate) const HAS_BUCKET: bool = cfg!(feature = "bucket");
