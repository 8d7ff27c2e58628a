//! SQL over snapshots of a database.
