//! Drives a region whose primary is this server: feeds the pure machine what happens, and carries out what it says.
//!
//! While the region opens, the own copy is a [`Follower`]: it may have to be brought up to another member's. Promotion
//! makes it an engine. Then [`pump`](PrimaryDriver::pump) is called when something was appended, acknowledged or built:
//!
//! 1. what the engine told ([`Outbox`]) is taken,
//! 2. flushes are announced and everything appended is shipped to every attached backup,
//! 3. completed ships raise the commit LSN; where the logs rest, the backups' windows do, too,
//! 4. finished segments go into free landing slots, and edits behind them ([`offering`](super::offering)).

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{EditSeq, FlushRange, Instant, Lsn, Position, RegionId, SegmentPart, ServerId};
use argosy_coordinator::Wish;
use argosy_engine::Source;
use argosy_replication::Primary;
use argosy_replication::primary::{Action, Event, OwnCopy};
use argosy_wire::message::Message;

use super::attachments::Attachments;
use super::context::Context;
use super::counters::Counted;
use super::follower::Follower;
use super::group::{self, Claimed, LedGroup};
use super::limits::{Looked, Untaken};
use super::offering::Offering;
use super::outbox::Outbox;
use super::promoting::Due;
use super::reading::Reader;
use super::refilling::Unusable;
use super::sending::Wanted;
use super::shipper::{Attachment, Granting, Sent, ShipError, send_segment};
use super::stage::Stage;
use super::views::View;
use super::whole::WholeMark;
use super::written::Written;
use super::{Mutants, acknowledging};
use crate::activity::Activity;

/// See the module documentation.
pub(crate) struct PrimaryDriver {
    pub(super) region: RegionId,
    pub(super) machine: Primary,
    pub(super) actions: Vec<Action>,
    pub(super) stage: Stage,
    pub(super) outbox: Arc<Outbox>,
    /// How far the logs are written.
    pub(super) written: Written,
    attachments: Attachments,
    /// Edits and checkpoints that backups are given.
    offering: Offering,
    /// What is to be done in the background.
    pub(super) due: Due,
    /// The own copy was refilled by this process.
    pub(super) was_refilled: bool,
    /// What says that the own copy is whole, once the region is open.
    pub(super) mark: Option<WholeMark>,
    /// The group, and what is amiss with it.
    pub(super) group: LedGroup,
}

