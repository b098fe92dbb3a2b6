//! Clients that write and read values in parts, beside the load: they do what front ends do ([`argosy_engine::long`]),
//! one request at a time, each of whichever server. From a stream of their own.
//!
//! Each key has one writer and one reader at a time. A value says which write it is of, and the rest of it
//! follows from that. So of each key:
//!
//! 1. What is read is whole, and of a write whose head was asked for and not refused.
//! 2. It is not older than a write that had been answered before the read began.
//! 3. While a head is there, so are all of its parts: one that is not there was overwritten, and is found no more.
//!
//! Their keys lie in the first region, in front of all objects, and so do the parts. Nothing of it is kept where
//! servers may lose power, since there acknowledged writes may be lost, nor on small devices.

use std::collections::BTreeMap;

use argosy_base::{Instant, Outcome};
use argosy_engine::long::{Head, LongReader, LongWriter, Torn, Versions, is_reserved};
use argosy_engine::{Expiry, WriteBatch};
use argosy_server::service::{Failure, KeyList, Response};

use crate::coverage::Coverage;
use crate::load::Wrong;
use crate::plan::Plan;
use crate::random::Random;

/// What tokens of these clients have, and those of the load do not.
pub(crate) const TOKEN: u64 = 1 << 40;
/// How many keys there are.
pub(crate) const KEYS: usize = 3;
/// Of 100 parts that are read, after how many a reader lingers: until the value may have been replaced, and swept.
const LINGER_PERCENT: usize = 15;
/// Bytes that say which write a value is of.
const NUMBER_BYTES: usize = 4;

/// Whether this is a key of these clients, or of a part.
#[must_use]
pub(crate) fn is_long(key: &[u8]) -> bool {
    key.first() == Some(&b'b') || is_reserved(key)
}

fn key_of(index: usize) -> Vec<u8> {
    format!("b{index}").into_bytes()
}

/// The value of write `number`, of so many bytes.
fn value_of(number: u32, len: usize) -> Vec<u8> {
    let bytes = (0_u32..).flat_map(|at| (number ^ at.wrapping_mul(0x0101_0101)).to_le_bytes());
    bytes.take(len).collect()
}

/// A write whose head was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    began: u64,
    /// When it was answered as applied.
    ended: Option<u64>,
    /// It was answered as not applied.
    void: bool,
}

/// What is to be asked of a server.
pub(crate) enum Call {
    /// What this key is bound to.
    Get(KeyList),
    /// This write.
    Write(WriteBatch),
}

/// A write under way.
struct Writing {
    number: u32,
    value: Vec<u8>,
    /// `None`: the value is short.
    parts: Option<LongWriter>,
    /// Bytes that have been written.
    at: usize,
    last: bool,
}

/// A read under way.
struct Reading {
    began: u64,
    found: Option<(u128, LongReader, Vec<u8>)>,
    /// The version of which a part was not there.
    gone: Option<u128>,
    /// It asks for nothing until then.
    lingers: Instant,
}

/// Something under way, and the request that it waits for: its token and the process that was asked.
struct Flow<T> {
    what: T,
    waits: Option<(u64, u32)>,
}

impl<T> Flow<T> {
    /// Whether it waits for no answer.
    const fn is_free(&self) -> bool {
        self.waits.is_none()
    }
}

impl Flow<Reading> {
    /// Whether it has something to ask by `now`.
    fn reads(&self, now: Instant) -> bool {
        self.is_free() && self.what.lingers <= now
    }
}

#[derive(Default)]
struct Key {
    asked: BTreeMap<u32, Asked>,
    writer: Option<Flow<Writing>>,
    reader: Option<Flow<Reading>>,
    /// It has to be read before the run ends.
    wanted: bool,
}

/// See the module documentation.
pub(crate) struct Longs {
    random: Random,
    /// Of 100 ticks, in how many something is begun.
    percent: usize,
    part_len: u32,
    versions: Versions,
    keys: [Key; KEYS],
    numbers: u32,
    tokens: u64,
    moments: u64,
    now: Instant,
}

