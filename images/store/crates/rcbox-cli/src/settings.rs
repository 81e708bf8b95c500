//! Settings: what can be changed while the store runs.

use std::fmt::Write;
use std::ops::RangeInclusive;

use admin::{
    FewerCopies, GetClusterStatusResponse, LogLevel, SetSettingsRequest, Settings as Values,
};
use serde_json::{Map, Value, json};
use wire::member::bounds;

use super::args::Settings as Command;
use super::notation::escape;
use super::out::Out;
use super::session::Settings;
use super::{Failure, admin_api, show};

/// One of them.
struct Setting {
    name: &'static str,
    /// What it may be, where it is a number.
    range: RangeInclusive<u32>,
    is_level: bool,
    get: fn(&Values) -> Option<u32>,
    set: fn(&mut Values, Option<u32>),
}

const fn number(
    name: &'static str,
    range: RangeInclusive<u32>,
    get: fn(&Values) -> Option<u32>,
    set: fn(&mut Values, Option<u32>),
) -> Setting {
    Setting {
        name,
        range,
        is_level: false,
        get,
        set,
    }
}

const SETTINGS: [Setting; 8] = [
    number(
        "replicas",
        bounds::REPLICAS,
        |it| it.replicas,
        |it, value| it.replicas = value,
    ),
    number(
        "minReplicas",
        bounds::REPLICAS,
        |it| it.min_replicas,
        |it, value| it.min_replicas = value,
    ),
    number(
        "repairMBps",
        bounds::REPAIR_MBPS,
        |it| it.repair_mbps,
        |it, value| it.repair_mbps = value,
    ),
    number(
        "pollMicros",
        bounds::POLL_MICROS,
        |it| it.poll_micros,
        |it, value| it.poll_micros = value,
    ),
    number(
        "cleanerFreePercent",
        bounds::CLEANER_FREE_PERCENT,
        |it| it.cleaner_free_percent,
        |it, value| it.cleaner_free_percent = value,
    ),
    number(
        "maxConnections",
        bounds::MAX_CONNECTIONS,
        |it| it.max_connections,
        |it, value| it.max_connections = value,
    ),
    Setting {
        is_level: true,
        ..number(
            "logLevel",
            bounds::LOG_LEVEL,
            |it| u32::try_from(it.log_level).ok().filter(|level| *level > 0),
            |it, value| it.log_level = value.and_then(|level| level.try_into().ok()).unwrap_or(0),
        )
    },
    number(
        "rebalanceMBps",
        bounds::REBALANCE_MBPS,
        |it| it.rebalance_mbps,
        |it, value| it.rebalance_mbps = value,
    ),
];

const LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

impl Setting {
    fn parse(&self, text: &str) -> Result<u32, SettingError> {
        let level = LEVELS.iter().find(|(name, _)| *name == text);
        if let Some((_, level)) = level.filter(|_| self.is_level) {
            return Ok(*level as u32);
        }
        let number = text.parse().ok().filter(|_| !self.is_level);
        let (least, most) = (self.range.start(), self.range.end());
        let inside = number.filter(|number| self.range.contains(number));
        inside.ok_or(match self.is_level {
            true => SettingError::Level(self.name),
            false => SettingError::Range {
                name: self.name,
                least: *least,
                most: *most,
            },
        })
    }

    fn show(&self, value: u32) -> String {
        let level = LEVELS.iter().find(|(_, level)| *level as u32 == value);
        match level.filter(|_| self.is_level) {
            Some((name, _)) => (*name).to_owned(),
            None => value.to_string(),
        }
    }
}

/// The setting of this name.
/// What a setting cannot be.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    #[error("{0} is error, warn, info, debug or trace")]
    Level(&'static str),
    #[error("{name} is a number from {least} to {most}")]
    Range {
        name: &'static str,
        least: u32,
        most: u32,
    },
    #[error("{:?} has no '=': write NAME=VALUE", escape(.0.as_bytes()))]
    NoValue(String),
    #[error("there is no setting {:?}; there are {}", escape(name.as_bytes()), names())]
    Unknown { name: String },
}

fn names() -> String {
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    names.join(", ")
}

fn setting(name: &str) -> Result<&'static Setting, SettingError> {
    let found = SETTINGS.iter().find(|setting| setting.name == name);
    found.ok_or_else(|| SettingError::Unknown {
        name: name.to_owned(),
    })
}

