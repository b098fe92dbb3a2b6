//! Writes, as they travel. The grammar is that of [requests](super::Request).

use alloc::vec::Vec;

use argosy_base::codec::{Reader, put_string, put_varint};
use argosy_base::limits::{BATCH_PAIRS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{Change, Condition, Expiry, Guard, KeyRange, Lsn, Op, WriteBatch, WriteOptions};

use super::{BadRequest, Sender, flag};

/// Operations. DO NOT CHANGE THE VALUES.
const DELETE: u8 = 0;
const PUT: u8 = 1;
const PUT_UNTIL: u8 = 2;
const DELETE_RANGE: u8 = 3;
const BOUND: u8 = 4;

/// Appends the write.
pub(super) fn put(batch: &WriteBatch, options: WriteOptions, out: &mut Vec<u8>) {
    match options.condition {
        Condition::Always => out.push(0),
        Condition::Absent => out.push(1),
        Condition::Present => out.push(2),
        Condition::Equals => {
            out.push(3);
            put_string(out, batch.expected());
        }
        Condition::Version(version) => {
            out.push(4);
            put_varint(out, version.0);
        }
    }
    out.push(u8::from(options.return_previous));
    match batch.changes().map(Change::to_parts) {
        None => out.push(0),
        Some((kind, number)) => {
            out.push(kind);
            put_varint(out, number);
        }
    }
    // Other guards are of batches that stay on their server.
    let bound = match batch.guarded() {
        Some((key, Guard::Present)) => Some(key),
        Some((_, Guard::Unwritten(_))) | None => None,
    };
    let ops = batch.len() + usize::from(bound.is_some());
    put_varint(out, ops as u64);
    batch.ops().for_each(|op| put_op(&op, out));
    if let Some(key) = bound {
        out.push(BOUND);
        put_string(out, key);
    }
}

fn put_op(op: &Op<'_>, out: &mut Vec<u8>) {
    match *op {
        Op::Delete { key } => {
            out.push(DELETE);
            put_string(out, key);
        }
        Op::DeleteRange { from, to } => {
            out.push(DELETE_RANGE);
            put_string(out, from);
            put_string(out, to.unwrap_or_default());
        }
        Op::Put { key, value, expiry } => {
            let (how, number) = expiry.to_parts();
            out.push(if how == 0 { PUT } else { PUT_UNTIL });
            put_string(out, key);
            put_string(out, value);
            if how != 0 {
                out.push(how);
                put_varint(out, number);
            }
        }
    }
}

/// Reads a write into `batch`.
pub(super) fn read(
    r: &mut Reader<'_>,
    sender: Sender,
    batch: &mut WriteBatch,
) -> Result<WriteOptions, BadRequest> {
    batch.clear();
    let condition = match r.u8()? {
        0 => Condition::Always,
        1 => Condition::Absent,
        2 => Condition::Present,
        3 => {
            let expected = r.string(VALUE_BYTES_MAX)?;
            match sender {
                Sender::Server => batch.expect_any(expected)?,
                Sender::Client => batch.expect(expected)?,
            }
            Condition::Equals
        }
        4 => Condition::Version(Lsn(r.varint()?)),
        _ => return Err(r.malformed().into()),
    };
    let return_previous = flag(r)?;
    let change = match r.u8()? {
        0 => None,
        kind => {
            let change = Change::from_parts(kind, r.varint()?);
            Some(change.ok_or_else(|| r.malformed())?)
        }
    };
    for _ in 0..r.length(BATCH_PAIRS_MAX)? {
        match (r.u8()?, change) {
            (PUT, Some(change)) => {
                let key = r.string(KEY_BYTES_MAX)?;
                batch.change(key, change, r.string(VALUE_BYTES_MAX)?)?;
            }
            (kind, None) => read_op(r, sender, kind, batch)?,
            (_, Some(_)) => return Err(r.malformed().into()),
        }
    }
    if change != batch.changes() {
        return Err(r.malformed().into());
    }
    Ok(WriteOptions {
        condition,
        return_previous,
    })
}

fn read_op(
    r: &mut Reader<'_>,
    sender: Sender,
    kind: u8,
    batch: &mut WriteBatch,
) -> Result<(), BadRequest> {
    let key = r.string(KEY_BYTES_MAX)?;
    match (kind, sender) {
        (DELETE, Sender::Server) => batch.delete_any(key)?,
        (DELETE, Sender::Client) => batch.delete(key)?,
        (PUT | PUT_UNTIL, _) => {
            let value = r.string(VALUE_BYTES_MAX)?;
            let expiry = match kind {
                PUT => Expiry::Never,
                _ => {
                    let expiry = Expiry::from_parts(r.u8()?, r.varint()?);
                    let expires = expiry.filter(|expiry| *expiry != Expiry::Never);
                    expires.ok_or_else(|| r.malformed())?
                }
            };
            match sender {
                Sender::Server => batch.put_any(key, value, expiry)?,
                Sender::Client => batch.put_until(key, value, expiry)?,
            }
        }
        (DELETE_RANGE, _) => {
            let to = r.string(KEY_BYTES_MAX + 1)?;
            let range = KeyRange::new(key, (!to.is_empty()).then(|| to.to_vec()));
            match sender {
                Sender::Server => batch.delete_range_any(&range)?,
                Sender::Client => batch.delete_range(&range)?,
            }
        }
        (BOUND, Sender::Server) => batch.guard(key, Guard::Present),
        _ => return Err(r.malformed().into()),
    }
    Ok(())
}
