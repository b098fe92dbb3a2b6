//! Checks every byte that a region's version names, and every reference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::range::successor;
use argosy_base::{KeyRange, LogId, Pointer, RegionId, SegmentNumber};
use argosy_device::{Buffer, DeviceError};
use argosy_log::RecoverError;
use argosy_log::segment::Geometry;
use argosy_log::verify::{LogFault, find_torn, verify_sealed};

use super::checked::Checked;
use super::logs::{chain_of, read_log, recover_logs};
use super::pointers::{Farthest, Pointers};
use super::{InSegment, LeftWindows, Problem, ProblemKind};
use crate::addresses::Addressing;
use crate::edit::LogSegment;
use crate::level::medium::verify_medium_segment;
use crate::level::tree::LeafHome;
use crate::level::verify::{
    Contents, Fault, name_of_segment, verify_index_segment, verify_segment,
};
use crate::level::{ReadAt, SegmentReader};
use crate::merge::Source as _;
use crate::names::logs::{LOGS, log_name};
use crate::names::{Entry, Form, LevelError, SegmentName};
use crate::read::ReadAhead;
use crate::read::tree_cursor::{Path, TreeCursor, Way};
use crate::settings::Settings;
use crate::version::{LevelEntry, Run, RunTree, Version};

/// Parts that range tombstones cut off, as part of a region.
const UNCOUNTED: &str = "uncounted";

/// What a region's verification found.
pub(super) struct Verifier<'a> {
    pub(super) version: &'a Version,
    pub(super) region: RegionId,
    pub(super) geometry: Geometry,
    pub(super) checked: Checked,
    pub(super) problems: Vec<Problem>,
    /// Segments about which something has been said: one mistake is told once.
    pub(super) told: BTreeSet<InSegment>,
    /// Bytes of keys and values behind the pointers that count, by log segment, as leaves have them.
    pub(super) recounted: BTreeMap<SegmentNumber, u64>,
    /// The farthest pointer into each segment of the large log.
    pub(super) farthest: BTreeMap<SegmentNumber, Farthest>,
    pub(super) notes: Vec<String>,
}

/// A finished segment whose bytes were read.
struct ReadSegment<'a> {
    /// The part of the region that it is of.
    part: &'a str,
    name: SegmentName,
    form: Form,
    bytes: &'a Buffer,
}

/// Checks every segment of `version`, a region's. Returns what was checked,
/// what is wrong, and notes on what need not be.
///
/// Where a server was killed, the ends of its logs are in `windows`, which it left in shared
/// memory.
#[must_use]
pub fn verify_region(
    version: &Version,
    windows: &LeftWindows,
    settings: &Settings,
) -> (Checked, Vec<Problem>, Vec<String>) {
    let mut verifier = Verifier::new(version, settings);
    verifier.rules();
    verifier.logs(windows);
    verifier.levels();
    verifier.pointers_are_durable();
    (verifier.checked, verifier.problems, verifier.notes)
}

/// Checks the levels of a pinned version, and what of the large log they point to.
#[must_use]
pub fn verify_pin(version: &Version, settings: &Settings) -> (Checked, Vec<Problem>) {
    let mut verifier = Verifier::new(version, settings);
    verifier.rules();
    verifier.levels();
    (verifier.checked, verifier.problems)
}

impl<'a> Verifier<'a> {
    fn new(version: &'a Version, settings: &Settings) -> Self {
        Self {
            version,
            region: version.region(),
            geometry: settings.layout.log_geometry(),
            checked: Checked::default(),
            problems: Vec::new(),
            told: BTreeSet::new(),
            recounted: BTreeMap::new(),
            farthest: BTreeMap::new(),
            notes: Vec::new(),
        }
    }
}

