//! Requests about many keys: split by region or server, in flight together, put together again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use argosy_base::limits::{BATCH_BYTES_MAX, BATCH_PAIRS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{KeyRange, WriteBatch, WriteOptions};
use argosy_wire::api::{Paging, Request, Response, SnapshotId};
use argosy_wire::native::{Flags, MULTI_KEYS_MAX, OneValue, Op, Values, put_keys};

use super::change::read;
use super::client::{Client, odd};
use super::long::long_in;
use super::run::{Sending, Sent};
use super::ticket::Flight;
use super::verdict::Failed;
use crate::error::ClientError;
use crate::kv::{Kv, Page, PutOnly, Span, Write};

/// Bytes of keys and values from which on a batch ends: several fit the ring of requests.
const BATCH_BYTES: usize = 64 << 10;
/// Bytes of slot for a page, at least.
const PAGE_BYTES_MIN: usize = 4 << 10;
/// Bytes of slot for a page, at most.
const PAGE_BYTES_MAX: usize = 128 << 10;
/// Most pairs of a page.
const PAGE_PAIRS_MAX: usize = 1 << 14;
/// Keys asked for at once.
const KEYS_AT_ONCE: usize = 128;
const _: () = assert!(KEYS_AT_ONCE <= MULTI_KEYS_MAX);
/// Most such requests in flight.
const ASKS_AT_ONCE: usize = 16;

