//! Reads what is stored, segment by segment, and checks it.
//!
//! A [`Pass`] goes over the finished segments of a region: those that levels show, those of the medium log, and sealed
//! ones of the logs. The version keeps a segment while it is read (I1).
//!
//! A segment is right when its bytes have the checksum that its edit states or, where members rewrite
//! pointers, when every part of it is right by itself. Where it is not, the parts tell what is damaged, and
//! so which keys it concerns.

use std::collections::BTreeSet;
use std::ops::Bound;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{KeyRange, Pointer, SegmentNumber};
use argosy_device::{Buffer, DeviceError};
use argosy_log::Geometry;
use argosy_log::verify::verify_sealed;

use crate::addresses::Addressing;
use crate::edit::LogSegment;
use crate::level::medium::verify_medium_segment;
use crate::level::verify::{Fault, FoundLeaf, leaves_of, verify_index_segment, verify_segment};
use crate::names::logs::{LOGS, log_name};
use crate::names::{Form, SegmentName};
use crate::problem::{MEDIUM_LOG, ProblemKind};
use crate::version::{LevelEntry, LogEntry, Version};

pub use argosy_engine::damage::{Damage, RANGES_MAX};
pub use argosy_engine::scrub::{Pace, Pass, ScrubStats, Scrubbed, Scrubber};

/// A segment that can be checked.
enum Target<'a> {
    /// Of a level, which is named, or of the medium log.
    Finished(String, &'a LevelEntry),
    Log(&'a LogEntry),
}

/// A pass over what `version` has, and nothing that comes later: it ends, however much is written meanwhile.
pub(crate) fn pass_over(version: &Version) -> Pass {
    let finished = version.finished().map(|entry| entry.segment.len);
    let logs = LOGS.into_iter().flat_map(|log| version.log(log));
    let sealed = logs.filter_map(|entry| entry.segment.end);
    let bytes = finished.chain(sealed).map(u64::from).sum();
    Pass::over(version.table().keys().copied(), bytes)
}

/// Reads and checks the next segment of `pass` in `version`, which is one of the region now; `None` when there is
/// none. Blocks for the device.
pub fn next(version: &Version, geometry: Geometry, pass: &mut Pass) -> Option<Scrubbed> {
    loop {
        let from = pass.last().map_or(Bound::Unbounded, Bound::Excluded);
        let (number, _) = version.table().range(from).next()?;
        if !pass.go_to(*number) {
            continue;
        }
        if let Some(target) = target(version, *number) {
            return Some(check(version, &target, geometry));
        }
    }
}

/// Reads and checks segment `number` of `version`; `None` where it is not a finished one of that. Blocks for the
/// device.
pub(crate) fn check_segment(
    version: &Version,
    number: SegmentNumber,
    geometry: Geometry,
) -> Option<Scrubbed> {
    target(version, number).map(|target| check(version, &target, geometry))
}

/// What segment `number` is, if it is finished.
fn target(version: &Version, number: SegmentNumber) -> Option<Target<'_>> {
    if let Some(entry) = version.log_segment(number) {
        return entry.segment.end.map(|_| Target::Log(entry));
    }
    if let Some(entry) = version.medium_log().get(&number) {
        return Some(Target::Finished(MEDIUM_LOG.to_owned(), entry));
    }
    version.runs().find_map(|(level, run)| {
        let entry = run.entry(number)?;
        Some(Target::Finished(format!("L{level}"), entry))
    })
}

fn check(version: &Version, target: &Target<'_>, geometry: Geometry) -> Scrubbed {
    match target {
        Target::Finished(part, entry) => check_finished(version, part, entry),
        Target::Log(entry) => check_log(version, entry, geometry),
    }
}

/// A fault, how it counts, and the keys that it concerns.
pub(crate) struct Found(ProblemKind, Fault, Vec<KeyRange>);

impl Found {
    /// What is wrong.
    pub(crate) fn what(&self) -> &str {
        &self.1.what
    }
}

fn check_finished(version: &Version, part: &str, entry: &LevelEntry) -> Scrubbed {
    let segment = &entry.segment;
    let len = segment.len as usize;
    let own = || ranges_of(version, segment.number);
    let fault = |kind, what: &str| vec![Found(kind, Fault::damaged(0, what), own())];
    let mut bytes = Buffer::zeroed(len.next_multiple_of(BLOCK_SIZE));
    let found = match entry.stored.read(0, &mut bytes) {
        Err(error) => fault(ProblemKind::Unreadable, &error.to_string()),
        Ok(()) if len == 0 || !len.is_multiple_of(BLOCK_SIZE) => fault(
            ProblemKind::Damaged,
            "the manifest states an impossible length",
        ),
        Ok(()) => faults_of(version, entry, &bytes),
    };
    scrubbed(version, part, segment.number, len as u64, found)
}

