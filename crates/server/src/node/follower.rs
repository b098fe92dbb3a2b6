//! Drives a passive copy of a region: a backup's, or a primary's that is not open yet.
//!
//! A backup feeds the pure machine ([`Backup`]) what its primary sends and what its storage has done, and carries
//! out what the machine says. Its parts do the work, and return what came of it: the copy itself
//! ([`LocalCopy`]), edits on their way ([`Edits`]), the checkpoint for a primary that opens ([`Offered`]), parts of
//! segments that are fetched ([`Fetching`]) or shipped ([`Arrivals`]), the report ([`OwedReport`]), and whether the
//! copy follows at all ([`CopyHealth`]). Only what stands here and in its two modules steps the machine:
//! [`adopt`], what other members send and how an opening primary adopts another's history, and [`failing`].

mod adopt;
mod failing;

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{EditSeq, Instant, Position, RegionId, Remedy, SegmentPart, ServerId, Standing};
use argosy_device::Buffer;
use argosy_engine::{self as engine, CopyError, CopyEvent, CopyOf, Engine, Progress};
use argosy_replication::backup::{Backup, BackupAction, BackupEvent};
use argosy_wire::message::Message;

use super::arriving::{Arrivals, Landed};
use super::assembling::{Edits, Offered};
use super::context::Context;
use super::fetching::Fetching;
use super::local_copy::LocalCopy;
use super::refilling::CopyHealth;
use super::renewing::OwedReport;
use super::sending::Wanted;
use super::views::View;
use super::whole::WholeMark;
use super::windows::WindowsOf;
use super::{World, convert};
use crate::activity::Activity;
use adopt::Adoption;

/// Between two looks at levels that are being built and cannot go on.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What found the device full.
enum Postponed {
    /// The edit that is to be applied.
    Apply(EditSeq),
    /// A part that was fetched, and from whom.
    Put(ServerId, SegmentPart, Arc<Buffer>),
}

/// A passive copy. See the module documentation.
pub(crate) struct Follower {
    copy: LocalCopy,
    machine: Backup,
    actions: Vec<BackupAction>,
    edits: Edits,
    offered: Offered,
    fetching: Fetching,
    arrivals: Arrivals,
    adoption: Option<Adoption>,
    /// What found the device full, and is tried again at every step.
    postponed: Vec<Postponed>,
    owed: OwedReport,
    health: CopyHealth,
    /// What it does not take, as if its device stood still.
    #[cfg(test)]
    pub(super) untaken: super::slow_member_tests::NotTaken,
}

impl Follower {
    /// Opens this server's copy of `region`. It takes the primary's levels, or builds
    /// its own, as the server `own_levels`.
    pub(crate) fn open(
        region: &argosy_coordinator::Region,
        own_levels: Option<ServerId>,
        engine: &dyn Engine,
        world: &World,
    ) -> Result<Self, CopyError> {
        let of_region = WindowsOf {
            region: region.id,
            logs: engine.logs(),
        };
        let survivors = of_region.survivors(world);
        let mark = WholeMark::open(region.id, &survivors, world)?;
        let needed = engine.needs_memory(&survivors);
        let copy = CopyOf {
            store: &world.store,
            region: region.id,
            own_levels,
        };
        let replica = engine.open(&copy, of_region.fresh(needed, world)?, survivors)?;
        of_region.keep(world)?;
        let mark = match replica.standing() {
            // The mark may be that of the other copy.
            Standing::PutBack => WholeMark::renew(region.id, false, world)?,
            _ => mark,
        };
        // Nobody was let write to these windows yet.
        Ok(Self::of(region.id, &View::of(region), replica, mark).with_fresh_windows())
    }

    /// The copy of `region`, which lies here as `replica`.
    pub(super) fn of(
        region: RegionId,
        view: &View,
        replica: Box<dyn engine::Follower>,
        mark: WholeMark,
    ) -> Self {
        let machine = Backup::new(replica.edit());
        Self {
            copy: LocalCopy::new(region, view, replica, mark),
            machine,
            actions: Vec::new(),
            edits: Edits::default(),
            offered: Offered::default(),
            fetching: Fetching::default(),
            arrivals: Arrivals::default(),
            adoption: None,
            postponed: Vec::new(),
            owed: OwedReport::default(),
            health: CopyHealth::default(),
            #[cfg(test)]
            untaken: Default::default(),
        }
    }