impl Verifier<'_> {
    /// What holds of every version.
    fn rules(&mut self) {
        if let Err(violation) = self.version.check() {
            self.problems.push(Problem {
                kind: ProblemKind::Reference,
                part: "version".to_owned(),
                region: Some(self.region),
                number: None,
                place: None,
                offset: 0,
                what: violation.to_string(),
            });
        }
    }

    pub(super) fn report(
        &mut self,
        kind: ProblemKind,
        part: impl Into<String>,
        at: InSegment,
        what: impl Into<String>,
    ) {
        if !self.told.insert(at) {
            return;
        }
        let InSegment { number, offset } = at;
        self.problems.push(Problem {
            kind,
            part: part.into(),
            region: Some(self.region),
            number: Some(number),
            place: self.version.stored(number).map(|stored| stored.place()),
            offset,
            what: what.into(),
        });
    }

    /// Whether the device has the segment; what lies outside is told by [`super::verify_owners`].
    pub(super) fn is_inside(&self, number: SegmentNumber) -> bool {
        let stored = self.version.stored(number);
        stored.is_some_and(|stored| stored.is_on_device())
    }

    // --- Levels ---

    fn levels(&mut self) {
        let mut pointers = Pointers::new(self.geometry, self.region);
        let version = self.version;
        for entry in version.medium_log().values() {
            if self.is_inside(entry.segment.number) {
                self.finished_segment(super::MEDIUM_LOG, None, entry, &mut pointers);
            }
        }
        for (level, run) in version.runs() {
            let part = format!("L{level}");
            let mut seen = BTreeSet::new();
            for entry in run.entries() {
                if seen.insert(entry.segment.number) && self.is_inside(entry.segment.number) {
                    self.finished_segment(&part, Some(run), entry, &mut pointers);
                }
            }
        }
        for (number, rest) in version.uncounted() {
            if !rest.in_level && self.is_inside(*number) {
                self.finished_segment(UNCOUNTED, None, &rest.parts[0], &mut pointers);
            }
        }
        pointers.follow(self);
        self.references();
    }

    /// Checks a segment of a run, or of the medium log.
    fn finished_segment(
        &mut self,
        part: &str,
        run: Option<&Run>,
        entry: &LevelEntry,
        pointers: &mut Pointers,
    ) {
        let segment = &entry.segment;
        let number = segment.number;
        let len = segment.len as usize;
        if len == 0 || !len.is_multiple_of(BLOCK_SIZE) {
            let what = format!("the manifest says that it has {len} bytes");
            return self.report(ProblemKind::Damaged, part, InSegment::start(number), what);
        }
        let mut bytes = Buffer::zeroed(len);
        if let Err(error) = entry.stored.read(0, &mut bytes) {
            let what = error.to_string();
            return self.report(
                ProblemKind::Unreadable,
                part,
                InSegment::start(number),
                what,
            );
        }
        let counted = match segment.form {
            Form::Medium => &mut self.checked.medium_segments,
            _ => &mut self.checked.level_segments,
        };
        *counted += 1;
        self.checked.bytes += len as u64;
        if bytes.iter().all(|byte| *byte == 0) {
            let what = "nothing is stored there: the segment was freed, or never written";
            return self.report(ProblemKind::Missing, part, InSegment::start(number), what);
        }
        let name = SegmentName {
            region: self.region,
            number,
            epoch: segment.epoch,
        };
        let read = ReadSegment {
            part,
            name,
            form: segment.form,
            bytes: &bytes,
        };
        let (contents, faults) = self.pairs(&read, run, pointers);
        // Where pointers hold places, the checksum is that of the bytes as they were first built.
        let rewritten = self.version.addresses().rewrites(segment);
        let whole = name.checksum(&bytes) == segment.checksum || rewritten;
        self.level_faults(part, number, &faults);
        if faults.is_empty() && !whole {
            let what = "the segment is whole, but its checksum is not the manifest's";
            self.report(ProblemKind::Stale, part, InSegment::start(number), what);
        }
        if whole && !rewritten && !faults.is_empty() {
            let what = "the segment's own checksum is right: it was written like this";
            self.notes
                .push(format!("{}, {number}: {what}", self.region));
        }
        if let Some(contents) = contents {
            self.level_counts(part, entry, &contents);
            if segment.form != Form::Medium {
                self.checked.entries += u64::from(contents.entries);
            }
            if let Some(run) = run.filter(|_| segment.form == Form::Leaves) {
                self.through_tree(&read, run, contents.entries);
            }
        }
        if let Some(other) = name_of_segment(&bytes).filter(|other| *other != name) {
            let note = format!(
                "{}, {number}: its place holds {} of {}, written in {}",
                self.region, other.number, other.region, other.epoch
            );
            self.notes.push(note);
        }
    }

    /// Checks what a segment says of itself, and gathers its pointers.
    fn pairs(
        &mut self,
        of: &ReadSegment<'_>,
        run: Option<&Run>,
        pointers: &mut Pointers,
    ) -> (Option<Contents>, Vec<Fault>) {
        let ReadSegment {
            part,
            name,
            form,
            bytes,
        } = *of;
        let (version, number) = (self.version, name.number);
        let mut lost = 0u64;
        let recounted = &mut self.recounted;
        let seen = run.into_iter().flat_map(|run| run.entries_of(number));
        let seen: Vec<_> = seen.collect();
        let cut_off = version.uncounted().get(&number);
        let cut_off = cut_off.map_or(&[][..], |rest| &rest.parts);
        let visit = |key: &[u8], entry: Entry<'_>| {
            let (at, value_len) = entry.pointer()?;
            let holds = |entry: &LevelEntry| entry.segment.range.contains(key);
            let is_seen = seen.iter().any(|entry| holds(entry));
            if !is_seen && !cut_off.iter().any(holds) {
                // It was consumed: it leads anywhere.
                return None;
            }
            let known = version.resolve(at);
            match known {
                Some(at) => {
                    let bytes = key.len() as u64 + u64::from(value_len);
                    *recounted.entry(at.segment()).or_default() += bytes;
                    if is_seen {
                        pointers.add(at, key, value_len, number);
                    }
                }
                None => lost += 1,
            }
            known.map(Pointer::segment)
        };
        let found = match form {
            Form::Index(height) => {
                let high_bits = |child| version.high_bits_of(child);
                (None, verify_index_segment(name, height, bytes, high_bits))
            }
            Form::Medium => {
                let (entries, faults) = verify_medium_segment(name, bytes);
                let contents = entries.map(|entries| Contents {
                    entries,
                    ..Contents::default()
                });
                (contents, faults)
            }
            _ => verify_segment(name, bytes, version.mark(), visit),
        };
        if lost > 0 {
            let what =
                format!("{lost} of its pointers lead to places where the region has nothing");
            self.report(ProblemKind::Reference, part, InSegment::start(number), what);
        }
        if pointers.is_full() {
            pointers.follow(self);
        }
        found
    }

    /// Goes through leaf segment `of`, which has so many `entries`, by way of its tree, and counts what it comes to.
    fn through_tree(&mut self, of: &ReadSegment<'_>, run: &Run, entries: u32) {
        let part = of.part;
        let tree = run.tree.clone();
        let stored = self.version.stored(of.name.number);
        let reached = match tree.zip(stored) {
            Some((tree, stored)) => {
                let high_bits = tree.high_bits_of(stored);
                entries_through(tree, of.name, high_bits, of.bytes)
            }
            None => Ok(0),
        };
        match reached {
            Ok(reached) if reached == entries => {}
            Ok(reached) => {
                let what = format!("the tree leads to {reached} of its {entries} entries");
                self.report(
                    ProblemKind::Reference,
                    part,
                    InSegment::start(of.name.number),
                    what,
                );
            }
            Err(LevelError::Corrupt {
                segment,
                offset,
                what,
            }) => {
                let what = format!("{what}, on the way to {}", of.name.number);
                self.report(
                    ProblemKind::Damaged,
                    part,
                    InSegment::at(segment, offset),
                    what,
                );
            }
            Err(error) => {
                let what = error.to_string();
                self.report(
                    ProblemKind::Unreadable,
                    part,
                    InSegment::start(of.name.number),
                    what,
                );
            }
        }
    }

    fn level_faults(&mut self, part: &str, number: SegmentNumber, faults: &[Fault]) {
        for fault in faults {
            let kind = match fault.stale {
                true => ProblemKind::Stale,
                false => ProblemKind::Damaged,
            };
            self.report(
                kind,
                part,
                InSegment::at(number, fault.offset),
                fault.what.clone(),
            );
        }
    }

    /// Whether the manifest counts what the segment holds.
    fn level_counts(&mut self, part: &str, entry: &LevelEntry, contents: &Contents) {
        let segment = &entry.segment;
        let number = segment.number;
        let counts = [
            ("entries", segment.entries, contents.entries),
            ("tombstones", segment.tombstones, contents.tombstones),
        ];
        for (what, said, found) in counts {
            if said != found {
                let what = format!("the manifest counts {said} {what}, the segment has {found}");
                self.report(ProblemKind::Reference, part, InSegment::start(number), what);
            }
        }
        let pointed = contents.log_refs.iter();
        let pointed: u64 = pointed.map(|(_, bytes)| bytes).sum();
        if segment.large_bytes + segment.medium_bytes != pointed {
            let what = "the manifest's sums of what the segment points to are not the segment's";
            self.report(ProblemKind::Reference, part, InSegment::start(number), what);
        }
    }

    // --- Logs ---

    fn logs(&mut self, windows: &LeftWindows) {
        let version = self.version;
        let all = LOGS.iter().flat_map(|log| version.log(*log));
        let all_inside = all.clone().all(|e| self.is_inside(e.segment.number));
        self.checked.log_segments += all.count() as u64;
        for log in LOGS {
            let chain = chain_of(version, log);
            let inside: Vec<_> = chain
                .iter()
                .filter(|segment| self.is_inside(segment.number))
                .copied()
                .collect();
            if let Err(error) = self.sealed(log, &inside) {
                let number = inside
                    .first()
                    .map_or(SegmentNumber(0), |first| first.number);
                let what = error.to_string();
                let at = InSegment::start(number);
                self.report(ProblemKind::Unreadable, log_name(log), at, what);
            }
            if all_inside {
                self.torn(log, &chain, windows);
            }
        }
        if all_inside {
            self.tails(windows);
        }
    }

    fn sealed(&mut self, log: LogId, chain: &[LogSegment]) -> Result<(), DeviceError> {
        let version = self.version;
        let mut bytes = 0;
        let mut read = |segment: &LogSegment, offset: u32, out: &mut [u8]| {
            bytes += out.len() as u64;
            read_log(version, segment, offset, out)
        };
        let found = verify_sealed(self.region, self.geometry, chain, &mut read)?;
        self.checked.records += found.records;
        self.checked.bytes += bytes;
        for fault in found.faults {
            let (kind, what) = self.explain(chain, &fault)?;
            let at = InSegment::at(fault.number, fault.offset);
            self.report(kind, log_name(log), at, what);
        }
        Ok(())
    }

    /// What a fault of a log is: nothing there, something else there, or damage.
    fn explain(
        &self,
        chain: &[LogSegment],
        fault: &LogFault,
    ) -> Result<(ProblemKind, String), DeviceError> {
        let segment = chain.iter().find(|segment| segment.number == fault.number);
        let Some(segment) = segment.filter(|_| fault.offset == 0) else {
            return Ok((ProblemKind::Damaged, fault.what.to_owned()));
        };
        let end = segment.end.unwrap_or(0) as usize;
        let mut bytes = Buffer::zeroed(end);
        read_log(self.version, segment, 0, &mut bytes)?;
        if bytes.iter().all(|byte| *byte == 0) {
            let what = "nothing is stored there: the segment was freed, or never written";
            return Ok((ProblemKind::Missing, what.to_owned()));
        }
        if let Some((region, number)) = argosy_log::segment::named_by_header(&bytes)
            && (region, number) != (self.region, segment.number)
        {
            let what = format!("what lies here is {number} of {region}");
            return Ok((ProblemKind::Stale, what));
        }
        Ok((ProblemKind::Damaged, fault.what.to_owned()))
    }

    /// What stands behind the last record of a log, if that is neither a record nor nothing.
    fn torn(&mut self, log: LogId, chain: &[LogSegment], windows: &LeftWindows) {
        let version = self.version;
        let mut read =
            |segment: &LogSegment, at: u32, out: &mut [u8]| read_log(version, segment, at, out);
        let slots = &windows[log.index()];
        let torn = find_torn(self.region, self.geometry, chain, slots, &mut read);
        if let Ok(Some(torn)) = torn {
            self.notes.push(format!(
                "{}, {}, {}, byte {}: behind the last record stands something that is none: torn by a loss of power, \
                 or damaged",
                self.region,
                log_name(log),
                torn.number,
                torn.offset
            ));
        }
    }

    /// Whether everything that was declared durable is there.
    fn tails(&mut self, windows: &LeftWindows) {
        match recover_logs(self.version, self.geometry, windows, |_| {}) {
            Ok(recovered) => self.notes.extend(recovered.cut_in_words(log_name)),
            Err(RecoverError::Read { log, source }) => {
                let what = source.to_string();
                let number = SegmentNumber(0);
                let at = InSegment::start(number);
                self.report(ProblemKind::Unreadable, log_name(log), at, what);
            }
            Err(RecoverError::Corrupt {
                log,
                segment,
                offset,
                what,
                missing,
            }) => {
                // A sealed segment in which something is wrong has been told.
                if self.told.iter().any(|at| at.number == segment) {
                    return;
                }
                let what = format!("{what}; {missing} is missing, which was durable");
                let at = InSegment::at(segment, offset);
                self.report(ProblemKind::Damaged, log_name(log), at, what);
            }
        }
    }
}

/// Entries that `tree` leads to in its leaf segment `name`, whose bytes are sound.
fn entries_through(
    tree: Arc<RunTree>,
    name: SegmentName,
    high_bits: SegmentNumber,
    bytes: &Buffer,
) -> Result<u32, LevelError> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let reader = SegmentReader::open(name, len, bytes)?;
    let from = reader.first_key().to_vec();
    let range = KeyRange::new(from, Some(successor(reader.last_key())));
    let home = LeafHome {
        name,
        high_bits,
        len,
        bytes: |offset: u32, out: &mut [u8]| bytes.read_at(offset, out),
    };
    let (ahead, path) = (ReadAhead::COMPACTION, Path::default());
    let way = Way {
        segments: tree,
        path,
    };
    let mut cursor = TreeCursor::new(way, home, None, &range, ahead)?;
    let mut reached = 0;
    while cursor.key().is_some() {
        reached += 1;
        cursor.advance()?;
    }
    Ok(reached)
}
