//! `EXEC`: a transaction from its request to its reply. A script that is known is a transaction of one command, and so
//! is what is [computed](super::computed) from values.
//!
//! 1. *Look.* Every command is begun once to see which keys it needs, and of which region. Over several regions the
//!    transaction is refused.
//! 2. *Read.* These keys are read, with versions, page by page, without any lock. What was watched is among them.
//! 3. *Evaluate.* Where a watched key has changed the reply is null. Otherwise the commands are carried out on an
//!    [`Overlay`] of what was read, and answered into the reply, which waits. Where they lack elements of composites,
//!    these are read, and 3 begins anew.
//! 4. *Commit.* What they have left is written as one batch, where everything is still as it was read. Where it is
//!    not, nothing was written, and it begins again at 2, [`TRIES_MAX`] times at most.
//!
//! So commands see one moment, and what they write takes effect at that moment. A transaction that has read at most
//! one key, and writes nothing, ends with 3; one that reads more is committed, too, since its pages may be of
//! different moments. So does a single command on a composite, where all that it goes by is from one answer: the head
//! is read again with elements that are read by name. Elements that are read in order, in one answer, and of which
//! there are any, are what the version of the composite had at one moment, too.
//!
//! Where the setting says so, commands over several regions are carried out all the same, [in order](super::in_order).
//!
//! Everything is bounded: the queue (`transactions`), what was read and what is replied by the longest reply, what is
//! written by a batch.

mod replies;

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::{Outcome, RegionId, RequestName};
use argosy_engine::batch::check_key;
use argosy_engine::long::check_users;
use argosy_engine::{BatchError, Wanted, WriteOptions};
use argosy_wire::api::{Plan, Scratch};
use argosy_wire::resp::{Encoder, Kept, Protocol};

use super::command::{self, Step, Turn};
use super::composite::Composed;
use super::computed::Computed;
use super::front::{Context, CrossRegion, FrontEnd};
use super::in_order::{InOrder, Next};
use super::once;
use super::overlay::{Halt, LONG, Need, Overlay, needs_of};
use super::read_set::{PAGE_BYTES, ReadSet, Reading};
use super::reply::{After, Gather, Pending, UNFIT};
use super::scripts::Script;
use super::session::Core;
use super::transactions::Watched;
use crate::long::before_head;
use crate::meter::MeteredOutcome;
use crate::service::{Failure, KeyList, Response};
use replies::Numbered;
pub(super) use replies::{Refused, Replies};

/// How often a transaction is tried whose keys others write all the time.
pub(super) const TRIES_MAX: u8 = 64;

/// How the reply is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `EXEC`: an array of what each command is answered.
    Array,
    /// A procedure: what it is answered.
    Single,
}

/// What is to be done at once.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) form: Form,
    pub(super) requests: Kept,
    pub(super) watched: Vec<Watched>,
    /// The name under which it is written, at most once ([`once`]).
    pub(super) name: Option<RequestName>,
}

/// What is under way.
#[derive(Debug)]
enum Stage {
    /// This is read.
    Read(Reading),
    /// The batch is written.
    Commit,
    /// Its keys lie in several regions: the commands are carried out one behind the other.
    InOrder(InOrder),
    /// The reply is there.
    Done,
}

/// A transaction. See the module documentation.
#[derive(Debug)]
pub(super) struct Exec {
    asked: Asked,
    /// The keys that have to be known.
    needed: KeyList,
    /// What of them.
    wanted: Wanted,
    stage: Stage,
    read: ReadSet,
    replies: Replies,
    tries: u8,
    /// Where random numbers come from.
    random: u64,
}

/// The commands of a transaction.
#[derive(Clone, Copy)]
pub(super) struct Commands<'a> {
    pub(super) requests: &'a Kept,
    pub(super) watched: &'a [Watched],
    pub(super) protocol: Protocol,
}

/// A command of a transaction that was begun.
pub(super) enum Begun {
    Replied(Vec<u8>, MeteredOutcome),
    Call(Plan, Gather),
    Procedure(Procedure),
}

/// A command that is carried out on what was read, and no request to the server.
#[derive(Debug)]
pub(super) enum Procedure {
    Script(Script),
    Computed(Computed),
    Composed(Box<Composed>),
}

impl Procedure {
    /// Its keys, whose values have to be known.
    fn see_keys(&self, mut see: impl FnMut(&[u8])) {
        match self {
            Self::Script(script) => script.keys().for_each(&mut see),
            Self::Computed(computed) => computed.keys().for_each(&mut see),
            Self::Composed(composed) => composed.keys().for_each(&mut see),
        }
    }

