//! Asking servers, as clients would.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Direction, KeyRange};
use argosy_coordinator::RegionState;
use argosy_engine::{Change, Condition, Expiry, Reach, Wanted, WriteBatch, WriteOptions};
use argosy_server::node::Node;
use argosy_server::service::{KeyList, Paging, ReplySink, ReplyTo, Request, Response, Service};
use argosy_server::tasks::Tasks;

use super::snapshots::{Held, read_all};
use super::{Pace, Run};
use crate::asks::{Ask, PAGE_BYTES_MAX, counter_key};
use crate::bulk_load;
use crate::changes;
use crate::check::computed::What;
use crate::check::{Bound, When};
use crate::crash_point::CrashPoint;
use crate::erase;
use crate::leases::{self, Leases};
use crate::leaving::Leaving;
use crate::load::{Asking, Wrong};
use crate::long;
use crate::many;
use crate::objects::{ObjectKey, Objects};

/// The way to a server that is up.
pub(super) struct Line {
    pub(super) node: Arc<Node>,
    tasks: Arc<Tasks>,
    pub(super) session: u32,
    crash_point: Arc<CrashPoint>,
    sink: Arc<dyn ReplySink>,
}

impl Line {
    /// The answer, if it comes at once. A process that died of the question has not answered.
    pub(super) fn call(&self, request: Request<'_>, token: u64) -> Option<Response> {
        let reply = ReplyTo::new(&self.sink, token);
        let call = |reach, reply| self.node.call(request, reach, reply);
        // Half of the reads are those of a front end that keeps to memory.
        let begun = match request.reads_keys() && token.is_multiple_of(2) {
            true => self.tasks.call_or_push(request, reply, call),
            false => call(Reach::Device, reply),
        };
        begun.answered().filter(|_| !self.crash_point.is_dead())
    }
}

impl Run {
    /// Asks as much as the pace allows. Returns whether anything was asked.
    pub(super) fn ask_some(&mut self, pace: Pace, span: Duration) -> Result<bool, Wrong> {
        let count = match pace {
            Pace::None => 0,
            Pace::Full => self.random.below(4),
            Pace::Slow if self.pacing.troubled_ops == 0 => 0,
            Pace::Slow => {
                let every = 1000 * self.pacing.troubled_every.max(1);
                usize::from(self.random.below(every) < span.as_micros() as usize)
            }
        };
        let mut asked = false;
        for _ in 0..count {
            if self.load.pending().len() >= self.plan.load.in_flight_max
                || !self.harm.uncounted.is_empty()
            {
                break;
            }
            self.pacing.troubled_ops = self
                .pacing
                .troubled_ops
                .saturating_sub(usize::from(pace == Pace::Slow));
            let ask = self.asks.chooser.next(&self.objects, self.load.next_op());
            let ask = self.asks.depend.on_values(ask, &self.objects, &self.load);
            let (op, right) = (self.load.next_op(), self.cluster.right_time());
            let (ask, erases) = self.asks.erase.instead(ask, &self.objects, op);
            if erases {
                self.load.erasures.insert(op);
            }
            if let Some(at) = self.asks.depend.expiry(&ask, right) {
                self.load.expiries.insert(op, at);
            }
            if self.ask(ask)? {
                asked = true;
            } else {
                self.load.expiries.remove(op);
                self.load.erasures.remove(&op);
            }
        }
        self.flush_if(asked)
    }

    /// Ends the round of what was asked.
    pub(crate) fn flush(&mut self) -> Result<(), Wrong> {
        for server in self.cluster.indices() {
            if let Some(up) = self.cluster.active(server) {
                up.node.flush();
            }
            self.bury(server)?;
        }
        Ok(())
    }

    /// The same, if anything was asked. Returns whether it was.
    pub(crate) fn flush_if(&mut self, asked: bool) -> Result<bool, Wrong> {
        if asked {
            self.flush()?;
        }
        Ok(asked)
    }

