//! Holds two members' copies of a region against each other: the same levels, and the same bytes
//! of logs as far as both have them, but for what closing marks say. Where pointers hold places, each copy's are
//! translated to segment numbers first.
//!
//! Members that each built their own levels hold the same pairs instead: all of them are compared,
//! as of the last write that both have.
//!
//! Members that make the same mistake are equal. So each copy's pointers are counted again, from its own leaves.
//!
//! Members may stand at different edits, where one was stopped before the other. Then the one that
//! is further is taken back to the edit of the other, as far as its manifest remembers; what has
//! been freed since then is compared by number, length and checksum alone.

use std::fmt;
use std::sync::Arc;

use argosy_base::{EditSeq, RegionId, SegmentNumber};
use argosy_device::{Buffer, Store};
use argosy_log::verify::level_closing_marks;

use super::ends::{LogEnds, log_ends};
use super::pairs::{Copy, compare_pairs};
use super::references::COUNTS;
use super::{InspectedRegion, LeftWindows};
use crate::edit::{LevelSegment, LogSegment, MEDIUM_LOG, RunId, log_segment_in_words};
use crate::names::Tree;
use crate::names::logs::{LOGS, log_name};
use crate::recount::recount;
use crate::settings::Settings;
use crate::version::Version;
use crate::version::outgoing::translate_counted;

/// One member's copy.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// Its store.
    pub store: &'a Arc<Store>,
    /// Its copy.
    pub region: &'a InspectedRegion,
    /// What is left of its log windows.
    pub windows: &'a LeftWindows,
}

