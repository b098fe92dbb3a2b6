//! The claim over random schedules: a pair with two clocks that drift, a channel that loses, delays, repeats and
//! reorders, processes that stop, go on and start anew.
//!
//! 1. A schedule is drawn from its seed: which clocks, then one event after another.
//! 2. True time goes on in jumps. A jump is interrupted at each moment at which the granter may become free, because
//!    if the claim is ever broken, it is broken then.
//! 3. After each event the claim is checked, and what it means for one region: while somebody else may serve the
//!    region, the holder does not hold under a view from before the rise.
//! 4. Without a mistake no schedule breaks it. Each planted mistake breaks it in one of them.

extern crate std;

use alloc::vec::Vec;
use core::time::Duration;

use argosy_base::{Incarnation, Instant};

use super::granter::FIRST_RISE;
use super::terms::DRIFT_PPM_MAX;
use super::{
    Granter, HandBack, Holder, LastStop, LeaseAnswer, LeaseRequest, LeaseTerms, LinkSession,
    Mutants, Wait,
};

const SCHEDULES: u64 = 4_000;
const STEPS: u32 = 250;
const MILLION: u64 = 1_000_000;

/// The generator known as splitmix64.
struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// An index into `len` things.
    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }
}

/// A clock, exact to a millionth of a nanosecond, that shows whole nanoseconds.
struct DriftingClock {
    /// Millionths of a nanosecond.
    shown: u128,
    /// By how much it goes on in a nanosecond of true time.
    rate: u64,
}

impl DriftingClock {
    fn now(&self) -> Instant {
        let nanos = self.shown / u128::from(MILLION);
        Instant::from_nanos(u64::try_from(nanos).expect("below 584 years"))
    }

    fn pass(&mut self, nanos: u64) {
        self.shown += u128::from(nanos) * u128::from(self.rate);
    }

    /// True time until it first shows more than `until`.
    fn until_after(&self, until: Instant) -> Option<u64> {
        let target = (u128::from(until.as_nanos()) + 1) * u128::from(MILLION);
        let left = target.checked_sub(self.shown)?;
        u64::try_from(left.div_ceil(u128::from(self.rate))).ok()
    }
}

/// What is under way.
#[derive(Clone, Copy)]
enum Message {
    Hello(LinkSession),
    Request(LeaseRequest),
    Answer(LeaseAnswer),
    HandBack(HandBack),
    /// The granter has obeyed `epoch` of the region.
    Rise {
        session: LinkSession,
        rise: u64,
        epoch: u64,
    },
    Took {
        session: LinkSession,
        rise: u64,
    },
}

/// A server's process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Process {
    Running,
    Stopped,
}

/// What a driver does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    Careful,
    /// It answers with a time that it read before it received the request.
    ReadsClockFirst,
    /// It writes the request, and reads the clock then.
    WritesFirst,
}

/// How often something happened, so that the schedules are known to be worth something.
#[derive(Default)]
struct Seen {
    held: u64,
    free: u64,
    over_before_free: u64,
    held_under_new_view: u64,
}

struct Server {
    clock: DriftingClock,
    process: Process,
    /// What its clock showed some time ago.
    read_before: Instant,
}

struct Pair {
    random: Random,
    terms: LeaseTerms,
    mutants: Mutants,
    driver: Driver,
    holder: Holder,
    granter: Granter,
    /// The servers of the holder and the granter.
    servers: [Server; 2],
    session: LinkSession,
    /// The session of the last link that the granter's server took up, over all its starts.
    linked: Option<LinkSession>,
    channel: Vec<Message>,
    region: Region,
}

/// The epochs of one region.
#[derive(Default)]
struct Region {
    /// What the granter's server has obeyed.
    obeyed: u64,
    /// The holder's view.
    view: u64,
    /// Who opens the region under this epoch waits so.
    waits: Vec<(u64, Wait)>,
}

impl Pair {
    fn new(seed: u64, mutants: Mutants, driver: Driver) -> Self {
        let mut random = Random(seed);
        let drifts = [200, 50_000, u64::from(DRIFT_PPM_MAX)];
        let drift = drifts[random.index(3)];
        let term = Duration::from_nanos(MILLION + random.below(MILLION));
        let terms = LeaseTerms::new(term, u32::try_from(drift).expect("small")).expect("in bounds");
        let incarnation = Incarnation(1);
        let mut server = || Server {
            clock: DriftingClock {
                shown: u128::from(random.below(1 << 60)) * u128::from(random.below(MILLION)),
                rate: MILLION,
            },
            process: Process::Running,
            read_before: Instant::default(),
        };
        let servers = [server(), server()];
        let start = servers[1].clock.now();
        Self {
            terms,
            mutants,
            driver,
            holder: Holder::new(terms, incarnation, mutants),
            granter: Granter::restarted(terms, LastStop::Clean, start, mutants),
            servers,
            session: LinkSession {
                incarnation,
                number: 0,
            },
            linked: None,
            channel: Vec::new(),
            region: Region::default(),
            random,
        }
    }