    /// The way to `server`; `None` where it may not be asked.
    pub(super) fn line(&self, server: usize) -> Option<Line> {
        let up = self.cluster.active(server)?;
        let leaving = self.cluster.leaving(server);
        if !leaving.is_none_or(Leaving::takes_requests) {
            return None;
        }
        Some(Line {
            node: Arc::clone(&up.node),
            tasks: Arc::clone(&up.tasks),
            session: up.session,
            crash_point: Arc::clone(&up.crash_point),
            sink: Arc::clone(&up.mailbox) as Arc<dyn ReplySink>,
        })
    }

    /// Asks a server of the seed's choice, in a round that has nothing else.
    pub(crate) fn ask_alone(&mut self, ask: Ask) -> Result<(), Wrong> {
        self.ask(ask)?;
        self.flush()
    }

    /// Asks a server of the seed's choice. False where none that may be asked is up. What it forwards is sent when the
    /// round ends.
    pub(crate) fn ask(&mut self, mut ask: Ask) -> Result<bool, Wrong> {
        let direct = self.random.chance(self.plan.load.direct_percent);
        let home = self.home(&ask);
        if self.plan.loses_ends()
            && let Ask::Write { targets, .. } = &mut ask
        {
            // The order in which one copy is handed its writes has to be known.
            let region = |object: usize| self.objects.get(object).region;
            targets.retain(|target| self.cluster.primary_of(region(target.object)) == home);
        }
        if self.load.is_crowded(&ask) {
            return Ok(false);
        }
        let server = if direct {
            home
        } else {
            self.random.below(self.cluster.indices().len())
        };
        self.ask_of(server, ask)
    }

    /// Asks `server`. False where it may not be asked.
    pub(crate) fn ask_of(&mut self, server: usize, ask: Ask) -> Result<bool, Wrong> {
        let home = self.home(&ask);
        let Some(line) = self.line(server) else {
            return Ok(false);
        };
        let (op, now) = (self.load.next_op(), self.cluster.now());
        // A server whose groups change may forward what it is asked.
        let all_direct = self.plan.groups.changes.is_none() && self.is_primary_of_all(server, &ask);
        self.words.say(
            now,
            format_args!("op {op} of server {server}: {}", ask_in_short(&ask)),
        );
        let asking = Asking {
            server,
            session: line.session,
            direct: all_direct,
            at: now,
            expect: self.expect,
        };
        self.load.ask(&self.objects, ask.clone(), asking);
        self.cluster.coverage.add("operations", 1);
        self.cluster
            .coverage
            .add("forwarded operations", u64::from(server != home));
        if let Some(response) = self.call(&line, op, &ask) {
            self.answered(op, response)?;
        }
        Ok(true)
    }

    /// Asks for a key; every third time among others.
    fn get(&self, line: &Line, op: u32, at: ObjectKey) -> Option<Response> {
        let token = u64::from(op);
        let key = self.objects.key(at);
        if !op.is_multiple_of(3) {
            return line.call(Request::Get { key }, token);
        }
        let neighbours = self.objects.get(at.object).keys.iter().skip(at.index + 1);
        let others = neighbours.chain(&self.objects.get(0).keys);
        let keys = [key].into_iter().chain(others.map(Vec::as_slice));
        let keys = &KeyList::of(keys);
        let (wanted, at) = (Wanted::Values(1 << 16), None);
        line.call(Request::GetMany { keys, wanted, at }, token)
    }

    fn call(&mut self, line: &Line, op: u32, ask: &Ask) -> Option<Response> {
        let token = u64::from(op);
        match ask {
            Ask::Get { key } => self.get(line, op, *key),
            Ask::Scan { range, paging } => {
                let paging = *paging;
                line.call(Request::Scan { range, paging }, token)
            }
            Ask::Add { counter } => {
                let mut batch = WriteBatch::new();
                batch
                    .change(counter_key(*counter), Change::Add(1), b"")
                    .expect("a short key");
                let options = WriteOptions::default();
                let batch = &batch;
                line.call(Request::Write { batch, options }, token)
            }
            Ask::Write {
                targets,
                condition,
                previous,
            } => {
                let until = self.load.expiries.get(op);
                let expiry = until.map_or(Expiry::Never, Expiry::At);
                let expires = u64::from(until.is_some());
                self.cluster.coverage.add("pairs that expire", expires);
                let mut batch = match self.load.erasures.contains(&op) {
                    true => erase::batch(&self.objects, op, targets, expiry),
                    false => Ask::batch(&self.objects, op, targets, expiry),
                };
                let long = targets
                    .iter()
                    .any(|target| target.len >= self.plan.engine.layout.window_bytes);
                self.cluster
                    .coverage
                    .add("values in chunks", u64::from(long));
                let condition = match condition {
                    When::Always => Condition::Always,
                    When::Absent => Condition::Absent,
                    When::Present => Condition::Present,
                    When::Is(bound) => {
                        let at = ObjectKey::first(targets[0].object);
                        let expected = match bound {
                            Bound::To(op) => {
                                self.objects.value(*op, at, self.load.lens[*op as usize])
                            }
                            Bound::Absent | Bound::Empty => Vec::new(),
                        };
                        batch.expect(&expected).expect("it was a value");
                        Condition::Equals
                    }
                };
                let options = WriteOptions {
                    condition,
                    return_previous: *previous,
                };
                line.call(
                    Request::Write {
                        batch: &batch,
                        options,
                    },
                    token,
                )
            }
        }
    }