    /// Carries it out, and writes what it is answered.
    ///
    /// # Errors
    /// Nothing was written to the reply.
    fn run(
        &self,
        overlay: &mut Overlay<'_>,
        out: &mut Encoder<'_>,
        front: &FrontEnd,
    ) -> Result<MeteredOutcome, Halt> {
        match self {
            Self::Script(script) => Ok(script.run(overlay, out)?),
            Self::Computed(computed) => computed.run(overlay, out),
            Self::Composed(composed) => composed.run(overlay, out, front),
        }
    }
}

impl Procedure {
    /// Whether it asks for no values of elements that it reads in order.
    fn asks_for_names(&self) -> bool {
        matches!(self, Self::Composed(composed) if composed.asks_for_names())
    }

    /// Whether elements that are read in one answer are all that it tells of.
    fn is_of_one_moment(&self) -> bool {
        matches!(self, Self::Composed(composed) if composed.is_of_one_moment())
    }
}

/// What a transaction needs.
#[derive(Default)]
struct Needs {
    keys: BTreeMap<Vec<u8>, Need>,
    regions: BTreeSet<RegionId>,
}

impl Needs {
    /// Takes note of a key.
    fn add(&mut self, key: &[u8], need: Need, context: &Context<'_>) {
        // What is no key is refused where it is carried out.
        if check_key(key).and_then(|()| check_users(key)).is_err() {
            return;
        }
        self.regions.insert(context.service.region_of(key));
        if need > Need::Nothing {
            let known = self.keys.entry(key.to_vec()).or_insert(need);
            *known = need.max(*known);
        }
    }
}

impl Exec {
    /// Looks at what is `asked`.
    ///
    /// # Errors
    /// In words for the client, where it is not begun.
    pub(super) fn look(asked: Asked, turn: &mut Turn<'_>) -> Result<Self, String> {
        let (context, scratch) = (turn.context, &mut *turn.scratch);
        let protocol = turn.core.client.protocol;
        let needs = asked.commands(protocol).needs(context, scratch)?;
        let stage = match needs.regions.len() {
            0 | 1 => Stage::Read(Reading::of_keys(KeyList::default(), Wanted::Presence)),
            _ => match (context.front.settings.policy.cross_region_exec, asked.form) {
                // A name is for one write.
                _ if asked.name.is_some() => {
                    return Err(several_regions(&needs.regions, asked.form));
                }
                (CrossRegion::InOrder, Form::Array) => Stage::InOrder(InOrder::new(&asked.watched)),
                _ => return Err(several_regions(&needs.regions, asked.form)),
            },
        };
        let values = needs.keys.values().any(|need| *need == Need::Value);
        let mut replies = Replies::new(protocol, turn.core.limits().reply_bytes_max);
        if matches!(stage, Stage::InOrder(_)) {
            replies.encoder().array(asked.requests.len());
        }
        #[expect(clippy::cast_possible_truncation, reason = "as random as the whole")]
        let random = context.front.versions.draw() as u64;
        let mut exec = Self {
            asked,
            needed: KeyList::of(needs.keys.keys().map(Vec::as_slice)),
            wanted: match values {
                true => Wanted::Values(PAGE_BYTES),
                false => Wanted::Presence,
            },
            stage,
            read: ReadSet::default(),
            replies,
            tries: 0,
            random,
        };
        if matches!(exec.stage, Stage::Read(_)) {
            exec.read_needed();
        }
        Ok(exec)
    }

    /// Begins to read what is needed.
    fn read_needed(&mut self) {
        self.read.clear();
        self.stage = Stage::Read(Reading::of_keys(self.needed.clone(), self.wanted));
    }

    /// Bytes that are held.
    pub(super) const fn held(&self) -> usize {
        self.asked.requests.memory_bytes() + self.read.bytes + self.replies.bytes.capacity()
    }

