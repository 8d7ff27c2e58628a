//! Settings of the engine, as its own table describes them.

use super::setting::{Codec, Setting};
use headwater::settings::{SETTINGS, SettingKind};
use std::sync::LazyLock;

pub(super) static TABLE: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let described = SETTINGS.iter().map(|setting| Setting {
        key: setting.key,
        kind: match setting.kind {
            SettingKind::Bytes { .. } => "SIZE",
            SettingKind::Count(_) => "N",
            SettingKind::Span { .. } => "DURATION",
            SettingKind::Durability(_) => "HOW",
            SettingKind::Policy => "POLICY",
            SettingKind::Choice(_) => "WORD",
        },
        allowed: setting.allowed,
        about: setting.about,
        codec: Codec::Engine(setting),
    });
    described.collect()
});
