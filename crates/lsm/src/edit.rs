//! Version edits: the steps between versions, and their bytes.
//!
//! Whatever changes what a region consists of is an edit: a flushed memtable, a part of a
//! compaction, a new log segment, a sealed one, more segment numbers. The primary makes it, every
//! member stores the very same bytes in its manifest, in the order of their sequence (`seq`, of which the upper 32
//! bits are the epoch of the last cut), and
//! [`Version::apply`](crate::version::Version::apply) is the only thing that gives them a meaning.
//!
//! ```text
//! edit    := format: u8 (8)  flags: u16  seq  epoch  [replay_from] [durable] [mark]
//!            [follows] [own_mark] [time] [logged_from]
//!            list(place)                      -- level segments removed
//!            list(place range)                -- new bounds of level segments
//!            list(level: u8  run  segment)    -- level segments added
//!            list(log: u8  ordinal number epoch base_lsn  0 | end+1)   -- log segments added
//!            list(log: u8  number end)        -- log segments sealed
//!            list(log: u8  number)            -- log segments removed
//!            list(log: u8  number to)         -- log bytes that have to be durable
//!            list(level: u8  run  tree)       -- trees that begin
//!            list(number)                     -- log segments that are evacuated
//!            list(number added dropped)       -- bytes that pointers name, by log segment, ascending
//!            [table]                          -- see `duplicates`
//! flags   := 1 checkpoint | 2 replay_from | 4 durable | 8 mark | 16 follows | 32 own_mark | 64 time
//!          | 128 table | 256 logged_from
//! place   := level: u8  run  number
//! segment := number epoch len checksum: u32 entries tombstones large_bytes medium_bytes range
//!            form: u8                         -- see `Form`
//! tree    := root: u64  len  height: u8
//! range   := from: string  bounded: u8  [to: string]
//! list(x) := count  x*
//! ```
//!
//! A segment of the [medium log](crate::level::medium) belongs to no level: it is added and removed as one
//! of level [`MEDIUM_LOG`], run 0. Parts of level segments that were cut off unread are added and removed
//! as segments of level [`UNCOUNTED`], run 0, until their pointers are counted as dropped.
//!
//! The size of an edit is bounded by what a flush or a merge reads and writes: it lists each of its
//! inputs and outputs, and each log segment of which it drops or adds a pointer, once; and the duplicate table, which
//! is bounded, where a flush changes it.
//!
//! Formats 1 to 7 are refused: up to 6, each level segment listed the log segments that it points into; 7 had flags of
//! one byte, and did not say from where on the logs are whole.
//!
//! What has no width is a variable-length integer, a string is its length and its bytes
//! ([`argosy_base::codec`]). The bytes carry no checksum: the manifest record or message that holds
//! them does. An edit that decodes is well formed, no more; whether it fits is for the version.

mod show;

use std::sync::Arc;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{KEY_BYTES_MAX, SEGMENT_SIZE};
use argosy_base::{EditSeq, Epoch, KeyRange, LogId, Lsn, Moment, Pointer, SegmentNumber};

pub use argosy_log::{LogPoint, LogSegment};
pub use show::log_segment_in_words;

use crate::duplicates::Duplicates;
use crate::names::logs::stored_log;
use crate::names::{Form, Tree};

/// The format that is written, and the only one that is read.
const FORMAT: u8 = 8;
const FLAG_CHECKPOINT: u16 = 1;
const FLAG_REPLAY_FROM: u16 = 2;
const FLAG_DURABLE: u16 = 4;
const FLAG_MARK: u16 = 8;
const FLAG_FOLLOWS: u16 = 16;
const FLAG_OWN_MARK: u16 = 32;
const FLAG_TIME: u16 = 64;
const FLAG_DUPLICATES: u16 = 128;
const FLAG_LOGGED_FROM: u16 = 256;
const FLAGS: u16 = 2 * FLAG_LOGGED_FROM - 1;

/// Levels that a region can have: L1 to L12. With a growth factor of 2 that is still 4096 times L0.
pub const LEVELS_MAX: u8 = 12;

/// In the place of a level: the medium log, whose segments belong to none.
pub const MEDIUM_LOG: u8 = 0;

/// In the place of a level: parts of level segments that no reader sees any more, kept until the pointers
/// in them are counted as dropped. See [`Version::uncounted`](crate::version::Version::uncounted).
pub const UNCOUNTED: u8 = LEVELS_MAX + 1;

