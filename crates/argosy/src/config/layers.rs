//! Where the value of each key comes from, and all that is wrong with a configuration at once.
//!
//! | layer | | goes before |
//! |---|---|---|
//! | flag | `--set storage.l0-bytes=64MiB` | all others |
//! | environment | `ARGOSY_STORAGE__L0_BYTES=64MiB` | the file |
//! | file | | the default |
//! | default | [`ServerConfig`]'s | |

use std::collections::BTreeMap;
use std::fmt;

use argosy_server::resp::SlowLogSettings;
use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key, REQUIRED};
use super::{ServerConfig, with_suggestion};
use crate::engines;

/// Environment variables that begin so and have [`SEPARATOR`] are keys.
const PREFIX: &str = "ARGOSY_";
/// Stands between section and key.
const SEPARATOR: &str = "__";
/// The variables that begin so and are no keys.
const OTHER_VARIABLES: [&str; 2] = ["ARGOSY_LOG", "ARGOSY_ENDPOINTS"];

/// Where a value was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere.
    Default,
    /// In this line of the file.
    File(usize),
    /// In this variable.
    Environment(String),
    /// By `--set`.
    Flag,
}

impl Origin {
    /// Its name for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File(_) => "file",
            Self::Environment(_) => "environment",
            Self::Flag => "flag",
        }
    }

    /// The line, if it was a file.
    pub const fn line(&self) -> Option<usize> {
        match self {
            Self::File(line) => Some(*line),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(line) => write!(f, "line {line}"),
            Self::Environment(name) => f.write_str(name),
            Self::Flag => f.write_str("--set"),
        }
    }
}

/// Something wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Where; [`Origin::Default`] where something is missing.
    pub origin: Origin,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => f.write_str(&self.what),
            origin => write!(f, "{origin}: {}", self.what),
        }
    }
}

/// A configuration that is right, and where each value was said.
pub struct Resolved {
    /// The configuration; paths are as they were written.
    pub config: ServerConfig,
    /// By section and key; those that are not here are defaults.
    pub origins: BTreeMap<(&'static str, &'static str), Origin>,
}

/// What has been gathered so far.
#[derive(Default)]
struct Layers {
    values: BTreeMap<(&'static str, &'static str), (toml::Value, Origin)>,
    complaints: Vec<Complaint>,
}

/// Puts file, environment and flags together.
///
/// # Errors
/// All that is wrong, in the order of the layers and, in the file, of its lines.
pub fn resolve(
    text: &str,
    environment: impl Iterator<Item = (String, String)>,
    flags: &[String],
) -> Result<Resolved, Vec<Complaint>> {
    let mut layers = Layers::default();
    let whole = layers.file(text);
    for (name, value) in environment {
        layers.variable(&name, &value);
    }
    for flag in flags {
        layers.flag(flag);
    }
    if whole {
        layers.required();
    }
    layers.finish()
}

impl Layers {
    fn complain(&mut self, origin: Origin, what: impl Into<String>) {
        let what = what.into();
        self.complaints.push(Complaint { origin, what });
    }

