//! What servers say in their logs of a region that moves, and when.
//!
//! ```text
//! TIME  INFO argosy::server: master step=Raise { region: RegionId(2), primary: ServerId(1), … }
//! TIME  INFO argosy::server: master step=Promote { region: RegionId(2), primary: ServerId(2), … }
//! TIME  INFO argosy::server: master step=Regroup { region: RegionId(2), … }
//! TIME  INFO argosy_server::node::leasing: no earlier primary can answer any more region=2
//! TIME  INFO argosy_server::node::promoting: region open region=2 lsn=17
//! ```
//!
//! `TIME` is that of the clock on the wall, UTC, to the microsecond: `2026-11-30T05:51:55.123456Z`. All servers are on
//! this machine, so it is one clock. Lines that say something else are passed over.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use argosy_base::{Clock, Instant};
use humantime::parse_rfc3339;

/// What was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Nobody serves it any more.
    Raised,
    /// This server is to serve it.
    Promoted(u64),
    /// Its group is another one.
    Regrouped,
    /// Whoever served it before cannot answer any more.
    LeaseOver,
    /// Its logs are replayed.
    Opened,
}

impl What {
    /// Nobody serves it.
    pub(crate) const fn is_raised(self) -> bool {
        matches!(self, Self::Raised)
    }

    /// Who is to serve it.
    pub(crate) const fn is_promoted(self) -> bool {
        matches!(self, Self::Promoted(_))
    }

    /// Its group is another one.
    pub(crate) const fn is_regrouped(self) -> bool {
        matches!(self, Self::Regrouped)
    }
}

/// A line of a log that is about a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// When, in microseconds since 1970.
    pub micros: u64,
    /// Of which region.
    pub region: u64,
    /// What.
    pub what: What,
}

/// What a line of a log says of a region; `None` where it says nothing of the above.
#[must_use]
pub(crate) fn said(line: &str) -> Option<Said> {
    let (time, rest) = line.split_once(' ')?;
    let micros = micros_of(time)?;
    let number = |behind: &str| number_behind(rest, behind);
    let (region, what) = if let Some((_, step)) = rest.split_once("master step=") {
        let region = number("region: RegionId(")?;
        let what = match step.split(' ').next()? {
            "Raise" => What::Raised,
            "Promote" => What::Promoted(number("primary: ServerId(")?),
            "Regroup" => What::Regrouped,
            _ => return None,
        };
        (region, what)
    } else if rest.contains(": no earlier primary can answer any more ") {
        (number(" region=")?, What::LeaseOver)
    } else if rest.contains(": region open ") {
        (number(" region=")?, What::Opened)
    } else {
        return None;
    };
    Some(Said {
        micros,
        region,
        what,
    })
}

/// The number that stands behind these words.
fn number_behind(text: &str, words: &str) -> Option<u64> {
    let (_, rest) = text.split_once(words)?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Bytes of a time, to the microsecond.
const TIME_BYTES: usize = "2026-11-30T05:51:55.123456Z".len();

/// Microseconds since 1970 of `2026-11-30T05:51:55.123456Z`.
fn micros_of(text: &str) -> Option<u64> {
    let time = parse_rfc3339(text)
        .ok()
        .filter(|_| text.len() == TIME_BYTES)?;
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

/// The difference between the clock on the wall and the trial's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offset {
    /// Microseconds since 1970 at the origin of the trial's clock.
    origin: u64,
}

impl Offset {
    /// As `clock` shows it.
    #[must_use]
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        let wall = clock.wall().0 * 1000;
        let origin = wall.saturating_sub(clock.now().as_nanos() / 1000);
        Self { origin }
    }

    /// The moment of the trial's clock at which the clock on the wall showed so many `micros`.
    #[must_use]
    pub(crate) const fn moment(self, micros: u64) -> Instant {
        Instant::from_nanos(micros.saturating_sub(self.origin) * 1000)
    }
}

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    read: u64,
    /// The beginning of a line that has no end yet.
    begun: String,
}

impl Log {
    /// The one at `path`, from its beginning.
    #[must_use]
    pub(crate) const fn at(path: PathBuf) -> Self {
        Self {
            path,
            read: 0,
            begun: String::new(),
        }
    }

    /// What was said since the last call. Nothing, where there is no log.
    pub(crate) fn news(&mut self) -> Vec<Said> {
        let mut bytes = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_end(&mut bytes)
        });
        self.read += u64::try_from(read.unwrap_or(0)).expect("a length");
        self.begun.push_str(&String::from_utf8_lossy(&bytes));
        let end = self.begun.rfind('\n').map_or(0, |end| end + 1);
        let news = self.begun[..end].lines().filter_map(said).collect();
        self.begun.drain(..end);
        news
    }
}

#[cfg(test)]
#[path = "said_tests.rs"]
mod tests;