    /// It was made with fresh windows.
    pub(super) fn with_fresh_windows(self) -> Self {
        Self {
            copy: self.copy.with_fresh_windows(),
            ..self
        }
    }

    /// Whether it follows the primary of `view`, chosen as there.
    pub(super) fn follows(&self, view: &View) -> bool {
        view.is_led && self.copy.is_under(view)
    }

    /// It is no longer certain to hold everything that is acknowledged: it is no member's.
    pub(super) fn not_whole(&mut self, context: &Context<'_>) {
        if let Err(error) = self.copy.not_whole(context.world) {
            self.fail_by(&error.into(), context);
        }
    }

    /// Takes its place under `view`: nobody who wrote to it before can any more, and where the log ends is found. False
    /// where that has to be tried again: an edit is being applied, or there is no memory for windows. Blocks.
    ///
    /// # Errors
    /// What makes the copy fail.
    pub(super) fn sit(&mut self, view: &View, context: &Context<'_>) -> Result<bool, CopyError> {
        self.copy.revoke_windows(context);
        self.step_machine(BackupEvent::LinkDown, context);
        self.begin_again(context);
        self.step(context);
        if self.health.has_failed() {
            return Ok(true);
        }
        if self.machine.has_straggler() || self.applies_adopted() {
            return Ok(false);
        }
        self.forget_work();
        let detached = self.copy.detach(context)?;
        if !view.has_member(context.id) {
            self.copy.not_whole(context.world)?;
        }
        if let Err(error) = detached {
            let region = self.copy.region.0;
            tracing::warn!(region, %error, "no memory for windows now: it is tried again");
            return Ok(false);
        }
        self.copy.sit(view);
        Ok(true)
    }

    /// It takes the place of a copy that could not be used, and that had asked for `fetching`.
    pub(super) fn in_place(self, fetching: Fetching) -> Self {
        Self {
            fetching,
            health: CopyHealth::refilled(),
            ..self
        }
    }

    /// What the copy is certain to hold.
    pub(super) fn standing(&self) -> Standing {
        self.copy.standing()
    }

    /// What it fetches.
    #[cfg(test)]
    pub(super) fn fetching(&mut self) -> &mut Fetching {
        &mut self.fetching
    }

    /// Where the copy stands.
    pub(crate) fn position(&self) -> Position {
        self.copy.replica.position()
    }

    /// The copy itself, for those who describe it.
    pub(crate) fn replica(&self) -> &dyn engine::Follower {
        &*self.copy.replica
    }

    /// Bytes of edits that have arrived and are not applied, and of the one that arrives.
    pub(super) fn unapplied_bytes(&self) -> usize {
        self.edits.bytes()
    }

    /// What takes space, and what waits for it, in words for a report.
    pub(crate) fn space_in_words(&self) -> String {
        let waits = self.postponed.iter().map(|postponed| match postponed {
            Postponed::Apply(seq) => format!("edit {seq}"),
            Postponed::Put(_, part, _) => format!("{}", part.number),
        });
        format!(
            "{}; being written {:?}; waiting for room {:?}; edits {:?}; {:?}",
            self.copy.replica.space_in_words(),
            self.arrivals.storing_in_words(),
            waits.collect::<Vec<_>>(),
            self.edits.kept_in_words(),
            self.machine
        )
    }

    /// Edits that wait to be applied, and levels that are being built.
    pub(crate) fn pending(&self) -> usize {
        let building = usize::from(self.copy.replica.is_building());
        self.edits.count() + self.arrivals.storing() + building
    }

    /// Whether something of it is under way at the device.
    pub(crate) fn is_at_device(&self) -> bool {
        !self.copy.replica.is_idle() || self.edits.is_kept() || self.arrivals.storing() > 0
    }

    /// Whether it is being filled, from the open primary or from a copy that is whole.
    pub(super) fn is_being_filled(&self) -> bool {
        self.adoption.is_some() || self.edits.count() > 0
    }

