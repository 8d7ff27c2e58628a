//! Names of columns that stand beside others.

/// The name of a column beside those that are taken: its own, or with `_1`, `_2` and so on behind
/// it. Every front end names columns by this: a field called `time` is `time_1` beside the times.
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
