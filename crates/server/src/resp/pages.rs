//! Replies that are gathered page by page: of ranges, and of several keys.

use argosy_base::{Direction, KeyRange};
use argosy_engine::Wanted;
use argosy_engine::composite::is_composite;
use argosy_engine::long::is_head;
use argosy_wire::api::Plan;
use argosy_wire::resp::{Encoder, Protocol};

use super::glob;
use super::many_long::ManyGather;
use crate::service::{KeyList, Paging, SnapshotId};

/// Most pairs of one page of a range.
const PAGE_PAIRS: usize = 4096;
/// Bytes of keys and values from which on a page of a range ends.
const PAGE_BYTES: usize = 1 << 20;
/// Bytes of values from which on an answer about several keys ends.
const VALUES_BYTES: usize = 256 << 10;

/// Pairs gathered from several pages.
#[derive(Debug)]
pub(super) struct RangeGather {
    /// What has not been read yet.
    pub range: KeyRange,
    /// From which end.
    pub direction: Direction,
    /// Most pairs that are still wanted.
    pub left: usize,
    /// `KEYS`: leave out what does not match.
    pub keys_matching: Option<Vec<u8>>,
    /// Leave the values out.
    pub keys_only: bool,
    /// The snapshot that is read.
    pub at: Option<SnapshotId>,
    /// What has been read.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl RangeGather {
    /// At most `left` pairs of `range`, values and all; none of them read.
    pub(super) const fn of(range: KeyRange, direction: Direction, left: usize) -> Self {
        Self {
            range,
            direction,
            left,
            keys_matching: None,
            keys_only: false,
            at: None,
            pairs: Vec::new(),
        }
    }
}

/// Keys of which several answers may tell.
#[derive(Debug)]
pub(super) struct KeysGather {
    pub(super) keys: KeyList,
    /// How many of them have been told of.
    pub(super) told: usize,
    tells: Tells,
    at: Option<SnapshotId>,
}

/// What is told of keys.
#[derive(Debug)]
pub(super) enum Tells {
    /// `MGET`: the values in the order of the keys.
    Values(Vec<Option<Vec<u8>>>),
    /// `EXISTS`: how many of the keys are bound.
    Existing(u64),
}

impl KeysGather {
    /// Of `keys`, of which there is at least one.
    pub(super) const fn of(keys: KeyList, tells: Tells, at: Option<SnapshotId>) -> Self {
        Self {
            keys,
            told: 0,
            tells,
            at,
        }
    }

    /// The call for the next of the keys, which are put into `page`.
    pub(super) fn plan(&self, page: &mut KeyList) -> Plan {
        page.clear();
        let next = self.told..self.told + self.keys.page(self.told);
        next.for_each(|at| page.push(self.keys.at(at)));
        let wanted = match self.tells {
            Tells::Values(_) => Wanted::Values(VALUES_BYTES),
            Tells::Existing(_) => Wanted::Presence,
        };
        Plan::GetMany(wanted, self.at)
    }

    /// Keeps what was told. Returns the bytes kept.
    pub(super) fn take(&mut self, mut told: Vec<Option<Vec<u8>>>) -> usize {
        // Beside its bytes, each value takes a place.
        const PLACE_BYTES: usize = size_of::<Option<Vec<u8>>>();
        self.told += told.len();
        match &mut self.tells {
            Tells::Values(values) => {
                // As in Redis, what is no string is none.
                for value in &mut told {
                    value.take_if(|value| is_composite(value));
                }
                let bytes = told.iter().flatten().map(Vec::len).sum::<usize>();
                let kept = bytes + told.len() * PLACE_BYTES;
                if values.is_empty() {
                    *values = told;
                } else {
                    values.extend(told);
                }
                kept
            }
            Tells::Existing(count) => {
                *count += told.iter().flatten().count() as u64;
                0
            }
        }
    }

    /// The same, where one of the values is long.
    pub(super) fn many(&self, protocol: Protocol) -> Option<ManyGather> {
        match &self.tells {
            Tells::Values(values) if values.iter().flatten().any(|value| is_head(value)) => {
                Some(ManyGather::of_values(values, self.at, protocol))
            }
            _ => None,
        }
    }

    pub(super) fn write(self, encoder: &mut Encoder<'_>) {
        match self.tells {
            Tells::Existing(count) => encoder.count(count),
            Tells::Values(values) => {
                encoder.array(values.len());
                for value in values {
                    encoder.bulk_or_null(value.as_deref());
                }
            }
        }
    }
}

impl RangeGather {
    /// The call for the next page.
    pub(super) fn plan(&self) -> Plan {
        Plan::Scan(Paging {
            direction: self.direction,
            pairs_max: self.left.min(PAGE_PAIRS),
            bytes_max: PAGE_BYTES,
            keys_only: self.keys_only,
            at: self.at,
        })
    }

    /// Keeps what is wanted of a page. Returns the bytes kept.
    pub(super) fn take(&mut self, pairs: Vec<(Vec<u8>, Vec<u8>)>) -> usize {
        // Beside its bytes, each pair takes a place.
        const PLACE_BYTES: usize = size_of::<(Vec<u8>, Vec<u8>)>();
        let mut bytes = 0;
        for (key, value) in pairs {
            let wanted = match &self.keys_matching {
                Some(pattern) => glob::matches(pattern, &key),
                None => true,
            };
            if wanted && self.left > 0 {
                self.left -= 1;
                bytes += key.len() + value.len() + PLACE_BYTES;
                self.pairs.push((key, value));
            }
        }
        bytes
    }

    /// The same, where one of the values is long.
    pub(super) fn many(&self, protocol: Protocol) -> Option<ManyGather> {
        let long = |(_, value): &(Vec<u8>, Vec<u8>)| is_head(value);
        let any = !self.keys_only && self.keys_matching.is_none() && self.pairs.iter().any(long);
        any.then(|| ManyGather::of_pairs(&self.pairs, self.at, protocol))
    }

    pub(super) fn write(self, encoder: &mut Encoder<'_>) {
        if self.keys_only {
            encoder.array(self.pairs.len());
            for (key, _) in self.pairs {
                encoder.bulk(&key);
            }
        } else {
            encoder.array(self.pairs.len() * 2);
            for (key, value) in self.pairs {
                encoder.bulk(&key);
                encoder.bulk(&value);
            }
        }
    }
}