impl Longs {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let mut random = Random::new(seed, 19);
        let percent = random.pick(&[0, 2, 10]);
        let safe = !plan.loses_ends() && plan.devices.small.is_none();
        let part_len = random
            .between(16, 300)
            .min(plan.engine.layout.window_bytes / 4);
        Self {
            percent: if safe { percent } else { 0 },
            part_len: u32::try_from(part_len).expect("parts are short"),
            versions: Versions::new(random.next().into()),
            random,
            keys: Default::default(),
            numbers: 0,
            tokens: TOKEN,
            moments: 0,
            now: Instant::default(),
        }
    }

    /// A server to ask, of so many; `None`: nothing is to be asked of key `index` now.
    pub(crate) fn whom(
        &mut self,
        index: usize,
        starts: bool,
        servers: usize,
        now: Instant,
    ) -> Option<usize> {
        if self.percent == 0 {
            return None;
        }
        self.now = now;
        let begins = starts && self.random.chance(self.percent);
        let writes = begins && self.random.chance(50);
        let key = &self.keys[index];
        let (no_writer, no_reader) = (key.writer.is_none(), key.reader.is_none());
        if writes && no_writer {
            let writing = self.write(index);
            let (what, waits) = (writing, None);
            self.keys[index].writer = Some(Flow { what, waits });
        } else if (begins || key.wanted) && no_reader {
            let what = Reading {
                began: 0,
                found: None,
                gone: None,
                lingers: now,
            };
            let waits = None;
            self.keys[index].reader = Some(Flow { what, waits });
        }
        let key = &self.keys[index];
        let writes = key.writer.as_ref().is_some_and(Flow::is_free);
        let reads = key.reader.as_ref().is_some_and(|flow| flow.reads(now));
        (writes || reads).then(|| self.random.below(servers))
    }

    fn write(&mut self, index: usize) -> Writing {
        let number = self.numbers;
        self.numbers += 1;
        let is_short = self.random.chance(20);
        let most = if is_short {
            40
        } else {
            5 * self.part_len as usize
        };
        let len = self.random.between(2 * NUMBER_BYTES, most.max(40));
        let version = self.versions.draw();
        let parts = LongWriter::new(&key_of(index), len as u64, version);
        let parts = parts.expect("within the limits").in_parts_of(self.part_len);
        Writing {
            number,
            value: value_of(number, len),
            parts: (!is_short).then_some(parts),
            at: 0,
            last: false,
        }
    }

    /// What is to be asked about key `index` next, of the process `session`.
    pub(crate) fn next(&mut self, index: usize, session: u32) -> Vec<(u64, Call)> {
        let mut calls = Vec::new();
        self.moments += 1;
        let key = &mut self.keys[index];
        if let Some(flow) = key.writer.as_mut().filter(|flow| flow.is_free()) {
            let batch = flow.what.next(index);
            if flow.what.last {
                let (began, ended, void) = (self.moments, None, false);
                key.asked
                    .insert(flow.what.number, Asked { began, ended, void });
            }
            flow.waits = Some((self.tokens, session));
            calls.push((self.tokens, Call::Write(batch)));
            self.tokens += 1;
        }
        let now = self.now;
        if let Some(flow) = key.reader.as_mut().filter(|flow| flow.reads(now)) {
            let keys = match &flow.what.found {
                Some((_, reader, _)) => reader.wanted(1),
                None => {
                    flow.what.began = self.moments;
                    vec![key_of(index)]
                }
            };
            flow.waits = Some((self.tokens, session));
            let keys = KeyList::of(keys.iter().map(Vec::as_slice));
            calls.push((self.tokens, Call::Get(keys)));
            self.tokens += 1;
        }
        calls
    }

    /// The process is gone: nothing that it was asked is answered any more.
    pub(crate) fn lost(&mut self, session: u32) {
        for key in &mut self.keys {
            let of_it = |waits: Option<(u64, u32)>| waits.is_some_and(|(_, of)| of == session);
            key.writer.take_if(|flow| of_it(flow.waits));
            key.reader.take_if(|flow| of_it(flow.waits));
        }
    }

    /// Whether anything is under way.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        let busy = |key: &Key| key.writer.is_some() || key.reader.is_some();
        self.keys.iter().any(busy)
    }

    /// Has every key be read once more.
    pub(crate) fn want_all(&mut self) {
        let wanted = self.percent > 0;
        self.keys.iter_mut().for_each(|key| key.wanted = wanted);
    }

    /// Whether a key is still to be read.
    #[must_use]
    pub(crate) fn is_wanting(&self) -> bool {
        self.keys.iter().any(|key| key.wanted)
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn answer(
        &mut self,
        token: u64,
        response: Response,
        coverage: &mut Coverage,
    ) -> Result<(), Wrong> {
        self.moments += 1;
        let now = self.moments;
        let is_of = |waits: Option<(u64, u32)>| waits.is_some_and(|(of, _)| of == token);
        for (index, key) in self.keys.iter_mut().enumerate() {
            let wrong = |what: String| format!("long value of b{index}: {what}");
            if let Some(mut flow) = key.writer.take_if(|flow| is_of(flow.waits)) {
                let goes_on = key.wrote(&flow.what, now, response).map_err(wrong)?;
                coverage.add("values in parts", u64::from(flow.what.is_done(goes_on)));
                flow.waits = None;
                key.writer = Some(flow).filter(|flow| goes_on && !flow.what.last);
                return Ok(());
            }
            if let Some(mut flow) = key.reader.take_if(|flow| is_of(flow.waits)) {
                let again = flow.what.gone;
                let goes_on = key.read(&mut flow.what, response).map_err(wrong)?;
                coverage.add(
                    "values in parts looked up again",
                    u64::from(flow.what.gone != again),
                );
                flow.waits = None;
                if goes_on && flow.what.found.is_some() && self.random.chance(LINGER_PERCENT) {
                    flow.what.lingers = self.now + self.random.micros(10_000, 400_000);
                }
                key.reader = Some(flow).filter(|_| goes_on);
                return Ok(());
            }
        }
        // Whoever asked has been given up with the process that was asked.
        Ok(())
    }
}

