//! What requests ask for: payloads taken apart, and checked against the region that they name.

use argosy_base::codec::Malformed;
use argosy_base::{BatchError, Condition, Direction, KeyRange, Op, Wanted, WriteOptions};
use argosy_engine::long::check_users;
use argosy_wire::api::{BadRequest, Lease, Request as Ask, Scratch, Sender};
use argosy_wire::native::{Flags, MapRegion, Op as Kind, Request, read_keys, split_pair};

use super::front::Routes;
use super::long::head_of;
use super::serve::room_of;

/// Most pairs of one page.
const PAGE_PAIRS_MAX: usize = 1 << 16;

/// Why a request is answered without a call.
pub(super) enum Refused {
    /// It makes no sense, and why.
    Invalid(String),
    /// It is another server's.
    WrongServer,
}

impl From<Malformed> for Refused {
    fn from(error: Malformed) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<BatchError> for Refused {
    fn from(error: BatchError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<BadRequest> for Refused {
    fn from(error: BadRequest) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// A region that is served here, and where others are.
#[derive(Clone, Copy)]
pub(super) struct Here<'r> {
    pub(super) routes: &'r Routes,
    pub(super) region: &'r MapRegion,
}

impl Here<'_> {
    /// `key`, if it lies in the region.
    #[inline]
    pub(super) fn key<'a>(&self, key: &'a [u8]) -> Result<&'a [u8], Refused> {
        if self.routes.region_of(key).id == self.region.id {
            Ok(key)
        } else {
            Err(Refused::WrongServer)
        }
    }

    /// Whether a range that begins in the region ends there, too.
    fn ends(&self, to: Option<&[u8]>) -> bool {
        match (&self.region.range.to, to) {
            (None, _) => true,
            (Some(end), Some(to)) => to <= end.as_slice(),
            (Some(_), None) => false,
        }
    }

    /// Whether all of `range` lies in the region.
    fn contains(&self, range: &KeyRange) -> bool {
        self.region.range.from <= range.from && self.ends(range.to.as_deref())
    }

    /// That all operations are the region's.
    fn all<'a>(&self, mut ops: impl Iterator<Item = Op<'a>>) -> Result<(), Refused> {
        ops.try_for_each(|op| {
            self.key(op.key())?;
            match op {
                Op::DeleteRange { to, .. } if !self.ends(to) => Err(Refused::WrongServer),
                _ => Ok(()),
            }
        })
    }
}

fn mismatch<T>() -> Result<T, Refused> {
    let why = "the payload is not what the header says";
    Err(Refused::Invalid(why.to_owned()))
}

/// Several keys.
pub(super) fn read_multi_get<'a>(
    routes: &Routes,
    request: &Request,
    payload: &[u8],
    scratch: &'a mut Scratch,
) -> Result<Ask<'a>, Refused> {
    let at = read_keys(payload, &mut scratch.keys)?;
    let keys = &scratch.keys;
    keys.iter().try_for_each(check_users)?;
    if !keys.iter().all(|key| routes.serves(key)) {
        return Err(Refused::WrongServer);
    }
    let wanted = Wanted::Values(room_of(request));
    Ok(Ask::GetMany { keys, wanted, at })
}

/// A put, a delete, or several of them.
pub(super) fn read_batch<'a>(
    here: Here<'_>,
    request: &Request,
    payload: &[u8],
    scratch: &'a mut Scratch,
) -> Result<Ask<'a>, Refused> {
    let batch = &mut scratch.batch;
    batch.clear();
    match request.op {
        Kind::Put => {
            let (key, value) = split_pair(payload)?;
            batch.put(here.key(key)?, value)?;
        }
        Kind::Delete => batch.delete(here.key(payload)?)?,
        _ => match Ask::decode(payload, Sender::Client, scratch)? {
            Ask::Write { batch, options } if options == WriteOptions::default() => {
                // What else the grammar has is for other requests.
                if batch.changes().is_some() || batch.expires() || batch.ranges_len() > 0 {
                    return mismatch();
                }
                here.all(batch.ops())?;
            }
            _ => return mismatch(),
        },
    }
    let condition = match request.flags {
        flags if flags.has(Flags::IF_ABSENT) => Condition::Absent,
        flags if flags.has(Flags::IF_PRESENT) => Condition::Present,
        _ => Condition::Always,
    };
    Ok(Ask::Write {
        batch: &scratch.batch,
        options: WriteOptions {
            condition,
            return_previous: false,
        },
    })
}

/// A write on terms.
pub(super) fn read_write<'a>(
    here: Here<'_>,
    request: &Request,
    payload: &'a [u8],
    scratch: &'a mut Scratch,
) -> Result<Ask<'a>, Refused> {
    let Ask::Write { batch, options } = Ask::decode(payload, Sender::Client, scratch)? else {
        return mismatch();
    };
    here.all(batch.ops())?;
    if request.flags.has(Flags::LONG) {
        scratch.batch = head_of(batch)?;
    }
    let batch = &scratch.batch;
    Ok(Ask::Write { batch, options })
}

/// A page of a range.
pub(super) fn read_scan<'a>(
    here: Here<'_>,
    request: &Request,
    payload: &'a [u8],
    scratch: &'a mut Scratch,
) -> Result<Ask<'a>, Refused> {
    match Ask::decode(payload, Sender::Client, scratch)? {
        Ask::Scan { range, mut paging } => {
            if request.flags.has(Flags::REVERSE) != (paging.direction == Direction::Down) {
                return mismatch();
            }
            check_users(&range.from)?;
            if !here.contains(range) {
                return Err(Refused::WrongServer);
            }
            paging.pairs_max = paging.pairs_max.min(PAGE_PAIRS_MAX);
            paging.bytes_max = paging.bytes_max.min(request.slot.bytes);
            Ok(Ask::Scan { range, paging })
        }
        _ => mismatch(),
    }
}

/// A snapshot that is to be opened, renewed or closed, or what is to be done with all regions.
pub(super) fn read_of_all<'a>(
    request: &Request,
    payload: &'a [u8],
    scratch: &'a mut Scratch,
) -> Result<Ask<'a>, Refused> {
    let ask = Ask::decode(payload, Sender::Client, scratch)?;
    let fits = match (&ask, request.op) {
        (Ask::Maintain { .. }, Kind::Maintain) => true,
        (Ask::Snapshot { id, lease }, Kind::Snapshot) => {
            let opens = matches!(lease, Lease::Open(_));
            // What is opened has no number yet, and any other has one.
            opens == request.flags.has(Flags::OPEN) && opens == id.is_none()
        }
        _ => false,
    };
    if fits { Ok(ask) } else { mismatch() }
}
