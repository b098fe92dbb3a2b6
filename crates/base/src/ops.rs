//! The bytes of an operation of a batch, on the wire and wherever an engine keeps batches.
//!
//! ```text
//! op := 0  key: string                                                 delete
//!     | 1  key: string  value: string                                  put
//!     | 2  key: string  value: string  how: u8  number: varint         put of a pair that expires
//!     | 3  from: string  to: string                                    delete of a range; no end where `to` is empty
//! ```
//!
//! A `string` is a varint with its length, and its bytes. [Two numbers](Expiry::to_parts) say when a pair expires.

use alloc::vec::Vec;

use crate::codec::{Malformed, Reader, put_string, put_varint};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{Expiry, Op};

// DO NOT CHANGE THE VALUES.
const DELETE: u8 = 0;
const PUT: u8 = 1;
const PUT_UNTIL: u8 = 2;
const DELETE_RANGE: u8 = 3;

/// Kinds of operations are below: a list may have items of other kinds from here on.
pub const KINDS: u8 = 4;

/// Appends `op`.
pub fn put_op(op: &Op<'_>, out: &mut Vec<u8>) {
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

/// Reads the operation of this `kind`, the byte that was read before. Whether a batch takes it is for the batch to say.
///
/// # Errors
/// There is none.
pub fn read_op<'a>(kind: u8, from: &mut Reader<'a>) -> Result<Op<'a>, Malformed> {
    let key = from.string(KEY_BYTES_MAX)?;
    Ok(match kind {
        DELETE => Op::Delete { key },
        PUT | PUT_UNTIL => {
            let value = from.string(VALUE_BYTES_MAX)?;
            let expiry = match kind {
                PUT => Expiry::Never,
                _ => {
                    let expiry = Expiry::from_parts(from.u8()?, from.varint()?);
                    let expires = expiry.filter(|expiry| *expiry != Expiry::Never);
                    expires.ok_or_else(|| from.malformed())?
                }
            };
            Op::Put { key, value, expiry }
        }
        DELETE_RANGE => {
            let to = from.string(KEY_BYTES_MAX + 1)?;
            let to = Some(to).filter(|to| !to.is_empty());
            Op::DeleteRange { from: key, to }
        }
        _ => return Err(from.malformed()),
    })
}