    /// Whether the claim holds at this moment.
    fn claim(&self, seen: &mut Seen) -> bool {
        let [here, there] = [0, 1].map(|side: usize| self.servers[side].clock.now());
        let (held, free) = (self.holder.holds(here), self.granter.is_free(there));
        seen.held += u64::from(held);
        seen.free += u64::from(free);
        let mut keeps = !(held && free);
        for (epoch, wait) in &self.region.waits {
            let over = self.granter.is_over(wait, there);
            let old = self.region.view < *epoch;
            seen.over_before_free += u64::from(over && !free);
            seen.held_under_new_view += u64::from(held && over && !old);
            keeps &= !(held && old && over);
        }
        keeps
    }

    /// True time goes on by `nanos`. False where the claim is broken meanwhile.
    fn pass(&mut self, mut nanos: u64, seen: &mut Seen) -> bool {
        let drift = u64::from(self.terms.drift_ppm());
        for server in &mut self.servers {
            server.read_before = server.clock.now();
            server.clock.rate = match self.random.below(4) {
                0 => MILLION - drift,
                1 => MILLION + drift,
                2 => MILLION - drift + self.random.below(2 * drift + 1),
                _ => server.clock.rate,
            };
        }
        loop {
            let waits = self.region.waits.iter().filter_map(|(_, it)| it.until());
            let jump = (waits.chain(self.granter.promised_until()))
                .filter_map(|until| self.servers[1].clock.until_after(until))
                .filter(|jump| 0 < *jump)
                .fold(nanos, u64::min);
            for server in &mut self.servers {
                server.clock.pass(jump);
            }
            nanos -= jump;
            if !self.claim(seen) {
                return false;
            }
            if nanos == 0 {
                return true;
            }
        }
    }

    fn jump(&mut self) -> u64 {
        let term = u64::try_from(self.terms.term().as_nanos()).expect("small");
        let longest = [term / 1000, term / 20, term / 4, term / 4, 2 * term];
        let longest = longest[self.random.index(5)];
        self.random.below(longest)
    }

    /// One event. False where it breaks the claim.
    fn step(&mut self, seen: &mut Seen) -> bool {
        match self.random.below(1000) {
            0..250 => {
                let nanos = self.jump();
                return self.pass(nanos, seen);
            }
            250..700 => self.deliver(),
            700..940 => self.holder_acts(),
            940..960 => {
                self.region.obeyed += 1;
                self.obey();
            }
            960..980 => {
                let server = &mut self.servers[self.random.index(2)];
                server.process = Process::Stopped;
            }
            980..986 => self.granter_starts(),
            986..990 => {
                let incarnation = Incarnation(self.session.incarnation.0 + 1);
                self.session = LinkSession {
                    incarnation,
                    number: 0,
                };
                self.holder = Holder::new(self.terms, incarnation, self.mutants);
            }
            _ => {
                self.session.number += 1;
                self.holder.link_up(self.session.number);
                self.channel.push(Message::Hello(self.session));
            }
        }
        self.claim(seen)
    }

    fn holder_acts(&mut self) {
        for server in &mut self.servers {
            if self.random.below(10) == 0 {
                server.process = Process::Running;
            }
        }
        let now = self.servers[0].clock.now();
        if self.servers[0].process == Process::Stopped {
            return;
        }
        match self.random.below(20) {
            0 => self
                .channel
                .extend(self.holder.give_up().map(Message::HandBack)),
            1..4 => self.holder.completed(now),
            _ => self.ask(now),
        }
    }

    fn ask(&mut self, now: Instant) {
        if self.driver != Driver::WritesFirst {
            self.channel
                .extend(self.holder.ask(now).map(Message::Request));
            return;
        }
        // The request is under way, and answered, before the holder has read its clock.
        let mut after = self.holder.clone();
        let Some(request) = after.ask(now) else {
            return;
        };
        self.receive(Message::Request(request));
        let nanos = self.jump();
        for server in &mut self.servers {
            server.clock.pass(nanos);
        }
        self.holder.ask(self.servers[0].clock.now());
    }

