//! Regions of very many segments: the seeds of [`Profile::ManySegments`](crate::profile::Profile).
//!
//! Segments are as small as they can be, and a client of its own brings so many pairs into the first region that a
//! member of it has ten thousand segments of levels and logs, and a few more:
//!
//! - *parts* of sorted pairs, which are bulk-loaded: they become level segments on the lowest level. Their keys lie in
//!   front of all others, so that no run of another level overlaps them;
//! - *values* that fill a segment of the large log, one each, which go the way of every write.
//!
//! Most of them are there before anything goes wrong; the others come while it does. What was answered as applied is
//! read now and then, and some of it at the end. The run ends with a count: it fails where no member has as many
//! segments as the seed promises.
//!
//! Left out is what reads or writes all that there is, again and again: backups that build levels of their own,
//! levels that are compacted as a whole, compactions that are asked for, and reads that cost time. There are two kinds
//! of world: copies on all servers, and one copy that is killed.

use std::time::Duration;

use argosy_base::{Direction, KeyRange};
use argosy_engine::WriteBatch;
use argosy_server::service::{Failure, Paging, Response};

use crate::coverage::Coverage;
use crate::engine::Compaction;
use crate::load::{Pairs, Wrong};
use crate::plan::{Plan, WorldKind};
use crate::random::Random;

/// What tokens of this client have, and those of other clients do not.
pub(crate) const TOKEN: u64 = 1 << 45;
/// Requests of this client under way, at most, in each of which it either brings or reads something.
pub(crate) const SLOTS: usize = 4;
/// Segments of a member, at least, when the run ends.
pub(crate) const SEGMENTS_MIN: usize = 10_000;
/// Segments from which on no more are brought: merges may take some away.
pub(crate) const SEGMENTS_ENOUGH: usize = SEGMENTS_MIN + SEGMENTS_MIN / 20;
/// Segments before anything goes wrong.
pub(crate) const SEGMENTS_EARLY: usize = 8_500;
/// Segments of a device.
pub(crate) const DEVICE_SEGMENTS: u64 = 1 << 15;
/// Within so long, in simulated time, that many are there.
pub(crate) const BROUGHT_WITHIN: Duration = Duration::from_secs(600);
/// How long every region may take to be whole again: a copy may have to be fetched, segment by segment.
pub(crate) const WHOLE_WITHIN: Duration = Duration::from_secs(120);
/// Things that are read at the end.
pub(crate) const LOOKS: usize = 40;

/// How long a request may wait.
const DEADLINE: Duration = Duration::from_millis(600);
/// Of 1000 requests that bring something while all is well, in how many something is read instead.
const LOOKS_PERMILLE: usize = 50;
/// How often nothing is asked after something was not taken.
const PAUSE: usize = 200;
/// Pairs of a part that are read.
const PAIRS_READ: usize = 24;
/// Keys of parts begin with this, those of values with the next letter.
const PART: u8 = b'A';
const VALUE: u8 = b'B';

/// Whether this is a key of this client.
#[must_use]
pub(crate) fn is_of_many(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(PART | VALUE)))
}

/// Where the keys of all others begin.
#[must_use]
pub(crate) fn behind() -> Vec<u8> {
    vec![VALUE + 1]
}

/// What a seed says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Many {
    /// Bytes of a part, at most.
    pub part_bytes: usize,
    /// Bytes of a pair of a part, at most.
    pub pair_bytes: usize,
    /// Of 100 requests, how many bring a value.
    pub values_percent: usize,
}

/// The plan, with many segments.
pub(crate) fn with_many_segments(mut plan: Plan, random: &mut Random) -> Plan {
    const KIB: usize = 1 << 10;
    // The smallest that is allowed; such a segment has one window.
    let segment = 20 * KIB;
    plan.engine = plan.engine.with(|of| {
        of.layout.segment_bytes = segment;
        of.layout.window_bytes = segment;
        of.layout.node_bytes = random.pick(&[512, 1024, 2048]);
        of.levels.compaction = Compaction::Partial;
        of.levels.part_bytes = (segment * random.between(1, 8)) as u64;
        of.memtables.log_bytes = (random.between(128, 512) * KIB) as u64;
        of.levels.step_bytes = random.between(32, 128) * KIB;
        of.cache_bytes = random.pick(&[256 * KIB, 4096 * KIB]);
        of.levels.number_block = random.pick(&[64, 256, 1024]);
        of.space.amplification_max = 150;
        of.check_frees = false;
    });
    plan.engine.layout.window_slots = plan.engine.layout.window_slots.max(3);
    plan.kind = match plan.kind {
        WorldKind::Killed => WorldKind::Killed,
        WorldKind::Replicated | WorldKind::Powerless => WorldKind::Replicated,
    };
    plan.groups.builds = false;
    plan.devices.window_files = false;
    if plan.chores.scrub.period > Duration::ZERO {
        plan.chores.scrub.period = plan.chores.scrub.period.max(Duration::from_secs(10));
    }
    plan.devices.many = Some(Many {
        part_bytes: random.pick(&[128, 512, 1000]) * KIB,
        pair_bytes: random.pick(&[300, 1500, 4000]),
        values_percent: random.pick(&[50, 70, 85]),
    });
    plan
}

