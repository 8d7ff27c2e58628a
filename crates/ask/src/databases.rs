//! Databases as InfluxDB's clients see them: names, each for some of the tables.
//!
//! One Headwater database contains the measurements of all of them. The tables of the *main*
//! database have the names of its measurements; measurement M of another database N is the table
//! `N.M`. If names are ignored, each name means all tables.
//!
//! Invariants: a table is a measurement of exactly one database; a database that gets its name
//! keeps its tables. Concurrency: names are plain data; their owner decides the order of changes.

use crate::error::{Error, QueryErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Separator between the name of a database and the name of a measurement.
const DOT: char = '.';
/// Maximum number of databases, so that a client cannot create names without bound.
pub const DATABASES_MAX: usize = 1_000;
/// Maximum bytes of a database name; a table's name includes it.
pub const DATABASE_BYTES_MAX: usize = 128;
/// The name of the main database while it is unnamed, and later an alias for it.
const UNNAMED: &str = "headwater";
/// Magic before the version of the text.
const MAGIC: &str = "headwater-databases ";

/// Names of databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The only valid name, if names are restricted to one.
    only: Option<String>,
    /// True if every name means all tables.
    is_together: bool,
    main: Option<String>,
    others: BTreeSet<String>,
}

/// The measurements of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Space {
    /// The tables without the prefix of another database.
    Main,
    /// The tables with this database name as prefix.
    Other(String),
}

/// Persistent names, for statements that create and drop databases.
pub trait Databases: Send + Sync {
    /// The current names.
    fn names(&self) -> Arc<Names>;

    /// Changes the names. If `change` fails, nothing is changed.
    ///
    /// # Errors
    /// Errors of `change`, and of storing the names.
    fn change(&self, change: &mut dyn FnMut(&mut Names) -> Result<()>) -> Result<()>;
}

impl Default for Names {
    fn default() -> Names {
        Names::together()
    }
}

impl Names {
    /// Names that are ignored: each means all tables.
    #[must_use]
    pub fn together() -> Names {
        Names {
            only: None,
            is_together: true,
            main: None,
            others: BTreeSet::new(),
        }
    }

    /// Names that each mean their own measurements; initially without a database.
    #[must_use]
    pub fn apart() -> Names {
        Names {
            is_together: false,
            ..Names::together()
        }
    }

    /// Names with exactly one valid name.
    #[must_use]
    pub fn only(name: &str) -> Names {
        Names {
            only: Some(name.to_owned()),
            ..Names::together()
        }
    }

