//! Names of columns in addition to existing ones.

/// Name of a column that does not collide with existing names: its own, or with the suffix `_1`,
/// `_2` and so on. Every front end names columns with this function: a field called `time` becomes
/// `time_1` because of the column of times.
///
/// ```
/// let taken = ["time", "time_1"];
/// let free = headwater_wire::free_name("time", |name| taken.contains(&name));
/// assert_eq!(free, "time_2");
/// ```
pub fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut unique = name.to_owned();
    let mut number = 0_u64;
    while taken(&unique) {
        number += 1;
        unique = format!("{name}_{number}");
    }
    unique
}
