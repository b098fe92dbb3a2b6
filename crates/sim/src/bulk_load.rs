//! Clients that have sorted pairs bulk-loaded, beside the load: parts, ranges that are removed, and pages of them,
//! one write and one page at a time in each *slot*. From a stream of their own.
//!
//! A slot has a range of keys for itself. What is there is nothing, or what one part brought: a part is all or
//! nothing, is refused where something is there, and is never refused where nothing is. So of each slot:
//!
//! 1. A page shows one part, whole, or nothing; and of what may have been there between asking and answering.
//! 2. A part that is answered as done is there until the range is removed, across crashes.
//! 3. Once the outcome of a write is unknown, its slot goes on with other keys.
//!
//! Their keys lie in the first region, in front of all others. Nothing of it is done where servers may lose
//! power and acknowledged writes with it, nor on small devices.

use std::collections::BTreeSet;

use argosy_base::range::successor;
use argosy_base::{Direction, KeyRange, Outcome};
use argosy_engine::WriteBatch;
use argosy_server::service::{Failure, Paging, Response};

use crate::coverage::Coverage;
use crate::load::{Pairs, Wrong};
use crate::plan::Plan;
use crate::random::Random;

/// What tokens of these clients have, and those of other clients do not.
pub(crate) const TOKEN: u64 = 1 << 41;
/// How many slots there are.
pub(crate) const SLOTS: usize = 3;

/// What a slot's range may have: nothing, or the part of this number.
type Content = Option<u32>;

/// Whether this is a key of these clients.
#[must_use]
pub(crate) fn is_bulk_loaded(key: &[u8]) -> bool {
    key.first() == Some(&b'a')
}

/// What is to be asked of a server.
pub(crate) enum Call {
    /// Have these pairs bulk-loaded.
    BulkLoad(WriteBatch),
    /// Write these.
    Write(WriteBatch),
    /// A page of this range.
    Page(KeyRange, Paging),
}

/// A write that is to be asked, or was.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// This part.
    Load(u32),
    /// Remove the range.
    Erase,
    /// Put a key and delete it again, at once.
    Touch,
}

/// Something under way, and what it waits for: a token, and the process that was asked.
struct Flow<T> {
    what: T,
    waits: Option<(u64, u32)>,
}

struct Slot {
    /// The range begins with this: the slot's number and how often it has changed.
    generation: u32,
    /// What is there.
    now: Content,
    /// What else may be there, once the write under way is carried out.
    next: Option<Content>,
    writer: Option<Flow<Step>>,
    reader: Option<Flow<()>>,
    /// What may have been there since the page was asked for.
    seen: BTreeSet<Content>,
    /// It has to be read before the run ends.
    wanted: bool,
    /// Bytes of a part, about, at most.
    part_bytes: usize,
}

/// See the module documentation.
pub(crate) struct BulkLoads {
    random: Random,
    /// Of 1000 ticks, in how many something is begun.
    permille: usize,
    slots: [Slot; SLOTS],
    parts: u32,
    tokens: u64,
}

