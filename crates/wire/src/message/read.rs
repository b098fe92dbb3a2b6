//! Reading what messages consist of.

use alloc::vec::Vec;

use argosy_base::codec::{Malformed, Reader};
use argosy_base::limits::LOGS_MAX;
use argosy_base::{
    Descriptor, DeviceSegment, EditSeq, FlushRange, LogId, LogPosition, Lsn, MemoryKey, Position,
    SEGMENT_SIZE, SegmentNumber,
};

use super::{FetchStatus, Message, PLACES_MAX, WHY_BYTES_MAX, WINDOWS_MAX};
use crate::ring::MESSAGE_BYTES_MAX;

pub(super) fn segment(r: &mut Reader<'_>) -> Result<SegmentNumber, Malformed> {
    let number = SegmentNumber(r.varint()?);
    if number > SegmentNumber::MAX {
        Err(r.malformed())
    } else {
        Ok(number)
    }
}

/// Bytes of an edit or of a checkpoint: the first, or more of them.
pub(super) fn part_of_edit<'a>(kind: u8, r: &mut Reader<'a>) -> Result<Message<'a>, Malformed> {
    let (attempt, seq, at) = (r.varint()?, EditSeq(r.varint()?), r.varint()?);
    let bytes = r.string(MESSAGE_BYTES_MAX)?;
    let more = match kind {
        22 => {
            return Ok(Message::More {
                attempt,
                seq,
                from: at,
                bytes,
            });
        }
        4 => Message::Offer {
            attempt,
            seq,
            len: at,
            bytes,
        },
        _ => Message::Edit {
            attempt,
            seq,
            len: at,
            bytes,
        },
    };
    if at < bytes.len() as u64 {
        return Err(r.malformed());
    }
    Ok(more)
}

pub(super) fn room<'a>(r: &mut Reader<'_>) -> Result<Message<'a>, Malformed> {
    let mut count = || u32::try_from(r.varint()?).map_err(|_| r.malformed());
    Ok(Message::Room {
        free: count()?,
        reserve: count()?,
    })
}

pub(super) fn place(r: &mut Reader<'_>) -> Result<DeviceSegment, Malformed> {
    let place = u32::try_from(r.varint()?).map_err(|_| r.malformed())?;
    Ok(DeviceSegment(place))
}

pub(super) fn ship<'a>(r: &mut Reader<'_>) -> Result<Message<'a>, Malformed> {
    Ok(Message::Ship {
        attempt: r.varint()?,
        segment: segment(r)?,
        len: offset(r)?,
        checksum: r.u32()?,
        slot: r.u8()?,
        place: place(r)?,
    })
}

pub(super) fn fetched<'a>(r: &mut Reader<'_>) -> Result<Message<'a>, Malformed> {
    Ok(Message::Fetched {
        slot: r.u8()?,
        status: match r.u8()? {
            0 => FetchStatus::Ok,
            1 => FetchStatus::Gone,
            2 => FetchStatus::Failed,
            _ => return Err(r.malformed()),
        },
        len: offset(r)?,
        checksum: r.u32()?,
    })
}

/// The message of `kind` that has nothing but an LSN.
pub(super) const fn up_to<'a>(kind: u8, lsn: Lsn) -> Message<'a> {
    match kind {
        17 => Message::Commit { commit: lsn },
        18 => Message::Compact { upto: lsn },
        _ => Message::Compacted { upto: lsn },
    }
}

pub(super) fn places<'a>(r: &mut Reader<'_>) -> Result<Message<'a>, Malformed> {
    let attempt = r.varint()?;
    let count = r.length(PLACES_MAX)?;
    let each = (0..count).map(|_| Ok((segment(r)?, place(r)?)));
    Ok(Message::Places {
        attempt,
        places: each.collect::<Result<_, Malformed>>()?,
    })
}

/// A byte in a segment, or its end.
pub(super) fn offset(r: &mut Reader<'_>) -> Result<u32, Malformed> {
    let offset = r.length(SEGMENT_SIZE)?;
    u32::try_from(offset).map_err(|_| r.malformed())
}

pub(super) fn descriptors(r: &mut Reader<'_>) -> Result<Vec<Descriptor>, Malformed> {
    let count = usize::try_from(r.varint()?).unwrap_or(usize::MAX);
    if count > WINDOWS_MAX {
        return Err(r.malformed());
    }
    let mut descriptors = Vec::with_capacity(count);
    for _ in 0..count {
        descriptors.push(Descriptor {
            key: MemoryKey(r.u64()?),
            grant: r.u64()?,
        });
    }
    Ok(descriptors)
}

pub(super) fn position(r: &mut Reader<'_>) -> Result<Position, Malformed> {
    let mut position = Position {
        edit: EditSeq(r.varint()?),
        lsn: Lsn(r.varint()?),
        ..Position::default()
    };
    let mut before = None;
    for _ in 0..r.length(LOGS_MAX)? {
        let log = log(r)?;
        if before >= Some(log) {
            return Err(r.malformed());
        }
        before = Some(log);
        let at = LogPosition {
            ordinal: r.varint()?,
            segment: segment(r)?,
            end: offset(r)?,
            flushed: offset(r)?,
        };
        position.logs.insert(log, at);
    }
    Ok(position)
}

/// Which log. Whether the region has such a log is for the engine to say.
fn log(r: &mut Reader<'_>) -> Result<LogId, Malformed> {
    LogId::new(r.u8()?).ok_or_else(|| r.malformed())
}

pub(super) fn range(r: &mut Reader<'_>) -> Result<FlushRange, Malformed> {
    Ok(FlushRange {
        log: log(r)?,
        ordinal: r.varint()?,
        segment: segment(r)?,
        from: offset(r)?,
        to: offset(r)?,
    })
}

pub(super) fn failed<'a>(r: &mut Reader<'a>) -> Result<Message<'a>, Malformed> {
    let (attempt, damaged) = (r.varint()?, flag(r)?);
    let why = r.string(WHY_BYTES_MAX)?;
    let why = core::str::from_utf8(why).map_err(|_| r.malformed())?;
    Ok(Message::Failed {
        attempt,
        damaged,
        why,
    })
}

pub(super) fn flag(r: &mut Reader<'_>) -> Result<bool, Malformed> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(r.malformed()),
    }
}

/// A message of `kind` 25 to 28, which tells of a copy or of its windows.
pub(super) const fn state<'a>(kind: u8, attempt: u64) -> Message<'a> {
    match kind {
        25 => Message::Whole { attempt },
        26 => Message::Rest { attempt },
        27 => Message::Wake { attempt },
        _ => Message::Awake { attempt },
    }
}
