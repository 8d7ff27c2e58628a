//! Errors of settings, and sources of values.

use std::fmt;
use std::path::PathBuf;

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The value is not set.
    Default,
    /// The file.
    File(PathBuf),
    /// Set by this environment variable.
    Environment(String),
    /// Set by this flag.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Environment(name) => f.write_str(name),
            Source::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// Reason why settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The file cannot be read.
    #[error("the settings file {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("the settings file {path} is not TOML: {reason}")]
    Syntax {
        /// The file.
        path: String,
        /// Position and reason.
        reason: String,
    },
    /// The key is unknown.
    #[error("{source_of}: there is no setting `{key}`{}", nearest.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    Unknown {
        /// Source of the key.
        source_of: Source,
        /// The key.
        key: String,
        /// The most similar known key.
        nearest: Option<String>,
    },
    /// The value is not allowed.
    #[error("{source_of}: {key} = `{value}`: {reason}; allowed: {allowed}")]
    Value {
        /// Source of the value.
        source_of: Source,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Reason of the refusal.
        reason: String,
        /// Values that are allowed.
        allowed: &'static str,
    },
    /// Values that exclude one another.
    #[error("{0}")]
    Together(String),
    /// The directory is missing.
    #[error(
        "no database is given: name its directory with --db DIR, HEADWATER_DB, or `db` in the settings file"
    )]
    NoDatabase,
}

/// The name most similar to `wrong`, if any is similar.
pub(super) fn nearest(wrong: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let far = 1 + wrong.len() / 3;
    let distance = |name: &str| {
        let whole = strsim::levenshtein(wrong, name);
        // The first word of a name may be all that the user remembered.
        let first = name.split(['_', '.']).next().filter(|word| *word != name);
        let first = first.map_or(whole, |word| 1 + strsim::levenshtein(wrong, word));
        whole.min(first)
    };
    names
        .map(|name| (distance(&name), name))
        .filter(|(distance, _)| *distance <= far)
        .min()
        .map(|(_, name)| name)
}