pub fn run(settings: &Settings, command: &Command, out: &mut Out) -> Result<(), Failure> {
    let status = admin_api::status(&settings.coordinator)?;
    let mut values = status.settings.unwrap_or_default();
    match command {
        Command::Show => {
            return out.text(&match out.json {
                true => show::pretty(&json(&status)),
                false => text(&status),
            });
        }
        Command::Set { values: asked } => {
            for one in asked {
                let (name, value) = one
                    .split_once('=')
                    .ok_or_else(|| SettingError::NoValue(one.clone()))?;
                let setting = setting(name)?;
                (setting.set)(&mut values, Some(setting.parse(value)?));
            }
        }
        Command::Unset { names } => {
            for name in names {
                (setting(name)?.set)(&mut values, None);
            }
        }
    }
    let names_copies = match command {
        Command::Show => false,
        Command::Set { values } => values.iter().any(|one| is_of_copies(one)),
        Command::Unset { names } => names.iter().any(|one| is_of_copies(one)),
    };
    let request = SetSettingsRequest {
        settings: Some(values),
        expected_cluster_id: status.cluster_id,
        asked_by: None,
        // Somebody says a number: it is meant, if it is the one in force that was seen.
        fewer_copies: names_copies.then(|| FewerCopies {
            expected_replicas: copies_in_force(&status),
        }),
    };
    let set = admin_api::set_settings(&settings.coordinator, request)?;
    match out.json {
        true => out.json_line(&values_json(&set)),
        false => Ok(()),
    }
}

fn is_of_copies(argument: &str) -> bool {
    let name = argument.split('=').next();
    matches!(name, Some("replicas" | "minReplicas"))
}

/// As was set, or else as many as any server was started with.
fn copies_in_force(status: &GetClusterStatusResponse) -> u32 {
    let set = status.settings.and_then(|values| values.replicas);
    let shards = status.members.iter().flat_map(|member| &member.shards);
    let started_with = shards.map(|shard| shard.replicas).max();
    set.or(started_with).unwrap_or(0)
}

/// Members of whose shards some do not have them yet. Who is away is told when he comes.
fn behind(status: &GetClusterStatusResponse) -> Vec<&str> {
    let number = status.settings.as_ref().map_or(0, |values| values.number);
    let members = status.members.iter();
    let behind = members.filter(|member| {
        let mut shards = member.shards.iter();
        shards.any(|shard| shard.connected && shard.settings != number)
    });
    behind.map(|member| member.name.as_str()).collect()
}

fn text(status: &GetClusterStatusResponse) -> String {
    let values = status.settings.unwrap_or_default();
    let mut text = String::new();
    for setting in &SETTINGS {
        let value = (setting.get)(&values);
        let value = value.map_or_else(|| "as started".to_owned(), |value| setting.show(value));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<20}{value}", setting.name);
    }
    let behind = behind(status);
    if !behind.is_empty() {
        let names: Vec<String> = behind
            .iter()
            .map(|name| escape(name.as_bytes()).to_string())
            .collect();
        let _ = writeln!(text, "\nNot in force yet at {}", names.join(", "));
    }
    text
}

fn values_json(values: &Values) -> Value {
    let mut map = Map::new();
    for setting in &SETTINGS {
        if let Some(value) = (setting.get)(values) {
            let shown = match setting.is_level {
                true => json!(setting.show(value)),
                false => json!(value),
            };
            map.insert(setting.name.to_owned(), shown);
        }
    }
    Value::Object(map)
}

pub fn json(status: &GetClusterStatusResponse) -> Value {
    let values = status.settings.unwrap_or_default();
    json!({
        "number": values.number,
        "settings": values_json(&values),
        "notInForceAt": behind(status),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_set_shown_and_taken_back() {
        for one in &SETTINGS {
            let mut values = Values::default();
            let written = if one.is_level { "debug" } else { "20" };
            let value = one.parse(written).unwrap_or(*one.range.end());
            (one.set)(&mut values, Some(value));
            assert_eq!((one.get)(&values), Some(value), "{}", one.name);
            assert_eq!(values_json(&values).as_object().unwrap().len(), 1);
            (one.set)(&mut values, None);
            assert_eq!(values, Values::default(), "{}", one.name);
        }
    }

    #[test]
    fn what_cannot_be_says_what_can() {
        let error = |name: &str, value: &str| {
            let parsed = setting(name).and_then(|it| it.parse(value));
            parsed.unwrap_err().to_string()
        };
        assert_eq!(error("replicas", "9"), "replicas is a number from 1 to 8");
        assert!(error("logLevel", "3").contains("error, warn"));
        assert!(error("pollMicros", "info").contains("pollMicros is a number"));
        assert!(error("copies", "2").contains("there are replicas, minReplicas"));
    }
}