    /// Takes what the file says. Whether it is TOML to its end.
    fn file(&mut self, text: &str) -> bool {
        let line = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let at = error.span().map_or(0, |span| span.start);
            let what = format!("not TOML: {}", error.message());
            self.complain(Origin::File(line(at)), what);
        }
        let mut sections: Vec<_> = table.get_ref().iter().collect();
        sections.sort_by_key(|(name, _)| name.span().start);
        for (section, value) in sections {
            let (name, here) = (section.get_ref(), Origin::File(line(section.span().start)));
            if let Err(what) = known_section(name) {
                self.complain(here, what);
                continue;
            }
            let DeValue::Table(keys) = value.get_ref() else {
                self.complain(here, format!("{name} is a section: write [{name}]"));
                continue;
            };
            let mut keys: Vec<_> = keys.iter().collect();
            keys.sort_by_key(|(key, _)| key.span().start);
            for (key, value) in keys {
                let here = Origin::File(line(key.span().start));
                let value = text.get(value.span()).and_then(toml_value);
                match (known_key(name, key.get_ref()), value) {
                    (Err(what), _) => self.complain(here, what),
                    (Ok(key), Some(value)) => self.set(key, value, here),
                    // What cannot be read has been complained of.
                    (Ok(_), None) => {}
                }
            }
        }
        self.complaints
            .sort_by_key(|complaint| complaint.origin.line());
        errors.is_empty()
    }

    /// Takes an environment variable, if it is one of a key. Others of this prefix are mistakes.
    fn variable(&mut self, name: &str, value: &str) {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            return;
        };
        let Some((section, key)) = rest.split_once(SEPARATOR) else {
            if !OTHER_VARIABLES.contains(&name) {
                self.complain(Origin::Environment(name.to_owned()), no_variable(rest));
            }
            return;
        };
        let plain = |text: &str| text.to_ascii_lowercase().replace('_', "-");
        self.said(
            &plain(section),
            &plain(key),
            value,
            Origin::Environment(name.to_owned()),
        );
    }

    /// Takes `section.key=value`.
    fn flag(&mut self, flag: &str) {
        let parts = flag.split_once('=').and_then(|(key, value)| {
            let (section, name) = key.split_once('.')?;
            Some((section, name, value))
        });
        match parts {
            Some((section, name, value)) => self.said(section, name, value, Origin::Flag),
            None => self.complain(Origin::Flag, format!("'{flag}': write section.key=value")),
        }
    }

    /// Takes a value that was said as plain text: a TOML value, or else a text without quotes.
    fn said(&mut self, section: &str, name: &str, value: &str, origin: Origin) {
        let known = known_section(section).and_then(|()| known_key(section, name));
        let value = toml_value(value).unwrap_or_else(|| toml::Value::String(value.to_owned()));
        match known {
            Ok(key) => self.set(key, value, origin),
            Err(what) => self.complain(origin, what),
        }
    }

    /// Takes a value, if it is one that the key can have.
    fn set(&mut self, key: &'static Key, value: toml::Value, origin: Origin) {
        let mut table = table_of(&ServerConfig::example());
        put(&mut table, key, value.clone());
        match table.try_into::<ServerConfig>() {
            Ok(_) => {
                self.values.insert((key.section, key.name), (value, origin));
            }
            Err(error) => {
                let what = format!("{}.{}: {}", key.section, key.name, error.message());
                self.complain(origin, what);
            }
        }
    }

    fn required(&mut self) {
        for key in REQUIRED {
            let (section, name) = key;
            // One that has a wrong value has been complained of.
            let named = format!("{section}.{name}:");
            let wrong = self.complaints.iter().any(|c| c.what.starts_with(&named));
            if !wrong && !self.values.contains_key(&key) {
                let what = format!("{section}.{name} is missing, and has no default");
                self.complain(Origin::Default, what);
            }
        }
    }

    fn finish(mut self) -> Result<Resolved, Vec<Complaint>> {
        if !self.complaints.is_empty() {
            return Err(self.complaints);
        }
        let mut table = toml::Table::new();
        for key in &KEYS {
            if let Some((value, _)) = self.values.get(&(key.section, key.name)) {
                put(&mut table, key, value.clone());
            }
        }
        let origins: BTreeMap<_, _> = self
            .values
            .iter()
            .map(|(key, (_, origin))| (*key, origin.clone()))
            .collect();
        match table.try_into::<ServerConfig>() {
            Ok(config) => match contradiction(&config, &origins) {
                None => Ok(Resolved { config, origins }),
                Some(complaint) => Err(vec![complaint]),
            },
            Err(error) => {
                self.complain(Origin::Default, error.message());
                Err(self.complaints)
            }
        }
    }
}