    /// True when a new name would have its own measurements.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        !self.is_together
    }

    /// The tables of a name in a query; without a name, the main database.
    ///
    /// # Errors
    /// `not_found` when a database of this name does not exist.
    pub fn space(&self, asked: Option<&str>) -> Result<Space> {
        let Some(asked) = asked.filter(|name| !name.is_empty()) else {
            return Ok(Space::Main);
        };
        if let Some(only) = &self.only {
            return match asked == only {
                true => Ok(Space::Main),
                false => Err(not_found(
                    asked,
                    &format!(": this server's is {only:?} (setting write.database)"),
                )),
            };
        }
        if self.is_together || asked == UNNAMED {
            return Ok(Space::Main);
        }
        if self.others.contains(asked) {
            return Ok(Space::Other(asked.to_owned()));
        }
        match self.main.as_deref().is_none_or(|main| main == asked) {
            true => Ok(Space::Main),
            false => Err(not_found(asked, "")),
        }
    }

    /// True when a write with this name requires [adding](Names::add) it first.
    #[must_use]
    pub fn is_new(&self, name: &str) -> bool {
        self.only.is_none()
            && !self.is_together
            && !name.is_empty()
            && self.main.as_deref() != Some(name)
            && (self.main.is_none() || name != UNNAMED)
            && !self.others.contains(name)
    }

    /// The table prefix of a database if it were [added](Names::add) now.
    #[must_use]
    pub fn beginning(&self, name: &str) -> String {
        match self.main {
            None => String::new(),
            Some(_) => format!("{name}{DOT}"),
        }
    }

    /// Adds a database. The first one becomes the main one.
    ///
    /// # Errors
    /// `invalid` for an invalid name, `limit` when there are too many, `not_found` when only
    /// another name is valid.
    pub fn add(&mut self, name: &str) -> Result<()> {
        if !self.is_new(name) {
            return self.space(Some(name)).map(drop);
        }
        let is_name =
            (1..=DATABASE_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
        if !is_name {
            return Err(Error::new(
                QueryErrorKind::Invalid,
                format!(
                    "{name:?} cannot be the name of a database: expected 1 to {DATABASE_BYTES_MAX} bytes without control characters"
                ),
            ));
        }
        if self.main.is_none() {
            self.main = Some(name.to_owned());
            return Ok(());
        }
        if name.contains(DOT) {
            return Err(Error::new(
                QueryErrorKind::Invalid,
                format!(
                    "{name:?} cannot be the name of another database, since a dot separates it from the names of measurements: use a name without a dot, or set write.databases = together"
                ),
            ));
        }
        if self.others.len() + 1 >= DATABASES_MAX {
            return Err(Error::limit(format!(
                "there are {DATABASES_MAX} databases, which is the maximum: drop some, or set write.databases = together"
            )));
        }
        self.others.insert(name.to_owned());
        Ok(())
    }

    /// Removes a name; if it is the main database's, the main database is unnamed until the next
    /// [`Names::add`].
    pub fn remove(&mut self, name: &str) {
        self.others.remove(name);
        if self.main.as_deref() == Some(name) {
            self.main = None;
        }
    }

    /// The table of a measurement.
    #[must_use]
    pub fn table(space: &Space, measurement: &str) -> String {
        match space {
            Space::Main => measurement.to_owned(),
            Space::Other(name) => format!("{name}{DOT}{measurement}"),
        }
    }

    /// The measurement of a table in a database; `None` if the table belongs to another database.
    #[must_use]
    pub fn measurement<'t>(&self, space: &Space, table: &'t str) -> Option<&'t str> {
        let named = table
            .split_once(DOT)
            .filter(|(name, rest)| !rest.is_empty() && self.others.contains(*name));
        match (space, named) {
            (Space::Main, None) => Some(table),
            (Space::Other(name), Some((of, measurement))) if of == name => Some(measurement),
            _ => None,
        }
    }

    /// The name of a table as clients see it, in whichever database.
    #[must_use]
    pub fn shown<'t>(&self, table: &'t str) -> &'t str {
        match table.split_once(DOT) {
            Some((name, rest)) if !rest.is_empty() && self.others.contains(name) => rest,
            _ => table,
        }
    }

    /// The name of the main database.
    #[must_use]
    pub fn main(&self) -> &str {
        let named = self.only.as_deref().or(self.main.as_deref());
        named.unwrap_or(UNNAMED)
    }

    /// The other databases, sorted by name.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        self.others.iter().map(String::as_str)
    }

    /// The names as text for storage (docs/format/meta.md); read by [`Names::parse`].
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{MAGIC}1\n");
        if self.is_together {
            text.push_str("together\n");
            return text;
        }
        text.push_str("apart\n");
        if let Some(main) = &self.main {
            text.push_str(&format!("main {main}\n"));
        }
        for other in &self.others {
            text.push_str(&format!("other {other}\n"));
        }
        text
    }

    /// Parses text that [`Names::text`] wrote.
    ///
    /// # Errors
    /// Description of the expected format.
    pub fn parse(text: &str) -> std::result::Result<Names, String> {
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| line.strip_prefix(MAGIC));
        match head {
            Some("1") => {}
            Some(version) => {
                return Err(format!(
                    "names of databases of version {version}: this build reads version 1; use the Headwater version that wrote them"
                ));
            }
            None => return Err(format!("line 1: expected `{MAGIC}1`")),
        }
        let mut names = match lines.next() {
            Some("together") => Names::together(),
            Some("apart") => Names::apart(),
            Some(other) => {
                return Err(format!(
                    "line 2: expected `together` or `apart`, found `{other}`"
                ));
            }
            None => return Err("line 2: expected `together` or `apart`, found the end".to_owned()),
        };
        for line in lines {
            let (kind, name) = line.split_once(' ').unwrap_or((line, ""));
            let added = match kind {
                "main" if names.main.is_none() && names.others.is_empty() => names.add(name),
                // Others may exist without a main database, whose name was removed.
                "other" if !name.is_empty() && !name.contains(DOT) => {
                    names.others.insert(name.to_owned());
                    Ok(())
                }
                _ => {
                    return Err(format!(
                        "expected `main NAME` or `other NAME`, found {line:?}"
                    ));
                }
            };
            added.map_err(|error| error.to_string())?;
        }
        Ok(names)
    }
}

