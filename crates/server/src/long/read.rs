//! Reads a value part by part.
//!
//! Where the first part is not there, the value has been overwritten, and its key is looked up again. Once a part has
//! been passed on there is no way back: if another one is not there, what was begun cannot be ended.

use argosy_engine::Wanted;
use argosy_engine::long::{Head, LongReader, Torn};
use argosy_wire::api::Plan;

use super::stretch;
use crate::service::{KeyList, SnapshotId};

/// How often a value is looked up that is overwritten all the time.
const TRIES_MAX: u8 = 16;

/// The call that looks `key` up.
pub(crate) fn look_up(key: &[u8], at: Option<SnapshotId>, keys: &mut KeyList) -> Plan {
    keys.clear();
    keys.push(key);
    Plan::GetMany(Wanted::Values(1), at)
}

/// The call for the part that `reader` wants next.
pub(super) fn next_part(reader: &LongReader, at: Option<SnapshotId>, keys: &mut KeyList) -> Plan {
    keys.clear();
    reader.wanted(1).iter().for_each(|key| keys.push(key));
    Plan::GetMany(Wanted::Values(1), at)
}

/// A value while it is read. See the module documentation.
#[derive(Debug)]
pub(crate) struct Reading {
    reader: LongReader,
    /// The key, for looking it up again.
    key: Vec<u8>,
    at: Option<SnapshotId>,
    /// It was found by a write, and cannot be looked up again.
    fixed: bool,
    /// Where the wanted stretch begins and ends, as `GETRANGE` names it; `None`: all is wanted.
    places: Option<(i64, i64)>,
    /// The key is being looked up again.
    looks: bool,
    tries: u8,
}

/// What a call has brought.
#[derive(Debug)]
pub(crate) enum Came {
    /// The next bytes of the value.
    Part(Vec<u8>),
    /// Nothing yet: the next call is to be made.
    Nothing,
    /// The key is bound to this by now, or to nothing, and not to a value in parts.
    Instead(Option<Vec<u8>>),
    /// The rest cannot be had.
    Torn(Torn),
}

impl Reading {
    /// Of the value of `head`, which was found at `at`; `fixed`: by a write, so that it cannot be looked up again.
    pub(crate) fn new(head: Head, at: Option<SnapshotId>, fixed: bool) -> Self {
        Self {
            key: head.key.clone(),
            reader: LongReader::new(head),
            at,
            fixed,
            places: None,
            looks: false,
            tries: 0,
        }
    }

    /// Of what lies between two places, both included, counted from the end where below zero; `None`: nothing.
    pub(crate) fn of_stretch(head: Head, from: i64, to: i64) -> Option<Self> {
        let key = head.key.clone();
        Some(Self {
            reader: within(head, from, to)?,
            key,
            at: None,
            fixed: false,
            places: Some((from, to)),
            looks: false,
            tries: 0,
        })
    }

    /// Bytes of what is wanted.
    pub(crate) const fn len(&self) -> u64 {
        self.reader.len()
    }

    /// Whether all of it has come.
    pub(crate) fn is_done(&self) -> bool {
        !self.looks && self.reader.is_done()
    }

    /// The places of the wanted stretch, if it is one.
    pub(crate) const fn places(&self) -> Option<(i64, i64)> {
        self.places
    }

    /// The call for what comes next.
    pub(crate) fn plan(&self, keys: &mut KeyList) -> Plan {
        match self.looks {
            true => look_up(&self.key, self.at, keys),
            false => next_part(&self.reader, self.at, keys),
        }
    }

    /// Takes the answer to that. `begun`: some of the value has been passed on.
    pub(crate) fn take(&mut self, value: Option<Vec<u8>>, begun: bool) -> Came {
        if std::mem::take(&mut self.looks) {
            return self.take_head(value);
        }
        match self.reader.take(value.as_deref()) {
            Ok(()) => {
                let part = value.unwrap_or_default();
                Came::Part(match self.places {
                    Some(_) => self.reader.wanted_of(&part).to_vec(),
                    None => part,
                })
            }
            Err(Torn::Missing) if !begun && !self.fixed && self.tries < TRIES_MAX => {
                self.tries += 1;
                self.looks = true;
                Came::Nothing
            }
            Err(torn) => Came::Torn(torn),
        }
    }

    /// Takes what the key is bound to by now.
    fn take_head(&mut self, value: Option<Vec<u8>>) -> Came {
        let Some(head) = value.as_deref().and_then(Head::parse) else {
            return Came::Instead(value);
        };
        let reader = match self.places {
            None => Some(LongReader::new(head)),
            Some((from, to)) => within(head, from, to),
        };
        match reader {
            Some(reader) => {
                self.reader = reader;
                Came::Nothing
            }
            None => Came::Instead(Some(Vec::new())),
        }
    }
}

/// Reads what lies between two places; `None`: nothing does.
fn within(head: Head, from: i64, to: i64) -> Option<LongReader> {
    let stretch = stretch(head.len, from, to);
    (!stretch.is_empty()).then(|| LongReader::within(head, &stretch))
}
