//! Where members stand, and parts of the log, as messages carry them.

use alloc::vec::Vec;

use argosy_base::codec::{Malformed, Reader, put_varint};
use argosy_base::{EditSeq, LogKind, Lsn, SegmentNumber};

use super::{offset, put_all, segment};

/// Where a member's copy of one log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The segment's place in the chain of the log.
    pub ordinal: u64,
    /// The segment in which the log ends.
    pub segment: SegmentNumber,
    /// Behind the last valid byte.
    pub end: u32,
    /// Behind the last durable byte.
    pub flushed: u32,
}

/// How far a member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The last edit of its version.
    pub edit: EditSeq,
    /// The last LSN of its gapless history.
    pub lsn: Lsn,
    /// Where its logs end, by [`LogKind::index`].
    pub logs: [Option<LogEnd>; LogKind::ALL.len()],
}

/// Part of a log segment that is to become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Which log.
    pub log: LogKind,
    /// The segment's place in the chain of the log.
    pub ordinal: u64,
    /// The log segment.
    pub segment: SegmentNumber,
    /// First byte.
    pub from: u32,
    /// Byte behind the last.
    pub to: u32,
}

pub(super) fn put_position(out: &mut Vec<u8>, position: &Position) {
    put_all(out, &[position.edit.0, position.lsn.0]);
    for log in &position.logs {
        match log {
            None => put_varint(out, 0),
            Some(at) => {
                let (end, flushed) = (u64::from(at.end), u64::from(at.flushed));
                put_all(out, &[1, at.ordinal, at.segment.0, end, flushed]);
            }
        }
    }
}

pub(super) fn put_range(out: &mut Vec<u8>, range: &Range) {
    out.push(range.log as u8);
    put_all(
        out,
        &[
            range.ordinal,
            range.segment.0,
            u64::from(range.from),
            u64::from(range.to),
        ],
    );
}

pub(super) fn position(r: &mut Reader<'_>) -> Result<Position, Malformed> {
    let mut position = Position {
        edit: EditSeq(r.varint()?),
        lsn: Lsn(r.varint()?),
        ..Position::default()
    };
    for log in &mut position.logs {
        *log = match r.varint()? {
            0 => None,
            1 => Some(LogEnd {
                ordinal: r.varint()?,
                segment: segment(r)?,
                end: offset(r)?,
                flushed: offset(r)?,
            }),
            _ => return Err(r.malformed()),
        };
    }
    Ok(position)
}

pub(super) fn range(r: &mut Reader<'_>) -> Result<Range, Malformed> {
    let log = LogKind::from_raw(r.u8()?).ok_or_else(|| r.malformed())?;
    Ok(Range {
        log,
        ordinal: r.varint()?,
        segment: segment(r)?,
        from: offset(r)?,
        to: offset(r)?,
    })
}