    /// Whether there is something to move on although nothing more happens.
    pub(crate) fn has_more(&self) -> bool {
        let asks = self.edits.is_arriving() || self.fetching.has_more();
        let offers = self.offered.has_more();
        let adopts = self.adoption.is_some() || !self.postponed.is_empty();
        let rests = self.arrivals.has_rest();
        !self.health.has_failed() && (self.is_at_device() || asks || offers || adopts || rests)
    }

    /// Part of a segment, for a member that fetches it; `None` where it is not here.
    pub(crate) fn read(&self, part: SegmentPart) -> Option<Result<Vec<u8>, String>> {
        self.copy.read(part)
    }

    /// The link to the primary is gone.
    pub(crate) fn link_down(&mut self, context: &Context<'_>) {
        if context.settings.mutants.keep_share() {
            self.edits.keep_share();
        }
        self.health.take_refill_back();
        self.forget_fetches();
        self.offered.forget();
        self.step_machine(BackupEvent::LinkDown, context);
    }

    /// Nothing of what was asked for comes any more.
    fn forget_fetches(&mut self) {
        self.edits.forget_arriving();
        self.owed.forget();
        self.postponed
            .retain(|postponed| matches!(postponed, Postponed::Apply(_)));
        self.fetching.forget();
        self.arrivals.link_down();
    }

    /// The primary begins a new attempt over the same link: slots that are in use stay in use until
    /// what is on its way has come; what has come is given back.
    fn begin_again(&mut self, context: &Context<'_>) {
        self.edits.forget_arriving();
        self.owed.forget();
        self.offered.forget();
        self.postponed
            .retain(|postponed| matches!(postponed, Postponed::Apply(_)));
        self.fetching.unwant();
        self.arrivals.give_back(&self.copy, context);
    }

    /// Forgets what is still to be done: edits, and what waits for room.
    fn forget_work(&mut self) {
        self.edits.forget_kept();
        self.postponed.clear();
        self.adoption = None;
    }

    /// A message of another member about this region.
    pub(crate) fn handle(&mut self, from: ServerId, message: &Message<'_>, context: &Context<'_>) {
        if from != self.copy.primary && is_of_primary(message) {
            return context.reset_link(from, "it speaks as if it were the primary");
        }
        if self.health.has_failed() && !context.settings.mutants.fail_silently() {
            return self.handle_failed(from, message, context);
        }
        #[cfg(test)]
        if self.untaken.covers(message) {
            return;
        }
        match *message {
            Message::Prepare { .. } => self.prepare(message, context),
            Message::Whole { attempt } => {
                if self.machine.attempt() == Some(attempt) {
                    self.copy.became_whole(&context.world.store);
                }
            }
            Message::Adopt => self.offered.offer_to(from, &self.copy, context),
            Message::Offer { .. } | Message::Edit { .. } => self.begun(from, message, context),
            Message::More { .. } => self.more(from, message, context),
            Message::MoreWanted { attempt, seq, to } => {
                let wanted = Wanted { attempt, seq, to };
                self.offered.more_wanted(from, wanted, &self.copy, context);
            }
            Message::Flush {
                attempt,
                range,
                commit,
            } => {
                if self.machine.attempt() == Some(attempt) {
                    self.copy.replica.commit(commit);
                }
                self.step_machine(BackupEvent::Flush { attempt, range }, context);
            }
            Message::Rest { attempt } => self.step_machine(BackupEvent::Rest { attempt }, context),
            Message::Wake { attempt } => self.step_machine(BackupEvent::Wake { attempt }, context),
            Message::Commit { commit } => self.copy.replica.commit(commit),
            Message::Compact { upto } => self.copy.replica.compact(upto),
            // Of an attempt that is over: nothing tells any more whether it is of use.
            Message::Ship { attempt, slot, .. } if self.machine.attempt() != Some(attempt) => {
                let landed = Landed { attempt, slot };
                context.send(from, self.copy.region, &landed.stored());
            }
            Message::Ship { .. } => self.shipped(from, message, context),
            Message::Places {
                attempt,
                ref places,
            } => {
                if self.machine.attempt() == Some(attempt) {
                    self.copy.replica.learn_places(places);
                }
            }
            Message::Fetched { .. } => self.fetched(from, message, context),
            _ => tracing::warn!(
                from = from.0,
                region = self.copy.region.0,
                "unexpected message"
            ),
        }
    }