/// Longest range bound: a key's successor.
const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// A sorted run of L1. Newer runs have higher numbers; the levels below have the one run 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// Where a version has a level segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// 1 to [`LEVELS_MAX`], [`MEDIUM_LOG`] or [`UNCOUNTED`].
    pub level: u8,
    /// The run in the level; 0 outside of L1.
    pub run: RunId,
    /// The segment.
    pub number: SegmentNumber,
}

/// A segment of a level, and the keys that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelSegment {
    /// Its logical number. A version has it in one run only, and there once; or several times,
    /// for different keys, after its middle was consumed.
    pub number: SegmentNumber,
    /// The epoch in which it was written, part of its checksums' identity.
    pub epoch: Epoch,
    /// Bytes in use: whole blocks, at most [`SEGMENT_SIZE`].
    pub len: u32,
    /// Checksum of all `len` bytes, with identity `Kind::Segment`, region, number, epoch, offset 0.
    pub checksum: u32,
    /// Entries, tombstones included, within bounds or not.
    pub entries: u32,
    /// Tombstones, within bounds or not.
    pub tombstones: u32,
    /// The keys for which the segment is asked. What it holds beside them is dead.
    pub range: KeyRange,
    /// Bytes of keys and values in the large log that its entries point to, within bounds or not.
    pub large_bytes: u64,
    /// Bytes of keys and values in the medium log that its entries point to, within bounds or not.
    pub medium_bytes: u64,
    /// What it is. An index segment of a tree stands for no key: its range is that of its separators,
    /// and it has no entries. The keys of a medium segment are those of its values.
    pub form: Form,
}

impl LevelSegment {
    /// Whether any of its entries, within bounds or not, points into a log.
    #[must_use]
    pub const fn points_into_logs(&self) -> bool {
        self.large_bytes > 0 || self.medium_bytes > 0
    }
}

/// How the bytes change that pointers of levels name in one segment of the large or the medium log:
/// bytes of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The log segment.
    pub number: SegmentNumber,
    /// Bytes of pointers that came into the levels. In a checkpoint: of all that ever did.
    pub added: u64,
    /// Bytes of pointers that left the levels. In a checkpoint: of all that ever did.
    pub dropped: u64,
}

/// Numbers of a version that an edit raises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditNumbers {
    /// Replay of the logs starts at this LSN: everything below is in the levels.
    pub replay_from: Option<Lsn>,
    /// This LSN and all below were durable on the primary when the edit was made.
    pub durable: Option<Lsn>,
    /// Segment numbers below this may be in use.
    pub mark: Option<SegmentNumber>,
    /// On a backup that builds its own levels, and so makes edits of its own: the primary's edit
    /// whose logs the version has from now on.
    pub follows: Option<EditSeq>,
    /// On such a backup: the member's own segment numbers below this may be in use.
    pub own_mark: Option<SegmentNumber>,
    /// The region's time is not below this: what has expired by it is not there any more.
    pub time: Option<Moment>,
    /// LSNs below this one may be missing in the logs, and be in the levels alone: the windows that held them were
    /// lost. Above it the logs have every LSN, but for those of segments that were removed.
    pub logged_from: Option<Lsn>,
}

/// What an edit does to the logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogChanges {
    /// New tails. The one before has to be sealed.
    pub added: Vec<LogSegment>,
    /// Tails that end: `to` is the byte behind the last record.
    pub sealed: Vec<LogPoint>,
    /// Sealed log segments that no longer belong to the version.
    pub removed: Vec<(LogId, SegmentNumber)>,
    /// Log bytes below these points have to be durable on a member before the edit is applied
    /// there (invariant I3). A member that builds its own levels takes them from checkpoints only. Seals are such
    /// points without being named here.
    /// The checkpoint that a manifest begins with states up to where records were known to be durable.
    /// One for another member has points of two kinds: up to where its sender has the bytes, which may be in whole
    /// blocks; and up to where records were known to be durable, [never in whole blocks](LogPoint::for_checkpoint).
    pub points: Vec<LogPoint>,
}