impl Writing {
    /// The next write.
    fn next(&mut self, index: usize) -> WriteBatch {
        let mut batch = WriteBatch::new();
        let Some(parts) = &mut self.parts else {
            self.last = true;
            let put = batch.put(key_of(index), &self.value);
            put.expect("within the limits");
            return batch;
        };
        match parts.next_bytes() {
            Some(bytes) => {
                parts.part(&self.value[self.at..self.at + bytes], &mut batch);
                self.at += bytes;
            }
            None => {
                self.last = true;
                parts.head(Expiry::Never, &mut batch);
            }
        }
        batch
    }

    /// Whether a value in parts has become visible.
    const fn is_done(&self, goes_on: bool) -> bool {
        self.parts.is_some() && self.last && goes_on
    }
}

impl Key {
    /// Takes the answer to a write. Returns whether it was applied.
    fn wrote(&mut self, what: &Writing, now: u64, response: Response) -> Result<bool, Wrong> {
        let outcome = match response {
            Response::Written { applied: true, .. } => Outcome::Applied,
            Response::Failed(
                Failure::Unavailable { outcome, .. }
                | Failure::Busy { outcome, .. }
                | Failure::Storage { outcome, .. },
            ) => outcome,
            odd => return Err(format!("a write was answered by {odd:?}")),
        };
        if let Some(asked) = self.asked.get_mut(&what.number) {
            asked.void = outcome == Outcome::NotApplied;
            asked.ended = (outcome == Outcome::Applied).then_some(now);
        }
        Ok(outcome == Outcome::Applied)
    }

