//! Who made a memory, and when.

use argosy_base::Incarnation;

/// The number of a boot of this machine: what lay in memory at another boot is not believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(pub u64);

impl BootId {
    /// The first 64 bits of what `/proc/sys/kernel/random/boot_id` says; `None` where that is
    /// not what `text` is.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.trim().chars().filter(|c| *c != '-').take(16).collect();
        let full = digits.len() == 16;
        full.then(|| u64::from_str_radix(&digits, 16).ok())
            .flatten()
            .map(Self)
    }
}

/// Who makes a memory, and when; kept in its control block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The start of the server that makes it.
    pub incarnation: Incarnation,
    /// The boot of the machine.
    pub boot: BootId,
    /// The maker's own count: of two memories of one name, the one with the higher is newer.
    pub serial: u64,
    /// The device whose logs are filled here; 0 where that is not known.
    pub device: u128,
}