/// A step from one version to the next. See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// One more than the version's that it changes; of a checkpoint: the version's that it states.
    pub seq: EditSeq,
    /// The epoch in which it was made.
    pub epoch: Epoch,
    /// It states the whole version instead of changes: what it does not add does not exist.
    pub checkpoint: bool,
    /// Which numbers of the version it raises.
    pub numbers: EditNumbers,
    /// Level segments that no longer belong to the version, with all their bounds.
    pub removed: Vec<Place>,
    /// Level segments that stand for fewer keys from now on: for those of the range, or of all the
    /// ranges where a segment is named several times because its middle was consumed.
    pub bounds: Vec<(Place, KeyRange)>,
    /// Level segments that belong to the version from now on. One that is removed at another
    /// place by the same edit is moved.
    pub added: Vec<(u8, RunId, LevelSegment)>,
    /// What it does to the logs.
    pub logs: LogChanges,
    /// Of the log segments that it removes, those that levels point into still: newer entries of the levels shadow
    /// every such pointer. In a checkpoint: all such segments that are gone.
    pub evacuated: Vec<SegmentNumber>,
    /// Trees whose segments are added, by the run in which they are. A run has one at most.
    pub trees: Vec<(u8, RunId, Tree)>,
    /// Pointers into logs that came into the levels or left them, by rising segment numbers. An edit that
    /// only moves pointers from one level segment to another names none.
    pub references: Vec<Reference>,
    /// Requests that were applied below the start of replay, where others were than the version before says.
    pub duplicates: Option<Arc<Duplicates>>,
}

impl Edit {
    /// An edit that changes nothing yet.
    #[must_use]
    pub fn new(seq: EditSeq, epoch: Epoch) -> Self {
        Self {
            seq,
            epoch,
            ..Self::default()
        }
    }

