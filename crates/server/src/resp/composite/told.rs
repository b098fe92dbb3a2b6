//! What commands on composites are answered, in either version of the protocol.

use argosy_wire::resp::{Encoder, Protocol};

use super::score::text_of;

/// See the module documentation.
#[derive(Debug, PartialEq)]
pub(super) enum Told {
    Ok,
    Null,
    NullArray,
    Number(i64),
    Numbers(Vec<i64>),
    Score(f64),
    /// Of several members that were named.
    Scores(Vec<Option<f64>>),
    /// Members with their scores.
    Scored(Vec<(Vec<u8>, f64)>),
    /// One of them, or none.
    Popped(Option<(Vec<u8>, f64)>),
    /// The place of a member, and its score.
    Place(u64, f64),
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

    /// A score, if there is one.
    pub(super) fn score(score: Option<f64>) -> Self {
        score.map_or(Self::Null, Self::Score)
    }

    pub(super) fn write(self, out: &mut Encoder<'_>) {
        match self {
            Self::Ok => out.simple("OK"),
            Self::Null => out.null(),
            Self::NullArray => out.null_array(),
            Self::Number(number) => out.integer(number),
            Self::Score(score) => write_score(score, out),
            Self::Bulk(value) => out.bulk(&value),
            Self::Numbers(numbers) => list(numbers, out, |number, out| out.integer(number)),
            Self::Scores(scores) => list(scores, out, |score, out| match score {
                Some(score) => write_score(score, out),
                None => out.null(),
            }),
            Self::Values(values) => {
                list(values, out, |value, out| out.bulk_or_null(value.as_deref()));
            }
            Self::List(values) => list(values, out, |value, out| out.bulk(&value)),
            Self::Set(values) => {
                out.set(values.len());
                values.iter().for_each(|value| out.bulk(value));
            }
            Self::Map(map) => {
                out.map(map.len());
                for (name, value) in map {
                    out.bulk(&name);
                    out.bulk(&value);
                }
            }
            Self::Pairs(all) => pairs(all, out, |value, out| out.bulk(&value)),
            Self::Scored(all) => pairs(all, out, write_score),
            Self::Popped(None) => out.array(0),
            Self::Popped(Some((member, score))) => {
                out.array(2);
                out.bulk(&member);
                write_score(score, out);
            }
            Self::Place(place, score) => {
                out.array(2);
                out.count(place);
                write_score(score, out);
            }
            Self::Page(cursor, values) => {
                out.array(2);
                out.bulk(cursor.to_string().as_bytes());
                list(values, out, |value, out| out.bulk(&value));
            }
        }
    }
}

fn write_score(score: f64, out: &mut Encoder<'_>) {
    match out.protocol() {
        Protocol::Resp2 => out.bulk(text_of(score).as_bytes()),
        Protocol::Resp3 => out.double(score),
    }
}

/// Writes an array of `all`, each as `one` writes it.
fn list<T>(all: Vec<T>, out: &mut Encoder<'_>, one: impl Fn(T, &mut Encoder<'_>)) {
    out.array(all.len());
    for each in all {
        one(each, out);
    }
}

/// Writes names, each with what belongs to it: one behind the other, or where the protocol has such replies each pair
/// as an array of its own.
fn pairs<T>(all: Vec<(Vec<u8>, T)>, out: &mut Encoder<'_>, one: impl Fn(T, &mut Encoder<'_>)) {
    let nested = out.protocol() == Protocol::Resp3;
    out.array(if nested { all.len() } else { 2 * all.len() });
    for (name, each) in all {
        if nested {
            out.array(2);
        }
        out.bulk(&name);
        one(each, out);
    }
}
