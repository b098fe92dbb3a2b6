//! What the log consists of: groups of records, cut into fragments that fit their segments.
//!
//! ```text
//! group    := count: varint  record[count]     the first record has the group's LSN, each further one the next
//! record   := 1  expiry: varint  key: string  value: string         put; expiry 0: never, else the moment and 1
//!           | 2  key: string                                        delete
//!           | 3  from: string  bounded: u8  to: string              delete of a range; bounded 0: up to the last key
//!           | 4  time: varint                                       the region's time
//! fragment := checksum: u32  len: u32  lsn: u64  place: u8  bytes[len]
//! place    := 1 if it is the first of its group, and 2 if it is the last, added
//! ```
//!
//! `string` is a varint of its length and its bytes. `lsn` is the group's. The checksum covers what is behind it, under
//! the identity of a log record at this byte of the segment: what an earlier owner left there is no fragment (I2).
//!
//! A fragment begins right behind the one before it, or, where a flush came between, at the next block. Where neither
//! place has one, the segment ends.

use std::sync::Arc;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{BLOCK_SIZE, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{Identity, KeyRange, Kind, Lsn, Moment, RegionId};

use super::edit::RingSegment;

/// Bytes in front of those of a fragment.
pub(super) const FRAGMENT_BYTES: usize = 17;

const CHECKSUM_BYTES: usize = 4;
const FIRST: u8 = 1;
const LAST: u8 = 2;

/// A change of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Put {
        key: Vec<u8>,
        value: Arc<[u8]>,
        expiry: Option<Moment>,
    },
    Delete {
        key: Vec<u8>,
    },
    DeleteRange(KeyRange),
    Time(Moment),
}

/// Records that take effect together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) first: Lsn,
    pub(super) records: Vec<Record>,
}

impl Group {
    /// The LSN of its last record.
    pub(super) fn last(&self) -> Lsn {
        Lsn(self.first.0 + self.records.len() as u64 - 1)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.records.len() as u64);
        for record in &self.records {
            match record {
                Record::Put { key, value, expiry } => {
                    out.push(1);
                    put_varint(&mut out, expiry.map_or(0, |moment| moment.0 + 1));
                    put_string(&mut out, key);
                    put_string(&mut out, value);
                }
                Record::Delete { key } => {
                    out.push(2);
                    put_string(&mut out, key);
                }
                Record::DeleteRange(range) => {
                    out.push(3);
                    put_string(&mut out, &range.from);
                    out.push(u8::from(range.to.is_some()));
                    put_string(&mut out, range.to.as_deref().unwrap_or_default());
                }
                Record::Time(time) => {
                    out.push(4);
                    put_varint(&mut out, time.0);
                }
            }
        }
        out
    }

    fn decode(first: Lsn, bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new("toy group", bytes);
        let count = from.varint()?;
        let mut records = Vec::new();
        for _ in 0..count {
            records.push(Self::decode_record(&mut from)?);
        }
        from.finish()?;
        Ok(Self { first, records })
    }

    fn decode_record(from: &mut Reader<'_>) -> Result<Record, Malformed> {
        // The bound of a range is longer by one.
        let key = |from: &mut Reader<'_>| Ok(from.string(KEY_BYTES_MAX + 1)?.to_vec());
        Ok(match from.u8()? {
            1 => {
                let expiry = from.varint()?.checked_sub(1).map(Moment);
                Record::Put {
                    key: key(from)?,
                    value: from.string(VALUE_BYTES_MAX)?.into(),
                    expiry,
                }
            }
            2 => Record::Delete { key: key(from)? },
            3 => {
                let start = key(from)?;
                let bounded = from.u8()? != 0;
                let to = key(from)?;
                Record::DeleteRange(KeyRange::new(start, bounded.then_some(to)))
            }
            4 => Record::Time(Moment(from.varint()?)),
            _ => return Err(from.malformed()),
        })
    }
}

/// A part of an encoded group, as it lies in a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment<'a> {
    pub(super) lsn: Lsn,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    pub(super) bytes: &'a [u8],
}

