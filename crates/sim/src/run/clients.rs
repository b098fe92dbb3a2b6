//! Clients beside the load, each with a history of its own.

use argosy_server::service::Response;

use crate::bulk_load::{self, BulkLoads};
use crate::changes::{self, Changes};
use crate::coverage::Coverage;
use crate::leases::{self, Leases};
use crate::load::Wrong;
use crate::long::{self, Longs};
use crate::maintain::{self, Maintainer};
use crate::many;
use crate::moved::Moved;
use crate::plan::Plan;
use crate::repeat::{self, Repeating};
use crate::transact::{self, Transacting};

/// See the module documentation.
pub(crate) struct Clients {
    pub(crate) longs: Longs,
    pub(crate) bulk_loads: BulkLoads,
    pub(crate) changes: Changes,
    pub(crate) transacting: Transacting,
    pub(crate) repeating: Repeating,
    pub(crate) leases: Leases,
    pub(crate) maintainer: Maintainer,
    pub(crate) many: many::Client,
    pub(crate) moved: Moved,
}

impl Clients {
    pub(super) fn new(plan: &Plan, seed: u64) -> Self {
        Self {
            longs: Longs::new(plan, seed),
            bulk_loads: BulkLoads::new(plan, seed),
            changes: Changes::new(plan, seed),
            transacting: Transacting::new(plan, seed),
            repeating: Repeating::new(plan, seed),
            leases: Leases::new(plan, seed),
            maintainer: Maintainer::new(plan, seed),
            many: many::Client::new(plan, seed),
            moved: Moved::new(plan, seed),
        }
    }

    /// Whether one of them waits for an answer.
    pub(super) fn are_busy(&self) -> bool {
        self.longs.is_busy()
            || self.bulk_loads.is_busy()
            || self.changes.is_busy()
            || self.transacting.is_busy()
            || self.repeating.is_busy()
            || self.leases.is_busy()
            || self.maintainer.is_busy()
            || self.many.is_busy()
    }

    /// The process of `session` is gone: nothing that it was asked is answered any more.
    pub(super) fn lost(&mut self, session: u32) {
        self.longs.lost(session);
        self.bulk_loads.lost(session);
        self.changes.lost(session);
        self.transacting.lost(session);
        self.repeating.lost(session);
        self.leases.lost(session);
        self.maintainer.lost(session);
        self.many.lost(session);
    }

    /// Takes an answer, unless it is one to the load, which is given back, or about a lease.
    pub(super) fn answer(
        &mut self,
        token: u64,
        response: Response,
        coverage: &mut Coverage,
    ) -> Result<Option<Response>, Wrong> {
        assert!(
            !(leases::TOKEN..maintain::TOKEN).contains(&token),
            "what leases are answered is judged with the load"
        );
        match token {
            repeat::TOKEN.. => self.repeating.answer(token, response, coverage)?,
            transact::TOKEN.. => self.transacting.answer(token, response),
            many::TOKEN.. => self.many.answer(token, response, coverage)?,
            maintain::TOKEN.. => self.maintainer.answer(token, &response, coverage)?,
            changes::TOKEN.. => self.changes.answer(token, response, coverage)?,
            bulk_load::TOKEN.. => self.bulk_loads.answer(token, response, coverage)?,
            long::TOKEN.. => self.longs.answer(token, response, coverage)?,
            _ => return Ok(Some(response)),
        }
        Ok(None)
    }
}
