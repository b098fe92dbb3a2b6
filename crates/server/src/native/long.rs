//! What native clients are told of values in parts (see [`argosy_engine::long`]), how they write them, and the
//! keys that they have no part in.
//!
//! Nothing is kept here for a value that is being read or written: each part is a request of its own, which says
//! all that there is to know of it. So what [`long`](crate::long) does for other front ends, clients do themselves.
//! What a client writes is checked to be what a server would have written: parts of the length that they have to
//! have, under a version; a head whose key is its own, on condition that its first part is there. Only whether the
//! parts are the value that its checksum tells of is the client's affair.

use argosy_base::limits::PART_BYTES;
use argosy_base::range::successor;
use argosy_base::{Op, Outcome, WriteBatch, WriteOptions};
use argosy_engine::composite::is_composite;
use argosy_engine::long::{Head, Versions, is_head, may_be_head, put_head, put_part};
use argosy_wire::api::Scratch;
use argosy_wire::native::{Flags, Long, PartOf, Request};

use super::read::{Here, Refused};
use crate::long::look_up;
use crate::service::{Failure, Request as Ask, Response};

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
    if let Some(wrong) = of_wrong_type(request, &mut response) {
        return (wrong, false);
    }
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
                response = Response::Failed(Failure::Unavailable { what, outcome });
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

/// What is answered where a key is bound to a composite. Of a page what lies before it is told, and the rest asked for
/// again.
fn of_wrong_type(request: &Request, response: &mut Response) -> Option<Response> {
    let is = |value: &Option<Vec<u8>>| value.as_deref().is_some_and(is_composite);
    let mut key = None;
    let wrong = match response {
        Response::Value(value) | Response::Versioned { value, .. } => is(value),
        Response::Values(values) => {
            request.op != argosy_wire::native::Op::GetPart && values.iter().any(is)
        }
        Response::Written { previous, .. } => previous.iter().any(is),
        Response::Page { pairs, next } => {
            let at = pairs.iter().position(|(_, value)| is_composite(value));
            key = at.map(|at| String::from_utf8_lossy(&pairs[at].0).into_owned());
            if let Some(at) = at.filter(|at| *at > 0) {
                *next = Some(match request.flags.has(Flags::REVERSE) {
                    true => successor(&pairs[at].0),
                    false => pairs[at].0.clone(),
                });
                pairs.truncate(at);
            }
            at == Some(0)
        }
        _ => false,
    };
    wrong.then(|| {
        let key = key.map_or_else(|| "a key".to_owned(), |key| format!("key '{key}'"));
        let what = format!("{key} is bound to a hash, a sorted set or a set");
        Response::Failed(Failure::WrongType(what))
    })
}

/// A version for the value that a client is about to write.
pub(super) fn begin_long(
    here: Here<'_>,
    payload: &[u8],
    versions: &Versions,
) -> Result<Long, Refused> {
    let asked = PartOf::decode(payload)?;
    let key = here.key(asked.key)?;
    let head = Head::new(key, versions.draw(), asked.long.len, 0)?;
    Ok(Long {
        version: head.version,
        len: head.len,
        part_len: head.part_len,
        checksum: 0,
    })
}

/// A part that is to be read.
pub(super) fn read_part<'a>(
    here: Here<'_>,
    payload: &[u8],
    scratch: &'a mut Scratch,
) -> Result<Ask<'a>, Refused> {
    let asked = PartOf::decode(payload)?;
    let key = here.key(asked.key)?;
    // Its parts may have any length.
    let head = Head::new(key, asked.long.version, asked.long.len, asked.long.checksum)?;
    let key = head.part(asked.index).to_key();
    let plan = look_up(&key, asked.at, &mut scratch.keys);
    Ok(scratch.request(plan))
}

/// A part that is to be written.
pub(super) fn read_put_part<'a>(
    here: Here<'_>,
    payload: &[u8],
    scratch: &'a mut Scratch,
) -> Result<Ask<'a>, Refused> {
    let asked = PartOf::decode(payload)?;
    let key = here.key(asked.key)?;
    let head = written_here(key, &asked.long)?;
    let bytes = asked.bytes.len() as u64;
    if asked.index >= head.parts() || bytes != head.bytes_of(asked.index) {
        let (index, len) = (asked.index, head.len);
        let odd = format!("part {index} of a value of {len} bytes does not have {bytes} bytes");
        return Err(Refused::Invalid(odd));
    }
    let batch = &mut scratch.batch;
    batch.clear();
    put_part(&head, asked.index, asked.bytes, batch)?;
    let options = WriteOptions::default();
    Ok(Ask::Write { batch, options })
}

/// The batch that puts the head itself in the place of what stands for it in `batch`, under the guard that the
/// first part is there.
pub(super) fn head_of(batch: &WriteBatch) -> Result<WriteBatch, Refused> {
    let mut ops = batch.ops();
    let (Some(Op::Put { key, value, expiry }), None, None) =
        (ops.next(), ops.next(), batch.changes())
    else {
        let odd = "a value in parts is put, and nothing else is done";
        return Err(Refused::Invalid(odd.to_owned()));
    };
    let head = written_here(key, &Long::decode(value)?)?;
    let mut put = WriteBatch::new();
    if batch.expects() {
        put.expect(batch.expected())?;
    }
    if let Some(request) = batch.request() {
        put.name(request);
    }
    put_head(&head, expiry, &mut put)?;
    Ok(put)
}

/// The head of a value whose parts are written now.
fn written_here(key: &[u8], long: &Long) -> Result<Head, Refused> {
    if long.part_len as usize != PART_BYTES {
        let odd = format!("parts have {PART_BYTES} bytes, not {}", long.part_len);
        return Err(Refused::Invalid(odd));
    }
    Ok(Head::new(key, long.version, long.len, long.checksum)?)
}