    /// The next call; `None`: the reply is there.
    ///
    /// # Errors
    /// In words for the client. Nothing was applied.
    pub(super) fn next(
        &mut self,
        context: &Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<Option<Plan>, String> {
        match &mut self.stage {
            Stage::Read(reading) => match reading.plan(scratch) {
                Some(plan) => Ok(Some(plan)),
                None => self.evaluate(context, scratch),
            },
            Stage::InOrder(in_order) => {
                let commands = self.asked.commands(self.replies.protocol);
                match in_order.next(commands, &mut self.replies, context, scratch) {
                    Next::Call(plan) => return Ok(Some(plan)),
                    Next::Broken => {
                        self.replies.clear();
                        self.replies.encoder().null_array();
                    }
                    Next::Done => {}
                }
                self.stage = Stage::Done;
                Ok(None)
            }
            Stage::Commit | Stage::Done => Ok(None),
        }
    }

    /// Takes the answer to the last call.
    ///
    /// # Errors
    /// What is said of a transaction that has failed.
    pub(super) fn take(&mut self, response: Response) -> Result<After, Refused> {
        match (&mut self.stage, response) {
            (Stage::InOrder(in_order), response) => in_order.take(response),
            (Stage::Read(_), Response::Failed(error)) => Err(Refused::of(&before_head(error))),
            (Stage::Commit, Response::Failed(error)) => Err(Refused::of(&error)),
            (Stage::Read(reading), response) => match reading.take(response, &mut self.read) {
                true if self.read.bytes > self.replies.bytes_max => {
                    Err(Refused::invalid(too_much(self.replies.bytes_max)))
                }
                true => Ok(After::NextPage),
                false => Err(Refused::invalid(UNFIT.to_owned())),
            },
            (Stage::Commit, Response::Written { applied: true, .. }) => {
                self.stage = Stage::Done;
                Ok(After::Nothing)
            }
            (Stage::Commit, Response::Written { applied: false, .. }) => self.begin_again(),
            (Stage::Commit, Response::WrittenBefore { version }) => {
                self.replies.clear();
                once::tell_applied(version, &mut self.replies.encoder());
                self.stage = Stage::Done;
                Ok(After::Nothing)
            }
            _ => Err(Refused::invalid(UNFIT.to_owned())),
        }
    }

    /// Something was written meanwhile that was read.
    fn begin_again(&mut self) -> Result<After, Refused> {
        self.tries += 1;
        if self.tries >= TRIES_MAX {
            let what = format!(
                "others have written the keys of this transaction {TRIES_MAX} times while it was carried out"
            );
            let outcome = Outcome::NotApplied;
            return Err(Refused::of(&Failure::Busy { what, outcome }));
        }
        self.read_needed();
        Ok(After::NextPage)
    }

    /// Whether a watched key has changed.
    fn is_broken(&self) -> bool {
        self.asked.watched.iter().any(|watched| {
            let found = self.read.keys.get(&watched.key);
            found.is_none_or(|found| watched.has_changed(found.value.is_some(), found.version))
        })
    }

    /// Carries the commands out on what was read, and has what they leave written.
    fn evaluate(
        &mut self,
        context: &Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<Option<Plan>, String> {
        self.replies.clear();
        if self.is_broken() {
            self.replies.encoder().null_array();
            self.stage = Stage::Done;
            return Ok(None);
        }
        let mut overlay = Overlay::new(&self.read, &context.front.versions, self.random);
        let commands = self.asked.commands(self.replies.protocol);
        if self.asked.form == Form::Array {
            self.replies.encoder().array(commands.requests.len());
        }
        let mut one_moment = self.asked.form == Form::Single;
        let mut counts = one_moment;
        let mut halted = None;
        for place in 0..commands.requests.len() {
            let begun = commands.begin(place, context, scratch);
            let number = commands.number_of(place);
            if let Begun::Procedure(procedure) = &begun {
                one_moment &= procedure.is_of_one_moment();
                counts &= matches!(procedure, Procedure::Composed(_));
                if self.asked.form == Form::Single && procedure.asks_for_names() {
                    overlay.ask_for_keys();
                }
            }
            let command = Numbered { number, begun };
            match self
                .replies
                .carry_out(command, &mut overlay, context, scratch)
            {
                Ok(()) => {}
                // The others may tell what else is needed.
                Err(Halt::NotRead) => {}
                Err(other) => halted = halted.or(Some(other)),
            }
        }
        let mut wants = overlay.take_wants();
        if !wants.is_empty() {
            drop(overlay);
            if counts {
                // So all that the command goes by is of one moment.
                wants.again(self.needed.iter());
            }
            let reading = Reading::of(wants);
            let plan = reading.plan(scratch);
            self.stage = Stage::Read(reading);
            return Ok(plan);
        }
        if let Some(halted) = halted {
            return Err(halted.in_words());
        }
        if self.replies.is_over() {
            let text = command::reply_too_long(self.replies.bytes_max);
            return Err(format!("{text} (not applied)"));
        }
        let writes = overlay.into_batch(counts, &mut scratch.batch);
        let writes = writes.map_err(|error| Halt::Limit(error).in_words())?;
        if !writes && self.is_seen_at_once(one_moment) {
            self.stage = Stage::Done;
            return Ok(None);
        }
        // What writes nothing has nothing to be done once.
        if let Some(name) = self.asked.name.filter(|_| writes) {
            scratch.batch.name(name);
        }
        self.stage = Stage::Commit;
        Ok(Some(Plan::Write(WriteOptions::default())))
    }

    /// Whether all that was read was so at one moment, where a single command says whether elements are.
    fn is_seen_at_once(&self, one_moment: bool) -> bool {
        let of_one_key = self.needed.len() <= 1;
        let elements = one_moment && self.read.answers == 2 && self.read.any_element;
        of_one_key && (self.read.at_once || elements)
    }

    /// Writes the reply.
    pub(super) fn write(self, out: &mut Vec<u8>, front: &FrontEnd) {
        let each = self.asked.form == Form::Array;
        self.replies.write(each, out, front);
    }
}

impl Asked {
    fn commands(&self, protocol: Protocol) -> Commands<'_> {
        Commands {
            requests: &self.requests,
            watched: &self.watched,
            protocol,
        }
    }
}

impl Commands<'_> {
    /// What they need.
    ///
    /// # Errors
    /// In words for the client, where one of them has no place in a transaction.
    fn needs(self, context: &Context<'_>, scratch: &mut Scratch) -> Result<Needs, String> {
        let mut needs = Needs::default();
        for place in 0..self.requests.len() {
            match self.begin(place, context, scratch) {
                Begun::Replied(..) => {}
                Begun::Procedure(procedure) => {
                    procedure.see_keys(|key| needs.add(key, Need::Value, context));
                }
                Begun::Call(plan, gather) => {
                    let request = scratch.request(plan);
                    let known = needs_of(&request, |key, need| needs.add(key, need, context));
                    if !known || !gather.is_transactional() {
                        return Err(self.unfit(place));
                    }
                }
            }
        }
        for watched in self.watched {
            needs.add(&watched.key, Need::Presence, context);
        }
        Ok(needs)
    }

