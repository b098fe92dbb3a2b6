//! What commands on composites are answered, in either version of the protocol.

use argosy_wire::resp::{Encoder, Protocol};


/// See the module documentation.
#[derive(Debug, PartialEq)]
pub(super) enum Told {
    Ok,
    Null,
    NullArray,
    Number(i64),
    Bulk(Vec<u8>),
    /// Of several that were named.
    Values(Vec<Option<Vec<u8>>>),
    List(Vec<Vec<u8>>),
    /// Without an order.
    Set(Vec<Vec<u8>>),
    /// Fields with their values.
    Map(Vec<(Vec<u8>, Vec<u8>)>),
    /// The same, each in an array of its own where the protocol has such replies.
    Pairs(Vec<(Vec<u8>, Vec<u8>)>),
    /// A cursor, and what comes before it.
    Page(u64, Vec<Vec<u8>>),
}

impl Told {
    /// A count.
    pub(super) fn count(count: impl TryInto<i64>) -> Self {
        Self::Number(count.try_into().unwrap_or(i64::MAX))
    }

    /// A value, if there is one.
    pub(super) fn value(value: Option<Vec<u8>>) -> Self {
        value.map_or(Self::Null, Self::Bulk)
    }

    pub(super) fn write(self, out: &mut Encoder<'_>) {
        match self {
            Self::Ok => out.simple("OK"),
            Self::Null => out.null(),
            Self::NullArray => out.null_array(),
            Self::Number(number) => out.integer(number),
            Self::Bulk(value) => out.bulk(&value),
            Self::Values(values) => {
                out.array(values.len());
                values
                    .iter()
                    .for_each(|value| out.bulk_or_null(value.as_deref()));
            }
            Self::List(values) => {
                out.array(values.len());
                values.iter().for_each(|value| out.bulk(value));
            }
            Self::Set(values) => {
                out.set(values.len());
                values.iter().for_each(|value| out.bulk(value));
            }
            Self::Map(pairs) => {
                out.map(pairs.len());
                for (name, value) in pairs {
                    out.bulk(&name);
                    out.bulk(&value);
                }
            }
            Self::Pairs(pairs) => {
                let nested = begin_pairs(pairs.len(), out);
                for (name, value) in pairs {
                    if nested {
                        out.array(2);
                    }
                    out.bulk(&name);
                    out.bulk(&value);
                }
            }
            Self::Page(cursor, values) => {
                out.array(2);
                out.bulk(cursor.to_string().as_bytes());
                out.array(values.len());
                values.iter().for_each(|value| out.bulk(value));
            }
        }
    }
}

/// Begins an array of so many pairs. Returns whether each is an array of its own.
fn begin_pairs(pairs: usize, out: &mut Encoder<'_>) -> bool {
    let nested = out.protocol() == Protocol::Resp3;
    out.array(if nested { pairs } else { 2 * pairs });
    nested
}
