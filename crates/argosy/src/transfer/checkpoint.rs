//! How an import goes on where it was interrupted: a small file, replaced as a whole, that says up to
//! which byte of its input every line is applied.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use argosy_base::{Clock, Instant};
use argosy_device::SystemClock;
use serde::{Deserialize, Serialize};

use super::format::Format;
use super::lines::Place;
use crate::failure::CommandFailure;

/// The schema of the file.
const SCHEMA: &str = "argosy.import-checkpoint.v1";
/// How often it is written.
const EVERY: Duration = Duration::from_secs(1);

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Applied {
    schema: String,
    /// How lines look.
    format: String,
    /// Every line in front of it is applied, or was rejected.
    pub(super) place: Place,
    /// Pairs that were applied.
    pub(super) pairs: u64,
    /// Lines that were rejected.
    pub(super) rejected: u64,
    /// That was all.
    pub(super) done: bool,
}

impl Applied {
    /// Nothing.
    pub(super) fn nothing(format: Format) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            format: format.name().to_owned(),
            place: Place::default(),
            pairs: 0,
            rejected: 0,
            done: false,
        }
    }
}

/// The file, if one is kept.
pub(super) struct Checkpoint {
    path: Option<PathBuf>,
    next: Instant,
}

impl Checkpoint {
    /// The file at `path`, and what it says; nothing where it does not exist yet.
    pub(super) fn open(
        path: Option<PathBuf>,
        format: Format,
    ) -> Result<(Self, Applied), CommandFailure> {
        let applied = match &path {
            Some(path) => read(path, format)?,
            None => Applied::nothing(format),
        };
        let checkpoint = Self {
            path,
            next: SystemClock.now() + EVERY,
        };
        Ok((checkpoint, applied))
    }

    /// Keeps `applied`, if it is time to.
    pub(super) fn keep_now_and_then(&mut self, applied: &Applied) -> Result<(), CommandFailure> {
        let now = SystemClock.now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + EVERY;
        self.keep(applied)
    }

    /// Keeps `applied`.
    pub(super) fn keep(&self, applied: &Applied) -> Result<(), CommandFailure> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let json = serde_json::to_string(applied);
        let json = json.map_err(|error| CommandFailure::Failed(format!("checkpoint: {error}")))?;
        replace(path, json.as_bytes()).map_err(|error| CommandFailure::io("write", path, &error))
    }
}

fn read(path: &Path, format: Format) -> Result<Applied, CommandFailure> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Applied::nothing(format));
        }
        text => text.map_err(|error| CommandFailure::io("read", path, &error))?,
    };
    let shown = path.display();
    let applied: Applied = serde_json::from_str(&text).map_err(|error| {
        CommandFailure::Failed(format!("{shown} is no checkpoint of an import: {error}"))
    })?;
    if applied.schema != SCHEMA {
        return Err(CommandFailure::Failed(format!(
            "{shown} is of {}, not of {SCHEMA}",
            applied.schema
        )));
    }
    if applied.format != format.name() {
        return Err(CommandFailure::Usage(format!(
            "{shown} is of an import of {}, and this one is of {}: give --format {}",
            applied.format,
            format.name(),
            applied.format
        )));
    }
    Ok(applied)
}

/// Puts `bytes` in the place of the file at `path`: whole or not at all.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}