    /// Asks for what values in parts need next, and begins with others if `starts`. Returns whether anything
    /// was asked.
    pub(super) fn ask_long(&mut self, starts: bool) -> Result<bool, Wrong> {
        let mut asked = false;
        let (now, servers) = (self.cluster.now(), self.cluster.indices().len());
        for index in 0..long::KEYS {
            let Some(server) = self.clients.longs.whom(index, starts, servers, now) else {
                continue;
            };
            let Some(line) = self.line(server) else {
                continue;
            };
            for (token, call) in self.clients.longs.next(index, line.session) {
                asked = true;
                let options = WriteOptions::default();
                let (wanted, at) = (Wanted::Values(1), None);
                let request = match &call {
                    long::Call::Get(keys) => Request::GetMany { keys, wanted, at },
                    long::Call::Write(batch) => Request::Write { batch, options },
                };
                if let Some(response) = line.call(request, token) {
                    let coverage = &mut self.cluster.coverage;
                    self.clients.longs.answer(token, response, coverage)?;
                }
            }
        }
        self.flush_if(asked)
    }

    /// Asks for what clients that bulk-load need next, and begins with others if `starts`. Returns whether anything
    /// was asked.
    pub(super) fn ask_bulk_load(&mut self, starts: bool) -> Result<bool, Wrong> {
        let mut asked = false;
        let servers = self.cluster.indices().len();
        for index in 0..bulk_load::SLOTS {
            let Some(server) = self.clients.bulk_loads.whom(index, starts, servers) else {
                continue;
            };
            let Some(line) = self.line(server) else {
                continue;
            };
            for (token, call) in self.clients.bulk_loads.next(index, line.session) {
                asked = true;
                let options = WriteOptions::default();
                let request = match &call {
                    bulk_load::Call::BulkLoad(batch) => Request::Ingest { batch },
                    bulk_load::Call::Write(batch) => Request::Write { batch, options },
                    bulk_load::Call::Page(range, paging) => {
                        let paging = *paging;
                        Request::Scan { range, paging }
                    }
                };
                if let Some(response) = line.call(request, token) {
                    let coverage = &mut self.cluster.coverage;
                    self.clients.bulk_loads.answer(token, response, coverage)?;
                }
            }
        }
        self.flush_if(asked)
    }

    /// Has clients ask that change values, and begin with it if `starts`. Returns whether anything was asked.
    pub(super) fn ask_changes(&mut self, starts: bool) -> Result<bool, Wrong> {
        let mut asked = false;
        let servers = self.cluster.indices().len();
        for index in 0..changes::KEYS {
            let Some((server, client)) = self.clients.changes.whom(index, starts, servers) else {
                continue;
            };
            let Some(line) = self.line(server) else {
                continue;
            };
            let (token, call) = self.clients.changes.next(index, client, line.session);
            asked = true;
            if let Some(response) = call.request(|request| line.call(request, token)) {
                self.clocks_reached();
                let coverage = &mut self.cluster.coverage;
                self.clients.changes.answer(token, response, coverage)?;
            }
        }
        self.flush_if(asked)
    }