    /// The primary has the copy prepare.
    fn prepare(&mut self, message: &Message<'_>, context: &Context<'_>) {
        let Message::Prepare {
            attempt,
            addresses,
            refill,
        } = *message
        else {
            return;
        };
        if addresses != self.copy.replica.addresses() {
            return self.refuse_addresses(self.copy.primary, attempt, addresses, context);
        }
        // A copy that was begun anew and is still empty has no history.
        let is_new =
            self.copy.replica.standing() == Standing::BegunAnew && self.position().is_empty();
        if refill && !is_new {
            return self.refill_wanted(attempt, context);
        }
        self.begin_again(context);
        self.step_machine(BackupEvent::Prepare { attempt }, context);
    }

    /// The copy, which is begun anew, prepares as the primary has asked of the one before.
    pub(super) fn prepare_refilled(&mut self, attempt: u64, context: &Context<'_>) {
        self.step_machine(BackupEvent::Prepare { attempt }, context);
    }

    /// Whether a report is due at `now`.
    pub(crate) fn report_is_due(&self, now: Instant) -> bool {
        !self.health.has_failed() && self.owed.is_due(now)
    }

    /// How long it is until a report is due, if one is owed.
    pub(crate) fn report_is_due_in(&self, now: Instant) -> Option<Duration> {
        let owed = self.owed.is_due_in(now);
        owed.filter(|_| !self.health.has_failed())
    }

    /// Finds where the log ends, and tells the primary, if that is due. Blocks.
    pub(crate) fn report_if_due(&mut self, context: &Context<'_>) {
        if self.report_is_due(context.now())
            && let Err(error) = self.owed.make(&mut self.copy, context)
        {
            self.fail_by(&error, context);
        }
    }

    /// Applies an edit of which nothing is missing, now or when the device has room.
    fn apply(&mut self, seq: EditSeq, context: &Context<'_>) {
        let edit = self.edits.encoded(seq).unwrap_or_default();
        self.copy.note_change(context.settings.mutants);
        match self.copy.replica.submit(edit) {
            Ok(_) => {}
            Err(error) if error.is_full() => self.postponed.push(Postponed::Apply(seq)),
            Err(error) => self.fail_by(&error, context),
        }
    }

    /// Tries again what found the device full.
    fn try_postponed(&mut self, context: &Context<'_>) {
        for _ in 0..self.postponed.len() {
            if self.postponed.is_empty() {
                return;
            }
            match self.postponed.remove(0) {
                Postponed::Apply(seq) => self.apply(seq, context),
                Postponed::Put(from, part, bytes) => self.put(from, part, bytes, context),
            }
        }
    }

    /// Moves storage on. Returns whether anything was done.
    pub(crate) fn step(&mut self, context: &Context<'_>) -> bool {
        if self.health.has_failed() {
            return false;
        }
        if let Some(error) = context.world.store.failure() {
            self.fail(&error, context);
            return true;
        }
        self.edits.ask_on(self.copy.region, context);
        self.offered.offer_on(&self.copy, context);
        self.fetching.start(self.copy.region, context);
        self.try_postponed(context);
        self.try_adopted(context);
        if self.machine.is_behind() || self.edits.is_arriving() || self.adoption.is_some() {
            self.arrivals.end_rest();
        } else {
            self.arrivals.forget_unnamed(context.now(), &mut self.copy);
        }
        self.copy.count_rewritten(context);
        let events = match self.copy.replica.step() {
            Ok(events) => events,
            Err(error) => {
                self.fail_by(&error, context);
                return true;
            }
        };
        if self.copy.replica.take_work() {
            context.wake(self.copy.region);
        }
        let made = !events.is_empty();
        if made {
            context.ledger().was(convert::activity_of(&events));
        }
        for event in events {
            match event {
                CopyEvent::SegmentStored(number) => {
                    self.arrivals.stored(number, &self.copy, context);
                }
                CopyEvent::EditApplied(seq) => self.applied(seq, context),
                CopyEvent::Flushed(range) => {
                    self.step_machine(BackupEvent::Flushed { range }, context);
                }
                CopyEvent::FlushRefused(_) => {
                    context.reset_link(self.copy.primary, "a flush does not fit");
                }
            }
        }
        made
    }