impl Client {
    /// What each of `keys` is bound to. Keys of one server are asked for together, and what that has to
    /// read from its device for them it reads together. Not as of one moment. Where their values do not
    /// fit a connection, they are asked for in parts.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        self.multi_get_at(keys, None)
    }

    /// The same from snapshot `at`, or from none.
    pub(super) fn multi_get_at(
        &self,
        keys: &[&[u8]],
        at: Option<SnapshotId>,
    ) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let (caller, keys) = (&self.caller, Keys { keys, at });
        let deadline = caller.deadline_from_now();
        let known = caller.shared.known.load_full();
        let mut of_servers: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (place, key) in keys.keys.iter().enumerate() {
            let region = known.region_of(key);
            of_servers.entry(region.primary).or_default().push(place);
        }
        let mut values = vec![None; keys.keys.len()];
        let mut longs = Vec::new();
        let guess = caller.shared.guess.bytes();
        let mut asks = KeysOf::each(of_servers.values(), keys, guess);
        let mut flying: VecDeque<(KeysOf, Flight)> = VecDeque::new();
        let mut payload = Vec::new();
        loop {
            while flying.len() < ASKS_AT_ONCE
                && let Some(asked) = asks.pop_front()
            {
                match caller.send(&asked.sending(keys, &[&asked.body]), deadline) {
                    Ok(flight) => flying.push_back((asked, flight)),
                    Err(failed) => asked.halve(keys, failed, &mut asks)?,
                }
            }
            self.flush();
            let Some((mut asked, flight)) = flying.pop_front() else {
                for (place, long) in longs {
                    values[place] = caller.whole(keys.keys[place], long, at)?;
                }
                return Ok(values);
            };
            let parts: [&[u8]; 1] = [&asked.body];
            let mut sending = asked.sending(keys, &parts);
            let alone = asked.places.len() == 1;
            let ended = caller.finish(&mut sending, Sent { flight, alone }, deadline, &mut payload);
            let parted = matches!(ended, Err(Failed::Parted(_)));
            if let Err(failed) = ended
                && !parted
            {
                asked.reply_bytes = sending.reply_bytes;
                asked.halve(keys, failed, &mut asks)?;
                continue;
            }
            let moved = known.fingerprint() != caller.shared.known.load().fingerprint();
            if parted || keys.keys.len() > 1 && moved {
                // Keys may have parted.
                return self.get_each(keys.keys, at);
            }
            let mut found = Values::of(&payload);
            let mut told = 0;
            while told < asked.places.len() && !found.is_over() {
                let value = found.next_value();
                let value = value.map_err(|error| odd(&error.to_string()))?;
                let place = asked.places[told];
                match value {
                    OneValue::Absent => {}
                    OneValue::Whole(value) => values[place] = Some(value.to_vec()),
                    OneValue::Long(long) => longs.push((place, long)),
                }
                told += 1;
            }
            if told == 0 {
                return Err(odd("keys were answered by no value"));
            }
            let left = &asked.places[told..];
            if !left.is_empty() {
                // As long as those that were told.
                let reply_bytes = payload.len() / told * left.len() + 64;
                asks.push_front(KeysOf::new(left, keys, reply_bytes.min(PAGE_BYTES_MAX)));
            }
        }
    }

    /// The same, each by itself.
    fn get_each(
        &self,
        keys: &[&[u8]],
        at: Option<SnapshotId>,
    ) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let one = |key: &&[u8]| {
            let mut values = self.multi_get_at(&[*key], at)?;
            Ok(values.pop().flatten())
        };
        keys.iter().map(one).collect()
    }

    /// Does all of `writes`; see [`Kv::write_many`].
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn write_many(&self, writes: &[Write<'_>]) -> Result<(), ClientError> {
        let known = self.caller.shared.known.load_full();
        let mut of_regions: BTreeMap<usize, Vec<Write<'_>>> = BTreeMap::new();
        for write in writes {
            let region = known.index_of(write.0);
            of_regions.entry(region).or_default().push(*write);
        }
        let mut left: Vec<&[Write<'_>]> = of_regions.values().map(Vec::as_slice).collect();
        let mut applied = false;
        while !left.is_empty() {
            // One batch of each region: those of different regions are in flight together, and those
            // of one follow each other, so that the last write of a key is the last.
            let now = left.iter_mut().map(|left| {
                let (now, behind) = left.split_at(batch_of(left));
                *left = behind;
                now
            });
            let (long, now): (Vec<_>, Vec<_>) = now.partition(|now| is_long(now));
            let (done, mut failed) = self.write_batches(&now);
            applied |= done;
            for (key, value) in long.into_iter().flatten() {
                if failed.is_none() {
                    failed = self.put(key, value.unwrap_or_default()).err();
                    applied |= failed.is_none();
                }
            }
            match failed {
                Some(error) if applied => return Err(error.after_a_part()),
                Some(error) => return Err(error),
                None => left.retain(|left| !left.is_empty()),
            }
        }
        Ok(())
    }

    /// Removes all keys of `range`, however many there are, and without looking at them: atomic in each
    /// region, not as a whole. Where a region fails, keys of others may be gone.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn delete_range(&self, range: &KeyRange) -> Result<(), ClientError> {
        let Some(range) = from_a_key(range)? else {
            return Ok(());
        };
        let known = self.caller.shared.known.load_full();
        let parts = known.map.regions.iter();
        let parts = parts.map(|region| range.intersection(&region.range));
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        let mut applied = false;
        for parts in parts.chunks(ASKS_AT_ONCE) {
            let bodies: Vec<_> = parts.iter().map(erasure_of).collect::<Result<_, _>>()?;
            let bodies: Vec<_> = bodies
                .iter()
                .zip(parts)
                .map(|(body, part)| (part.from.as_slice(), body.as_slice()))
                .collect();
            let (done, failed) = self.write_bodies(Op::Write, &bodies);
            applied |= done;
            match failed {
                Some(error) if applied => return Err(error.after_a_part()),
                Some(error) => return Err(error),
                None => {}
            }
        }
        Ok(())
    }

    /// Writes `batches`, each of one region. Returns whether any was applied, and the first failure.
    fn write_batches(&self, batches: &[&[Write<'_>]]) -> (bool, Option<ClientError>) {
        let bodies: Result<Vec<Vec<u8>>, _> =
            batches.iter().map(|writes| body_of(writes)).collect();
        let bodies = match bodies {
            Ok(bodies) => bodies,
            Err(error) => return (false, Some(error)),
        };
        let bodies: Vec<_> = bodies
            .iter()
            .zip(batches)
            .map(|(body, writes)| (writes[0].0, body.as_slice()))
            .collect();
        self.write_bodies(Op::Batch, &bodies)
    }

    /// Sends these together, each where its key belongs. Returns whether any was applied, and the first
    /// failure.
    fn write_bodies(&self, op: Op, bodies: &[(&[u8], &[u8])]) -> (bool, Option<ClientError>) {
        let deadline = self.caller.deadline_from_now();
        let parts: Vec<[&[u8]; 1]> = bodies.iter().map(|(_, body)| [*body]).collect();
        let sending = |at: usize| Sending {
            op,
            flags: Flags::default(),
            key: bodies[at].0,
            parts: &parts[at],
            reply_bytes: 256,
        };
        let flights: Vec<_> = (0..bodies.len())
            .map(|at| self.caller.send(&sending(at), deadline))
            .collect();
        self.flush();
        let (mut applied, mut failed) = (false, None);
        for (at, flight) in flights.into_iter().enumerate() {
            let ended = flight.and_then(|flight| {
                let sent = Sent {
                    flight,
                    alone: true,
                };
                self.caller
                    .finish(&mut sending(at), sent, deadline, &mut Vec::new())
            });
            match ended {
                Ok(_) => applied = true,
                Err(error) => failed = failed.or(Some(error.into())),
            }
        }
        (applied, failed)
    }

    /// The next pairs of `span`; see [`Kv::page`].
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn page(&self, span: &Span, pairs_max: usize) -> Result<Page, ClientError> {
        self.page_at(span, pairs_max, None)
    }

    /// The same of snapshot `at`, or of none.
    pub(super) fn page_at(
        &self,
        span: &Span,
        pairs_max: usize,
        at: Option<SnapshotId>,
    ) -> Result<Page, ClientError> {
        if span.range.is_empty() || pairs_max == 0 {
            return Ok(Page::default());
        }
        let deadline = self.caller.deadline_from_now();
        let known = self.caller.shared.known.load_full();
        let map = &known.map;
        let region = &map.regions[match (&span.range.to, span.reverse) {
            (_, false) => known.index_of(&span.range.from),
            (None, true) => map.regions.len() - 1,
            // The bound itself is left out.
            (Some(to), true) => {
                map.regions
                    .partition_point(|region| region.range.from < *to)
                    - 1
            }
        }];
        let here = span.range.intersection(&region.range);
        let pairs_max = pairs_max.min(PAGE_PAIRS_MAX);
        let guess = pairs_max * self.caller.shared.pair_bytes.load(Ordering::Relaxed);
        let reply_bytes = guess.clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX);
        let mut body = Vec::new();
        let paging = Paging {
            direction: span.direction(),
            pairs_max,
            bytes_max: reply_bytes / 4 * 3,
            keys_only: false,
            at,
        };
        let range = &here;
        Request::Scan { range, paging }.encode(&mut body);
        let mut sending = Sending {
            op: Op::Scan,
            flags: Flags::default().with(Flags::REVERSE, span.reverse),
            key: &region.range.from,
            parts: &[&body],
            reply_bytes,
        };
        let mut payload = Vec::new();
        let reply = self.caller.run(&mut sending, deadline, &mut payload)?;
        let (mut pairs, next) = match read(&payload)? {
            Response::Page { pairs, next } => (pairs, next),
            other => return Err(odd(&format!("a scan was answered by {other:?}"))),
        };
        if !pairs.is_empty() {
            let each = payload.len() / pairs.len();
            let learnt = (each + each / 4).max(32);
            self.caller
                .shared
                .pair_bytes
                .store(learnt, Ordering::Relaxed);
        }
        if reply.flags.has(Flags::LONG) {
            // The page ends with it.
            let (key, long) = pairs
                .pop()
                .ok_or_else(|| odd("a page lacks its last pair"))?;
            let value = self.caller.whole(&key, long_in(&long)?, at)?;
            pairs.extend(value.map(|value| (key, value)));
        }
        let rest = rest_of(span, &region.range, next);
        Ok(Page { pairs, rest })
    }
}

/// What is left of `span` behind a page of the region with the keys of `region`: from `next` on, or
/// where there is none in the regions that follow.
fn rest_of(span: &Span, region: &KeyRange, next: Option<Vec<u8>>) -> Option<Span> {
    let mut rest = span.clone();
    let next = match (next, span.reverse) {
        (Some(next), _) => next,
        (None, false) => region.to.clone()?,
        (None, true) => region.from.clone(),
    };
    rest.range.go_on_at(span.direction(), next);
    (!rest.range.is_empty()).then_some(rest)
}

/// All keys that are asked for.
#[derive(Clone, Copy)]
struct Keys<'k> {
    keys: &'k [&'k [u8]],
    /// From which snapshot, if from one.
    at: Option<SnapshotId>,
}