impl BulkLoads {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let mut random = Random::new(seed, 16);
        let permille = random.pick(&[0, 10, 60]);
        // What goes through the log has to fit its windows.
        let part_bytes = match plan.groups.builds || plan.toy.is_some() {
            true => plan.engine.layout.window_bytes / 2,
            false => 36 << 10,
        };
        let safe = !plan.loses_ends() && plan.devices.small.is_none();
        Self {
            permille: if safe { permille } else { 0 },
            random,
            slots: std::array::from_fn(|_| Slot {
                generation: 0,
                now: None,
                next: None,
                writer: None,
                reader: None,
                seen: BTreeSet::new(),
                wanted: false,
                part_bytes,
            }),
            parts: 0,
            tokens: TOKEN,
        }
    }

    /// A server to ask about slot `index`, of so many; `None`: nothing is to be asked now.
    pub(crate) fn whom(&mut self, index: usize, starts: bool, servers: usize) -> Option<usize> {
        if self.permille == 0 {
            return None;
        }
        let begins = starts && self.random.below(1000) < self.permille;
        let slot = &mut self.slots[index];
        if begins && slot.writer.is_none() && self.random.chance(60) {
            let what = match self.random.below(10) {
                0..6 => {
                    self.parts += 1;
                    Step::Load(self.parts)
                }
                6..9 => Step::Erase,
                _ => Step::Touch,
            };
            // It would remove what is there.
            let touches = matches!(what, Step::Touch) && slot.now.is_some();
            let waits = None;
            slot.writer = (!touches).then_some(Flow { what, waits });
        } else if (begins || slot.wanted) && slot.reader.is_none() {
            let (what, waits) = ((), None);
            slot.reader = Some(Flow { what, waits });
        }
        let writes = slot
            .writer
            .as_ref()
            .is_some_and(|flow| flow.waits.is_none());
        let reads = slot
            .reader
            .as_ref()
            .is_some_and(|flow| flow.waits.is_none());
        (writes || reads).then(|| self.random.below(servers))
    }

    /// What is to be asked about slot `index` next, of the process `session`.
    pub(crate) fn next(&mut self, index: usize, session: u32) -> Vec<(u64, Call)> {
        let mut calls = Vec::new();
        let slot = &mut self.slots[index];
        let range = slot.range(index);
        if let Some(flow) = slot.writer.as_mut().filter(|flow| flow.waits.is_none()) {
            flow.waits = Some((self.tokens, session));
            let what = flow.what;
            slot.next = match what {
                Step::Load(part) => slot.now.is_none().then_some(Some(part)),
                Step::Erase => Some(None),
                Step::Touch => None,
            };
            slot.seen.extend(slot.next);
            calls.push((self.tokens, slot.call(what, &range)));
            self.tokens += 1;
        }
        if let Some(flow) = slot.reader.as_mut().filter(|flow| flow.waits.is_none()) {
            flow.waits = Some((self.tokens, session));
            slot.seen = BTreeSet::from([slot.now]);
            slot.seen.extend(slot.next);
            let paging = Paging {
                direction: self.random.pick(&[Direction::Up, Direction::Down]),
                pairs_max: 1000,
                bytes_max: 1 << 20,
                keys_only: false,
                at: None,
            };
            calls.push((self.tokens, Call::Page(range, paging)));
            self.tokens += 1;
        }
        calls
    }

    /// The process is gone: nothing that it was asked is answered any more.
    pub(crate) fn lost(&mut self, session: u32) {
        for slot in &mut self.slots {
            let of_it = |waits: Option<(u64, u32)>| waits.is_some_and(|(_, of)| of == session);
            slot.reader.take_if(|flow| of_it(flow.waits));
            if slot.writer.take_if(|flow| of_it(flow.waits)).is_some() {
                slot.begin_anew();
            }
        }
    }

    /// Whether anything is under way.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        let busy = |slot: &Slot| slot.writer.is_some() || slot.reader.is_some();
        self.slots.iter().any(busy)
    }

    /// Has every slot be read once more.
    pub(crate) fn want_all(&mut self) {
        let wanted = self.permille > 0;
        self.slots.iter_mut().for_each(|slot| slot.wanted = wanted);
    }

    /// Whether a slot is still to be read.
    #[must_use]
    pub(crate) fn is_wanting(&self) -> bool {
        self.slots.iter().any(|slot| slot.wanted)
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
        let is_of = |waits: Option<(u64, u32)>| waits.is_some_and(|(of, _)| of == token);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let wrong = |what: String| format!("bulk-loaded pairs of a{index}: {what}");
            if let Some(flow) = slot.writer.take_if(|flow| is_of(flow.waits)) {
                let told = slot.wrote(flow.what, response).map_err(wrong)?;
                let loads = matches!(flow.what, Step::Load(_));
                match told {
                    Told::Applied if loads => coverage.add("parts bulk-loaded", 1),
                    Told::Bound => coverage.add("bulk loads into what is bound", 1),
                    Told::Unknown if loads => coverage.add("bulk loads of unknown outcome", 1),
                    _ => {}
                }
                return Ok(());
            }
            if slot.reader.take_if(|flow| is_of(flow.waits)).is_some() {
                return slot.read(index, response).map_err(wrong);
            }
        }
        // Whoever asked has been given up with the process that was asked.
        Ok(())
    }
}

/// What became of a write.
enum Told {
    Applied,
    /// Something is there.
    Bound,
    NotApplied,
    Unknown,
}

impl Slot {
    fn range(&self, index: usize) -> KeyRange {
        KeyRange::prefix(format!("a{index}/{:06}/", self.generation).as_bytes())
    }

    /// From now on other keys are used.
    fn begin_anew(&mut self) {
        self.generation += 1;
        self.now = None;
        self.next = None;
        // Whatever a page shows that was asked for before is of no interest.
        self.reader = None;
    }

    fn call(&self, what: Step, range: &KeyRange) -> Call {
        let mut batch = WriteBatch::new();
        let put = match what {
            Step::Load(part) => {
                let mut pairs = pairs_of(range, part, self.part_bytes).into_iter();
                pairs.try_for_each(|(key, value)| batch.put(&key, &value))
            }
            Step::Erase => batch.delete_range(range),
            Step::Touch => {
                let key = successor(&range.from);
                batch.put(&key, b"").and_then(|()| batch.delete(&key))
            }
        };
        put.expect("within the limits");
        match what {
            Step::Load(_) => Call::BulkLoad(batch),
            Step::Erase | Step::Touch => Call::Write(batch),
        }
    }

