//! A copy that has failed: what becomes of it, and how its primary hears of it.
//!
//! A copy fails when its device does, or when something that it was sent can neither be applied nor
//! be sent again. It stays failed until its server is started again:
//!
//! - Its windows are revoked, so that the primary's writes into them fail. Nothing is acknowledged
//!   that this copy would lack.
//! - Landing slots into which its primary has shipped are given back, at once and from then on. They
//!   belong to the link: other regions of the same two servers need them.
//! - Its primary is told, at once and whenever it asks the copy to prepare.

use std::collections::BTreeSet;

use argosy_base::{RegionId, ServerId};
use argosy_fabric::FabricError;
use argosy_lsm::log::Geometry;
use argosy_replication::{backup, primary};
use argosy_wire::message::{Message, WHY_BYTES_MAX};

use super::context::Context;
use super::follower::Follower;
use super::primary::{PrimaryDriver, Stage};
use super::shipper::ShipError;
use super::windows::window_keys;

impl Follower {
    /// The copy fails because of `error`. See the module documentation.
    pub(super) fn fail(&mut self, error: &dyn std::fmt::Display, context: &Context<'_>) {
        if self.failed.is_some() {
            return;
        }
        tracing::error!(region = self.region.0, %error, "this copy stops following");
        self.failed = Some(error.to_string());
        if context.node.settings.mutants.fail_silently() {
            return;
        }
        let geometry = Geometry::of(&context.node.settings.engine);
        for key in window_keys(self.region, &geometry) {
            context.fabric().revoke(key);
        }
        let attempt = self.machine.attempt();
        self.begin_again(context);
        self.forget_work();
        self.machine
            .step(backup::Event::LinkDown, &mut self.actions);
        self.actions.clear();
        if let Some(attempt) = attempt {
            tell_failed(self.primary, self.region, attempt, error, context);
        }
    }

    /// A message of another member, after the copy has failed: all that is still done is to give
    /// slots back and to say that it has failed.
    pub(super) fn handle_failed(
        &mut self,
        from: ServerId,
        message: &Message<'_>,
        context: &Context<'_>,
    ) {
        match *message {
            Message::Prepare { attempt, .. } if from == self.primary => {
                let why = self.failed.as_deref().unwrap_or_default();
                tell_failed(from, self.region, attempt, &why, context);
            }
            Message::Ship { slot, .. } => {
                context.send(from, self.region, &Message::Stored { slot });
            }
            Message::Fetched { slot, .. } if self.fetches.remove(&slot).is_some() => {
                context.link(from).free_fetch_slot(slot);
            }
            _ => {}
        }
    }
}

impl PrimaryDriver {
    /// What this region is waiting for, in words; `None` where it serves with every member.
    pub(crate) fn lacks(&self, context: &Context<'_>) -> Option<String> {
        if let Stage::Closed(why) = &self.stage {
            return Some(why.clone());
        }
        let mut absent: BTreeSet<ServerId> = self.machine.absent().collect();
        absent.extend(
            context
                .backups(self.region)
                .filter(|id| context.is_silent(*id)),
        );
        let named = |id: &ServerId| match self.failures.get(id) {
            Some(why) => format!("{id}, whose copy has failed ({why}),"),
            None => id.to_string(),
        };
        let absent: Vec<String> = absent.iter().map(named).collect();
        if absent.is_empty() && !self.is_serving() {
            return Some("it is being opened".into());
        }
        (!absent.is_empty()).then(|| {
            let all = absent.join(" and ");
            format!("waiting for {}", all.trim_end_matches(','))
        })
    }

    /// `member` says that its copy has failed, and `why`.
    pub(crate) fn member_failed(
        &mut self,
        member: ServerId,
        attempt: u64,
        why: &str,
        context: &Context<'_>,
    ) {
        if self.machine.attempt(member) != attempt {
            return;
        }
        let known = self.failures.insert(member, why.to_owned());
        if known.as_deref() != Some(why) {
            tracing::warn!(
                region = self.region.0,
                member = member.0,
                why,
                "the copy of a backup has failed: its server has to be started again"
            );
        }
        self.handle(primary::Event::Failed { member, attempt }, context);
    }

    /// A backup cannot be written to. Where it took its windows back, it is asked to prepare anew: it
    /// says then what has happened. Otherwise its link is reset, so that it reports anew.
    pub(super) fn lost(&mut self, member: ServerId, error: &ShipError, context: &Context<'_>) {
        tracing::info!(region = self.region.0, member = member.0, why = %error, "backup lost");
        let taken_back = matches!(
            error,
            ShipError::Fabric(FabricError::Revoked | FabricError::NotThere { .. })
        );
        let event = if taken_back {
            primary::Event::LinkUp { member }
        } else {
            context.reset_link(member, "its windows cannot be written");
            primary::Event::LinkDown { member }
        };
        self.machine.step(event, &mut self.actions);
        self.act(context);
    }
}

/// Tells `primary` that this server's copy of `region` has failed because of `error`; `attempt` is
/// the primary's present one.
pub(super) fn tell_failed(
    primary: ServerId,
    region: RegionId,
    attempt: u64,
    error: &dyn std::fmt::Display,
    context: &Context<'_>,
) {
    let text = error.to_string();
    let why = &text[..text.floor_char_boundary(WHY_BYTES_MAX)];
    context.send(primary, region, &Message::Failed { attempt, why });
}
