//! Regions that have moved: who still asks the server that has served one before, and what must hold then.
//!
//! Where a region has another primary, the one before may not know: it is stopped, or reaches nobody who tells. While
//! something is wrong in a cluster whose groups change:
//!
//! 1. *Clients that stay* write an object through the new primary. Once that is answered they ask the one before for
//!    the object, at once: they read it, or write it on a condition that holds since. They ask servers, too, that
//!    would pass it on to the one before. Where that one is stopped they ask as soon as it goes on, before any of its
//!    steps. Whether an answer is possible is judged with all others, by the histories.
//! 2. After each tick no two servers would answer for one region (invariant I5). That is told at the end, so that it
//!    is seen whether clients notice it.
//! 3. A server that was promoted is *struck* now and then: it loses power, or dies in the middle of what it does, and
//!    is back before others miss it.

use std::collections::BTreeMap;

use argosy_base::{Direction, Instant, KeyRange, ServerId};
use argosy_server::service::Paging;

use crate::asks::{Ask, PAGE_BYTES_MAX, Target};
use crate::check::{Bound, When};
use crate::cluster::Cluster;
use crate::load::{Fate, Wrong};
use crate::objects::{ObjectKey, VALUE_BYTES_MIN};
use crate::plan::{Event, Plan};
use crate::random::Random;
use crate::run::Run;

/// Requests of clients that stay, at most, in an episode.
const ASKS_MAX: usize = 120;
/// Of 100 ticks, in how many a client writes that will ask a former primary.
const WRITE_PERCENT: usize = 6;
/// Bytes of what is written, at most.
const BYTES_MAX: usize = 200;

/// What was asked of servers that had been primaries of a region.
pub(crate) const ASKED: &str = "requests of former primaries";
/// The same of servers that pass them on.
pub(crate) const ASKED_BY_OTHERS: &str = "requests passed on to former primaries";
/// Servers that were promoted and struck at once.
pub(crate) const STRUCK: &str = "promoted servers that were struck";

/// What a client that stays has written.
#[derive(Clone, Copy)]
struct Wrote {
    object: usize,
    op: u32,
    to: Bound,
}

/// A region that has moved.
struct Former {
    /// Who served it before.
    server: usize,
    wrote: Option<Wrote>,
}

/// See the module documentation.
pub(crate) struct Moved {
    random: Random,
    /// Groups change.
    changes: bool,
    strike_percent: usize,
    /// Something is wrong at present.
    is_troubled: bool,
    asks_left: usize,
    /// The primaries of all regions when that was last looked at.
    primaries: Vec<ServerId>,
    /// Regions that have moved, by index.
    regions: BTreeMap<usize, Former>,
    /// Servers that have just been promoted.
    promoted: Vec<usize>,
    /// Servers that are to be started, and when.
    struck: Vec<(Instant, usize)>,
    /// That two servers would have answered.
    wrong: Option<Wrong>,
}

impl Moved {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let changes = plan.groups.changes.as_ref();
        Self {
            random: Random::new(seed, 81),
            changes: changes.is_some(),
            strike_percent: changes.map_or(0, |of| of.strike_percent),
            is_troubled: false,
            asks_left: 0,
            primaries: Vec::new(),
            regions: BTreeMap::new(),
            promoted: Vec::new(),
            struck: Vec::new(),
            wrong: None,
        }
    }

    /// Something goes wrong from now on. Returns how many milliseconds lie between two requests of the load: where
    /// groups change, it may take long until anything moves.
    pub(crate) fn begin(&mut self) -> usize {
        self.is_troubled = true;
        self.asks_left = ASKS_MAX;
        match self.changes {
            true => self.random.pick(&[1, 4, 15]),
            false => 1,
        }
    }

    /// Everything is being mended.
    pub(crate) fn rest(&mut self) {
        self.is_troubled = false;
        self.regions.clear();
        self.promoted.clear();
        self.struck.clear();
    }

    /// That two servers would have answered for one region, if they would.
    pub(crate) const fn take_wrong(&mut self) -> Option<Wrong> {
        self.wrong.take()
    }

    /// Takes note of who serves what by the map.
    fn note(&mut self, cluster: &Cluster) {
        let primaries = cluster.map.regions().iter().map(|region| region.primary);
        let before = std::mem::replace(&mut self.primaries, primaries.collect());
        if !self.is_troubled {
            return;
        }
        let both = before.iter().zip(&self.primaries).enumerate();
        for (region, (before, after)) in both.filter(|(_, (before, after))| before != after) {
            self.promoted.push(after.0 as usize);
            let former = Former {
                server: before.0 as usize,
                wrote: None,
            };
            self.regions.insert(region, former);
        }
    }
}

