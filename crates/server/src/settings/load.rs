//! Merges flags, environment, file and defaults.

use super::refusal::{SettingError, Source, nearest};
use super::setting::Setting;
use super::table::table;
use super::{NoticeBus, Settings, cloud, dispatch, lake, mqtt, notices, rights, subscription};
use std::path::{Path, PathBuf};

/// Variables with the prefix of settings that are not settings.
const OTHER_VARIABLES: [&str; 4] = [
    "HEADWATER_LOG",
    "HEADWATER_CONFIG",
    "HEADWATER_URL",
    "HEADWATER_TOKEN",
];

/// Input of a command line: values of flags by key, and the file.
#[derive(Debug, Clone, Default)]
pub struct SettingsInput {
    /// The file to read; `None` = no file.
    pub file: Option<PathBuf>,
    /// Keys and values of flags.
    pub flags: Vec<(&'static str, String)>,
    /// Environment variables; only names that begin with `HEADWATER_` count.
    pub environment: Vec<(String, String)>,
}

/// Settings, and the source of each.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The values.
    pub settings: Settings,
    sources: Vec<(&'static str, Source)>,
}

impl Loaded {
    /// Keys and values of the entries of lists, which are set in the file:
    /// `mqtt.subscription[1].topic`.
    #[must_use]
    pub fn entries(&self) -> Vec<(String, String)> {
        let numbered = (1..).zip(&self.settings.mqtt.subscriptions);
        numbered
            .flat_map(|(number, entry)| {
                entry.shown().iter().map(move |(key, value)| {
                    (
                        format!("{}[{number}].{key}", subscription::LIST),
                        value.clone(),
                    )
                })
            })
            .collect()
    }

    /// Source of a setting's value.
    #[must_use]
    pub fn source(&self, setting: &Setting) -> Source {
        let found = self.sources.iter().find(|(key, _)| *key == setting.key);
        found.map_or(Source::Default, |(_, source)| source.clone())
    }
}

/// Loads the settings from all sources.
///
/// # Errors
/// When the file cannot be read, a key is unknown, a value is not allowed, or values contradict
/// each other.
pub fn load(given: &SettingsInput) -> Result<Loaded, SettingError> {
    let mut loaded = Loaded {
        settings: Settings::new(""),
        sources: Vec::new(),
    };
    if let Some(path) = &given.file {
        let source = Source::File(path.clone());
        let file = file(path)?;
        for (key, value) in file.pairs {
            let setting = find_setting(&key, &source)?;
            loaded.apply(setting, &value, source.clone())?;
        }
        for (key, entries) in file.lists {
            if key != subscription::LIST {
                return Err(unknown(&key, &source));
            }
            loaded.settings.mqtt.subscriptions = subscription::read(&entries, &source)?;
        }
    }
    for (name, value) in &given.environment {
        if is_other(name) {
            continue;
        }
        let source = Source::Environment(name.clone());
        let setting = table().find(|setting| setting.variable() == *name);
        let setting = setting.ok_or_else(|| SettingError::Unknown {
            nearest: nearest_variable(name),
            key: name.clone(),
            source_of: source.clone(),
        })?;
        loaded.apply(setting, value, source)?;
    }
    for (key, value) in &given.flags {
        let source = Source::Flag(key.replace(['.', '_'], "-"));
        let setting = find_setting(key, &source)?;
        loaded.apply(setting, value, source)?;
    }
    together(&loaded.settings)?;
    Ok(loaded)
}

impl Loaded {
    fn apply(
        &mut self,
        setting: &'static Setting,
        value: &str,
        source: Source,
    ) -> Result<(), SettingError> {
        setting
            .set(&mut self.settings, value)
            .map_err(|reason| SettingError::Value {
                source_of: source.clone(),
                key: setting.key.to_owned(),
                value: value.to_owned(),
                reason,
                allowed: setting.allowed,
            })?;
        self.sources.retain(|(key, _)| *key != setting.key);
        self.sources.push((setting.key, source));
        Ok(())
    }
}

/// Checks across settings.
fn together(settings: &Settings) -> Result<(), SettingError> {
    if settings.engine.dir.as_os_str().is_empty() {
        return Err(SettingError::NoDatabase);
    }
    if settings.tls_cert.is_some() != settings.tls_key.is_some() {
        return Err(SettingError::Together(
            "tls.cert and tls.key go together: set both, or none".to_owned(),
        ));
    }
    if settings.read_only && settings.mqtt.login.broker.is_some() {
        return Err(SettingError::Together(
            "read_only and mqtt.broker cannot be combined: messages of a broker are writes"
                .to_owned(),
        ));
    }
    if settings.read_only_refresh.is_some() && !settings.is_only_read() {
        return Err(SettingError::Together(
            "read_only.refresh is for a read-only server: it needs read_only = true, and no sync.role"
                .to_owned(),
        ));
    }
    if settings.is_only_read() && settings.notices.bus == NoticeBus::Mqtt {
        return Err(SettingError::Together(
            "read_only and notices.bus = mqtt cannot be combined: the owner of the database publishes its notices"
                .to_owned(),
        ));
    }
    if settings.engine.partition_bytes_max < settings.engine.partition_target_bytes {
        return Err(SettingError::Together(
            "partition.max must not be below partition.target".to_owned(),
        ));
    }
    dispatch::together(settings)?;
    rights::together(settings)?;
    cloud::together(settings)?;
    lake::together(settings)?;
    notices::together(settings)?;
    mqtt::together(settings)
}

/// Variables of other programs: `HEADWATER_` variables that are not settings, and variables that
/// Kubernetes sets for a service of this name.
fn is_other(name: &str) -> bool {
    !name.starts_with("HEADWATER_")
        || OTHER_VARIABLES.contains(&name)
        || name == "HEADWATER_PORT"
        || name.starts_with("HEADWATER_PORT_")
        || name.starts_with("HEADWATER_SERVICE_")
}

fn find_setting(key: &str, source: &Source) -> Result<&'static Setting, SettingError> {
    table()
        .find(|setting| setting.key == key)
        .ok_or_else(|| unknown(key, source))
}