impl Fragment<'_> {
    /// The fragment as it lies at byte `at` of `segment`.
    pub(super) fn encode(&self, region: RegionId, segment: &RingSegment, at: usize) -> Vec<u8> {
        let len = u32::try_from(self.bytes.len()).expect("a fragment fits a segment");
        let place = u8::from(self.is_first) * FIRST + u8::from(self.is_last) * LAST;
        let mut out = vec![0; CHECKSUM_BYTES];
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&self.lsn.0.to_le_bytes());
        out.push(place);
        out.extend_from_slice(self.bytes);
        let checksum = identity(region, segment, at).checksum(&out[CHECKSUM_BYTES..]);
        out[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        out
    }
}

impl<'a> Fragment<'a> {
    /// The fragment at byte `at` of `segment`, which begins with `bytes`, if there is one.
    fn at(region: RegionId, segment: &RingSegment, bytes: &'a [u8], at: usize) -> Option<Self> {
        let mut from = Reader::new("toy fragment", bytes.get(at..)?);
        let checksum = from.u32().ok()?;
        let len = from.u32().ok()? as usize;
        let lsn = Lsn(from.u64().ok()?);
        let place = from.u8().ok()?;
        let payload = from.take(len).ok()?;
        let covered = &bytes[at + CHECKSUM_BYTES..at + FRAGMENT_BYTES + len];
        let whole = identity(region, segment, at).checksum(covered) == checksum;
        whole.then_some(Self {
            lsn,
            is_first: place & FIRST != 0,
            is_last: place & LAST != 0,
            bytes: payload,
        })
    }
}

fn identity(region: RegionId, segment: &RingSegment, at: usize) -> Identity {
    Identity {
        kind: Kind::LogRecord,
        region,
        segment: segment.number,
        epoch: segment.epoch,
        offset: u32::try_from(at).expect("a byte of a segment"),
    }
}

/// The fragments of `segment`, which begins with `bytes`, each with the byte behind it.
pub(super) fn fragments<'a>(
    region: RegionId,
    segment: &RingSegment,
    bytes: &'a [u8],
) -> Vec<(Fragment<'a>, usize)> {
    let mut found = Vec::new();
    let mut at = 0_usize;
    loop {
        let next = [at, at.next_multiple_of(BLOCK_SIZE)].into_iter();
        let mut next = next.filter_map(|at| Some((Fragment::at(region, segment, bytes, at)?, at)));
        let Some((fragment, begin)) = next.next() else {
            return found;
        };
        at = begin + FRAGMENT_BYTES + fragment.bytes.len();
        found.push((fragment, at));
    }
}

/// Puts fragments together to groups, up to the first LSN that is missing.
pub(super) struct Assembler {
    /// The LSN that has to come next.
    next: Lsn,
    /// Of the group that is not complete.
    bytes: Vec<u8>,
    is_within: bool,
}

impl Assembler {
    /// For a history whose next record has this LSN.
    pub(super) const fn new(next: Lsn) -> Self {
        Self {
            next,
            bytes: Vec::new(),
            is_within: false,
        }
    }

    /// The last LSN of a complete group.
    pub(super) const fn last(&self) -> Lsn {
        Lsn(self.next.0 - 1)
    }

    /// Takes the next fragment. Returns the group that is complete with it; an error where the history ends in front of
    /// it.
    pub(super) fn take(&mut self, fragment: Fragment<'_>) -> Result<Option<Group>, HistoryEnds> {
        if fragment.lsn != self.next || fragment.is_first == self.is_within {
            return Err(HistoryEnds);
        }
        self.is_within = true;
        self.bytes.extend_from_slice(fragment.bytes);
        if !fragment.is_last {
            return Ok(None);
        }
        self.is_within = false;
        let bytes = std::mem::take(&mut self.bytes);
        let group = Group::decode(self.next, &bytes).map_err(|_| HistoryEnds)?;
        if group.records.is_empty() {
            return Err(HistoryEnds);
        }
        self.next = group.last().next();
        Ok(Some(group))
    }
}

/// What comes next does not follow what came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryEnds;
