//! What native clients are told of values in parts (see [`argosy_engine::long`]), how they write them, and the
//! keys that they have no part in.
//!
//! Nothing is kept here for a value that is being read or written: each part is a request of its own, which says
//! all that there is to know of it. What a client writes is checked to be what a server would have written: parts
//! of the length that they have to have, under a version; a head whose key is its own, on condition that its
//! first part is there. Only whether the parts are the value that its checksum tells of is the client's affair.

use argosy_base::Outcome;
use argosy_base::limits::PART_BYTES;
use argosy_base::range::successor;
use argosy_engine::long::{Head, RESERVED, Versions, check_users, is_head, may_be_head};
use argosy_engine::{Expiry, Wanted, WriteBatch, WriteOptions};
use argosy_wire::call::{ERASE, GUARD, Op, WireChange, WireUntil};
use argosy_wire::native::{Flags, Long, MapRegion, PartOf, Request};

use super::front::Routes;
use super::read::{Refused, within};
use crate::node::snapshot_of;
use crate::service::{KeyList, Request as Ask, Response, ServiceError};

/// What stands for `value`, if it is in parts.
pub(super) fn long_of(value: &[u8]) -> Option<Long> {
    let head = Head::parse(value)?;
    Some(Long {
        version: head.version,
        len: head.len,
        part_len: head.part_len,
        checksum: head.checksum,
    })
}

/// Puts what stands for it in the place of a value in parts. Returns whether there was one.
fn shorten(value: &mut Option<Vec<u8>>) -> bool {
    let long = value.as_deref().and_then(long_of);
    if let Some(long) = &long {
        *value = Some(long.encode().to_vec());
    }
    long.is_some()
}

/// `response` as it is told, and whether [`Flags::LONG`] goes with it.
pub(super) fn in_short(request: &Request, mut response: Response) -> (Response, bool) {
    let long = match &mut response {
        // A part is whatever it is.
        Response::Values(values) if request.op == argosy_wire::native::Op::GetPart => {
            return (Response::Value(values.pop().flatten()), false);
        }
        Response::Value(value) | Response::Versioned { value, .. } => shorten(value),
        Response::Written { previous, .. } => match previous.as_mut_slice() {
            [previous] => shorten(previous),
            several if several.iter().flatten().any(|value| is_head(value)) => {
                let what = "one of the values before had over 1048576 bytes: write its key alone";
                let (what, outcome) = (what.to_owned(), Outcome::Applied);
                response = Response::Failed(ServiceError::Unavailable { what, outcome });
                false
            }
            _ => false,
        },
        // It ends behind the first: the client reads that before it goes on.
        Response::Page { pairs, next } => {
            let at = pairs.iter().position(|(_, value)| is_head(value));
            if let Some(at) = at {
                if pairs.len() > at + 1 {
                    pairs.truncate(at + 1);
                    *next = Some(match request.flags.has(Flags::REVERSE) {
                        true => pairs[at].0.clone(),
                        false => successor(&pairs[at].0),
                    });
                }
                let value = &mut pairs[at].1;
                *value = long_of(value).unwrap_or_default().encode().to_vec();
            }
            at.is_some()
        }
        Response::Expiry { len: Some(len), .. } => usize::try_from(*len).is_ok_and(may_be_head),
        _ => false,
    };
    (response, long)
}

/// A version for the value that a client is about to write.
pub(super) fn begin_long(
    (routes, region): (&Routes, &MapRegion),
    payload: &[u8],
    versions: &Versions,
) -> Result<Long, Refused> {
    let asked = read(payload)?;
    let key = within(routes, region, asked.key)?;
    let head = Head::new(key, versions.draw(), asked.long.len, 0);
    let head = head.map_err(|error| Refused::Invalid(error.to_string()))?;
    Ok(Long {
        version: head.version,
        len: head.len,
        part_len: head.part_len,
        checksum: 0,
    })
}