    /// The edit's bytes, equal on every member.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.flags().to_le_bytes());
        put_varint(&mut out, self.seq.0);
        put_varint(&mut out, u64::from(self.epoch.0));
        for number in [
            self.numbers.replay_from.map(Lsn::get),
            self.numbers.durable.map(Lsn::get),
            self.numbers.mark.map(SegmentNumber::get),
            self.numbers.follows.map(EditSeq::get),
            self.numbers.own_mark.map(SegmentNumber::get),
            self.numbers.time.map(|time| time.0),
            self.numbers.logged_from.map(Lsn::get),
        ]
        .into_iter()
        .flatten()
        {
            put_varint(&mut out, number);
        }
        put_list(&mut out, &self.removed, |out, place| put_place(out, *place));
        put_list(&mut out, &self.bounds, |out, (place, range)| {
            put_place(out, *place);
            put_range(out, range);
        });
        put_list(&mut out, &self.added, |out, (level, run, segment)| {
            out.push(*level);
            put_varint(out, run.0);
            put_segment(out, segment);
        });
        put_list(&mut out, &self.logs.added, |out, log| {
            out.push(log.log.raw());
            put_varint(out, log.ordinal);
            put_varint(out, log.number.0);
            put_varint(out, u64::from(log.epoch.0));
            put_varint(out, log.base_lsn.0);
            put_varint(out, log.end.map_or(0, |end| u64::from(end) + 1));
        });
        put_list(&mut out, &self.logs.sealed, |out, at| put_point(out, *at));
        put_list(&mut out, &self.logs.removed, |out, (log, number)| {
            out.push(log.raw());
            put_varint(out, number.0);
        });
        put_list(&mut out, &self.logs.points, |out, at| put_point(out, *at));
        put_list(&mut out, &self.trees, |out, (level, run, tree)| {
            out.push(*level);
            put_varint(out, run.0);
            put_tree(out, *tree);
        });
        put_list(&mut out, &self.evacuated, |out, number| {
            put_varint(out, number.0);
        });
        put_list(&mut out, &self.references, |out, reference| {
            put_varint(out, reference.number.0);
            put_varint(out, reference.added);
            put_varint(out, reference.dropped);
        });
        if let Some(table) = &self.duplicates {
            table.encode(&mut out);
        }
        out
    }

    fn flags(&self) -> u16 {
        let flag = |flag, set| if set { flag } else { 0 };
        flag(FLAG_CHECKPOINT, self.checkpoint)
            | flag(FLAG_REPLAY_FROM, self.numbers.replay_from.is_some())
            | flag(FLAG_DURABLE, self.numbers.durable.is_some())
            | flag(FLAG_MARK, self.numbers.mark.is_some())
            | flag(FLAG_FOLLOWS, self.numbers.follows.is_some())
            | flag(FLAG_OWN_MARK, self.numbers.own_mark.is_some())
            | flag(FLAG_TIME, self.numbers.time.is_some())
            | flag(FLAG_DUPLICATES, self.duplicates.is_some())
            | flag(FLAG_LOGGED_FROM, self.numbers.logged_from.is_some())
    }

    /// Reads an edit's bytes.
    ///
    /// # Errors
    /// When they are not one edit of the known format, no more and no less.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new("version edit", bytes);
        let format = from.u8()?;
        if format != FORMAT {
            return Err(from.malformed());
        }
        let flags = from.u16()?;
        if flags & !FLAGS != 0 {
            return Err(from.malformed());
        }
        let seq = EditSeq(from.varint()?);
        let epoch = get_epoch(&mut from)?;
        let mut optional = |flag: u16| -> Result<Option<u64>, Malformed> {
            (flags & flag != 0).then(|| from.varint()).transpose()
        };
        let replay_from = optional(FLAG_REPLAY_FROM)?.map(Lsn);
        let durable = optional(FLAG_DURABLE)?.map(Lsn);
        let mark = optional(FLAG_MARK)?.map(SegmentNumber);
        let follows = optional(FLAG_FOLLOWS)?.map(EditSeq);
        let own_mark = optional(FLAG_OWN_MARK)?.map(SegmentNumber);
        let time = optional(FLAG_TIME)?.map(Moment);
        let logged_from = optional(FLAG_LOGGED_FROM)?.map(Lsn);
        if mark.max(own_mark) > Some(SegmentNumber::MAX) {
            return Err(from.malformed());
        }
        let edit = Self {
            seq,
            epoch,
            checkpoint: flags & FLAG_CHECKPOINT != 0,
            numbers: EditNumbers {
                replay_from,
                durable,
                mark,
                follows,
                own_mark,
                time,
                logged_from,
            },
            removed: get_list(&mut from, get_place)?,
            bounds: get_list(&mut from, |from| Ok((get_place(from)?, get_range(from)?)))?,
            added: get_list(&mut from, |from| {
                let (level, run) = (get_level(from)?, RunId(from.varint()?));
                let segment = get_segment(from)?;
                let is_medium = segment.form == Form::Medium;
                let outside = matches!(level, MEDIUM_LOG | UNCOUNTED);
                match (level == MEDIUM_LOG) == is_medium && !(outside && run.0 > 0) {
                    true => Ok((level, run, segment)),
                    false => Err(from.malformed()),
                }
            })?,
            logs: LogChanges {
                added: get_list(&mut from, get_log_segment)?,
                sealed: get_list(&mut from, get_point)?,
                removed: get_list(&mut from, |from| Ok((get_log(from)?, get_number(from)?)))?,
                points: get_list(&mut from, get_point)?,
            },
            trees: get_list(&mut from, |from| {
                let level = get_level(from)?;
                Ok((level, RunId(from.varint()?), get_tree(from)?))
            })?,
            evacuated: get_list(&mut from, get_number)?,
            references: get_list(&mut from, get_reference)?,
            duplicates: match flags & FLAG_DUPLICATES {
                0 => None,
                _ => Some(Arc::new(Duplicates::read(&mut from)?)),
            },
        };
        from.finish()?;
        Ok(edit)
    }
}

fn put_list<T>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_varint(out, items.len() as u64);
    for item in items {
        put(out, item);
    }
}

fn put_place(out: &mut Vec<u8>, place: Place) {
    out.push(place.level);
    put_varint(out, place.run.0);
    put_varint(out, place.number.0);
}

fn put_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_string(out, &range.from);
    out.push(u8::from(range.to.is_some()));
    if let Some(to) = &range.to {
        put_string(out, to);
    }
}

fn put_segment(out: &mut Vec<u8>, segment: &LevelSegment) {
    put_varint(out, segment.number.0);
    put_varint(out, u64::from(segment.epoch.0));
    put_varint(out, u64::from(segment.len));
    out.extend_from_slice(&segment.checksum.to_le_bytes());
    put_varint(out, u64::from(segment.entries));
    put_varint(out, u64::from(segment.tombstones));
    put_varint(out, segment.large_bytes);
    put_varint(out, segment.medium_bytes);
    put_range(out, &segment.range);
    out.push(segment.form.to_raw());
}

fn put_tree(out: &mut Vec<u8>, tree: Tree) {
    out.extend_from_slice(&tree.root.to_raw().to_le_bytes());
    put_varint(out, u64::from(tree.len));
    out.push(tree.height);
}

