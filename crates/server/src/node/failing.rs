//! Copies that have failed, as a primary sees them: what it is told of one, what it does then, and what it says of a
//! region that waits for some. What a passive copy does that fails is in [`follower`](super::follower).

use std::collections::BTreeSet;
use std::fmt::Display;

use argosy_base::{RegionId, ServerId, Standing};
use argosy_fabric::FabricError;
use argosy_replication::primary;
use argosy_wire::message::{Message, WHY_BYTES_MAX};

use super::context::Context;
use super::primary::PrimaryDriver;
use super::role;
use super::shipper::ShipError;
use super::stage::Stage;

impl PrimaryDriver {
    /// Why the region can never open here, if that is so.
    pub(crate) fn failed(&self) -> Option<&str> {
        match &self.stage {
            Stage::Closed(why) => Some(why),
            Stage::Opening(_) | Stage::Damaged(_) | Stage::Serving(_) => None,
        }
    }

    /// What this region is waiting for, in words; `None` where it serves with every member.
    pub(crate) fn lacks(&self, context: &Context<'_>) -> Option<String> {
        match &self.stage {
            Stage::Closed(why) => return Some(why.clone()),
            Stage::Damaged(_) | Stage::Opening(_) if self.machine.wants_whole_copy() => {
                return Some(self.wants_whole());
            }
            Stage::Damaged(_) | Stage::Opening(_) | Stage::Serving(_) => {}
        }
        if self.waits_for_memory() {
            // All have reported: it waits for nobody.
            let why = "waiting for memory, until other regions have flushed what they rebuilt";
            return Some(why.into());
        }
        let mut absent: BTreeSet<ServerId> = self.machine.absent().collect();
        absent.extend(
            context
                .backups(self.region)
                .filter(|id| context.is_silent(*id)),
        );
        let named = |id: &ServerId| match self.group.failures().get(id) {
            Some(why) => format!("{id}, whose copy has failed ({why}),"),
            None => id.to_string(),
        };
        let absent: Vec<String> = absent.iter().map(named).collect();
        if absent.is_empty() && !self.is_serving() {
            return Some("it is being opened".into());
        }
        if absent.is_empty() {
            return self.lacks_lease(context);
        }
        (!absent.is_empty()).then(|| {
            let all = absent.join(" and ");
            format!("waiting for {}", all.trim_end_matches(','))
        })
    }

    /// How many copies the region has, where it is to have more: nothing waits for those.
    pub(crate) fn lacks_copies(&self, context: &Context<'_>) -> Option<String> {
        let view = context.view(self.region);
        let (members, copies) = (view.members().len(), context.views.map().copies());
        let is_short = usize::try_from(copies).is_ok_and(|copies| members < copies);
        let filling: Vec<String> = view.filling().iter().map(ToString::to_string).collect();
        let filled = match filling.is_empty() {
            true => String::new(),
            false => format!("; one is being filled at {}", filling.join(" and ")),
        };
        is_short.then(|| format!("it has {members} of {copies} copies{filled}"))
    }

    /// Whose lease keeps the region from being served, or answers from being given.
    fn lacks_lease(&self, context: &Context<'_>) -> Option<String> {
        if self.machine.waits_for_lease() {
            return Some("waiting until no earlier primary can answer any more".into());
        }
        let missed = context.missed_leases(self.region);
        let missed: Vec<String> = missed.iter().map(ToString::to_string).collect();
        (!missed.is_empty()).then(|| format!("waiting for a lease from {}", missed.join(" and ")))
    }

    /// What the region waits for while copies are damaged, begun anew or put back, and none is known to be whole.
    fn wants_whole(&self) -> String {
        let own = match &self.stage {
            Stage::Damaged(copy) => Some(format!("this server's is damaged ({})", copy.why)),
            _ => None,
        };
        let failures = self.group.failures().iter();
        let backups = failures.map(|(id, why)| format!("that of {id} is damaged ({why})"));
        let in_doubt = self.machine.in_doubt().map(|(id, standing)| {
            let whose = id.map_or("this server's".into(), |id| format!("that of {id}"));
            match standing {
                Standing::PutBack => format!(
                    "{whose} was put back, or goes on where another one was cut: its history may be another one"
                ),
                Standing::Filling => format!("{whose} is being filled, and was not whole since"),
                _ => format!(
                    "{whose} was begun anew in place of one that is set aside, and was never filled; \
                     `argosy inspect put-back` on its server puts the other one back"
                ),
            }
        });
        let copies: Vec<String> = own.into_iter().chain(backups).chain(in_doubt).collect();
        format!(
            "of its copies {}, and none is known to be whole: what was acknowledged last may be in one of these \
             alone; restore its device, or give it up by starting its server with --new-device on an empty one",
            copies.join(", and ")
        )
    }

    /// `member` says that its copy has failed.
    pub(super) fn member_failed(
        &mut self,
        member: ServerId,
        failed: &Failed<'_>,
        context: &Context<'_>,
    ) {
        // Nothing can be filled from a copy whose device has failed.
        let (attempt, damaged) = (
            failed.attempt,
            failed.damaged && !context.is_broken(self.region),
        );
        if self.machine.attempt(member) != attempt {
            return;
        }
        let why = failed.why.to_string();
        if self.group.failed(member, &why) {
            tracing::warn!(
                region = self.region.0,
                member = member.0,
                why,
                "the copy of a backup has failed: {}",
                match damaged {
                    true =>
                        "it is damaged, and filled anew as soon as another copy is known to be whole",
                    false => "its server has to be started again",
                }
            );
        }
        let failed = primary::Event::Failed {
            member,
            attempt,
            damaged,
        };
        self.handle(failed, context);
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

impl PrimaryDriver {
    /// The region can never open here, because of `why`.
    pub(super) fn fail(&mut self, why: String, context: &Context<'_>) {
        self.stage = Stage::Closed(why);
        context.turn(self.region, role::Event::Failed);
    }
}

/// What a primary is told of a copy that has failed.
pub(super) struct Failed<'a> {
    /// The primary's present one.
    pub(super) attempt: u64,
    /// It is damaged, and may be refilled.
    pub(super) damaged: bool,
    pub(super) why: &'a dyn Display,
}

impl Failed<'_> {
    /// Tells `primary` of the copy of `region`.
    pub(super) fn tell(&self, primary: ServerId, region: RegionId, context: &Context<'_>) {
        let text = self.why.to_string();
        let failed = Message::Failed {
            attempt: self.attempt,
            damaged: self.damaged,
            why: &text[..text.floor_char_boundary(WHY_BYTES_MAX)],
        };
        context.send(primary, region, &failed);
    }
}