/// The first thing in which two copies differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The region.
    pub region: RegionId,
    /// What of it: "L1", "recovery log", …
    pub part: String,
    /// The segment, where it is about one.
    pub number: Option<SegmentNumber>,
    /// The byte in it.
    pub offset: Option<u32>,
    /// What the first copy has, and the second.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.region, self.part)?;
        if let Some(number) = self.number {
            write!(f, ", {number}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// What was found equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The region.
    pub region: RegionId,
    /// The edits at which the copies stand.
    pub edits: [EditSeq; 2],
    /// The edit at which they were compared; `None` where the one that is further has forgotten
    /// the edits in between, so that only the segments that both have were compared.
    pub at: Option<EditSeq>,
    /// Level segments whose bytes are equal.
    pub level_segments: u64,
    /// Bytes of them.
    pub level_bytes: u64,
    /// Log segments whose bytes are equal as far as both have them, but for what closing marks say.
    pub log_segments: u64,
    /// Bytes of them.
    pub log_bytes: u64,
    /// Pairs that are equal, where the members built their levels each by itself: then no level
    /// segments are compared.
    pub pairs: Option<u64>,
    /// Bytes of them.
    pub pair_bytes: u64,
}

/// Compares two copies of a region, and counts the pointers of each again.
///
/// # Errors
/// The first difference; a copy that cannot be read is one, and so is one that counts wrong.
pub fn compare(
    members: [Member<'_>; 2],
    settings: &Settings,
) -> Result<Comparison, Box<Difference>> {
    let id = members[0].region.entry.region;
    let differ = |what: String| Difference {
        region: id,
        part: "manifest".to_owned(),
        number: None,
        offset: None,
        what,
    };
    let mut now = Vec::with_capacity(2);
    for (which, member) in ["first", "second"].into_iter().zip(&members) {
        match &member.region.version {
            Some(version) => now.push(version),
            None => return Err(Box::new(differ(format!("the {which} cannot be read")))),
        }
    }
    let edits = [now[0].group_edit(), now[1].group_edit()];
    if now.iter().any(|version| version.builds_levels()) {
        return compare_builders(id, members, [now[0], now[1]], settings);
    }
    let common = edits[0].min(edits[1]);
    let at = |which: usize| match edits[which] == common {
        true => Some(now[which].clone()),
        false => members[which]
            .region
            .version_at(members[which].store, common),
    };
    let (first, second) = (at(0), at(1));
    let mut found = Comparison {
        region: id,
        edits,
        at: (first.is_some() && second.is_some()).then_some(common),
        level_segments: 0,
        level_bytes: 0,
        log_segments: 0,
        log_bytes: 0,
        pairs: None,
        pair_bytes: 0,
    };
    if let (Some(first), Some(second)) = (&first, &second) {
        compare_names(id, first, second)?;
    }
    let mut pair = Pair {
        region: id,
        now: [now[0], now[1]],
        found: &mut found,
    };
    pair.levels()?;
    pair.logs(members, settings)?;
    pair.references()?;
    Ok(found)
}

/// Compares members of which at least one built its own levels.
fn compare_builders(
    region: RegionId,
    members: [Member<'_>; 2],
    now: [&Version; 2],
    settings: &Settings,
) -> Result<Comparison, Box<Difference>> {
    let differ = |what: String| {
        Box::new(Difference {
            region,
            part: "pairs".to_owned(),
            number: None,
            offset: None,
            what,
        })
    };
    let open = |which: usize| {
        let copy = Copy::open(now[which], members[which].windows, settings);
        copy.map_err(|what| differ(format!("the {}: {what}", ["first", "second"][which])))
    };
    let pairs = compare_pairs(&[open(0)?, open(1)?]).map_err(differ)?;
    let mut found = Comparison {
        region,
        edits: now.map(Version::group_edit),
        at: None,
        level_segments: 0,
        level_bytes: 0,
        log_segments: 0,
        log_bytes: 0,
        pairs: Some(pairs.pairs),
        pair_bytes: pairs.bytes,
    };
    let mut pair = Pair {
        region,
        now,
        found: &mut found,
    };
    pair.logs(members, settings)?;
    pair.references()?;
    Ok(found)
}

/// A level segment and where it is.
type Named = (u8, RunId, LevelSegment);

fn compare_names(id: RegionId, first: &Version, second: &Version) -> Result<(), Box<Difference>> {
    let [first, second] = [first.checkpoint(), second.checkpoint()];
    let trees = [first.trees, second.trees];
    let [first, second] = [first.added, second.added];
    let differ = |(level, run, segment): &Named, what: String| {
        Box::new(Difference {
            region: id,
            part: match *level {
                MEDIUM_LOG => super::MEDIUM_LOG.to_owned(),
                level => format!("L{level}, run {}", run.0),
            },
            number: Some(segment.number),
            offset: None,
            what,
        })
    };
    for (a, b) in first.iter().zip(&second) {
        if a != b {
            let what = format!("the first has {}, the second {}", describe(a), describe(b));
            return Err(differ(a, what));
        }
    }
    let common = first.len().min(second.len());
    match (first.get(common), second.get(common)) {
        (Some(more), _) => Err(differ(more, "only the first has it".to_owned())),
        (_, Some(more)) => Err(differ(more, "only the second has it".to_owned())),
        _ => compare_trees(id, trees),
    }
}

/// Trees of the same segments have to begin at the same place.
fn compare_trees(
    id: RegionId,
    [first, second]: [Vec<(u8, RunId, Tree)>; 2],
) -> Result<(), Box<Difference>> {
    let Some(((level, run, a), (_, _, b))) = first.iter().zip(&second).find(|(a, b)| a != b) else {
        return Ok(());
    };
    let (at, other) = (a.root, b.root);
    Err(Box::new(Difference {
        region: id,
        part: format!("L{level}, run {}", run.0),
        number: Some(at.segment()),
        offset: Some(at.offset()),
        what: format!("the first has the root of the tree at {at}, the second at {other}"),
    }))
}

fn describe((level, run, segment): &Named) -> String {
    format!("L{level}.{}:{segment}", run.0)
}

struct Pair<'a> {
    region: RegionId,
    now: [&'a Version; 2],
    found: &'a mut Comparison,
}

impl Pair<'_> {
    fn differ(
        &self,
        part: &str,
        number: SegmentNumber,
        offset: Option<u32>,
        what: impl Into<String>,
    ) -> Box<Difference> {
        Box::new(Difference {
            region: self.region,
            part: part.to_owned(),
            number: Some(number),
            offset,
            what: what.into(),
        })
    }

    /// The level segments that both have now: equal in everything, and byte for byte once pointers
    /// hold numbers.
    fn levels(&mut self) -> Result<(), Box<Difference>> {
        let segments = |version: &Version| {
            let mut found = std::collections::BTreeMap::new();
            for (number, entry) in version.medium_log() {
                found.insert(*number, (MEDIUM_LOG, Arc::clone(&entry.segment)));
            }
            for (level, run) in version.runs() {
                for entry in run.entries() {
                    let segment = Arc::clone(&entry.segment);
                    found.entry(segment.number).or_insert((level, segment));
                }
            }
            found
        };
        let [first, second] = self.now.map(segments);
        for (number, (level, a)) in &first {
            let Some((_, b)) = second.get(number) else {
                continue;
            };
            let part = match *level {
                MEDIUM_LOG => super::MEDIUM_LOG.to_owned(),
                level => format!("L{level}"),
            };
            let facts = |s: &LevelSegment| (s.epoch, s.len, s.checksum, s.entries, s.tombstones);
            if facts(a) != facts(b) {
                let what = format!("the first has {a}, the second {b}");
                return Err(self.differ(&part, *number, None, what));
            }
            self.level_bytes(&part, *number, a.len)?;
            self.found.level_segments += 1;
            self.found.level_bytes += u64::from(a.len);
        }
        Ok(())
    }

    /// The first `len` bytes of a segment as the first or second copy has them.
    fn read(
        &self,
        which: usize,
        part: &str,
        number: SegmentNumber,
        len: u32,
    ) -> Result<Buffer, Box<Difference>> {
        let name = ["first", "second"][which];
        let mut bytes = Buffer::zeroed(len as usize);
        let stored = self.now[which].stored(number);
        let stored = stored.filter(|stored| stored.is_on_device());
        let Some(stored) = stored else {
            let what = format!("the {name}'s device has no such place");
            return Err(self.differ(part, number, None, what));
        };
        match stored.read(0, &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => {
                let what = format!("the {name} cannot be read: {error}");
                Err(self.differ(part, number, None, what))
            }
        }
    }

    fn equal(
        &self,
        part: &str,
        number: SegmentNumber,
        bytes: [&[u8]; 2],
    ) -> Result<(), Box<Difference>> {
        let [a, b] = bytes;
        match a.iter().zip(b).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => {
                let what = format!("the first has {:#04x}, the second {:#04x}", a[at], b[at]);
                Err(self.differ(part, number, u32::try_from(at).ok(), what))
            }
        }
    }

    /// The `len` bytes of a level segment on both devices, as they go to other members.
    fn level_bytes(
        &self,
        part: &str,
        number: SegmentNumber,
        len: u32,
    ) -> Result<(), Box<Difference>> {
        // Pointers of what only one of them has consumed lead anywhere.
        let [first, second] = self.now.map(|version| version.counted_ranges(number));
        let both = first
            .iter()
            .flat_map(|a| second.iter().map(|b| a.intersection(b)));
        let counted: Vec<_> = both.filter(|range| !range.is_empty()).collect();
        let read = |which: usize| {
            let mut bytes = self.read(which, part, number, len)?;
            match translate_counted(self.now[which], number, &counted, &mut bytes) {
                Ok(()) => Ok(bytes),
                Err(error) => {
                    let what =
                        format!("the {} cannot be read: {error}", ["first", "second"][which]);
                    Err(self.differ(part, number, None, what))
                }
            }
        };
        let (first, second) = (read(0)?, read(1)?);
        let len = len as usize;
        self.equal(part, number, [&first[..len], &second[..len]])
    }

    /// The log segments that both have now, up to the end that both have.
    fn logs(
        &mut self,
        members: [Member<'_>; 2],
        settings: &Settings,
    ) -> Result<(), Box<Difference>> {
        let mut ends = Vec::with_capacity(2);
        for (which, member) in members.iter().enumerate() {
            let found = log_ends(self.now[which], member.windows, settings);
            ends.push(found.map_err(|error| {
                let name = ["first", "second"][which];
                let what = format!("the {name}: {error}");
                self.differ("logs", SegmentNumber(0), None, what)
            })?);
        }
        let whole = u32::try_from(settings.layout.segment_bytes).unwrap_or(u32::MAX);
        for log in LOGS {
            let part = log_name(log);
            let [first, second] = self.now;
            for entry in first.log(log) {
                let a = entry.segment;
                let Some(b) = second.log_segment(a.number) else {
                    continue;
                };
                self.same_log_segment(part, [&a, &b.segment])?;
                let len = ends[0].held(&a).min(ends[1].held(&b.segment)).min(whole);
                if len > 0 {
                    let mut both = [
                        self.log_bytes(0, &a, len, &ends[0])?,
                        self.log_bytes(1, &a, len, &ends[1])?,
                    ];
                    if both[0] != both[1] {
                        for bytes in &mut both {
                            level_closing_marks(
                                self.region,
                                settings.layout.log_geometry(),
                                &a,
                                bytes,
                            );
                        }
                    }
                    self.equal(part, a.number, [&both[0], &both[1]])?;
                    self.found.log_segments += 1;
                    self.found.log_bytes += u64::from(len);
                }
            }
        }
        Ok(())
    }

    /// Whether each copy counts as many bytes to which its levels point as they have.
    fn references(&self) -> Result<(), Box<Difference>> {
        let differ = |number: Option<SegmentNumber>, what: String| {
            Box::new(Difference {
                region: self.region,
                part: COUNTS.to_owned(),
                number,
                offset: None,
                what,
            })
        };
        for (which, version) in ["first", "second"].into_iter().zip(self.now) {
            let mut all = version.finished();
            if let Some(entry) = all.find(|entry| !entry.stored.is_on_device()) {
                let what = format!("the {which}'s device has no such place");
                return Err(differ(Some(entry.segment.number), what));
            }
            let wrong = recount(version).map_err(|error| {
                let what = format!("the {which} cannot be counted again: {error}");
                differ(None, what)
            })?;
            if let Some(wrong) = wrong.first() {
                let what = format!(
                    "the {which} counts {} bytes to which its levels point, and they have {}",
                    wrong.counted, wrong.found
                );
                return Err(differ(Some(wrong.number), what));
            }
        }
        Ok(())
    }

    /// Whether two log segments of one number are the same as far as manifests tell.
    fn same_log_segment(&self, part: &str, both: [&LogSegment; 2]) -> Result<(), Box<Difference>> {
        let [a, b] = both;
        let facts = |s: &LogSegment| (s.log, s.ordinal, s.epoch, s.base_lsn);
        let ends = a.end.zip(b.end);
        if facts(a) == facts(b) && ends.is_none_or(|(first, second)| first == second) {
            return Ok(());
        }
        let [first, second] = both.map(log_segment_in_words);
        let what = format!("the first has {first}, the second {second}");
        Err(self.differ(part, a.number, None, what))
    }

    /// The first `len` bytes of a log segment, from the device of one copy and what windows still have.
    fn log_bytes(
        &self,
        which: usize,
        segment: &LogSegment,
        len: u32,
        ends: &LogEnds,
    ) -> Result<Vec<u8>, Box<Difference>> {
        let part = log_name(segment.log);
        let mut bytes = self.read(which, part, segment.number, len)?;
        ends.overlay(segment.number, &mut bytes);
        Ok(bytes[..len as usize].to_vec())
    }
}