/// Keys of one server that are asked for together.
struct KeysOf {
    /// Their places among all keys.
    places: Vec<usize>,
    /// The request.
    body: Vec<u8>,
    /// Bytes of slot for the reply.
    reply_bytes: usize,
}

impl KeysOf {
    fn new(places: &[usize], keys: Keys<'_>, reply_bytes: usize) -> Self {
        let mut body = Vec::new();
        let named = places.iter().map(|place| keys.keys[*place]);
        put_keys(named, keys.at, &mut body);
        Self {
            places: places.to_vec(),
            body,
            reply_bytes,
        }
    }

    fn sending<'a>(&self, keys: Keys<'a>, parts: &'a [&'a [u8]]) -> Sending<'a> {
        Sending {
            op: Op::MultiGet,
            flags: Flags::default(),
            key: keys.keys[self.places[0]],
            parts,
            reply_bytes: self.reply_bytes,
        }
    }

    /// Asks for the keys in two parts, where all of them were too many: they are the next of `asks`.
    fn halve(
        self,
        keys: Keys<'_>,
        failed: Failed,
        asks: &mut VecDeque<Self>,
    ) -> Result<(), ClientError> {
        if !matches!(failed, Failed::TooLarge(_)) || self.places.len() < 2 {
            return Err(failed.into());
        }
        let (first, last) = self.places.split_at(self.places.len() / 2);
        let reply_bytes = self.reply_bytes / 2 + 64;
        asks.push_front(Self::new(last, keys, reply_bytes));
        asks.push_front(Self::new(first, keys, reply_bytes));
        Ok(())
    }

    /// Requests for the keys of each server, a bounded number at a time; those of all servers in turn.
    /// A value is taken to need `guess` bytes.
    fn each<'a>(
        servers: impl Iterator<Item = &'a Vec<usize>>,
        keys: Keys<'_>,
        guess: usize,
    ) -> VecDeque<Self> {
        let mut asks: Vec<_> = servers
            .flat_map(|places| places.chunks(KEYS_AT_ONCE).enumerate())
            .collect();
        asks.sort_by_key(|(turn, _)| *turn);
        let asks = asks.into_iter().map(|(_, places)| {
            let reply_bytes = (places.len() * guess + 64).min(PAGE_BYTES_MAX);
            Self::new(places, keys, reply_bytes)
        });
        asks.collect()
    }
}

