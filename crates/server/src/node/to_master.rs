//! What this server tells the master of its regions: where copies stand that wait for a primary, which regions it opens,
//! and what it wishes for the groups that it leads.
//!
//! A primary wishes that a member leaves that has not been live for [`NodeSettings::remove_after`], and that a copy
//! becomes a member that is being filled and holds all that is committed. Until the map says so, it waits.
//!
//! [`NodeSettings::remove_after`]: super::NodeSettings::remove_after

use std::collections::BTreeSet;

use argosy_base::{Epoch, Instant, Position, ServerId, Standing};
use argosy_coordinator::CopyStatus;
use argosy_coordinator::reports::{CopyReport, ServerReport};

use super::Node;
use super::local::LocalRegion;
use super::region::Driver;
use super::role::Role;
use super::views::View;

impl Node {
    /// What the master has to know of this server's regions. What names the server's start and the map is the caller's
    /// to fill in.
    #[must_use]
    pub fn report_to_master(&self, now: Instant) -> ServerReport {
        let mut report = ServerReport::default();
        let context = &self.context();
        for region in self.regions.iter() {
            LocalRegion::new(context, region).tell_master(now, &mut report);
        }
        report
    }

    /// Servers that have shown no sign of life for long.
    #[must_use]
    pub fn unreachable(&self, now: Instant) -> BTreeSet<ServerId> {
        // They may not have started yet.
        if self.reports().has_just_started(now) {
            return BTreeSet::new();
        }
        let peers = self.links.peers();
        peers
            .filter(|peer| self.link(*peer).is_missing(now))
            .collect()
    }
}

impl LocalRegion<'_> {
    fn tell_master(&self, now: Instant, report: &mut ServerReport) {
        let Self { context, region } = *self;
        let (id, view) = (region.id(), region.view());
        let me = context.id;
        if region.role() == Role::Opening {
            report.opening.insert(id);
        }
        if !region.is_seated() {
            return;
        }
        if context.is_broken(id) {
            report.failed.insert(id);
            return;
        }
        match &mut *region.driver() {
            Driver::Primary(driver) if driver.is_refused() => {
                report.refused.insert(id, view.epoch);
            }
            Driver::Primary(driver) if driver.failed().is_some() => {
                report.failed.insert(id);
            }
            Driver::Primary(driver) => {
                if let Some(wish) = driver.wish(&view, now, context) {
                    report.wishes.insert(id, wish);
                }
            }
            Driver::Backup(copy) if copy.failed().is_some() => {
                report.failed.insert(id);
            }
            Driver::Backup(copy) => {
                if !view.is_led || !view.concerns(me) {
                    let at = copy.position();
                    let status = status_of(copy.standing(), &at, &view, me);
                    report.copies.insert(id, told(view.epoch, status, &at));
                }
            }
            Driver::Failed(_) => {
                report.failed.insert(id);
            }
            Driver::AtDevice(_) | Driver::Absent => {}
        }
    }
}

const fn told(epoch: Epoch, status: CopyStatus, at: &Position) -> CopyReport {
    CopyReport {
        epoch,
        status,
        cut: at.edit.cut_epoch(),
        edit: at.edit,
        lsn: at.lsn,
    }
}

/// What is certain of a copy of `server` that stands like that.
fn status_of(standing: Standing, at: &Position, view: &View, server: ServerId) -> CopyStatus {
    match standing {
        Standing::BegunAnew | Standing::PutBack => CopyStatus::Partial,
        Standing::Whole => CopyStatus::Whole,
        // It has been prepared as one that is filled, and has not got all of it.
        Standing::Ordinary if !view.has_member(server) && at.edit.cut_epoch() >= view.since => {
            CopyStatus::Partial
        }
        // Nothing is in it. It may be that nothing ever was in the region.
        Standing::Ordinary if at.is_empty() && view.since > Epoch(1) => CopyStatus::Partial,
        Standing::Ordinary => CopyStatus::Cut,
    }
}