    /// Begins a command apart from the connection. What it asks for is put into `scratch`.
    pub(super) fn begin(self, place: usize, context: &Context<'_>, scratch: &mut Scratch) -> Begun {
        let mut core = Core::apart(self.protocol);
        let args = self.requests.get(place);
        let found = args.and_then(|args| Some((args, command::find(args.at(0))?)));
        let Some((args, command)) = found else {
            return Begun::Replied(Vec::new(), MeteredOutcome::Invalid);
        };
        let mut turn = Turn {
            core: &mut core,
            args,
            context,
            scratch,
        };
        match (command.run)(&mut turn) {
            Step::Procedure(procedure) => Begun::Procedure(procedure),
            Step::Call(plan, gather) => Begun::Call(plan, gather),
            Step::Replied | Step::Queued => {
                let (bytes, outcome) = core.into_reply();
                Begun::Replied(bytes, outcome)
            }
        }
    }

    /// The place of that command among those that are counted.
    pub(super) fn number_of(self, place: usize) -> u16 {
        let args = self.requests.get(place);
        args.map_or(command::UNKNOWN, |args| command::number_of(args.at(0)))
    }

    /// What is said of a command that has no place in a transaction.
    fn unfit(self, place: usize) -> String {
        let args = self.requests.get(place);
        let name = args.map_or_else(String::new, |args| command::shown(args.at(0)));
        format!("EXECABORT Transaction discarded because '{name}' has no place in it (not applied)")
    }
}

/// Carries out the call of a command on `overlay`, and those that may follow it.
fn answer(
    mut pending: Pending,
    mut plan: Plan,
    overlay: &mut Overlay<'_>,
    context: &Context<'_>,
    scratch: &mut Scratch,
) -> Result<Pending, BatchError> {
    loop {
        let response = overlay.carry_out(&scratch.request(plan))?;
        if pending.take(response) == After::Nothing {
            return Ok(pending);
        }
        let goes_on = matches!(
            pending.gather,
            Gather::Keys(_) | Gather::LengthOf(_) | Gather::TypeOf(_)
        );
        match pending.next_page(context, scratch).filter(|_| goes_on) {
            Some(next) => plan = next,
            None => {
                pending.fail(format!("ERR {LONG}"), MeteredOutcome::Invalid);
                return Ok(pending);
            }
        }
    }
}

/// What is said of keys that lie in these regions.
fn several_regions(regions: &BTreeSet<RegionId>, form: Form) -> String {
    /// Regions that are named, at most.
    const NAMED_MAX: usize = 8;
    let named = regions.iter().take(NAMED_MAX).map(ToString::to_string);
    let mut named: Vec<String> = named.collect();
    if regions.len() > NAMED_MAX {
        named.push(format!("{} more", regions.len() - NAMED_MAX));
    }
    let named = named.join(", ");
    match form {
        Form::Array => format!(
            "EXECABORT Transaction discarded because its keys, those watched among them, lie in several regions \
             ({named}), and a transaction is atomic within one: send the commands without a transaction (redis-py: \
             pipeline(transaction=False), other clients: a plain pipeline) (not applied)"
        ),
        Form::Single => format!(
            "ERR the keys lie in several regions ({named}), and this command is carried out within one (not applied)"
        ),
    }
}

fn too_much(bytes: usize) -> String {
    format!("ERR the transaction reads over {bytes} bytes (max_reply_bytes) (not applied)")
}