/// The plan, with reads that take no time.
pub(crate) const fn without_costly_reads(mut plan: Plan) -> Plan {
    plan.devices.read_cost = Duration::ZERO;
    plan.load.deadline = DEADLINE;
    plan
}

/// What is brought at once: its number, which its keys have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Part(u32),
    Value(u32),
}

/// What is to be asked of a server.
pub(crate) enum Call {
    /// Have these pairs bulk-loaded.
    BulkLoad(WriteBatch),
    /// Write this.
    Write(WriteBatch),
    /// Read a page of this range.
    Page(KeyRange, Paging),
}

/// A request under way: about what, whether it reads it, its token and the process that was asked.
struct Flow {
    what: What,
    reads: bool,
    token: u64,
    session: u32,
}

/// See the module documentation.
pub(crate) struct Client {
    random: Random,
    settings: Option<Many>,
    segment_bytes: usize,
    slots: [Option<Flow>; SLOTS],
    next: u32,
    tokens: u64,
    /// Times that nothing is asked: something was not taken.
    pause: usize,
    /// What was answered as applied.
    kept: Vec<What>,
    /// Nothing more is brought, for now or for good.
    enough: bool,
    over: bool,
    /// Things that are still to be read before the run ends.
    pub(crate) wanted: usize,
}

