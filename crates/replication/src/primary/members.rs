//! The other copies that a primary speaks to, by server: those of the members, which count, and those that are being
//! filled, which do not.
//!
//! Invariant: whatever is done *everywhere* (committed, flushed, applied) is done at every member, and says nothing of
//! a copy that is being filled.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use argosy_base::{Lsn, ServerId};

use super::member::{Member, MemberPart};

/// Who stores a region beside its primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The members but the primary.
    pub members: Vec<ServerId>,
    /// Spares and returning copies that are being filled. Who is a member, too, is one.
    pub filling: Vec<ServerId>,
}

impl Group {
    /// A group of these members alone.
    #[must_use]
    pub fn of(members: &[ServerId]) -> Self {
        Self {
            members: members.to_vec(),
            filling: Vec::new(),
        }
    }

    /// What each copy is to it.
    pub(super) fn parts(&self) -> BTreeMap<ServerId, MemberPart> {
        let filling = self.filling.iter().map(|id| (*id, MemberPart::Filling));
        let members = self.members.iter().map(|id| (*id, MemberPart::Member));
        filling.chain(members).collect()
    }
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    all: BTreeMap<ServerId, Member>,
    /// The highest attempt of a server that was removed: if it returns, its attempts count on from there.
    attempts: u64,
}

impl Members {
    /// Those of `group`, to none of which anything was said.
    pub(super) fn new(group: &Group) -> Self {
        let parts = group.parts().into_iter();
        Self {
            all: parts.map(|(id, part)| (id, Member::new(part, 0))).collect(),
            attempts: 0,
        }
    }

    pub(super) fn get(&self, id: ServerId) -> Option<&Member> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ServerId) -> Option<&mut Member> {
        self.all.get_mut(&id)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ServerId, &Member)> {
        self.all.iter().map(|(id, member)| (*id, member))
    }

    /// All of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ServerId, &mut Member)> {
        self.all.iter_mut().map(|(id, member)| (*id, member))
    }

    /// Their servers.
    pub(super) fn ids(&self) -> Vec<ServerId> {
        self.all.keys().copied().collect()
    }

    /// Up to where all is on its way to each backup that counts, or there, of what was `appended`.
    pub(super) fn issued(&self, appended: Lsn) -> Lsn {
        let issued = self.counted().map(|(_, member)| member.issued());
        issued.min().unwrap_or(appended)
    }

    /// Those that count.
    pub(super) fn counted(&self) -> impl Iterator<Item = (ServerId, &Member)> {
        self.iter().filter(|(_, member)| !member.is_filling())
    }

    /// Whether `done` are all that count; or, by a planted mistake, a majority with the primary.
    pub(super) fn have_done(&self, done: &BTreeSet<ServerId>, by_majority: bool) -> bool {
        let lacking = self.counted().filter(|(id, _)| !done.contains(id)).count();
        match by_majority {
            true => 2 * lacking <= self.counted().count(),
            false => lacking == 0,
        }
    }

    /// Whether nobody counts but the primary.
    pub(super) fn are_none(&self) -> bool {
        self.counted().next().is_none()
    }

    /// Whether any is being filled.
    pub(super) fn has_filling(&self) -> bool {
        self.all.values().any(Member::is_filling)
    }

    /// Another one.
    pub(super) fn add(&mut self, id: ServerId, part: MemberPart) {
        self.all.insert(id, Member::new(part, self.attempts));
    }

    /// There is none of server `id` any more.
    pub(super) fn remove(&mut self, id: ServerId) {
        if let Some(member) = self.all.remove(&id) {
            self.attempts = self.attempts.max(member.attempt);
        }
    }
}
