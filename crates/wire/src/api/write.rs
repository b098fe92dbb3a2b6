//! Writes, as they travel. The grammar is that of [requests](super::Request).

use alloc::vec::Vec;

use argosy_base::codec::{Reader, put_string, put_varint};
use argosy_base::limits::{BATCH_PAIRS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{
    Change, ClientId, Condition, Expiry, Guard, Lsn, Op, RequestName, Seen, WriteBatch,
    WriteOptions, ops,
};

use super::{BadRequest, Sender, flag};

/// Stands among the operations: a key that has to be bound. DO NOT CHANGE THE VALUE.
const BOUND: u8 = 4;
/// The same of what a key was when the batch was computed. DO NOT CHANGE THE VALUE.
const SEEN: u8 = 5;
/// The same of the batch's name. DO NOT CHANGE THE VALUE.
const NAME: u8 = 6;
/// The same of the head of a composite that counts. DO NOT CHANGE THE VALUE.
const COUNTS: u8 = 7;
const _: () = assert!(BOUND >= ops::KINDS && SEEN >= ops::KINDS && NAME >= ops::KINDS);
const _: () = assert!(COUNTS >= ops::KINDS);

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
    let guard = batch.guarded();
    let guard = guard.filter(|(_, guard)| !matches!(guard, Guard::Unwritten(_)));
    let named = batch.request();
    let beside = usize::from(guard.is_some()) + usize::from(named.is_some());
    let ops = batch.len() + beside + batch.seen().len();
    put_varint(out, ops as u64);
    batch.ops().for_each(|op| ops::put_op(&op, out));
    match guard {
        Some((key, Guard::Present)) => {
            out.push(BOUND);
            put_string(out, key);
        }
        Some((key, Guard::Counts { version, change })) => {
            out.push(COUNTS);
            put_string(out, key);
            out.extend_from_slice(&version.to_le_bytes());
            out.extend_from_slice(&change.to_le_bytes());
        }
        Some((_, Guard::Unwritten(_))) | None => {}
    }
    for seen in batch.seen() {
        out.push(SEEN);
        put_string(out, seen.key);
        out.push(u8::from(seen.bound));
        put_varint(out, seen.version.0);
    }
    if let Some(RequestName { client, seq }) = named {
        out.push(NAME);
        out.extend_from_slice(&client.0.to_le_bytes());
        put_varint(out, seq);
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
    // A full batch may have a name, too.
    for _ in 0..r.length(BATCH_PAIRS_MAX + 1)? {
        match (r.u8()?, change) {
            (NAME, _) => batch.name(RequestName {
                client: ClientId(r.u64()?),
                seq: r.varint()?,
            }),
            (kind, None) => read_op(r, sender, kind, batch)?,
            (kind, Some(change)) => match ops::read_op(kind, r)? {
                Op::Put {
                    key,
                    value,
                    expiry: Expiry::Never,
                } => batch.change(key, change, value)?,
                _ => return Err(r.malformed().into()),
            },
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
    if (kind, sender) == (BOUND, Sender::Server) {
        batch.guard(r.string(KEY_BYTES_MAX)?, Guard::Present);
        return Ok(());
    }
    if (kind, sender) == (COUNTS, Sender::Server) {
        let key = r.string(KEY_BYTES_MAX)?;
        let (low, high) = (r.u64()?, r.u64()?);
        let version = u128::from(high) << 64 | u128::from(low);
        let change = r.u64()?.cast_signed();
        batch.guard(key, Guard::Counts { version, change });
        return Ok(());
    }
    if (kind, sender) == (SEEN, Sender::Server) {
        let seen = Seen {
            key: r.string(KEY_BYTES_MAX)?,
            bound: flag(r)?,
            version: Lsn(r.varint()?),
        };
        return Ok(batch.saw(seen)?);
    }
    let op = ops::read_op(kind, r)?;
    match (op, sender) {
        (op, Sender::Server) => batch.add_any(&op)?,
        (Op::Put { key, value, expiry }, _) => batch.put_until(key, value, expiry)?,
        (Op::Delete { key }, _) => batch.delete(key)?,
        (Op::DeleteRange { .. }, _) => batch.delete_range(&op.range().unwrap_or_default())?,
    }
    Ok(())
}