    /// Has clients ask about snapshots that they lease, and open others if `starts`. Returns whether anything was
    /// asked.
    pub(super) fn ask_leases(&mut self, starts: bool) -> Result<bool, Wrong> {
        let mut asked = false;
        let starts = starts && self.harm.uncounted.is_empty();
        let servers = self.cluster.indices().len();
        for slot in 0..leases::SLOTS {
            let Some(server) = self.clients.leases.whom(slot, starts, servers) else {
                continue;
            };
            let Some(line) = self.line(server) else {
                continue;
            };
            let (leases, mut world) = self.leases_and_world();
            let (token, call) = leases.next(slot, line.session, starts, &mut world);
            asked = true;
            if let Some(response) = call.request(|request| line.call(request, token)) {
                self.clocks_reached();
                self.answer_lease(token, response)?;
            }
        }
        self.flush_if(asked)
    }

    /// Has all regions flushed or compacted now and then, if anything `starts`. Returns whether that was asked.
    pub(super) fn ask_maintenance(&mut self, starts: bool) -> Result<bool, Wrong> {
        if !starts || !self.harm.uncounted.is_empty() {
            return Ok(false);
        }
        let servers = self.cluster.indices().len();
        let Some(server) = self.clients.maintainer.whom(servers) else {
            return Ok(false);
        };
        let Some(line) = self.line(server) else {
            return Ok(false);
        };
        let now = self.cluster.now();
        let (token, what) = self.clients.maintainer.next(server, line.session, now);
        self.say(format_args!("server {server} is asked to {what:?}"));
        if let Some(response) = line.call(Request::Maintain { what }, token) {
            let coverage = &mut self.cluster.coverage;
            self.clients.maintainer.answer(token, &response, coverage)?;
        }
        self.flush_if(true)
    }

    pub(super) fn answer_lease(&mut self, token: u64, response: Response) -> Result<(), Wrong> {
        // A region that is not whole may be opened anew at any time.
        if self.cluster.lacks().is_some() {
            self.clients.leases.excuse();
        }
        let (leases, mut world) = self.leases_and_world();
        leases.answer(token, response, &mut world)
    }

    fn leases_and_world(&mut self) -> (&mut Leases, leases::World<'_>) {
        let now = self.cluster.now();
        let world = leases::World {
            load: &mut self.load,
            objects: &self.objects,
            coverage: &mut self.cluster.coverage,
            now,
        };
        (&mut self.clients.leases, world)
    }

    /// Has every value in parts be read, what was bulk-loaded, and what was changed.
    pub(crate) fn read_longs(&mut self, within: Duration) -> Result<(), Wrong> {
        self.clients.longs.want_all();
        self.clients.bulk_loads.want_all();
        self.clients.changes.want_all(&What::Get);
        self.clients.transacting.want_all();
        self.clients.repeating.want_all();
        self.read_wanted(within)
    }

    /// Has all be read of what was changed that still expires.
    pub(crate) fn read_expiries(&mut self, within: Duration) -> Result<(), Wrong> {
        self.clients.changes.want_all(&What::Expiry);
        self.read_wanted(within)
    }

    fn read_wanted(&mut self, within: Duration) -> Result<(), Wrong> {
        let begin = self.cluster.now();
        while self.clients.longs.is_wanting()
            || self.clients.bulk_loads.is_wanting()
            || self.clients.changes.is_wanting()
            || self.clients.transacting.is_wanting()
            || self.clients.repeating.is_wanting()
        {
            if self.cluster.now().since(begin) > within {
                return Err("long values, bulk-loaded or changed pairs cannot be read".to_owned());
            }
            self.tick(Pace::None)?;
        }
        Ok(())
    }

    /// The primary of the first object that is asked about.
    fn home(&self, ask: &Ask) -> usize {
        let region = match ask {
            Ask::Get { key } => self.objects.get(key.object).region,
            Ask::Scan { range, paging } => self.cluster.map.first_of(range, paging.direction),
            Ask::Write { targets, .. } => self.objects.get(targets[0].object).region,
            Ask::Add { .. } => 0,
        };
        self.cluster.primary_of(region)
    }

    fn is_primary_of_all(&self, server: usize, ask: &Ask) -> bool {
        let Ask::Write { targets, .. } = ask else {
            return false;
        };
        let region = |object: usize| self.objects.get(object).region;
        targets
            .iter()
            .all(|target| self.cluster.primary_of(region(target.object)) == server)
    }