    /// The granter's server knows that it has obeyed an epoch, and says so.
    fn obey(&mut self) {
        let epoch = self.region.obeyed;
        let wait = self.granter.obeyed();
        self.region.waits.push((epoch, wait));
        if 3 < self.region.waits.len() {
            self.region.waits.remove(0);
        }
        if let Some(session) = self.linked.filter(|_| 0 < wait.rise()) {
            let rise = wait.rise();
            self.channel.push(Message::Rise {
                session,
                rise,
                epoch,
            });
        }
    }

    /// The granter's server is killed or stopped cleanly, and starts anew.
    fn granter_starts(&mut self) {
        let now = self.servers[1].clock.now();
        let last = match self.random.below(2) {
            0 => self.granter.stop(now),
            _ => LastStop::Other,
        };
        self.granter = Granter::restarted(self.terms, last, now, self.mutants);
        self.servers[1].process = Process::Running;
        self.region.waits.clear();
        self.obey();
    }

    /// Any message arrives, is lost, or arrives and will do so again.
    fn deliver(&mut self) {
        let under_way = self.channel.len();
        if under_way == 0 {
            return;
        }
        // Rather a new one, so that conversations come about.
        let one = self.random.index(under_way);
        let index = one.max(self.random.index(under_way));
        let message = self.channel[index];
        let side = match message {
            Message::Answer(_) | Message::Rise { .. } => 0,
            _ => 1,
        };
        if self.servers[side].process == Process::Stopped {
            return;
        }
        let fate = self.random.below(10);
        if fate != 0 {
            self.channel.remove(index);
        }
        if fate != 1 {
            self.receive(message);
        }
    }

    fn receive(&mut self, message: Message) {
        let [here, there] = [0, 1].map(|side: usize| self.servers[side].clock.now());
        match message {
            Message::Hello(session) if self.linked < Some(session) => {
                self.linked = Some(session);
                self.granter.link_up(session);
                self.channel.push(Message::Rise {
                    session,
                    rise: FIRST_RISE,
                    epoch: self.region.obeyed,
                });
            }
            Message::Hello(_) => {}
            Message::Request(request) => {
                let now = match self.driver {
                    Driver::ReadsClockFirst => self.servers[1].read_before,
                    _ => there,
                };
                let answer = self.granter.answer(&request, now);
                self.channel.extend(answer.map(Message::Answer));
            }
            Message::Answer(answer) => self.holder.answered(&answer, here),
            Message::HandBack(back) => self.granter.handed_back(back),
            Message::Rise {
                session,
                rise,
                epoch,
            } => {
                self.region.view = self.region.view.max(epoch);
                self.holder.took(session, rise);
                self.channel.push(Message::Took { session, rise });
            }
            Message::Took { session, rise } => self.granter.confirmed(session, rise),
        }
    }
}

/// Runs the schedule of `seed`. False where it breaks the claim.
fn keeps(seed: u64, mutants: Mutants, driver: Driver, seen: &mut Seen) -> bool {
    let mut pair = Pair::new(seed, mutants, driver);
    (0..STEPS).all(|_| pair.step(seen))
}

/// How many schedules break the claim.
fn broken(mutants: Mutants, driver: Driver) -> usize {
    let mut seen = Seen::default();
    (0..SCHEDULES)
        .filter(|seed| !keeps(*seed, mutants, driver, &mut seen))
        .count()
}

#[test]
fn the_holder_never_holds_while_the_granter_is_free() {
    let mut seen = Seen::default();
    for seed in 0..SCHEDULES {
        let kept = keeps(seed, Mutants::default(), Driver::Careful, &mut seen);
        assert!(kept, "seed {seed} breaks the claim");
    }
    // Not for want of anything that could break it.
    assert!(50_000 < seen.held, "held {} times", seen.held);
    assert!(50_000 < seen.free, "free {} times", seen.free);
    assert!(5_000 < seen.over_before_free, "{}", seen.over_before_free);
    assert!(
        5_000 < seen.held_under_new_view,
        "{}",
        seen.held_under_new_view
    );
}

#[test]
fn every_planted_mistake_is_found() {
    for name in Mutants::NAMES {
        let mut mutants = Mutants::default();
        assert!(mutants.plant(name));
        let found = broken(mutants, Driver::Careful);
        assert!(0 < found, "nothing finds {name}");
    }
}

/// What [`Holder::ask`] and [`Granter::answer`] require of their callers is required.
#[test]
fn the_clock_is_read_before_the_request_is_written_and_after_it_is_received() {
    for driver in [Driver::ReadsClockFirst, Driver::WritesFirst] {
        assert!(0 < broken(Mutants::default(), driver));
    }
}
