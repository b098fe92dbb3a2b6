//! Follows the pointers of levels into the large and the medium log: each has to lead to the record of its key.
//! Those into segments that were evacuated lead nowhere, and have to be shadowed by newer entries.
//!
//! Pointers are gathered, at most so many bytes of them, and followed in the order of the log. Of a log segment that
//! few of them lead to, what they lead to is read; of another, all, about once a batch.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{Pointer, RegionId, SegmentNumber};
use argosy_device::{Buffer, DeviceError};
use argosy_log::segment::Geometry;
use argosy_log::{LogSource, LogWindows, ReadError, ValueRef, read_value};
use argosy_memory::SharedMemory;

use super::pairs::Copy;
use super::verify::Verifier;
use super::{InSegment, ProblemKind};
use crate::edit::LogSegment;
use crate::names::logs::{LARGE_LOG, log_name};
use crate::read::medium::MediumRef;
use crate::version::{LevelEntry, Version};

/// Most bytes of keys that are gathered, and most pointers.
const KEYS_BYTES_MAX: usize = 32 << 20;
const POINTERS_MAX: usize = 1 << 20;

/// Keys of shadowed pointers that are looked up at a time.
const SHADOWED_BATCH: usize = 1024;

struct Gathered {
    at: Pointer,
    key: Range<usize>,
    value_len: u32,
    from: SegmentNumber,
}

/// See the module documentation.
pub(super) struct Pointers {
    keys: Vec<u8>,
    gathered: Vec<Gathered>,
    /// Memory that holds nothing: values are looked for on the device.
    windows: LogWindows,
}

impl Pointers {
    pub(super) fn new(geometry: Geometry, region: RegionId) -> Self {
        let memory = || Arc::new(SharedMemory::anonymous(geometry.slot_bytes()));
        let slots = (0..geometry.slots()).map(|_| memory()).collect();
        Self {
            keys: Vec::new(),
            gathered: Vec::new(),
            windows: LogWindows::new(region, LARGE_LOG, geometry, slots),
        }
    }