/// Those who ask. See the module documentation.
pub(crate) struct AskingFormer<'r> {
    run: &'r mut Run,
}

impl<'r> AskingFormer<'r> {
    pub(crate) const fn of(run: &'r mut Run) -> Self {
        Self { run }
    }

    /// A server is stopped, or goes on.
    pub(crate) fn stop(&mut self, event: Event) -> Result<(), Wrong> {
        match event {
            Event::Stop(server) => {
                self.run.cluster.set_stopped(server, true);
                self.run.say(format_args!("server {server} does nothing"));
            }
            Event::Halt(server, looks) => {
                self.run.cluster.halt_after(server, looks);
                self.run.say(format_args!(
                    "server {server} does nothing after {looks} looks at its clock"
                ));
            }
            Event::Resume(server) => {
                self.run.cluster.set_stopped(server, false);
                self.run.say(format_args!("server {server} goes on"));
                self.run.bury(server)?;
                // Before any step.
                self.ask()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks who would answer, and who has been promoted.
    pub(crate) fn look(&mut self) {
        if !self.run.clients.moved.changes {
            return;
        }
        let cluster = &self.run.cluster;
        for region in cluster.map.regions() {
            let shows = |server: &usize| {
                let up = cluster.between_steps(*server);
                up.is_some_and(|up| up.node.inspect().shows(region.id))
            };
            let showing: Vec<usize> = cluster.indices().filter(shows).collect();
            let moved = &mut self.run.clients.moved;
            if showing.len() > 1 && moved.wrong.is_none() {
                let (region, now) = (region.id, cluster.now());
                moved.wrong = Some(format!(
                    "servers {showing:?} would both answer for {region} at {now:?}"
                ));
            }
        }
        self.run.clients.moved.note(&self.run.cluster);
    }

    /// Strikes a server that has just been promoted, perhaps.
    fn strike(&mut self, server: usize) -> Result<(), Wrong> {
        let moved = &mut self.run.clients.moved;
        if !moved.random.chance(moved.strike_percent) {
            return Ok(());
        }
        let back = self.run.cluster.now() + moved.random.micros(0, 150_000);
        moved.struck.push((back, server));
        let (loses, effects) = (moved.random.chance(70), moved.random.below(40));
        self.run.cluster.coverage.add(STRUCK, 1);
        if loses {
            self.run.answers()?;
            self.run.power(1 << server);
        } else if let Some(up) = self.run.cluster.up(server) {
            up.crash_point.die_after(effects as u64);
        }
        Ok(())
    }

    /// Goes on with all of it. Returns whether anything was asked.
    pub(crate) fn go_on(&mut self) -> Result<bool, Wrong> {
        if !self.run.clients.moved.is_troubled {
            return Ok(false);
        }
        for server in std::mem::take(&mut self.run.clients.moved.promoted) {
            self.strike(server)?;
        }
        self.start_struck()?;
        let mut asked = false;
        for region in 0..self.run.plan.regions {
            asked |= self.write(region)?;
        }
        asked |= self.ask()?;
        self.run.flush_if(asked)
    }

    fn start_struck(&mut self) -> Result<(), Wrong> {
        let now = self.run.cluster.now();
        let struck = &mut self.run.clients.moved.struck;
        let due: Vec<_> = struck.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, server) in due {
            if self.run.cluster.up(server).is_none() {
                self.run.start(server, None)?;
            }
        }
        Ok(())
    }

    /// Writes an object of a region that has moved, through its primary.
    fn write(&mut self, region: usize) -> Result<bool, Wrong> {
        let moved = &mut self.run.clients.moved;
        let former = moved.regions.get(&region);
        let is_free = former.is_some_and(|former| former.wrote.is_none());
        if !is_free || moved.asks_left == 0 || !moved.random.chance(WRITE_PERCENT) {
            return Ok(false);
        }
        let id = self.run.cluster.map.regions()[region].id;
        let primary = self.run.cluster.primary_of(region);
        let up = self.run.cluster.active(primary);
        if !up.is_some_and(|up| up.node.inspect().shows(id)) {
            return Ok(false);
        }
        let moved = &mut self.run.clients.moved;
        let all = (0..self.run.objects.len())
            .filter(|object| self.run.objects.get(*object).region == region);
        let all: Vec<usize> = all.collect();
        let object = moved.random.pick(&all);
        let op = self.run.load.next_op();
        let target = match moved.random.chance(25) {
            true => Target {
                object,
                to: Bound::Absent,
                len: 0,
            },
            false => Target {
                object,
                to: Bound::To(op),
                len: moved.random.between(VALUE_BYTES_MIN, BYTES_MAX),
            },
        };
        let (to, condition) = (target.to, When::Always);
        let asked = self.ask_one(primary, target, condition)?;
        if let Some(former) = self.run.clients.moved.regions.get_mut(&region)
            && asked
        {
            former.wrote = Some(Wrote { object, op, to });
        }
        Ok(asked)
    }

    fn ask_one(&mut self, server: usize, target: Target, when: When) -> Result<bool, Wrong> {
        let ask = Ask::Write {
            targets: vec![target],
            condition: when,
            previous: false,
        };
        self.spend();
        Ok(!self.run.load.is_crowded(&ask) && self.run.ask_of(server, ask)?)
    }

    fn spend(&mut self) {
        let left = &mut self.run.clients.moved.asks_left;
        *left = left.saturating_sub(1);
    }

    /// Asks former primaries for what was written through the new ones and answered. Returns whether anything was
    /// asked.
    pub(crate) fn ask(&mut self) -> Result<bool, Wrong> {
        let mut asked = false;
        for region in 0..self.run.plan.regions {
            let Some(former) = self.run.clients.moved.regions.get_mut(&region) else {
                continue;
            };
            let (server, Some(wrote)) = (former.server, former.wrote) else {
                continue;
            };
            match self.run.load.fate(wrote.op, wrote.object) {
                Fate::Pending => {}
                Fate::NotApplied | Fate::Unknown => former.wrote = None,
                Fate::Applied => asked |= self.ask_about(region, server, wrote)?,
            }
        }
        Ok(asked)
    }

    /// Asks the former primary of a region, or who takes it for the primary still, once one of them can be asked.
    fn ask_about(&mut self, region: usize, former: usize, wrote: Wrote) -> Result<bool, Wrong> {
        let id = self.run.cluster.map.regions()[region].id;
        let believes = |server: &usize| {
            let up = self.run.cluster.active(*server);
            let of = up.and_then(|up| up.node.map().region(id).map(|of| of.primary.0 as usize));
            of == Some(former)
        };
        let believing: Vec<usize> = self.run.cluster.indices().filter(believes).collect();
        let is_up = self.run.cluster.up(former).is_some();
        let is_stopped = is_up && self.run.cluster.active(former).is_none();
        if is_stopped {
            return Ok(false);
        }
        let moved = &mut self.run.clients.moved;
        if !believing.contains(&former) {
            // It is down, or knows.
            moved.regions.remove(&region);
            return Ok(false);
        }
        if let Some(of) = moved.regions.get_mut(&region) {
            of.wrote = None;
        }
        let server = match moved.random.chance(60) {
            true => former,
            false => moved.random.pick(&believing),
        };
        let name = if server == former {
            ASKED
        } else {
            ASKED_BY_OTHERS
        };
        self.run.cluster.coverage.add(name, 1);
        let again = moved.random.chance(50);
        let mut asked = self.ask_former(server, wrote)?;
        if again {
            asked |= self.ask_former(server, wrote)?;
        }
        Ok(asked)
    }

    fn ask_former(&mut self, server: usize, wrote: Wrote) -> Result<bool, Wrong> {
        let (objects, object) = (&self.run.objects, wrote.object);
        let random = &mut self.run.clients.moved.random;
        let key = ObjectKey::first(object);
        let ask = match random.below(10) {
            0..5 => Ask::Get { key },
            5 | 6 => {
                let next = object + 1;
                let end = (next < objects.len()).then(|| objects.get(next).keys[0].clone());
                let directions = [Direction::Up, Direction::Down];
                Ask::Scan {
                    range: KeyRange::new(objects.key(key).to_vec(), end),
                    paging: Paging {
                        direction: random.pick(&directions),
                        pairs_max: 10,
                        bytes_max: PAGE_BYTES_MAX,
                        keys_only: false,
                        at: None,
                    },
                }
            }
            _ => {
                // It holds where that was written, and not on what was there before.
                let condition = match wrote.to {
                    Bound::To(_) if objects.get(object).keys.len() == 1 => When::Is(wrote.to),
                    Bound::Absent => When::Absent,
                    _ => When::Present,
                };
                let op = self.run.load.next_op();
                let (to, len) = (Bound::To(op), VALUE_BYTES_MIN);
                let target = Target { object, to, len };
                return self.ask_one(server, target, condition);
            }
        };
        self.spend();
        self.run.ask_of(server, ask)
    }
}