    /// Takes the answer to a write.
    fn wrote(&mut self, what: Step, response: Response) -> Result<Told, Wrong> {
        let next = self.next.take();
        let outcome = match response {
            Response::Written { applied: true, .. } => Outcome::Applied,
            Response::Failed(Failure::Invalid(why)) => {
                return match (what, self.now) {
                    (Step::Load(_), Some(_)) => Ok(Told::Bound),
                    _ => Err(format!("a write was refused: {why}")),
                };
            }
            Response::Failed(
                Failure::Unavailable { outcome, .. }
                | Failure::Busy { outcome, .. }
                | Failure::Storage { outcome, .. },
            ) => outcome,
            odd => return Err(format!("a write was answered by {odd:?}")),
        };
        match (outcome, what) {
            (Outcome::Applied, Step::Load(part)) if self.now.is_some() => {
                Err(format!("part {part} was bulk-loaded over {:?}", self.now))
            }
            (Outcome::Applied, _) => {
                self.now = next.unwrap_or(self.now);
                Ok(Told::Applied)
            }
            (Outcome::NotApplied, _) => Ok(Told::NotApplied),
            (Outcome::Unknown, _) => {
                self.begin_anew();
                Ok(Told::Unknown)
            }
        }
    }

    /// Takes a page.
    fn read(&mut self, index: usize, response: Response) -> Result<(), Wrong> {
        let mut pairs = match response {
            // It was cut off: two pages are two moments.
            Response::Page { next: Some(_), .. } => return Ok(()),
            Response::Page { pairs, .. } => pairs,
            Response::Failed(Failure::Invalid(why)) => return Err(why),
            Response::Failed(_) => return Ok(()),
            odd => return Err(format!("a page was answered by {odd:?}")),
        };
        pairs.sort_unstable();
        let range = self.range(index);
        let is_it = |content: &Content| match content {
            None => pairs.is_empty(),
            Some(part) => pairs == pairs_of(&range, *part, self.part_bytes),
        };
        self.wanted = false;
        match self.seen.iter().any(is_it) {
            true => Ok(()),
            false => Err(format!(
                "{} pairs are there, where one of {:?} has to be",
                pairs.len(),
                self.seen
            )),
        }
    }
}

/// What part `number` brings into `range`, of about so many bytes at most.
fn pairs_of(range: &KeyRange, number: u32, bytes_max: usize) -> Pairs {
    let mut random = Random::new(number.into(), 16);
    let count = random.between(1, 60);
    let len = random.between(4, 600).min(bytes_max / count);
    let pair = |at: usize| {
        let key = [range.from.as_slice(), format!("{at:03}").as_bytes()].concat();
        let bytes = number.to_le_bytes().into_iter().cycle();
        (key, bytes.take(len).collect())
    };
    (0..count).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(now: Content) -> Slot {
        Slot {
            generation: 0,
            now,
            next: None,
            writer: None,
            reader: None,
            seen: BTreeSet::from([now]),
            wanted: false,
            part_bytes: 10_000,
        }
    }

    fn page(pairs: Pairs) -> Response {
        Response::Page { pairs, next: None }
    }

    #[test]
    fn a_part_is_all_there_or_not() {
        let whole = pairs_of(&slot(None).range(0), 7, 10_000);
        assert!(whole.len() > 1 && whole.is_sorted());
        assert!(slot(Some(7)).read(0, page(whole.clone())).is_ok());
        assert!(slot(Some(7)).read(0, page(whole[1..].to_vec())).is_err());
        assert!(slot(Some(7)).read(0, page(Vec::new())).is_err());
        assert!(slot(None).read(0, page(whole)).is_err());
        assert!(slot(None).read(0, page(Vec::new())).is_ok());
    }

    #[test]
    fn a_part_is_refused_where_something_is_and_only_there() {
        let refused = || Response::Failed(Failure::Invalid("bound".to_owned()));
        assert!(slot(None).wrote(Step::Load(1), refused()).is_err());
        assert!(slot(Some(2)).wrote(Step::Load(1), refused()).is_ok());
        let done = Response::Written {
            applied: true,
            existed: Vec::new(),
            previous: Vec::new(),
            changed: None,
        };
        assert!(slot(Some(2)).wrote(Step::Load(1), done).is_err());
    }
}
