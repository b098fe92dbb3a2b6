//! What requests ask for: payloads taken apart, and checked against the region that they name.

use argosy_base::codec::Reader;
use argosy_base::{Direction, KeyRange};
use argosy_engine::long::{check_users, is_head};
use argosy_engine::{BatchError, Condition, Wanted, WriteBatch, WriteOptions};
use argosy_wire::call::{Call, GUARD, When};
use argosy_wire::native::{Flags, MapRegion, Op, Request, keys_of, split_pair};

use super::front::Routes;
use super::long::{head_of, is_range, users_only};
use super::serve::room_of;
use crate::node::{Forwarded, snapshot_of, write_of};
use crate::service::{KeyList, Paging, Request as Ask};

/// Most pairs of one page.
const PAGE_PAIRS_MAX: u64 = 1 << 16;

/// Why a request is answered without a call.
pub(super) enum Refused {
    /// It makes no sense, and why.
    Invalid(String),
    /// It is another server's.
    WrongServer,
}

/// `key`, if it lies in `region`.
#[inline]
pub(super) fn within<'a>(
    routes: &Routes,
    region: &MapRegion,
    key: &'a [u8],
) -> Result<&'a [u8], Refused> {
    if routes.region_of(key).id == region.id {
        Ok(key)
    } else {
        Err(Refused::WrongServer)
    }
}

/// Whether a range that begins in `region` ends there, too.
fn ends_within(region: &MapRegion, to: Option<&[u8]>) -> bool {
    match (&region.range.to, to) {
        (None, _) => true,
        (Some(end), Some(to)) => to <= end.as_slice(),
        (Some(_), None) => false,
    }
}

/// Several keys, in `keys`.
pub(super) fn read_keys<'a>(
    routes: &Routes,
    request: &Request,
    payload: &[u8],
    keys: &'a mut KeyList,
) -> Result<Ask<'a>, Refused> {
    let (named, at) = keys_of(payload).map_err(|error| Refused::Invalid(error.to_string()))?;
    let checked = named.iter().try_for_each(|key| check_users(key));
    checked.map_err(|error| Refused::Invalid(error.to_string()))?;
    if !named.iter().all(|key| routes.serves(key)) {
        return Err(Refused::WrongServer);
    }
    keys.clear();
    named.into_iter().for_each(|key| keys.push(key));
    let wanted = Wanted::Values(room_of(request));
    let at = snapshot_of(at);
    Ok(Ask::GetMany { keys, wanted, at })
}

/// A write, in `batch`.
pub(super) fn read_write<'a>(
    (routes, region): (&Routes, &MapRegion),
    request: &Request,
    payload: &[u8],
    batch: &'a mut WriteBatch,
) -> Result<Ask<'a>, Refused> {
    let malformed = |error: argosy_base::codec::Malformed| Refused::Invalid(error.to_string());
    let limit = |error: argosy_engine::batch::BatchError| Refused::Invalid(error.to_string());
    batch.clear();
    match request.op {
        Op::Put => {
            let (key, value) = split_pair(payload).map_err(malformed)?;
            batch
                .put(within(routes, region, key)?, value)
                .map_err(limit)?;
        }
        Op::Delete => batch
            .delete(within(routes, region, payload)?)
            .map_err(limit)?,
        _ => {
            let call = Call::decode(&mut Reader::new("a batch", payload)).map_err(malformed)?;
            // What else the grammar has is for servers among each other.
            let Call::Write {
                when: When::Always,
                previous: false,
                change: None,
                ops,
                until,
            } = call
            else {
                return Err(Refused::Invalid("a batch that is none".to_owned()));
            };
            if !until.is_empty() {
                return Err(Refused::Invalid("a batch whose pairs expire".to_owned()));
            }
            for (key, value) in ops {
                let key = within(routes, region, key)?;
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                }
                .map_err(limit)?;
            }
        }
    }
    let condition = match request.flags {
        flags if flags.has(Flags::IF_ABSENT) => Condition::Absent,
        flags if flags.has(Flags::IF_PRESENT) => Condition::Present,
        _ => Condition::Always,
    };
    Ok(Ask::Write {
        batch,
        options: WriteOptions {
            condition,
            return_previous: false,
        },
    })
}