/// A batch, as it is sent.
fn body_of(writes: &[Write<'_>]) -> Result<Vec<u8>, ClientError> {
    let mut batch = WriteBatch::new();
    for (key, value) in writes {
        match value {
            Some(value) => batch.put(key, value)?,
            None => batch.delete(key)?,
        }
    }
    Ok(sent(&batch))
}

/// The removal of a range, as it is sent.
fn erasure_of(range: &KeyRange) -> Result<Vec<u8>, ClientError> {
    let mut batch = WriteBatch::new();
    batch.delete_range(range)?;
    Ok(sent(&batch))
}

fn sent(batch: &WriteBatch) -> Vec<u8> {
    let mut body = Vec::new();
    let options = WriteOptions::default();
    Request::Write { batch, options }.encode(&mut body);
    body
}

/// `range`, so that it begins where a key may be; `None` where there is none in it.
fn from_a_key(range: &KeyRange) -> Result<Option<KeyRange>, ClientError> {
    let mut range = range.clone();
    // The successor of the longest key is a bound, too.
    let to = range.to.as_ref().map_or(0, Vec::len);
    let longest = range.from.len().max(to);
    if longest > KEY_BYTES_MAX + 1 {
        return Err(ClientError::Invalid {
            what: format!("a bound has {longest} bytes; keys have at most {KEY_BYTES_MAX}"),
        });
    }
    // The successor of a longest key: the next key is one without its last bytes.
    if range.from.len() == KEY_BYTES_MAX + 1 {
        match KeyRange::prefix(&range.from[..KEY_BYTES_MAX]).to {
            Some(next) => range.from = next,
            None => return Ok(None),
        }
    }
    Ok((!range.is_empty()).then_some(range))
}

/// Whether this is a value that is written in parts: it is alone in its batch.
fn is_long(writes: &[Write<'_>]) -> bool {
    matches!(writes, [(_, Some(value))] if value.len() > VALUE_BYTES_MAX)
}

/// How many of `writes`, of which there is one, go in one batch.
fn batch_of(writes: &[Write<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |(key, value): &&Write<'_>| {
        bytes += key.len() + value.map_or(0, <[u8]>::len);
        bytes <= BATCH_BYTES.min(BATCH_BYTES_MAX)
    };
    let run = writes.iter().take(BATCH_PAIRS_MAX).take_while(fits).count();
    run.max(1)
}

impl Kv for Client {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        Self::get(self, key)
    }

    fn multi_get(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        Self::multi_get(self, keys)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), ClientError> {
        Self::put(self, key, value)
    }

    fn put_only(&mut self, only: PutOnly, key: &[u8], value: &[u8]) -> Result<bool, ClientError> {
        Self::put_only(self, only, key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, ClientError> {
        Self::delete(self, key)
    }

    fn write_many(&mut self, writes: &[Write<'_>]) -> Result<(), ClientError> {
        Self::write_many(self, writes)
    }

    fn page(&mut self, span: &Span, pairs_max: usize) -> Result<Page, ClientError> {
        Self::page(self, span, pairs_max)
    }
}