impl PrimaryDriver {
    /// The primary of `view`, whose own copy is `copy`; the backups `build` their own levels or are sent the primary's.
    /// Nothing happens before the first [`pump`](Self::pump).
    pub(crate) fn new(
        region: RegionId,
        view: &View,
        copy: Result<Follower, Unusable>,
        builds: bool,
        mutants: argosy_replication::Mutants,
    ) -> Self {
        let mut actions = Vec::new();
        let mut claimed = Claimed::Holds;
        let (own, stage) = match copy {
            Ok(copy) => {
                claimed = Claimed::of(view, copy.standing(), &copy.position());
                let own = OwnCopy::Opened {
                    position: copy.position(),
                    standing: copy.standing(),
                };
                (own, Stage::Opening(Box::new(copy)))
            }
            Err(unusable) => (OwnCopy::Damaged, Stage::Damaged(Box::new(unusable))),
        };
        let machine = Primary::new(&group::of(view), own, mutants, &mut actions);
        Self {
            region,
            machine,
            actions,
            stage,
            outbox: Arc::new(Outbox::new(!builds)),
            written: Written::new(builds),
            attachments: Attachments::default(),
            offering: Offering::new(region),
            due: Due::Nothing,
            was_refilled: false,
            mark: None,
            group: LedGroup::new(view, claimed),
        }
    }

    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.stage, Stage::Serving(_))
    }

    /// Where the own copy stands.
    pub(crate) fn edit(&self) -> EditSeq {
        match &self.stage {
            Stage::Opening(copy) => copy.position().edit,
            Stage::Serving(engine) => engine.edit(),
            Stage::Damaged(_) | Stage::Closed(_) => EditSeq(0),
        }
    }

    /// Shipments and edits that a backup has not acknowledged.
    pub(crate) fn pending(&self) -> usize {
        self.offering.edits() + usize::from(self.outbox.segment().is_some())
    }

    /// Bytes of the log written to each backup.
    pub(crate) fn log_bytes(&self) -> BTreeMap<ServerId, u64> {
        self.attachments.log_bytes()
    }

    /// Bytes of edits that are still to be sent, to all members together.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.offering.waiting_bytes()
    }

    /// `member` asks for more of the edit that it is being sent.
    pub(super) fn more_wanted(&mut self, member: ServerId, wanted: Wanted, context: &Context<'_>) {
        self.offering.more_wanted(member, wanted, context);
    }

    /// What the machine knows.
    pub(crate) const fn machine(&self) -> &Primary {
        &self.machine
    }

    /// Something happened.
    pub(crate) fn handle(&mut self, event: Event, context: &Context<'_>) {
        if self.group.is_refused() {
            return;
        }
        if let Event::EditApplied {
            member,
            attempt,
            seq,
        } = &event
            && self.machine.speaks_under(*member, *attempt)
        {
            self.offering.applied_at(*member, *seq, context);
        }
        if let Event::LinkDown { member } = &event {
            match &mut self.stage {
                Stage::Opening(copy) => copy.source_lost(*member),
                Stage::Damaged(copy) => copy.source_lost(*member),
                Stage::Serving(_) | Stage::Closed(_) => {}
            }
        }
        if let (Event::Failed { member, .. }, Stage::Opening(copy)) = (&event, &mut self.stage) {
            copy.source_failed(*member);
        }
        if let Event::Report { member, .. } = &event {
            self.group.reported(*member);
            if let Stage::Serving(engine) = &self.stage {
                let seq = engine.edit();
                self.machine.step(Event::StoreAt { seq }, &mut self.actions);
            }
        }
        self.machine.step(event, &mut self.actions);
        self.act(context);
    }

    /// A message for the own copy while it adopts another member's history.
    pub(crate) fn handle_as_follower(
        &mut self,
        from: ServerId,
        message: &Message<'_>,
        context: &Context<'_>,
    ) {
        if let Stage::Opening(copy) = &mut self.stage {
            copy.handle(from, message, context);
        } else if let Message::Fetched { slot, .. } = message {
            // The copy that asked for it has failed since.
            match &mut self.stage {
                Stage::Damaged(copy) => copy.give_back(from, *slot, context),
                Stage::Closed(_) => context.link(from).free_fetch_slot(*slot),
                Stage::Opening(_) | Stage::Serving(_) => {}
            }
        }
        self.adopt_on(context);
    }

    /// What segments are read from while the region is open here; it holds what backups fetch.
    pub(crate) fn reader(&self) -> Option<Reader> {
        let Stage::Serving(engine) = &self.stage else {
            return None;
        };
        Some(Reader {
            engine: Arc::clone(engine),
            pins: self.offering.pins(),
        })
    }

    /// Reads part of a segment for a member that fetches it; `None` where it is gone.
    pub(crate) fn read(&self, part: SegmentPart) -> Option<Result<Vec<u8>, String>> {
        match &self.stage {
            Stage::Opening(copy) => copy.read(part),
            Stage::Serving(_) => self.reader()?.read(part),
            Stage::Damaged(_) | Stage::Closed(_) => None,
        }
    }

    /// Carries on: see the module documentation. Returns whether anything was done.
    pub(crate) fn pump(&mut self, context: &Context<'_>) -> bool {
        if self.group.is_refused() {
            return false;
        }
        let mut made = !self.actions.is_empty();
        if self.machine.waits_for_lease() && !context.leases().binds(self.region) {
            self.machine.step(Event::LeaseOver, &mut self.actions);
            made = true;
        }
        self.act(context);
        if let Stage::Opening(copy) = &mut self.stage {
            made |= copy.step(context);
            if let Some(why) = copy.failed() {
                let damaged = copy.is_damaged();
                let why = format!("this server's copy has failed: {why}");
                let before = std::mem::replace(&mut self.stage, Stage::Closed(why.clone()));
                match before {
                    Stage::Opening(copy) if damaged => {
                        self.own_damaged(copy.into_unusable(), context);
                    }
                    _ => self.fail(why, context),
                }
            }
            self.adopt_on(context);
            return made;
        }
        let news = self.outbox.take();
        made |= !news.is_empty();
        self.written.note(&news);
        if let Some(last) = news.last {
            self.machine
                .step(Event::Appended { last }, &mut self.actions);
        }
        for flush in &news.flushes {
            let range = *flush;
            self.machine.step(Event::Flush { range }, &mut self.actions);
        }
        self.act(context);
        let held_up = self.attachments.goes_on();
        let appended = held_up || news.last.is_some() || !news.flushes.is_empty();
        let span = appended.then(|| context.ledger().during(Activity::LogReplication));
        if appended {
            self.ship_all(context);
        }
        made |= self.poll_ships(context);
        drop(span);
        if !acknowledging::follows_commits(context) {
            self.acknowledge(context);
        }
        self.rest(context);
        self.offering.offer_all(self.stage.source(), context);
        made |= self.ship_segment(context);
        let committed = !news.edits.is_empty();
        let _span = committed.then(|| context.ledger().during(Activity::IndexShipping));
        for edit in news.edits {
            let seq = edit.seq;
            self.offering.keep(seq, edit);
            self.machine
                .step(Event::EditCommitted { seq }, &mut self.actions);
        }
        self.act(context);
        made | self.offering.send_on(context)
    }

    /// What it wishes for its group under `view`. Looks which copies are at the limit of what may wait for them.
    pub(super) fn wish(
        &mut self,
        view: &View,
        now: Instant,
        context: &Context<'_>,
    ) -> Option<Wish> {
        let members = self.attachments.members().into_iter();
        let looked = members.map(|member| Looked {
            member,
            untaken: self.untaken(member, context),
        });
        let looked = looked.collect();
        if let Some(source) = self.stage.source() {
            self.group
                .note_limits(looked, &self.machine, source, context);
        }
        self.group.wish(&self.machine, view, now, context)
    }

    /// What edits and segments wait for `member`, whose device has room as far as it has told.
    fn untaken(&self, member: ServerId, context: &Context<'_>) -> Option<Untaken> {
        let mut members = self.machine.members();
        let applied = members.find(|of| of.id == member)?.applied;
        let lacks = self.machine.takes_segments(member) && !self.attachments.has_segment(member);
        let segment = self.outbox.segment().filter(|_| lacks);
        let segment = segment.map(|segment| segment.number);
        let waits = applied < self.edit() || segment.is_some();
        let is_full = waits && context.device_care.full_peers().contains(&member);
        (waits && !is_full).then_some(Untaken { applied, segment })
    }

    /// Whether there is something to move on although nothing more happens: what is on its way to backups, what waits
    /// for room in a link, and a region that opens.
    pub(crate) fn has_more(&self) -> bool {
        let opens = match &self.stage {
            Stage::Opening(_) | Stage::Damaged(_) => true,
            Stage::Serving(_) | Stage::Closed(_) => false,
        };
        opens && !self.group.is_refused()
            || !self.actions.is_empty()
            || self.offering.has_more()
            || self.attachments.is_under_way()
            || !self.outbox.is_empty()
    }

    /// Writes everything appended to every attached backup.
    fn ship_all(&mut self, context: &Context<'_>) {
        for member in self.attachments.members() {
            self.ship(member, context);
        }
    }

    fn ship(&mut self, member: ServerId, context: &Context<'_>) {
        let Some(attachment) = self.attachments.get_mut(member) else {
            return;
        };
        let Some(source) = self.stage.source() else {
            return;
        };
        let last = self.written.last();
        let shipped = match self.machine.is_awake(member) {
            true => {
                let machine = &self.machine;
                let unflushed = |log| machine.unflushed(member, log);
                attachment.ship(context.fabric(), source, self.written.ends(), &unflushed)
            }
            // One that wakes is shipped to when it says that it did.
            false if !self.machine.is_asleep(member) => return,
            false => match attachment.lacks(source, self.written.ends()) {
                Ok(false) if !self.machine.owes_flushes(member) => return,
                Ok(_) => {
                    return self
                        .machine
                        .step(Event::Wanted { member }, &mut self.actions);
                }
                Err(error) => Err(error),
            },
        };
        match shipped {
            // The fabric takes no more for now.
            Ok(None) => {}
            Ok(Some(ship)) => {
                self.attachments.shipped(member, ship);
                self.machine
                    .step(Event::Shipped { member, ship, last }, &mut self.actions);
            }
            Err(error @ ShipError::TooFarBehind { .. }) => {
                tracing::info!(region = self.region.0, member = member.0, why = %error, "a backup has to fetch");
                self.machine
                    .step(Event::TooFarBehind { member }, &mut self.actions);
            }
            Err(error) => self.lost(member, &error, context),
        }
    }

    /// Has the backups' windows rest where the own logs do, and gives the permit for the memory of all of them back.
    fn rest(&mut self, context: &Context<'_>) {
        if !self.stage.source().is_some_and(Source::is_at_rest) {
            return;
        }
        if !self.attachments.is_empty() {
            self.machine.step(Event::LogsRest, &mut self.actions);
            self.act(context);
        }
        if let Some(next) = context.memory.permits().told(self.region) {
            context.wake(next);
        }
    }

    fn poll_ships(&mut self, context: &Context<'_>) -> bool {
        let mut made = false;
        for member in self.attachments.members() {
            let Some(attachment) = self.attachments.get_mut(member) else {
                continue;
            };
            match attachment.poll() {
                Ok(Some(ship)) => {
                    made = true;
                    context.lease_completion(member);
                    self.machine
                        .step(Event::Written { member, ship }, &mut self.actions);
                }
                Ok(None) => {}
                Err(error) => self.lost(member, &error, context),
            }
        }
        self.act(context);
        made || self.attachments.goes_on()
    }

    /// Ships the oldest finished segment to every backup that takes segments and has a free slot.
    fn ship_segment(&mut self, context: &Context<'_>) -> bool {
        let Some(segment) = self.outbox.segment() else {
            return false;
        };
        let wanting: Vec<ServerId> = context
            .others(self.region)
            .into_iter()
            .filter(|id| self.machine.takes_segments(*id) && !self.attachments.has_segment(*id))
            .collect();
        let mut made = false;
        let mut waiting = false;
        for member in wanting {
            let attempt = self.machine.attempt(member);
            match send_segment(&segment, self.region, member, attempt, context) {
                Sent::Yes => {
                    context.count(Counted::Shipments);
                    self.attachments.sent_segment(member);
                    made = true;
                }
                Sent::NoRoom => waiting = true,
                // It fetches what it lacks when it is back.
                Sent::Down => {}
            }
        }
        if !waiting {
            self.attachments.begin_segment();
            self.outbox.shipped();
            made = true;
        }
        made
    }

    /// Carries out what the machine says.
    pub(super) fn act(&mut self, context: &Context<'_>) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                self.carry_out(action, context);
            }
        }
    }

    fn carry_out(&mut self, action: Action, context: &Context<'_>) {
        let region = self.region;
        match action {
            Action::Prepare {
                member,
                attempt,
                refill,
            } => {
                let prepare = Message::Prepare {
                    attempt,
                    addresses: context.memory.engine().addresses(),
                    refill: refill && !context.is_broken(region),
                };
                context.send(member, region, &prepare);
            }
            Action::TellWhole { member, attempt } => {
                context.send(member, region, &Message::Whole { attempt });
            }
            Action::RefillOwn => self.do_at_device(Due::Refill, context),
            Action::Adopt { from } => self.adopt(from, context),
            Action::Promote => self.do_at_device(Due::Promotion, context),
            Action::Serve => context.show(region, self.group.since()),
            Action::Filled { member, .. } => self.group.filled(member),
            Action::Offer { member, attempt } => {
                self.offering
                    .tell_places(member, attempt, self.stage.source(), context);
                // The checkpoint stands for what is still to be sent.
                self.offering.want_checkpoint(member, attempt);
                self.offering.offer_all(self.stage.source(), context);
            }
            Action::Attach {
                member,
                attempt,
                position,
            } => {
                self.offering
                    .tell_places(member, attempt, self.stage.source(), context);
                self.attach(member, attempt, &position, context);
            }
            Action::Detach { member } => self.detach(member, context),
            Action::SendEdit {
                member,
                attempt,
                seq,
            } => self.offering.send_edit(member, attempt, seq, context),
            Action::SendFlush {
                member,
                attempt,
                range,
            } => {
                let flush = self.flush_message(attempt, range);
                context.send(member, region, &flush);
            }
            Action::SendRest { member, attempt } => self.let_rest(member, attempt, context),
            Action::SendWake { member, attempt } => {
                context.send(member, region, &Message::Wake { attempt });
            }
            Action::Ship { member } => self.ship(member, context),
            Action::Commit { lsn } => self.commit(lsn, context),
            Action::FlushedEverywhere { log, segment, to } => {
                if let Some(source) = self.stage.source() {
                    source.flushed_everywhere(log, segment, to);
                }
            }
            Action::AppliedEverywhere { seq } => {
                self.offering.forget_up_to(seq);
                if let Some(source) = self.stage.source() {
                    source.edit_applied_everywhere(seq);
                }
            }
        }
    }

    fn acknowledge(&self, context: &Context<'_>) {
        if let Stage::Serving(engine) = &self.stage {
            acknowledging::raise(engine, &self.machine, context);
        }
    }

    fn let_rest(&self, member: ServerId, attempt: u64, context: &Context<'_>) {
        context.count(Counted::Rests);
        context.send(member, self.region, &Message::Rest { attempt });
    }

    /// `backup` grants its windows under `attempt`.
    pub(crate) fn windows_granted(
        &mut self,
        attempt: u64,
        backup: &Granting<'_>,
        mutants: Mutants,
    ) {
        self.attachments.granted(attempt, backup, mutants);
    }

    fn attach(
        &mut self,
        member: ServerId,
        attempt: u64,
        position: &Position,
        context: &Context<'_>,
    ) {
        let ship = self.attachments.last_ship(member);
        let logs = context.memory.engine().logs();
        let backup = Granting {
            region: self.region,
            member,
            windows: self.attachments.windows(member, attempt),
        };
        let attachment = Attachment::new(&backup, logs, position, ship);
        self.attachments.attach(member, attachment);
        self.ship(member, context);
        let commit = self.machine.commit();
        if self.written.attached_at(commit) {
            context.send(member, self.region, &Message::Commit { commit });
        }
        context.ask_to_compact(self.region, member);
    }

    fn detach(&mut self, member: ServerId, context: &Context<'_>) {
        if !context.settings.mutants.keep_attachment() {
            self.attachments.detach(member);
        }
        self.offering.forget(member);
        self.attachments.lost_segment(member);
    }

    fn flush_message(&mut self, attempt: u64, range: FlushRange) -> Message<'static> {
        let commit = self.machine.commit();
        self.written.flush_at(commit);
        Message::Flush {
            attempt,
            range,
            commit,
        }
    }

    /// Every member holds everything up to `commit`, for which backups that build levels wait.
    fn commit(&mut self, commit: Lsn, context: &Context<'_>) {
        self.acknowledge(context);
        if !self.written.take_owed(commit) {
            return;
        }
        for member in self.attachments.members() {
            context.send(member, self.region, &Message::Commit { commit });
        }
    }
}
