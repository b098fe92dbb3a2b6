//! What clients ask for and are answered: the one vocabulary of front ends, of servers that forward requests to a
//! region's primary, and of native clients, and how it travels.
//!
//! The grammar of requests is that of [`Request`]'s file, that of responses that of [`Response`]'s. In both:
//!
//! ```text
//! x?       := 0 | 1 x
//! ```
//!
//! Keys, values and texts are byte strings: a length as a variable-length integer, then bytes. What is not
//! in the grammar is refused; an addition to it is another version of the message ring.

mod failure;
mod request;
mod response;
mod scratch;
mod terms;
mod write;

use argosy_base::codec::{Malformed, Reader, put_string};

pub use failure::Failure;
pub use request::{BadRequest, Plan, Request, Sender, Target};
pub(crate) use request::{put_keys, read_keys, snapshot_of};
pub use response::{Examined, Response};
pub use scratch::Scratch;
pub use terms::{Lease, Maintenance, Paging, SnapshotId};

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