impl Client {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        Self {
            random: Random::new(seed, 61),
            settings: plan.devices.many,
            segment_bytes: plan.engine.layout.segment_bytes,
            slots: std::array::from_fn(|_| None),
            next: 0,
            tokens: TOKEN,
            pause: 0,
            kept: Vec::new(),
            enough: false,
            over: false,
            wanted: 0,
        }
    }

    /// A member has so many segments.
    pub(crate) const fn counted(&mut self, segments: usize) {
        self.enough = self.over || segments >= SEGMENTS_ENOUGH;
    }

    /// Nothing more is to be brought.
    pub(crate) const fn end(&mut self) {
        (self.enough, self.over) = (true, true);
    }

    /// A server to ask in this slot, of so many, `home` for most; `None`: nothing is to be asked now.
    pub(crate) fn whom(
        &mut self,
        slot: usize,
        starts: bool,
        home: usize,
        servers: usize,
    ) -> Option<usize> {
        self.settings?;
        let brings = starts && !self.enough;
        if self.slots[slot].is_some() || !brings && self.wanted == 0 {
            return None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let elsewhere = self.random.chance(10);
        Some(if elsewhere {
            self.random.below(servers)
        } else {
            home
        })
    }

    /// What is to be asked of the process `session` in this slot.
    pub(crate) fn next(&mut self, slot: usize, session: u32) -> Option<(u64, Call)> {
        let Many { values_percent, .. } = self.settings?;
        let reads = self.enough || self.random.below(1000) < LOOKS_PERMILLE;
        let (what, call) = if reads {
            let what = *self.kept.get(self.random.below(self.kept.len().max(1)))?;
            (what, self.look(what))
        } else {
            self.next += 1;
            let what = match self.random.chance(values_percent) {
                true => What::Value(self.next),
                false => What::Part(self.next),
            };
            (what, self.bring(what))
        };
        let token = self.tokens;
        self.tokens += 1;
        self.slots[slot] = Some(Flow {
            what,
            reads,
            token,
            session,
        });
        Some((token, call))
    }

    fn bring(&self, what: What) -> Call {
        let mut batch = WriteBatch::new();
        let mut pairs = self.pairs_of(what).into_iter();
        let put = pairs.try_for_each(|(key, value)| batch.put(&key, &value));
        put.expect("within the limits");
        match what {
            What::Part(_) => Call::BulkLoad(batch),
            What::Value(_) => Call::Write(batch),
        }
    }

    fn look(&self, what: What) -> Call {
        let paging = Paging {
            direction: Direction::Up,
            pairs_max: PAIRS_READ,
            bytes_max: 256 << 10,
            keys_only: false,
            at: None,
        };
        Call::Page(KeyRange::prefix(&stem(what)), paging)
    }

    /// The pairs of what is brought: they follow from its number.
    fn pairs_of(&self, what: What) -> Pairs {
        let settings = self.settings.expect("it is asked of seeds that have it");
        let stem = stem(what);
        let bytes = |number: u32, len: usize| {
            let mut bytes = number.to_le_bytes().repeat(len.div_ceil(4));
            bytes.truncate(len);
            bytes
        };
        match what {
            // All but fills a segment.
            What::Value(number) => vec![(stem, bytes(number, self.segment_bytes - 1024))],
            What::Part(number) => {
                let mut random = Random::new(number.into(), 61);
                let (mut pairs, mut left) = (Vec::new(), settings.part_bytes);
                for at in 0.. {
                    let len = random.between(settings.pair_bytes / 2, settings.pair_bytes);
                    let key = [stem.as_slice(), format!("{at:05}").as_bytes()].concat();
                    let cost = key.len() + len;
                    if cost > left {
                        break;
                    }
                    left -= cost;
                    pairs.push((key, bytes(number, len)));
                }
                pairs
            }
        }
    }

    /// The process is gone: nothing that it was asked is answered any more.
    pub(crate) fn lost(&mut self, session: u32) {
        for slot in &mut self.slots {
            slot.take_if(|flow| flow.session == session);
        }
    }

    /// Whether anything is under way.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        self.slots.iter().any(Option::is_some)
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
        let of_it =
            |slot: &&mut Option<Flow>| slot.as_ref().is_some_and(|flow| flow.token == token);
        // Whoever asked may have been given up with the process that was asked.
        let Some(flow) = self.slots.iter_mut().find(of_it).and_then(Option::take) else {
            return Ok(());
        };
        let what = flow.what;
        match response {
            Response::Written { applied: true, .. } if !flow.reads => {
                self.kept.push(what);
                Ok(())
            }
            Response::Page { pairs, .. } if flow.reads => {
                let mut expected = self.pairs_of(what);
                expected.truncate(PAIRS_READ);
                if pairs != expected {
                    return Err(format!(
                        "{what:?} was applied, and {} pairs of it are there",
                        pairs.len()
                    ));
                }
                coverage.add(READ, 1);
                self.wanted = self.wanted.saturating_sub(1);
                Ok(())
            }
            Response::Failed(Failure::Invalid(why)) => Err(format!("{what:?} was refused: {why}")),
            Response::Failed(_) => {
                self.pause = PAUSE;
                Ok(())
            }
            odd => Err(format!("{what:?} was answered by {odd:?}")),
        }
    }
}

/// Things that were read again.
pub(crate) const READ: &str = "parts and values of many read";
/// What the member that has most of them has at the end.
pub(crate) const LEVEL_SEGMENTS: &str = "level segments at the end";
pub(crate) const LOG_SEGMENTS: &str = "log segments at the end";

/// What all keys of it begin with.
fn stem(what: What) -> Vec<u8> {
    match what {
        What::Part(number) => format!("{}/{number:06}/", char::from(PART)),
        What::Value(number) => format!("{}/{number:06}", char::from(VALUE)),
    }
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::Mode;
    use crate::engine::Settings;
    use crate::profile::Profile;

    fn client() -> Client {
        Client::new(&Plan::of(1, Profile::ManySegments), 1)
    }

    #[test]
    fn what_is_read_is_what_was_brought() {
        let mut client = client();
        let what = What::Part(7);
        let mut coverage = Coverage::of(Mode::of(WorldKind::Replicated, false, &Settings::small()));
        let mut pairs = client.pairs_of(what);
        assert!(pairs.len() > PAIRS_READ && pairs.is_sorted());
        assert!(
            pairs
                .iter()
                .all(|(key, _)| is_of_many(key) && *key < behind())
        );
        pairs.truncate(PAIRS_READ);
        let mut read = |pairs: Pairs| {
            let (token, session) = (TOKEN, 1);
            let reads = true;
            client.slots[0] = Some(Flow {
                what,
                reads,
                token,
                session,
            });
            let page = Response::Page { pairs, next: None };
            client.answer(token, page, &mut coverage)
        };
        assert!(read(pairs[1..].to_vec()).is_err());
        assert!(read(Vec::new()).is_err());
        assert_eq!(read(pairs), Ok(()));
    }
}
