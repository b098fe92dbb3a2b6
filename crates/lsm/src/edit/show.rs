//! Edits as text, for scripts of tests and for people.

use std::fmt;

use argosy_base::{EditSeq, Epoch};
use argosy_log::{LogPoint, LogSegment};

use super::{Edit, LevelSegment, MEDIUM_LOG, Place, Reference, RunId, UNCOUNTED};
use crate::names::Form;
use crate::names::logs::log_word;

/// A run of a level, the medium log, or what is not counted yet.
struct Home(u8, RunId);

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(MEDIUM_LOG, _) => f.write_str("medium"),
            Self(UNCOUNTED, _) => f.write_str("uncounted"),
            Self(level, run) => write!(f, "L{level}.{}", run.0),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Home(self.level, self.run), self.number.0)
    }
}

impl fmt::Display for LevelSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, range, .. } = self;
        write!(
            f,
            "{} {range} epoch {} len {}",
            number.0, self.epoch.0, self.len
        )?;
        write!(f, " sum {:#x} entries {}", self.checksum, self.entries)?;
        write!(f, " tombstones {}", self.tombstones)?;
        let pointed = [("large", self.large_bytes), ("medium", self.medium_bytes)];
        for (log, bytes) in pointed.iter().filter(|(_, bytes)| *bytes > 0) {
            write!(f, " {log} {bytes}")?;
        }
        match self.form {
            Form::SelfContained | Form::Medium => Ok(()),
            form => write!(f, " {form}"),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            added,
            dropped,
        } = self;
        write!(f, "{}: {added} added, {dropped} dropped", number.0)
    }
}

/// A log segment as text.
#[must_use]
pub fn log_segment_in_words(segment: &LogSegment) -> String {
    let (ordinal, number, base) = (segment.ordinal, segment.number.0, segment.base_lsn.0);
    let end = segment
        .end
        .map_or_else(String::new, |end| format!(" end {end}"));
    format!(
        "{}#{ordinal}:{number} epoch {} base {base}{end}",
        log_word(segment.log),
        segment.epoch.0
    )
}

/// `17`, or behind a cut that has told its epoch `2.17`.
fn seq_word(seq: EditSeq) -> String {
    match seq.cut_epoch() {
        Epoch(0) => seq.0.to_string(),
        epoch => format!("{}.{}", epoch.0, seq.count()),
    }
}

fn log_point_in_words(point: LogPoint) -> String {
    format!("{}:{}@{}", log_word(point.log), point.number.0, point.to)
}

/// One line for what the edit is, then one line for each change.
impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.checkpoint {
            "checkpoint"
        } else {
            "edit"
        };
        write!(f, "{what} {} epoch {}", seq_word(self.seq), self.epoch.0)?;
        if let Some(lsn) = self.numbers.replay_from {
            write!(f, " replay {}", lsn.0)?;
        }
        if let Some(lsn) = self.numbers.durable {
            write!(f, " durable {}", lsn.0)?;
        }
        if let Some(lsn) = self.numbers.logged_from {
            write!(f, " logged-from {}", lsn.0)?;
        }
        if let Some(mark) = self.numbers.mark {
            write!(f, " mark {}", mark.0)?;
        }
        if let Some(seq) = self.numbers.follows {
            write!(f, " follows {}", seq_word(seq))?;
        }
        if let Some(mark) = self.numbers.own_mark {
            write!(f, " own mark {}", mark.0)?;
        }
        if let Some(time) = self.numbers.time {
            write!(f, " time {}", time.0)?;
        }
        if let Some(table) = &self.duplicates {
            write!(f, " remembers {table}")?;
        }
        for place in &self.removed {
            write!(f, "\n  - {place}")?;
        }
        for (place, range) in &self.bounds {
            write!(f, "\n  bounds {place} {range}")?;
        }
        for (level, run, segment) in &self.added {
            write!(f, "\n  + {}:{segment}", Home(*level, *run))?;
        }
        for (level, run, tree) in &self.trees {
            let (segment, offset) = (tree.root.segment().0, tree.root.offset());
            write!(f, "\n  tree L{level}.{} root {segment}@{offset}", run.0)?;
            write!(f, " len {} height {}", tree.len, tree.height)?;
        }
        for log in &self.logs.added {
            write!(f, "\n  + {}", log_segment_in_words(log))?;
        }
        for at in &self.logs.sealed {
            write!(f, "\n  seal {}", log_point_in_words(*at))?;
        }
        for (log, number) in &self.logs.removed {
            write!(f, "\n  - {}:{}", log_word(*log), number.0)?;
        }
        for number in &self.evacuated {
            write!(f, "\n  evacuated {}", number.0)?;
        }
        for at in &self.logs.points {
            write!(f, "\n  need {}", log_point_in_words(*at))?;
        }
        for reference in &self.references {
            write!(f, "\n  references {reference}")?;
        }
        Ok(())
    }
}