    /// Does a step of building levels here.
    pub(crate) fn build(&mut self, now: Instant, context: &Context<'_>) -> Progress {
        if self.health.has_failed() || !self.copy.replica.builds_levels() {
            return Progress::default();
        }
        // Nobody can repair it. Where the copy cannot be filled anew, it follows until a build meets the damage.
        let damaged = self.copy.replica.damaged_only_here();
        if let Some(level) = damaged.filter(|_| !self.health.was_refilled()) {
            self.fail_for_damage(&level, context);
            return Progress::default();
        }
        let _span = context.ledger().during(Activity::Compaction);
        let made = match self.copy.replica.build(now) {
            Ok(made) => made,
            Err(error) if error.remedy() == Remedy::Repair => {
                self.fail_for_damage(&error, context);
                true
            }
            Err(error) => {
                self.fail(&error, context);
                true
            }
        };
        if let Some(upto) = self.copy.replica.take_compacted() {
            self.copy.tell(&Message::Compacted { upto }, context);
        }
        Progress {
            made,
            device: self.copy.replica.is_building(),
            // What waits for room on the device is looked at again.
            idle_for: self.copy.replica.is_building().then_some(LOOK_AGAIN),
        }
    }

    /// Something has happened: carries out what the machine says to it.
    fn step_machine(&mut self, event: BackupEvent, context: &Context<'_>) {
        self.machine.step(event, &mut self.actions);
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                self.carry_out(action, context);
            }
        }
    }

    fn carry_out(&mut self, action: BackupAction, context: &Context<'_>) {
        if self.health.has_failed() {
            return;
        }
        let (primary, region) = (self.copy.primary, self.copy.region);
        match action {
            BackupAction::Report { attempt } => {
                self.owed.begin(attempt, &mut self.copy, context);
            }
            BackupAction::Examine { seq } => {
                let edit = self.edits.encoded(seq);
                let missing = edit.and_then(|bytes| self.copy.replica.missing(bytes).ok());
                let Some(missing) = missing else {
                    return context.reset_link(primary, "an edit is missing");
                };
                self.machine
                    .step(BackupEvent::Examined { seq, missing }, &mut self.actions);
            }
            BackupAction::Fetch { part } => self.fetching.want(primary, part, region, context),
            BackupAction::Apply { seq } => self.apply(seq, context),
            BackupAction::Forget { seq } => self.edits.forget_up_to(seq),
            BackupAction::SendApplied { attempt, seq } => {
                self.copy.tell(&Message::Applied { attempt, seq }, context);
            }
            BackupAction::SendCaughtUp { attempt } => {
                let position = self.position();
                let message = Message::CaughtUp { attempt, position };
                self.copy.tell(&message, context);
            }
            BackupAction::SendCheckpointWanted { attempt } => {
                let message = Message::CheckpointWanted { attempt };
                self.copy.tell(&message, context);
            }
            BackupAction::GiveUpArrivals { now } => {
                self.copy.replica.expect_checkpoint();
                if now {
                    self.copy.replica.give_up_arrivals();
                }
            }
            BackupAction::Release => _ = self.copy.replica.rest(),
            BackupAction::Allocate { attempt } => {
                if let Err(error) = self.owed.awaken(attempt, &mut self.copy, context) {
                    self.fail_by(&error, context);
                }
            }
            BackupAction::Persist { range } => self.copy.replica.flush(range),
            BackupAction::SendFlushed { attempt, range } => {
                self.copy
                    .tell(&Message::Flushed { attempt, range }, context);
            }
        }
    }
}

/// Whether nobody but the primary of a region says this of it.
const fn is_of_primary(message: &Message<'_>) -> bool {
    matches!(
        message,
        Message::Prepare { .. }
            | Message::Edit { .. }
            | Message::Flush { .. }
            | Message::Ship { .. }
            | Message::Places { .. }
            | Message::Commit { .. }
            | Message::Compact { .. }
            | Message::Whole { .. }
            | Message::Rest { .. }
            | Message::Wake { .. }
    )
}