/// A part that is to be read: its key, in `keys`.
pub(super) fn read_part<'a>(
    (routes, region): (&Routes, &MapRegion),
    payload: &[u8],
    keys: &'a mut KeyList,
) -> Result<Ask<'a>, Refused> {
    let asked = read(payload)?;
    let key = within(routes, region, asked.key)?;
    let head = checked(key, &asked.long)?;
    keys.clear();
    keys.push(&head.part(asked.index).to_key());
    Ok(Ask::GetMany {
        keys,
        wanted: Wanted::Values(1),
        at: snapshot_of(asked.at),
    })
}

/// A part that is to be written, in `batch`.
pub(super) fn read_put_part<'a>(
    (routes, region): (&Routes, &MapRegion),
    payload: &[u8],
    batch: &'a mut WriteBatch,
) -> Result<Ask<'a>, Refused> {
    let asked = read(payload)?;
    let key = within(routes, region, asked.key)?;
    let head = written_here(key, &asked.long).map_err(Refused::Invalid)?;
    let bytes = asked.bytes.len() as u64;
    if asked.index >= head.parts() || bytes != head.bytes_of(asked.index) {
        let (index, len) = (asked.index, head.len);
        let odd = format!("part {index} of a value of {len} bytes does not have {bytes} bytes");
        return Err(Refused::Invalid(odd));
    }
    batch.clear();
    let key = head.part(asked.index).to_key();
    let put = batch.put_any(&key, asked.bytes, Expiry::Never);
    put.map_err(|error| Refused::Invalid(error.to_string()))?;
    let options = WriteOptions::default();
    Ok(Ask::Write { batch, options })
}

/// The head that a write makes visible, and the key of its first part, which has to be there.
pub(super) fn head_of(
    (ops, until): (&[Op<'_>], &[WireUntil]),
    change: Option<WireChange>,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let [(key, Some(value))] = ops else {
        return Err("a value in parts is put alone".to_owned());
    };
    if change.is_some() || until.contains(&ERASE) || until.contains(&GUARD) {
        return Err("a value in parts is put, and nothing else is done".to_owned());
    }
    let long = Long::decode(value).map_err(|error| error.to_string())?;
    let head = written_here(key, &long)?;
    Ok((head.to_value(), head.part(0).to_key()))
}

fn read(payload: &[u8]) -> Result<PartOf<'_>, Refused> {
    PartOf::decode(payload).map_err(|error| Refused::Invalid(error.to_string()))
}

/// The head of a value, whose parts may have any length.
fn checked(key: &[u8], long: &Long) -> Result<Head, Refused> {
    let head = Head::new(key, long.version, long.len, long.checksum);
    head.map_err(|error| Refused::Invalid(error.to_string()))
}

/// The head of a value whose parts are written now.
fn written_here(key: &[u8], long: &Long) -> Result<Head, String> {
    if long.part_len as usize != PART_BYTES {
        return Err(format!(
            "parts have {PART_BYTES} bytes, not {}",
            long.part_len
        ));
    }
    let head = Head::new(key, long.version, long.len, long.checksum);
    head.map_err(|error| error.to_string())
}

/// Keeps to what users have: refuses operations on other keys, and such as are for servers among each other; ends
/// ranges where users' keys do.
pub(super) fn users_only(ops: &mut [Op<'_>], until: &[WireUntil]) -> Result<(), String> {
    if until.contains(&GUARD) {
        return Err("guards are for servers among each other".to_owned());
    }
    for (at, (key, value)) in ops.iter_mut().enumerate() {
        if is_range(until, at) {
            let to = value.get_or_insert_default();
            if to.is_empty() || **to > RESERVED[..] {
                *to = &RESERVED;
            }
            continue;
        }
        check_users(key).map_err(|error| error.to_string())?;
        if value.is_some_and(is_head) {
            return Err(argosy_engine::BatchError::ValueReserved.to_string());
        }
    }
    Ok(())
}

/// Whether the operation at this place removes a range.
pub(super) fn is_range(until: &[WireUntil], at: usize) -> bool {
    until.get(at) == Some(&ERASE)
}
