//! Generator of the page `docs/operate/settings.md`, from the table.

use super::Settings;
use super::subscription;
use super::table::table;
use std::fmt::Write as _;

const HEAD: &str = "\
# Settings

<!-- Generated from the table in crates/server/src/settings. To regenerate it: UPDATE_DOCS=1 cargo test -p headwater-server settings -->

`headwater serve` takes each setting from the first of these that has it:

1. a flag: `--memory-budget 128MiB`, `--log-format json`;
2. an environment variable: `HEADWATER_MEMORY_BUDGET=128MiB`, `HEADWATER_LOG_FORMAT=json`;
3. the file given by `--config FILE` or `HEADWATER_CONFIG`, in TOML: `memory_budget = \"128MiB\"`, and for keys with a dot
   a section, `[log]` with `format = \"json\"`;
4. the default.

An unknown key is an error, and so is a value out of its range. `headwater config` takes the same flags, and
prints every value and where it came from.

Sizes are written `64MiB`, `64MB` or in bytes, durations `250ms`, `10s`, `1h30m`, `7d`. Settings are read once, at the
start; certificates and tokens are read again while the server runs ([security](security.md)).

A flag is the key with dashes for dots and underscores; the variable is `HEADWATER_` and the key in capitals, with
underscores for dots.

";

const LIST: &str = "
## `[[mqtt.subscription]]`

How the messages of a broker are stored ([MQTT](../mqtt.md)) is a list, which only the file can have: one `[[mqtt.subscription]]`
with these keys for each kind of topics. `topic` and `payload` are required. `headwater config` shows the entries too, as
`mqtt.subscription[1].topic` and so on.

";

/// The text of the page.
#[must_use]
pub fn page() -> String {
    let defaults = Settings::new("");
    let mut text = HEAD.to_owned();
    text.push_str(
        "| Key | Value | Default | Allowed | What it does |\n| --- | --- | --- | --- | --- |\n",
    );
    for setting in table() {
        let default = match setting.key {
            // This default depends on the machine.
            "shards" => "cores, at most 4".to_owned(),
            _ => match setting.value(&defaults).as_str() {
                "" => "none".to_owned(),
                value => format!("`{value}`"),
            },
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {default} | {} | {} |",
            setting.key,
            setting.kind.replace('|', "\\|"),
            setting.allowed,
            setting.about
        );
    }
    text.push_str(LIST);
    text.push_str("| Key | Value | Allowed | What it says |\n| --- | --- | --- | --- |\n");
    for key in subscription::KEYS {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            key.name, key.kind, key.allowed, key.about
        );
    }
    text
}
