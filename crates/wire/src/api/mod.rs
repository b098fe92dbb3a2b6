//! What clients ask for and are answered: the one vocabulary of front ends, of servers that forward requests to a
//! region's primary, and of native clients, and how it travels.
//!
//! ```text
//! request  := 1 key                                             get
//!           | 2 when  previous: u8  change  count op*           write
//!           | 3 from to? pairs_max bytes_max how: u8  number    scan: 1 keys only, 2 from the end down
//!           | 4                                                 count
//!           | 5 key                                             expiry
//!           | 6 bytes_max?  count key*  number                  several keys; whether they are bound, where
//!                                                               no most bytes of values are said
//!           | 7 what: u8  number  millis                        snapshot: 1 open, 2 renew, 3 close
//!           | 8 key                                             get, with the version
//!           | 9 count (key value)*                              ingest
//!           | 10 what: u8                                       maintain: 1 flush, 2 compact
//! when     := 0 | 1 | 2 | 3 value | 4 lsn                       always, absent, present, equals, version
//! change   := 0 | kind: u8  number                              none, or of the one operation, a put
//! op       := 0 key | 1 key value                               delete, put
//!           | 2 key value  how: u8  number                      put until: 1 kept, 2 at, 3 after
//!           | 3 key value                                       delete all keys from key on and below
//!                                                               value, which is empty for no bound
//!           | 4 key                                             nothing, but key has to be bound
//! response := 1 value?                                          what a key is bound to
//!           | 2 applied: u8  count u8*  count value?*  told     written: existed, previous, what a
//!                                                               change told
//!           | 3 count (key value)*  next?                       a page of a scan
//!           | 4 number                                          a count
//!           | 5 number  number?  number                         the region's time, when a key's pair
//!                                                               expires, and how long its value is
//!           | 6 number                                          the region's time, without a pair
//!           | 7 count value?*                                   what the first of several keys are bound to
//!           | 8 number?                                         a snapshot, if there is one
//!           | 9 failure: u8  outcome: u8  text                  failed
//!           | 10 value?  lsn                                    what a key is bound to, and the version
//!           | 11                                                done
//! told     := 0 | 1 number: u64 | 2 value | 3 refusal: u8       none; a number, a value, why not
//! x?       := 0 | 1 x
//! ```
//!
//! The number at the end of a scan and behind several keys is the snapshot that they are read from, and 0
//! for none.
//!
//! Keys, values and texts are byte strings: a length as a variable-length integer, then bytes. What is not
//! in the grammar is refused; an addition to it is another version of the message ring.

mod failure;
mod plan;
mod request;
mod response;
mod write;

use argosy_base::codec::{Malformed, Reader, put_string};

pub use failure::Failure;
pub use plan::{Plan, Scratch};
pub use request::{BadRequest, Lease, Maintenance, Paging, Request, Sender, SnapshotId};
pub(crate) use request::{put_keys, read_keys, snapshot_of};
pub use response::Response;

fn put_option(out: &mut alloc::vec::Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.push(0),
        Some(bytes) => {
            out.push(1);
            put_string(out, bytes);
        }
    }
}

fn option<'a>(r: &mut Reader<'a>, max: usize) -> Result<Option<&'a [u8]>, Malformed> {
    Ok(if flag(r)? { Some(r.string(max)?) } else { None })
}

fn flag(r: &mut Reader<'_>) -> Result<bool, Malformed> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(r.malformed()),
    }
}

/// A number of things that take at least a byte each, so that no lie can make room for more.
fn count(r: &mut Reader<'_>) -> Result<usize, Malformed> {
    let left = r.rest().len();
    r.length(left)
}

#[cfg(test)]
mod tests;
