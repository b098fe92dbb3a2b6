//! What this server tells the master of its regions: where copies stand that wait for a primary, which regions it
//! opens, and what it [wishes](super::group) for the groups that it leads.

use std::collections::BTreeSet;

use argosy_base::{Epoch, Instant, Position, ServerId, Standing};
use argosy_coordinator::CopyStatus;
use argosy_coordinator::reports::{CopyReport, ServerReport};

use super::context::Context;
use super::region::{Driver, Region};
use super::role::Role;
use super::views::View;

/// What the master has to know of this server's regions. What names the server's start and the map is the caller's to
/// fill in.
pub(super) fn report(context: &Context<'_>, now: Instant) -> ServerReport {
    let mut report = ServerReport::default();
    for region in context.regions.iter() {
        report_region(region, context, now, &mut report);
    }
    report
}

/// Servers that have shown no sign of life for long.
pub(super) fn unreachable(context: &Context<'_>, now: Instant) -> BTreeSet<ServerId> {
    let peers = context.links.peers();
    peers
        .filter(|peer| context.link(*peer).is_missing(now))
        .collect()
}

fn report_region(region: &Region, context: &Context<'_>, now: Instant, report: &mut ServerReport) {
    let (id, view) = (region.id(), region.view());
    if region.role() == Role::Opening {
        report.opening.insert(id);
    }
    let is_outside = view.is_led && !view.concerns(context.id);
    if !region.is_seated() && !is_outside {
        return;
    }
    if context.is_broken(id) {
        report.failed.insert(id);
        return;
    }
    match &mut *region.driver() {
        Driver::Absent => {}
        Driver::Backup(copy) if copy.failed().is_some() => {
            report.failed.insert(id);
        }
        Driver::Failed(_) => {
            report.failed.insert(id);
        }
        // Whether it has a copy is known before its driver has taken its place, or is back from the device.
        Driver::AtDevice(_) | Driver::Primary(_) if is_outside => {
            report.copies.insert(id, CopyReport::UNKNOWN);
        }
        Driver::Backup(_) if !region.is_seated() => {
            report.copies.insert(id, CopyReport::UNKNOWN);
        }
        Driver::Primary(driver) if driver.group.is_refused() => {
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
        Driver::Backup(copy) => {
            if !view.is_led || is_outside {
                let at = copy.position();
                let status = status_of(copy.standing(), &at, &view, context.id);
                report.copies.insert(id, told(view.epoch, status, &at));
            }
        }
        Driver::AtDevice(_) => {}
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
        Standing::BegunAnew | Standing::PutBack | Standing::Filling => CopyStatus::Partial,
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