    /// Asks for everything, page by page.
    pub(crate) fn sweep(&mut self) -> Result<(), Wrong> {
        let step = self.random.between(5, 30);
        let key = |objects: &Objects, at: usize| objects.get(at).keys[0].clone();
        let direction = self.random.pick(&[Direction::Up, Direction::Down]);
        for from in (0..self.objects.len()).step_by(step) {
            let to = (from + step < self.objects.len()).then(|| key(&self.objects, from + step));
            let range = KeyRange::new(key(&self.objects, from), to);
            let paging = Paging {
                direction,
                pairs_max: 200,
                bytes_max: PAGE_BYTES_MAX,
                keys_only: false,
                at: None,
            };
            let ask = Ask::Scan { range, paging };
            self.ask_alone(ask)?;
            self.tick(Pace::None)?;
        }
        Ok(())
    }

    // --- Snapshots that are held ---

    /// The range of a region, without what [`many`] brings into it, which is not read as a whole.
    pub(super) fn range_of(&self, region: usize) -> KeyRange {
        let mut range = self.objects.region_ranges()[region].clone();
        if self.plan.devices.many.is_some() {
            range.from = range.from.max(many::behind());
        }
        range
    }

    /// Takes a snapshot now and then if `starts`, and reads those that were held long enough.
    pub(super) fn hold_snapshots(&mut self, starts: bool) -> Result<(), Wrong> {
        if starts
            && self.held.snapshots.len() < self.held.max
            && self.random.chance(1)
            && (self.plan.devices.small.is_none() || self.random.chance(10))
        {
            let region = self.random.below(self.plan.regions);
            let server = self.cluster.primary_of(region);
            let id = self.cluster.map.regions()[region].id;
            let open = self
                .cluster
                .active(server)
                .filter(|_| self.harm.uncounted.is_empty());
            let taken = open.and_then(|up| Some((up.node.inspect().snapshot(id)?, up.session)));
            if let Some((snapshot, session)) = taken {
                let when = self.load.snapshot_moment();
                let until = self.pacing.ticks + self.random.between(1, 1500) as u64;
                self.held.snapshots.push(Held {
                    snapshot,
                    region,
                    since: self.cluster.map.regions()[region].since,
                    server,
                    session,
                    when,
                    until,
                });
            }
        }
        let due = |held: &Held| held.until <= self.pacing.ticks;
        let Some(at) = self.held.snapshots.iter().position(due) else {
            return Ok(());
        };
        let held = self.held.snapshots.swap_remove(at);
        if self.cluster.active(held.server).is_none() {
            return Ok(());
        }
        let range = self.range_of(held.region);
        let direction = self.random.pick(&[Direction::Up, Direction::Down]);
        let pairs = match read_all(&*held.snapshot, &range, direction) {
            Err(_) if self.may_be_damaged(held.server) || self.has_moved(&held) => return Ok(()),
            pairs => pairs?,
        };
        self.cluster.coverage.add("snapshots read", 1);
        self.load.snapshot(&self.objects, &range, pairs, held.when)
    }
}

impl Run {
    /// Whether the region of a snapshot may be served by another server than the one that has it.
    fn has_moved(&self, held: &Held) -> bool {
        let region = &self.cluster.map.regions()[held.region];
        region.since != held.since || region.state == RegionState::Recovering
    }
}

fn ask_in_short(ask: &Ask) -> String {
    match ask {
        Ask::Get { key } => format!("get key {} of object {}", key.index, key.object),
        Ask::Scan { range, paging } => {
            let (direction, pairs) = (paging.direction, paging.pairs_max);
            format!("scan {range}, {direction:?}, {pairs} pairs")
        }
        Ask::Add { counter } => format!("add to counter {counter}"),
        Ask::Write {
            targets, condition, ..
        } => {
            let what: Vec<String> = targets
                .iter()
                .map(|target| {
                    format!(
                        "object {} to {} ({} bytes)",
                        target.object, target.to, target.len
                    )
                })
                .collect();
            format!("bind {} ({condition:?})", what.join(", "))
        }
    }
}