fn unknown(key: &str, source: &Source) -> SettingError {
    SettingError::Unknown {
        source_of: source.clone(),
        key: key.to_owned(),
        nearest: nearest(key, table().map(|setting| setting.key.to_owned())),
    }
}

/// Compares without the prefix, which would make all variables look similar.
fn nearest_variable(name: &str) -> Option<String> {
    let bare = |name: &str| name.trim_start_matches("HEADWATER_").to_owned();
    let found = nearest(&bare(name), table().map(|s| bare(&s.variable())))?;
    Some(format!("HEADWATER_{found}"))
}

/// Contents of the file.
#[derive(Default)]
struct File {
    /// Keys and values; tables have become dotted keys.
    pairs: Vec<(String, String)>,
    /// Lists of tables.
    lists: Vec<(String, Vec<toml::Table>)>,
}

fn file(path: &Path) -> Result<File, SettingError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| SettingError::Io {
        path: name.clone(),
        source,
    })?;
    let root: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let reason = e.to_string();
        SettingError::Syntax {
            path: name.clone(),
            reason: reason.trim_end().to_owned(),
        }
    })?;
    let mut found = File::default();
    let mut rest: Vec<(String, toml::Value)> = root.into_iter().collect();
    while let Some((key, value)) = rest.pop() {
        let text = match value {
            toml::Value::Table(_) if key == subscription::LIST => {
                return Err(SettingError::Syntax {
                    path: name,
                    reason: format!("{key} is a list: write [[{key}]]"),
                });
            }
            toml::Value::Array(values) if values.iter().any(toml::Value::is_table) => {
                let tables = values.into_iter().map(|value| match value {
                    toml::Value::Table(table) => Ok(table),
                    other => Err(SettingError::Syntax {
                        path: name.clone(),
                        reason: format!(
                            "{key} is a list of tables, and one of them is: {}",
                            other.type_str()
                        ),
                    }),
                });
                let tables: Vec<toml::Table> = tables.collect::<Result<_, _>>()?;
                found.lists.push((key, tables));
                continue;
            }
            toml::Value::Table(table) => {
                rest.extend(table.into_iter().map(|(k, v)| (format!("{key}.{k}"), v)));
                continue;
            }
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(on) => on.to_string(),
            toml::Value::Datetime(time) => time.to_string(),
            toml::Value::Array(values) => {
                let texts = values.into_iter().map(|value| match value {
                    toml::Value::String(text) => Ok(text),
                    other => Err(other.type_str()),
                });
                let texts: Result<Vec<String>, _> = texts.collect();
                texts
                    .map_err(|kind| SettingError::Syntax {
                        path: name.clone(),
                        reason: format!("{key} is a list of texts, and one of them is: {kind}"),
                    })?
                    .join(",")
            }
        };
        found.pairs.push((key, text));
    }
    // Sorted, so that the first of several mistakes is always the same one.
    found.pairs.sort();
    found.lists.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

    use super::*;

    fn input(
        file: Option<&str>,
        environment: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> (SettingsInput, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let given = SettingsInput {
            file: file.map(|text| {
                let path = dir.path().join("headwater.toml");
                std::fs::write(&path, text).unwrap();
                path
            }),
            environment: environment
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            flags: flags.iter().map(|(k, v)| (*k, (*v).to_owned())).collect(),
        };
        (given, dir)
    }

    fn error(
        file: Option<&str>,
        environment: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> String {
        let (given, _dir) = input(file, environment, flags);
        load(&given).unwrap_err().to_string()
    }

    #[test]
    fn a_flag_goes_before_the_environment_before_the_file_before_the_default() {
        let file = "db = \"of-file\"\nmemory_budget = \"32MiB\"\nshards = 3\nbody_max = 4096\nhosts = [\"a\", \"b\"]\n[log]\nformat = \"json\"\n";
        let (given, _dir) = input(
            Some(file),
            &[
                ("HEADWATER_SHARDS", "5"),
                ("HEADWATER_MEMORY_BUDGET", "16MiB"),
                ("HEADWATER_LOG", "x"),
                ("HEADWATER_PORT_7373_TCP", "tcp://x"),
                ("PATH", "y"),
            ],
            &[("shards", "7")],
        );
        let loaded = load(&given).unwrap();
        let settings = &loaded.settings;
        assert_eq!(settings.engine.shards, 7);
        assert_eq!(settings.engine.memory_budget_bytes, 16 << 20);
        assert_eq!(settings.db(), Path::new("of-file"));
        assert_eq!(settings.body_max, 4096);
        assert_eq!(settings.hosts, ["a", "b"]);
        assert_eq!(settings.log_format, crate::settings::LogFormat::Json);
        assert_eq!(settings.requests_max, 1024);
        let source = |key: &str| {
            let setting = table().find(|s| s.key == key).unwrap();
            loaded.source(setting).to_string()
        };
        assert_eq!(source("shards"), "--shards");
        assert_eq!(source("memory_budget"), "HEADWATER_MEMORY_BUDGET");
        assert!(source("log.format").ends_with("headwater.toml"));
        assert_eq!(source("request.max"), "default");
    }

    #[test]
    fn unknown_keys_name_the_nearest_one() {
        let db = ("db", "x");
        assert!(
            error(Some("memory_buget = 1"), &[], &[db]).contains("did you mean `memory_budget`?")
        );
        assert!(
            error(Some("[log]\nfromat = 1"), &[], &[db]).contains("did you mean `log.format`?")
        );
        assert!(
            error(None, &[("HEADWATER_HTTP_ADR", "x")], &[db])
                .contains("did you mean `HEADWATER_HTTP_ADDR`?")
        );
        // The common prefix does not make variables similar.
        assert!(
            error(None, &[("HEADWATER_MEMRY", "1")], &[db])
                .contains("did you mean `HEADWATER_MEMORY_BUDGET`?")
        );
        let far = error(Some("quite_another_thing = 1"), &[], &[db]);
        assert!(
            far.contains("no setting `quite_another_thing`") && !far.contains("did you mean"),
            "{far}"
        );
    }

    #[test]
    fn bad_values_say_where_they_stand_and_what_is_allowed() {
        let db = ("db", "x");
        let shards = error(None, &[("HEADWATER_SHARDS", "0")], &[db]);
        assert!(
            shards.contains("HEADWATER_SHARDS") && shards.contains("1 to 64"),
            "{shards}"
        );
        for (key, value) in [
            ("http_addr", "localhost"),
            ("memory_budget", "1KiB"),
            ("durability", "often"),
            ("late.policy", "separate:1.5"),
            ("log.level", "=loud="),
            ("log.format", "xml"),
            ("allow_open", "yes"),
            ("request.timeout", "0s"),
            ("hosts", "http://x"),
        ] {
            let text = error(None, &[], &[db, (key, value)]);
            let setting = table().find(|s| s.key == key).unwrap();
            assert!(
                text.contains(setting.allowed) && text.contains(value),
                "{text}"
            );
        }
        assert!(error(Some("shards = ["), &[], &[db]).contains("not TOML"));
        assert!(error(Some("hosts = [1]"), &[], &[db]).contains("list of texts"));
        assert!(error(None, &[], &[]).contains("--db"));
        assert!(error(None, &[], &[db, ("tls.cert", "x")]).contains("go together"));
        assert!(error(None, &[], &[db, ("partition.max", "1MiB")]).contains("partition.target"));
        let (mut gone, _dir) = input(None, &[], &[db]);
        gone.file = Some("/does/not/exist.toml".into());
        assert!(
            load(&gone)
                .unwrap_err()
                .to_string()
                .contains("/does/not/exist.toml")
        );
    }

    #[test]
    fn lists_stand_in_the_file_and_are_checked_entry_by_entry() {
        let db = ("db", "x");
        let broker = "[mqtt]\nbroker = \"mqtt://broker\"\nclient_id = \"gateway\"\n";
        let entry = "[[mqtt.subscription]]\ntopic = \"plant/{site}/{field}\"\npayload = \"value\"\ntable = \"machines\"\ntypes = { count = \"i64\" }\n";
        let (good, _dir) = input(Some(&format!("{broker}{entry}")), &[], &[db]);
        if !crate::built::HAS_MQTT {
            assert!(
                load(&good)
                    .unwrap_err()
                    .to_string()
                    .contains("without MQTT")
            );
            return;
        }
        let loaded = load(&good).unwrap();
        let found = &loaded.settings.mqtt.subscriptions;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].rules.topic.filter(), "plant/+/+");
        let shown = loaded.entries();
        let expected = ("mqtt.subscription[1].types", "{ count = \"i64\" }");
        let expected = (expected.0.to_owned(), expected.1.to_owned());
        assert!(shown.contains(&expected), "{shown:?}");
        let second = |text: &str| {
            error(
                Some(&format!("{broker}{entry}[[mqtt.subscription]]\n{text}")),
                &[],
                &[db],
            )
        };
        for (text, expected) in [
            (
                "topik = \"a\"",
                "no setting `mqtt.subscription[2].topik`; did you mean `topic`?",
            ),
            (
                "topic = \"a/b+\"",
                "mqtt.subscription[2].topic = `a/b+`: level `b+`",
            ),
            ("topic = 5", "expected a text, found integer"),
            ("topic = \"a\"", "mqtt.subscription[2].payload: missing"),
            ("payload = \"json\"", "mqtt.subscription[2].topic: missing"),
            (
                "topic = \"a\"\npayload = \"xml\"",
                "line-protocol, json or value",
            ),
            (
                "topic = \"a\"\npayload = \"value\"",
                "mqtt.subscription[2].table: the table is not named",
            ),
            ("types = { x = \"int\" }", "`int` is not a type"),
            ("time_format = \"minutes\"", "%Y-%m-%d"),
        ] {
            let found = second(text);
            assert!(found.contains(expected), "{text}: {found}");
        }
        for (file, expected) in [
            (
                format!("{broker}[mqtt.subscription]\ntopic = \"a\""),
                "[[mqtt.subscription]]",
            ),
            (
                format!("{broker}[[mqtt.subscriptions]]\ntopic = \"a\""),
                "no setting `mqtt.subscriptions`",
            ),
            (broker.to_owned(), "at least one [[mqtt.subscription]]"),
            (entry.to_owned(), "needs mqtt.broker"),
            (
                format!("mqtt.broker = \"mqtt://x\"\n{entry}"),
                "mqtt.client_id",
            ),
            (format!("{broker}ca = \"x\"\n{entry}"), "mqtts://"),
            (format!("{broker}password = \"x\"\n{entry}"), "mqtt.user"),
        ] {
            let found = error(Some(&file), &[], &[db]);
            assert!(found.contains(expected), "{file}: {found}");
        }
    }

    #[test]
    fn every_default_is_a_value_that_can_be_set_and_stays_the_same() {
        let defaults = Settings::new("data");
        for setting in table() {
            let text = setting.value(&defaults);
            let mut settings = Settings::new("other");
            setting
                .set(&mut settings, &text)
                .unwrap_or_else(|e| panic!("{} = {text}: {e}", setting.key));
            assert_eq!(setting.value(&settings), text, "{}", setting.key);
            assert!(setting.about.ends_with('.'), "{}", setting.key);
        }
    }

    #[test]
    fn keys_flags_and_variables_are_all_different() {
        let mut flags: Vec<String> = table().map(Setting::flag).collect();
        let count = flags.len();
        flags.sort();
        flags.dedup();
        assert_eq!(flags.len(), count);
    }
}