    /// Adds the pointer of `key` in level segment `from`.
    pub(super) fn add(&mut self, at: Pointer, key: &[u8], value_len: u32, from: SegmentNumber) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.gathered.push(Gathered {
            at,
            key: start..self.keys.len(),
            value_len,
            from,
        });
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys.len() >= KEYS_BYTES_MAX || self.gathered.len() >= POINTERS_MAX
    }

    /// Follows what has been gathered, and forgets it.
    pub(super) fn follow(&mut self, verifier: &mut Verifier<'_>) {
        self.gathered
            .sort_unstable_by_key(|pointer| pointer.at.to_raw());
        let source = Source::new(verifier.version);
        self.shadowed(verifier);
        for pointer in &self.gathered {
            if verifier.version.is_evacuated(pointer.at.segment()) {
                continue;
            }
            let wanted = ValueRef {
                at: pointer.at,
                value_len: pointer.value_len,
                key: &self.keys[pointer.key.clone()],
            };
            verifier.checked.pointers += 1;
            if let Some(entry) = source.version.medium_log().get(&pointer.at.segment()) {
                if let Some((kind, offset, what)) = source.medium_fault(entry, &wanted) {
                    let what = format!("{what}; {} points to it", pointer.from);
                    let at = InSegment::at(entry.segment.number, offset);
                    verifier.report(kind, super::MEDIUM_LOG, at, what);
                }
                continue;
            }
            let part = log_name(LARGE_LOG).to_owned();
            match read_value(&wanted, &self.windows, &source) {
                Ok(_) => verifier.note_farthest(pointer),
                Err(ReadError::Source(error)) => {
                    let (number, what) = (pointer.at.segment(), error.to_string());
                    verifier.report(
                        ProblemKind::Unreadable,
                        part,
                        InSegment::start(number),
                        what,
                    );
                }
                Err(ReadError::Corrupt {
                    segment,
                    offset,
                    what,
                }) => {
                    let held = source.segment(segment).is_some();
                    let (kind, what) = match held {
                        true => (
                            ProblemKind::Damaged,
                            format!("{what}; {} points to it", pointer.from),
                        ),
                        false => (
                            ProblemKind::Missing,
                            format!("{} points into it", pointer.from),
                        ),
                    };
                    verifier.report(kind, part, InSegment::at(segment, offset), what);
                }
            }
        }
        self.keys.clear();
        self.gathered.clear();
    }

    /// Checks that what points into evacuated segments is shadowed.
    fn shadowed(&self, verifier: &mut Verifier<'_>) {
        let version = verifier.version;
        let gathered = self.gathered.iter();
        let shadowed = gathered.filter(|pointer| version.is_evacuated(pointer.at.segment()));
        let shadowed: Vec<_> = shadowed.collect();
        if shadowed.is_empty() {
            return;
        }
        let levels = Copy::of_levels(version, verifier.geometry);
        for batch in shadowed.chunks(SHADOWED_BATCH) {
            let keys: Vec<_> = batch
                .iter()
                .map(|one| &self.keys[one.key.clone()])
                .collect();
            let bound = match levels.bound_to_evacuated(&keys) {
                Ok(bound) => {
                    verifier.checked.shadowed += batch.len() as u64;
                    bound
                }
                // One by one: what cannot be read has been told, or will be.
                Err(_) => (0..keys.len())
                    .filter(|place| {
                        let bound = levels.bound_to_evacuated(&keys[*place..=*place]);
                        verifier.checked.shadowed += u64::from(bound.is_ok());
                        bound.is_ok_and(|bound| !bound.is_empty())
                    })
                    .collect(),
            };
            for place in bound {
                let (at, key) = (batch[place].at, keys[place].escape_ascii());
                let what = format!(
                    "it was evacuated, and {} has the only pointer of key {key}",
                    batch[place].from
                );
                let part = log_name(LARGE_LOG).to_owned();
                let at = InSegment::at(at.segment(), at.offset());
                verifier.report(ProblemKind::Missing, part, at, what);
            }
        }
    }
}

/// The pointer that leads farthest into a segment.
pub(super) struct Farthest {
    offset: u32,
    /// The level segment that has it.
    from: SegmentNumber,
}

impl Verifier<'_> {
    fn note_farthest(&mut self, pointer: &Gathered) {
        let farthest = Farthest {
            offset: pointer.at.offset(),
            from: pointer.from,
        };
        let known = self.farthest.entry(pointer.at.segment());
        let known = known.or_insert(Farthest { ..farthest });
        if known.offset < farthest.offset {
            *known = farthest;
        }
    }

    /// Checks that edits declare all records durable that pointers lead to. Otherwise recovery can take damage in front
    /// of such a record for the end of the log. Of a value in chunks only the first record is looked at here. Pins are
    /// not checked: recovery never reads their logs.
    pub(super) fn pointers_are_durable(&mut self) {
        for (number, Farthest { offset, from }) in std::mem::take(&mut self.farthest) {
            let Some(entry) = self.version.log_segment(number) else {
                continue;
            };
            let durable = entry.segment.end.unwrap_or(entry.durable);
            if offset >= durable {
                let what = format!(
                    "{from} points to it, and edits declare durable only what lies in front of byte {durable}"
                );
                let part = log_name(LARGE_LOG).to_owned();
                self.report(
                    ProblemKind::Reference,
                    part,
                    InSegment::at(number, offset),
                    what,
                );
            }
        }
    }
}

/// Reads of one log segment in a row before all of it is read. In the order of keys hardly two reads in a row are of
/// one segment; in the order of places many may be, which together are most of it.
const READS_APART_MAX: u32 = 16;

/// Log segments of a version. The last is kept if much of it is read.
pub(super) struct Source<'a> {
    version: &'a Version,
    last: RefCell<Option<(SegmentNumber, Buffer)>>,
    /// The log segment that was read from last, and how many times in a row.
    reads: Cell<(SegmentNumber, u32)>,
}