/// A write on terms, in `batch`.
pub(super) fn read_call<'a>(
    (routes, region): (&Routes, &MapRegion),
    request: &Request,
    payload: &[u8],
    batch: &'a mut WriteBatch,
) -> Result<Ask<'a>, Refused> {
    let call = Call::decode(&mut Reader::new("a write", payload));
    let call = call.map_err(|error| Refused::Invalid(error.to_string()))?;
    let Call::Write {
        when,
        previous,
        change,
        mut ops,
        mut until,
    } = call
    else {
        return Err(Refused::Invalid("a write that is none".to_owned()));
    };
    for (at, (key, value)) in ops.iter().enumerate() {
        within(routes, region, key)?;
        let to = value.filter(|to| !to.is_empty());
        if is_range(&until, at) && !ends_within(region, to) {
            return Err(Refused::WrongServer);
        }
    }
    if matches!(when, When::Equals(expected) if is_head(expected)) {
        let odd = BatchError::ValueReserved;
        return Err(Refused::Invalid(odd.to_string()));
    }
    let long;
    if request.flags.has(Flags::LONG) {
        long = head_of((&ops, &until), change).map_err(Refused::Invalid)?;
        let (head, first) = &long;
        ops[0].1 = Some(head);
        ops.push((first, None));
        until.resize(1, (0, 0));
        until.push(GUARD);
    } else {
        users_only(&mut ops, &until).map_err(Refused::Invalid)?;
    }
    let write = write_of(when, (previous, change), (ops, until));
    let (read, options) = write.map_err(|error| Refused::Invalid(error.what().to_owned()))?;
    *batch = read;
    Ok(Ask::Write { batch, options })
}

/// A page of a range, in `range`.
pub(super) fn read_scan<'a>(
    region: &MapRegion,
    request: &Request,
    payload: &[u8],
    range: &'a mut KeyRange,
) -> Result<Ask<'a>, Refused> {
    let call = Call::decode(&mut Reader::new("a scan", payload));
    let call = call.map_err(|error| Refused::Invalid(error.to_string()))?;
    let Call::Scan {
        from,
        to,
        direction,
        pairs_max,
        bytes_max,
        keys_only,
        at,
    } = call
    else {
        return Err(Refused::Invalid("a scan that is none".to_owned()));
    };
    if request.flags.has(Flags::REVERSE) != (direction == Direction::Down) {
        let why = "a scan whose header says another direction than its payload";
        return Err(Refused::Invalid(why.to_owned()));
    }
    *range = KeyRange::new(from, to.map(<[u8]>::to_vec));
    let inside = region.range.from <= range.from && ends_within(region, range.to.as_deref());
    if !inside {
        return Err(Refused::WrongServer);
    }
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let paging = Paging {
        direction,
        pairs_max: usize::try_from(pairs_max.min(PAGE_PAIRS_MAX)).expect("bounded"),
        bytes_max: bytes_max.min(request.slot.bytes),
        keys_only,
        at: snapshot_of(at),
    };
    Ok(Ask::Scan { range, paging })
}

/// What is to be done with all regions, or why that makes no sense.
pub(super) fn read_maintenance(payload: &[u8]) -> Result<Ask<'static>, String> {
    let mut reader = Reader::new("what is to be done", payload);
    let call = Call::decode(&mut reader).and_then(|call| reader.finish().map(|()| call));
    match Forwarded::of(call.map_err(|error| error.to_string())?) {
        Ok(Forwarded::Maintain(what)) => Ok(Ask::Maintain { what }),
        _ => Err("a request that something be done with all regions, and is none".to_owned()),
    }
}