fn put_point(out: &mut Vec<u8>, point: LogPoint) {
    out.push(point.log.raw());
    put_varint(out, point.number.0);
    put_varint(out, u64::from(point.to));
}

/// Reads a list. Every item takes at least a byte, so a count beyond the bytes that are left is a
/// lie, and nothing is allocated for it.
fn get_list<'a, T>(
    from: &mut Reader<'a>,
    mut get: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = from.length(from.rest().len())?;
    // An item in memory may be far larger than its bytes: grow as items really come.
    let mut items = Vec::with_capacity(count.min(64));
    for _ in 0..count {
        items.push(get(from)?);
    }
    Ok(items)
}

fn get_u32(from: &mut Reader<'_>) -> Result<u32, Malformed> {
    u32::try_from(from.varint()?).map_err(|_| from.malformed())
}

fn get_epoch(from: &mut Reader<'_>) -> Result<Epoch, Malformed> {
    get_u32(from).map(Epoch)
}

fn get_number(from: &mut Reader<'_>) -> Result<SegmentNumber, Malformed> {
    let number = SegmentNumber(from.varint()?);
    if number.0 == 0 || number > SegmentNumber::MAX {
        return Err(from.malformed());
    }
    Ok(number)
}

fn get_level(from: &mut Reader<'_>) -> Result<u8, Malformed> {
    let level = from.u8()?;
    if level > UNCOUNTED {
        return Err(from.malformed());
    }
    Ok(level)
}

fn get_log(from: &mut Reader<'_>) -> Result<LogId, Malformed> {
    stored_log(from.u8()?).ok_or_else(|| from.malformed())
}

/// A byte position in a segment, its end included.
fn get_offset(from: &mut Reader<'_>) -> Result<u32, Malformed> {
    let offset = get_u32(from)?;
    if offset as usize > SEGMENT_SIZE {
        return Err(from.malformed());
    }
    Ok(offset)
}

fn get_place(from: &mut Reader<'_>) -> Result<Place, Malformed> {
    Ok(Place {
        level: get_level(from)?,
        run: RunId(from.varint()?),
        number: get_number(from)?,
    })
}

fn get_range(from: &mut Reader<'_>) -> Result<KeyRange, Malformed> {
    let lower = from.string(BOUND_BYTES_MAX)?.to_vec();
    let to = match from.u8()? {
        0 => None,
        1 => Some(from.string(BOUND_BYTES_MAX)?.to_vec()),
        _ => return Err(from.malformed()),
    };
    Ok(KeyRange { from: lower, to })
}

fn get_segment(from: &mut Reader<'_>) -> Result<LevelSegment, Malformed> {
    Ok(LevelSegment {
        number: get_number(from)?,
        epoch: get_epoch(from)?,
        len: get_offset(from)?,
        checksum: from.u32()?,
        entries: get_u32(from)?,
        tombstones: get_u32(from)?,
        large_bytes: from.varint()?,
        medium_bytes: from.varint()?,
        range: get_range(from)?,
        form: Form::from_raw(from.u8()?).ok_or_else(|| from.malformed())?,
    })
}

fn get_reference(from: &mut Reader<'_>) -> Result<Reference, Malformed> {
    Ok(Reference {
        number: get_number(from)?,
        added: from.varint()?,
        dropped: from.varint()?,
    })
}

fn get_tree(from: &mut Reader<'_>) -> Result<Tree, Malformed> {
    let tree = Tree {
        root: Pointer::from_raw(from.u64()?),
        len: get_u32(from)?,
        height: from.u8()?,
    };
    if tree.is_sound() {
        Ok(tree)
    } else {
        Err(from.malformed())
    }
}

fn get_log_segment(from: &mut Reader<'_>) -> Result<LogSegment, Malformed> {
    Ok(LogSegment {
        log: get_log(from)?,
        ordinal: from.varint()?,
        number: get_number(from)?,
        epoch: get_epoch(from)?,
        base_lsn: Lsn(from.varint()?),
        end: match from.varint()? {
            0 => None,
            end => match u32::try_from(end - 1) {
                Ok(end) if end as usize <= SEGMENT_SIZE => Some(end),
                _ => return Err(from.malformed()),
            },
        },
    })
}

fn get_point(from: &mut Reader<'_>) -> Result<LogPoint, Malformed> {
    Ok(LogPoint {
        log: get_log(from)?,
        number: get_number(from)?,
        to: get_offset(from)?,
    })
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