/// The error for a database that does not exist, or that the client may not know of.
pub(crate) fn not_found(asked: &str, why: &str) -> Error {
    Error::new(
        QueryErrorKind::NotFound,
        format!("database not found: {asked}{why}"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn of(names: &[&str]) -> Names {
        let mut out = Names::apart();
        for name in names {
            out.add(name).unwrap();
        }
        out
    }

    #[test]
    fn the_first_database_is_the_main_one_and_others_have_tables_of_their_own() {
        let names = of(&["plant", "yard"]);
        assert_eq!(names.space(Some("plant")).unwrap(), Space::Main);
        assert_eq!(names.space(None).unwrap(), Space::Main);
        let yard = names.space(Some("yard")).unwrap();
        assert_eq!(Names::table(&yard, "cpu"), "yard.cpu");
        assert_eq!(names.measurement(&yard, "yard.cpu"), Some("cpu"));
        assert_eq!(names.measurement(&yard, "cpu"), None);
        assert_eq!(names.measurement(&Space::Main, "cpu"), Some("cpu"));
        assert_eq!(names.measurement(&Space::Main, "yard.cpu"), None);
        // A dot in a name has no meaning if no database has the prefix as name.
        assert_eq!(names.measurement(&Space::Main, "a.b"), Some("a.b"));
        assert_eq!(names.measurement(&Space::Main, "yard."), Some("yard."));
        assert_eq!(names.shown("yard.a.b"), "a.b");
        let error = names.space(Some("other")).unwrap_err();
        assert_eq!(error.kind(), QueryErrorKind::NotFound);
        assert!(error.to_string().contains("database not found: other"));
    }

    #[test]
    fn until_there_is_a_name_every_name_is_read_as_the_main_one() {
        let mut names = Names::apart();
        assert_eq!(names.space(Some("any")).unwrap(), Space::Main);
        assert_eq!(names.main(), "headwater");
        assert!(names.is_new("any"));
        // The first may have any name, the others only names that cannot be a table's prefix.
        names.add("a.b").unwrap();
        assert_eq!(names.main(), "a.b");
        assert!(names.add("c.d").unwrap_err().to_string().contains("dot"));
        assert!(names.add("").is_ok(), "no name is the main database");
        assert!(names.add("a\nb").is_err());
        names.add("yard").unwrap();
        names.remove("a.b");
        let yard = Space::Other("yard".to_owned());
        assert_eq!(
            names.space(Some("yard")).unwrap(),
            yard,
            "also without a main one"
        );
        names.remove("yard");
        assert_eq!(names, Names::apart());
    }

    #[test]
    fn the_main_database_may_always_be_called_as_before_it_had_a_name() {
        let mut names = of(&["plant"]);
        assert_eq!(names.space(Some("headwater")).unwrap(), Space::Main);
        names.add("headwater").unwrap();
        assert_eq!(names, of(&["plant"]));
        assert_eq!(of(&["headwater"]).main(), "headwater");
    }

    #[test]
    fn names_that_mean_nothing_and_an_only_name_are_never_added_to() {
        let mut together = Names::together();
        assert!(!together.is_new("a"));
        together.add("a").unwrap();
        assert_eq!(together, Names::together());
        let mut only = Names::only("plant");
        only.add("plant").unwrap();
        let error = only.add("other").unwrap_err();
        assert!(error.to_string().contains("setting write.database"));
    }

    #[test]
    fn there_is_a_most_of_databases() {
        let mut names = Names::apart();
        for number in 0..DATABASES_MAX {
            names.add(&format!("db{number}")).unwrap();
        }
        assert_eq!(
            names.add("one more").unwrap_err().kind(),
            QueryErrorKind::Limit
        );
        names.add("db7").unwrap();
    }

    #[test]
    fn names_come_back_from_their_text() {
        let mut unnamed = of(&["plant", "yard"]);
        unnamed.remove("plant");
        for names in [
            Names::together(),
            Names::apart(),
            of(&["a.b", "c d", "é"]),
            unnamed,
        ] {
            assert_eq!(Names::parse(&names.text()).unwrap(), names);
        }
        assert_eq!(
            of(&["plant", "yard"]).text(),
            "headwater-databases 1\napart\nmain plant\nother yard\n"
        );
        for wrong in [
            "",
            "headwater-databases 2\napart\n",
            "headwater-databases 1\n",
            "headwater-databases 1\napart\nmain a\nmain b\n",
            "headwater-databases 1\napart\nother a.b\n",
            "headwater-databases 1\napart\nsomething\n",
        ] {
            assert!(Names::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