impl<'a> Source<'a> {
    pub(super) fn new(version: &'a Version) -> Self {
        Self {
            version,
            last: RefCell::default(),
            reads: Cell::default(),
        }
    }

    /// Whether so much of log segment `number` is read that it is worth reading all of it.
    fn reads_much_of(&self, number: SegmentNumber) -> bool {
        let (last, times) = self.reads.get();
        let times = if last == number { times + 1 } else { 1 };
        self.reads.set((number, times));
        times > READS_APART_MAX
    }

    /// What is wrong with the value that `wanted` says is in the medium segment `entry`.
    fn medium_fault(
        &self,
        entry: &LevelEntry,
        wanted: &ValueRef<'_>,
    ) -> Option<(ProblemKind, u32, String)> {
        if !entry.stored.is_on_device() {
            // Told where owners are.
            return None;
        }
        let (offset, what) = self.medium_value(entry, wanted).err()?;
        let kind = match offset == wanted.at.offset() {
            true => ProblemKind::Damaged,
            false => ProblemKind::Unreadable,
        };
        Some((kind, offset, what))
    }

    /// The value that `wanted` says is in the medium segment `entry`, or where something is wrong, and what.
    pub(super) fn medium_value(
        &self,
        entry: &LevelEntry,
        wanted: &ValueRef<'_>,
    ) -> Result<Vec<u8>, (u32, String)> {
        let segment = &entry.segment;
        let mut last = self.last.borrow_mut();
        if last
            .as_ref()
            .is_none_or(|(held, _)| *held != segment.number)
        {
            let mut bytes = Buffer::zeroed(segment.len as usize);
            let read = entry.stored.read(0, &mut bytes);
            // No value begins at the end of its segment.
            read.map_err(|error| (segment.len, error.to_string()))?;
            *last = Some((segment.number, bytes));
            self.reads.set((segment.number, 0));
        }
        let (_, bytes) = last.as_ref().expect("it was read");
        let medium = MediumRef {
            name: self.version.name_of(segment),
            segment_len: segment.len,
            at: wanted.at.offset(),
            value_len: wanted.value_len,
            key: wanted.key,
        };
        let value = medium.read(bytes, None);
        value.map_err(|error| (medium.at, error.to_string()))
    }
}

impl LogSource for Source<'_> {
    type Error = DeviceError;
    type Segment = LogSegment;

    fn segment(&self, number: SegmentNumber) -> Option<LogSegment> {
        let stored = self.version.stored(number)?;
        let entry = self.version.log_segment(number)?;
        stored.is_on_device().then_some(entry.segment)
    }

    fn after(&self, segment: LogSegment) -> Option<LogSegment> {
        let chain = self.version.log(segment.log);
        let later = chain.partition_point(|other| other.ordinal <= segment.ordinal);
        chain.get(later).map(|entry| entry.segment)
    }

    fn read(&self, segment: LogSegment, offset: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        let mut last = self.last.borrow_mut();
        let is_held = last
            .as_ref()
            .is_some_and(|(number, _)| *number == segment.number);
        if !is_held && self.reads_much_of(segment.number) {
            let mut bytes = Buffer::zeroed(SEGMENT_SIZE);
            // If a part of it cannot be read, others may.
            if super::logs::read_log(self.version, &segment, 0, &mut bytes).is_ok() {
                *last = Some((segment.number, bytes));
            }
        }
        let held = last
            .as_ref()
            .filter(|(number, _)| *number == segment.number);
        let at = offset as usize;
        if let Some(part) = held.and_then(|(_, bytes)| bytes.get(at..at + out.len())) {
            out.copy_from_slice(part);
            return Ok(());
        }
        let at = at % BLOCK_SIZE;
        let mut bytes = Buffer::zeroed((at + out.len()).next_multiple_of(BLOCK_SIZE));
        let from = offset - u32::try_from(at).expect("less than a block");
        super::logs::read_log(self.version, &segment, from, &mut bytes)?;
        out.copy_from_slice(&bytes[at..at + out.len()]);
        Ok(())
    }
}