    /// Takes the answer to a read. Returns whether there is more to read.
    fn read(&mut self, what: &mut Reading, response: Response) -> Result<bool, Wrong> {
        let value = match response {
            Response::Values(values) => values.into_iter().next().flatten(),
            Response::Failed(Failure::Invalid(why)) => return Err(why),
            Response::Failed(_) => return Ok(false),
            odd => return Err(format!("a read was answered by {odd:?}")),
        };
        let Some((version, reader, bytes)) = &mut what.found else {
            let Some(head) = value.as_deref().and_then(Head::parse) else {
                return self.saw(what.began, value.as_deref()).map(|()| false);
            };
            if what.gone == Some(head.version) {
                return Err("its head is still there, and one of its parts is not".to_owned());
            }
            what.found = Some((head.version, LongReader::new(head), Vec::new()));
            return Ok(true);
        };
        match reader.take(value.as_deref()) {
            Ok(()) => bytes.extend_from_slice(&value.unwrap_or_default()),
            Err(Torn::Missing) => {
                what.gone = Some(*version);
                what.found = None;
                return Ok(true);
            }
            Err(torn) => return Err(torn.to_string()),
        }
        if !reader.is_done() {
            return Ok(true);
        }
        let bytes = std::mem::take(bytes);
        self.saw(what.began, Some(&bytes)).map(|()| false)
    }

    /// A read that began then has seen this.
    fn saw(&mut self, began: u64, value: Option<&[u8]>) -> Result<(), Wrong> {
        self.wanted = false;
        let before = |asked: &&Asked| asked.ended.is_some_and(|ended| ended < began);
        let Some(value) = value else {
            return match self.asked.values().find(before) {
                Some(_) => Err("it was written, and is not there".to_owned()),
                None => Ok(()),
            };
        };
        let number = value
            .first_chunk()
            .map(|number| u32::from_le_bytes(*number));
        let number = number.ok_or("it is too short")?;
        if value != value_of(number, value.len()) {
            return Err(format!("{} bytes are of no write", value.len()));
        }
        let seen = self.asked.get(&number).filter(|seen| !seen.void);
        let seen = seen.ok_or_else(|| format!("write {number} was not applied"))?;
        let later = |other: &&Asked| seen.ended.is_some_and(|ended| ended < other.began);
        match self
            .asked
            .values()
            .filter(before)
            .any(|other| later(&other))
        {
            true => Err(format!("write {number} had been overwritten before")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(asked: &[(u64, Option<u64>, bool)]) -> Key {
        let asked = asked.iter().zip(0..);
        let asked =
            asked.map(|(&(began, ended, void), number)| (number, Asked { began, ended, void }));
        Key {
            asked: asked.collect(),
            ..Key::default()
        }
    }

    #[test]
    fn what_one_key_can_show_is_accepted_and_nothing_else() {
        let value = |number| Some(value_of(number, 50));
        // The second is of unknown outcome, the third was refused.
        let mut key = key(&[(1, Some(2), false), (3, None, false), (5, None, true)]);
        let mut saw = |began, value: Option<Vec<u8>>| key.saw(began, value.as_deref());
        assert_eq!(saw(2, None), Ok(()), "they overlap");
        assert!(saw(3, None).unwrap_err().contains("is not there"));
        assert_eq!(saw(3, value(0)), Ok(()));
        assert_eq!(saw(9, value(1)), Ok(()));
        assert_eq!(saw(9, value(0)), Ok(()), "it may never be written");
        assert!(saw(9, value(2)).unwrap_err().contains("not applied"));
        assert!(saw(9, value(7)).unwrap_err().contains("not applied"));
        let mut torn = value_of(0, 50);
        torn[20] ^= 1;
        assert!(saw(9, Some(torn)).unwrap_err().contains("no write"));
        let mut key = self::key(&[(1, Some(2), false), (3, Some(4), false)]);
        let stale = key.saw(5, value(0).as_deref());
        assert!(stale.unwrap_err().contains("overwritten"));
        assert_eq!(key.saw(4, value(0).as_deref()), Ok(()));
    }
}