/// What is wrong with `bytes`, all of the segment of `entry`.
pub(crate) fn faults_of(version: &Version, entry: &LevelEntry, bytes: &Buffer) -> Vec<Found> {
    let segment = &entry.segment;
    let name = SegmentName {
        region: version.region(),
        number: segment.number,
        epoch: segment.epoch,
    };
    let rewritten = version.addresses().rewrites(segment);
    let whole = name.checksum(bytes) == segment.checksum;
    if whole && !rewritten {
        return Vec::new();
    }
    let all = || ranges_of(version, segment.number);
    if bytes.iter().all(|byte| *byte == 0) {
        let what = "nothing is stored there: the segment was freed, or never written";
        return vec![Found(ProblemKind::Missing, Fault::damaged(0, what), all())];
    }
    let faults = match segment.form {
        Form::Index(height) => {
            verify_index_segment(name, height, bytes, |child| version.high_bits_of(child))
        }
        Form::Medium => verify_medium_segment(name, bytes).1,
        _ => {
            // Where the segment does not stand for all of its keys, the others lead anywhere.
            let counted = version.counted_ranges(name.number);
            let mut lost = 0;
            let visit = |key: &[u8], entry: crate::names::Entry<'_>| {
                let (at, _) = entry.pointer()?;
                let counts = counted.iter().any(|range| range.contains(key));
                let known = version.resolve(at).filter(|_| counts);
                lost += u32::from(counts && known.is_none());
                known.map(Pointer::segment)
            };
            let mut faults = verify_segment(name, bytes, version.mark(), visit).1;
            if lost > 0 {
                let what = format!("{lost} of its pointers lead to places where nothing is");
                faults.push(Fault::damaged(0, what));
            }
            faults
        }
    };
    if faults.is_empty() && !rewritten {
        let (kind, what) = match segment.form {
            Form::Medium => (
                ProblemKind::Damaged,
                "its values are not those that were written",
            ),
            _ => (
                ProblemKind::Stale,
                "the segment is whole, but its checksum is not the manifest's",
            ),
        };
        return vec![Found(kind, Fault::damaged(0, what), all())];
    }
    let found = faults.into_iter().map(|fault| {
        let kind = match fault.stale {
            true => ProblemKind::Stale,
            false => ProblemKind::Damaged,
        };
        let keys = match segment.form {
            Form::SelfContained | Form::Leaves => keys_around(name, bytes, &fault),
            _ => None,
        };
        let keys = match keys {
            Some(keys) => trimmed(&keys, &all()),
            None => all(),
        };
        Found(kind, fault, keys)
    });
    found.collect()
}

/// Keys that the leaf has which is damaged by `fault`, if it is one: what lies between its neighbours.
fn keys_around(name: SegmentName, bytes: &Buffer, fault: &Fault) -> Option<KeyRange> {
    let leaves = leaves_of(name, bytes).ok()?;
    let place = leaves.iter().position(|(at, _)| *at == fault.offset)?;
    leaves[place].1.is_err().then_some(())?;
    let good = |(_, leaf): &&FoundLeaf| leaf.is_ok();
    let before = leaves[..place].iter().rfind(good);
    let behind = leaves[place..].iter().find(good);
    let from = before.and_then(|(_, leaf)| leaf.as_ref().ok());
    let to = behind.and_then(|(_, leaf)| leaf.as_ref().ok());
    Some(KeyRange::new(
        from.map_or(Vec::new(), |leaf| {
            argosy_base::range::successor(&leaf.last_key())
        }),
        to.map(crate::level::Leaf::first_key),
    ))
}

fn trimmed(keys: &KeyRange, to: &[KeyRange]) -> Vec<KeyRange> {
    let both = to.iter().map(|range| range.intersection(keys));
    both.filter(|range| !range.is_empty()).collect()
}

/// The keys for which segment `number` is asked, or whose values may lie in it.
fn ranges_of(version: &Version, number: SegmentNumber) -> Vec<KeyRange> {
    let is_log = version.log_refs(number) > 0;
    let mut ranges = BTreeSet::new();
    for entry in version.runs().flat_map(|(_, run)| run.entries()) {
        let segment = &entry.segment;
        if segment.number == number || is_log && segment.points_into_logs() {
            ranges.insert((segment.range.from.clone(), segment.range.to.clone()));
        }
    }
    ranges
        .into_iter()
        .map(|(from, to)| KeyRange { from, to })
        .collect()
}

fn check_log(version: &Version, entry: &LogEntry, geometry: Geometry) -> Scrubbed {
    let segment = &entry.segment;
    let mut bytes = 0;
    let mut read = |_: &LogSegment, offset: u32, out: &mut [u8]| {
        bytes += out.len() as u64;
        entry.stored.read(offset, out)
    };
    let chain = std::slice::from_ref(segment);
    let found = verify_sealed::<DeviceError>(version.region(), geometry, chain, &mut read);
    // Goes through all levels.
    let keys = || ranges_of(version, segment.number);
    let found = match found {
        Err(error) => {
            let fault = Fault::damaged(0, error.to_string());
            vec![Found(ProblemKind::Unreadable, fault, keys())]
        }
        Ok(sealed) if sealed.faults.is_empty() => Vec::new(),
        Ok(sealed) => {
            let keys = keys();
            let faults = sealed.faults.into_iter();
            let found = faults.map(|fault| Fault::damaged(fault.offset, fault.what));
            found
                .map(|fault| Found(ProblemKind::Damaged, fault, keys.clone()))
                .collect()
        }
    };
    let part = log_name(segment.log);
    scrubbed(version, part, segment.number, bytes, found)
}

fn scrubbed(
    version: &Version,
    part: &str,
    number: SegmentNumber,
    bytes: u64,
    found: Vec<Found>,
) -> Scrubbed {
    let place = version.stored(number).map(|stored| stored.place());
    let damage = |Found(kind, fault, mut keys): Found| {
        let more_keys = keys.len().saturating_sub(RANGES_MAX);
        keys.truncate(RANGES_MAX);
        Damage {
            kind,
            region: version.region(),
            part: part.to_owned(),
            number,
            place: place.unwrap_or_default(),
            offset: fault.offset,
            what: fault.what,
            keys,
            more_keys,
        }
    };
    Scrubbed {
        bytes,
        damages: found.into_iter().map(damage).collect(),
    }
}
