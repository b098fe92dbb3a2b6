//! The backups that a primary writes its logs to, and what they have been sent.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::{Descriptor, ServerId};

use super::Mutants;
use super::shipper::{Attachment, Granting};

/// Windows that a backup grants.
struct Granted {
    /// Under which attempt.
    attempt: u64,
    windows: Vec<Descriptor>,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Attachments {
    attached: BTreeMap<ServerId, Attachment>,
    /// The last ship to each backup, attached or not.
    ships: BTreeMap<ServerId, u64>,
    /// Bytes of the log written to backups while they were attached earlier.
    earlier_bytes: BTreeMap<ServerId, u64>,
    /// The windows that each backup granted last.
    granted: BTreeMap<ServerId, Granted>,
    /// Who has been sent the oldest segment of the outbox.
    have_segment: BTreeSet<ServerId>,
}

impl Attachments {
    pub(super) fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    /// Who is attached.
    pub(super) fn members(&self) -> Vec<ServerId> {
        self.attached.keys().copied().collect()
    }

    /// The attachment of `member`, if it is attached.
    pub(super) fn get_mut(&mut self, member: ServerId) -> Option<&mut Attachment> {
        self.attached.get_mut(&member)
    }

    /// Whether more has to be written to one of them as soon as the fabric takes it.
    pub(super) fn goes_on(&self) -> bool {
        self.attached.values().any(Attachment::goes_on)
    }

    /// Whether anything is on its way to one of them.
    pub(super) fn is_under_way(&self) -> bool {
        self.attached.values().any(Attachment::is_under_way)
    }

    /// Bytes of the log written to each backup.
    pub(super) fn log_bytes(&self) -> BTreeMap<ServerId, u64> {
        let mut bytes = self.earlier_bytes.clone();
        for (member, attachment) in &self.attached {
            *bytes.entry(*member).or_default() += attachment.bytes_written();
        }
        bytes
    }

    /// The last ship to `member`; 0 before the first.
    pub(super) fn last_ship(&self, member: ServerId) -> u64 {
        self.ships.get(&member).copied().unwrap_or(0)
    }

    /// `ship` is on its way to `member`.
    pub(super) fn shipped(&mut self, member: ServerId, ship: u64) {
        self.ships.insert(member, ship);
    }

    /// `backup` grants its windows under `attempt`. Those of before are over, unless a mistake is planted.
    pub(super) fn granted(&mut self, attempt: u64, backup: &Granting<'_>, mutants: Mutants) {
        let earlier = self.granted.remove(&backup.member);
        let earlier = earlier.filter(|_| mutants.use_earlier_grant());
        let windows = earlier.map_or_else(|| backup.windows.to_vec(), |of| of.windows);
        let granted = Granted { attempt, windows };
        self.granted.insert(backup.member, granted);
    }

    /// The windows that `member` grants under `attempt`.
    pub(super) fn windows(&self, member: ServerId, attempt: u64) -> &[Descriptor] {
        let granted = self.granted.get(&member);
        let granted = granted.filter(|granted| granted.attempt == attempt);
        granted.map_or(&[], |granted| &granted.windows)
    }

    /// Attaches `member`. None is left of before, unless a mistake is planted.
    pub(super) fn attach(&mut self, member: ServerId, attachment: Attachment) {
        self.attached.entry(member).or_insert(attachment);
    }

    /// Nothing more of the log is written to `member`.
    pub(super) fn detach(&mut self, member: ServerId) {
        if let Some(attachment) = self.attached.remove(&member) {
            *self.earlier_bytes.entry(member).or_default() += attachment.bytes_written();
        }
    }

    /// Whether `member` has been sent the oldest segment.
    pub(super) fn has_segment(&self, member: ServerId) -> bool {
        self.have_segment.contains(&member)
    }

    /// `member` has been sent the oldest segment.
    pub(super) fn sent_segment(&mut self, member: ServerId) {
        self.have_segment.insert(member);
    }

    /// `member` has to be sent the oldest segment again.
    pub(super) fn lost_segment(&mut self, member: ServerId) {
        self.have_segment.remove(&member);
    }

    /// Another segment is the oldest now.
    pub(super) fn begin_segment(&mut self) {
        self.have_segment.clear();
    }
}