/// The complaint about an unknown variable. `rest` is its name without the prefix.
fn no_variable(rest: &str) -> String {
    let places = rest.match_indices('_').map(|(at, _)| at);
    let plain = |text: &str| text.to_ascii_lowercase().replace('_', "-");
    let is_key = |at: &usize| {
        let (section, name) = (plain(&rest[..*at]), plain(&rest[at + 1..]));
        KEYS.iter()
            .any(|key| key.section == section && key.name == name)
    };
    let meant = places.clone().find(is_key);
    match meant {
        Some(at) => format!(
            "two underscores stand between section and key: did you mean {PREFIX}{}{SEPARATOR}{}?",
            &rest[..at],
            &rest[at + 1..]
        ),
        None => format!(
            "there is no such variable; those of keys are named {PREFIX}SECTION{SEPARATOR}KEY"
        ),
    }
}

/// A complaint about values that are valid one by one and are not accepted together.
fn contradiction(
    config: &ServerConfig,
    origins: &BTreeMap<(&'static str, &'static str), Origin>,
) -> Option<Complaint> {
    let addr = config.resp.addr;
    if !addr.ip().is_loopback() && !config.resp.allow_remote {
        let origin = origins.get(&("resp", "addr"));
        return Some(Complaint {
            origin: origin.cloned().unwrap_or(Origin::Default),
            what: format!(
                "resp.addr: {addr} can be reached from other machines, and no password is asked for: whoever \
                 reaches it can read and remove everything. Listen on 127.0.0.1, or set \
                 resp.allow-remote = true if that is meant"
            ),
        });
    }
    let entries = config.resp.slow_log.entries_max;
    if entries > SlowLogSettings::ENTRIES_LIMIT {
        let origin = origins.get(&("resp", "slowlog-max-len"));
        return Some(Complaint {
            origin: origin.cloned().unwrap_or(Origin::Default),
            what: format!(
                "resp.slowlog-max-len: {entries} is over {}",
                SlowLogSettings::ENTRIES_LIMIT
            ),
        });
    }
    let error = engines::of_storage(&config.storage).validate().err()?;
    let name = error.name.replace('_', "-");
    let origin = origins.iter().find(|((_, key), _)| *key == name);
    Some(Complaint {
        origin: origin.map_or(Origin::Default, |(_, origin)| origin.clone()),
        what: format!("storage.{name}: {error}"),
    })
}

/// `text`, which is a value, read as TOML.
fn toml_value(text: &str) -> Option<toml::Value> {
    let mut table: toml::Table = format!("value = {text}").parse().ok()?;
    (table.len() == 1).then(|| table.remove("value")).flatten()
}

/// The configuration as tables of plain values.
pub(super) fn table_of(config: &ServerConfig) -> toml::Table {
    toml::Table::try_from(config).expect("a configuration is tables of plain values")
}

fn put(table: &mut toml::Table, key: &Key, value: toml::Value) {
    let section = table
        .entry(key.section)
        .or_insert_with(|| toml::Value::Table(toml::Table::new()));
    if let toml::Value::Table(section) = section {
        section.insert(key.name.to_owned(), value);
    }
}

fn known_section(section: &str) -> Result<(), String> {
    if KEYS.iter().any(|key| key.section == section) {
        return Ok(());
    }
    let found = format!("there is no section [{section}]");
    Err(with_suggestion(
        &found,
        section,
        KEYS.iter().map(|key| key.section),
    ))
}

fn known_key(section: &str, name: &str) -> Result<&'static Key, String> {
    let mut of_section = KEYS.iter().filter(|key| key.section == section);
    if let Some(key) = of_section.clone().find(|key| key.name == name) {
        return Ok(key);
    }
    // It may stand in the wrong section.
    if let Some(other) = KEYS
        .iter()
        .find(|key| key.name == name && of_section.by_ref().count() > 0)
    {
        return Err(format!(
            "there is no key {name} in [{section}]; did you mean {name} in [{}]?",
            other.section
        ));
    }
    let names = KEYS
        .iter()
        .filter(|key| key.section == section)
        .map(|key| key.name);
    let found = format!("there is no key {name} in [{section}]");
    Err(with_suggestion(&found, name, names))
}
