//! What may fail, a row of the table each.

use clap::ValueEnum;
use serde::Serialize;

use crate::cluster::Leads;

/// A failure. The table has them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A server that leads no region is killed.
    BackupKilled,
    /// A server that leads regions, and is not the master, is killed.
    PrimaryKilled,
    /// The master is killed.
    MasterKilled,
    /// Two of three are killed, the master among them.
    TwoKilled,
    /// All are killed, and started again in the order of their numbers.
    AllKilledForward,
    /// The same, in the opposite order.
    AllKilledBackward,
    /// The same, the one in the middle first.
    AllKilledMiddle,
    /// The first that was chosen to lead a region is killed in that moment.
    KilledInPromotion,
    /// A server is killed, and the master once it has recorded that nobody serves a region of it.
    MasterInRaise,
    /// The same, once the master has chosen who is to serve one.
    MasterInPromotion,
    /// The same, once a group goes on without the server.
    MasterInRemoval,
    /// A server returns, and the master is killed once a group has it again.
    MasterInReturn,
    /// A server is stopped, and the master killed once nobody serves a region of it.
    MasterInCleanStop,
    /// The primary is killed while a returning backup catches up.
    KilledInCatchUp,
    /// All but a backup that catches up are killed.
    LeftInCatchUp,
    /// A server is killed, its device is lost, and it is started with another one.
    DeviceLost,
    /// A server is killed, and its device is what it was some time before.
    OldDevice,
    /// All are killed, and one of them, whose device is an old one, is started before the others.
    OldDeviceFirst,
    /// The same, and the old device is one that was copied while the server ran.
    SnapshotFirst,
    /// The coordinator's directory is away for a while.
    CoordinatorAway,
    /// A primary is halted for half a minute.
    PrimaryHalted,
    /// A server is stopped, and started again.
    CleanStop,
}

impl FaultKind {
    /// Its name, on the command line and of its directory.
    #[must_use]
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.expect("none is hidden").get_name().to_owned()
    }

    /// What is done, as the table says it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::BackupKilled => "A backup is killed, and started again after 4 s",
            Self::PrimaryKilled => "A primary is killed, and started again after 4 s",
            Self::MasterKilled => {
                "The master is killed, which leads regions, too, and started again after 4 s"
            }
            Self::TwoKilled => {
                "Two of three are killed, the master among them, and started again after 4 s"
            }
            Self::AllKilledForward => {
                "All are killed at once, and started one after the other: 0, 1, 2"
            }
            Self::AllKilledBackward => "The same: 2, 1, 0",
            Self::AllKilledMiddle => "The same: 1, 2, 0",
            Self::KilledInPromotion => {
                "The primary of all regions is killed, and the backup that is to lead the first of them, in the \
                 moment in which it is chosen; both are started again after 4 s"
            }
            Self::MasterInRaise => {
                "A primary is killed, and the master, when it has recorded that nobody serves the first of its \
                 regions; both are started again after 4 s"
            }
            Self::MasterInPromotion => {
                "The same, and the master is killed when it has recorded who is to lead the first"
            }
            Self::MasterInRemoval => {
                "The same, and the master is killed when it has recorded that a group goes on without the server"
            }
            Self::MasterInReturn => {
                "A server that was killed is started again after 4 s, and the master is killed when it has recorded \
                 that a group fills the server or has it again; the master is started after 4 s"
            }
            Self::MasterInCleanStop => {
                "A server is stopped (SIGTERM), and the master is killed when it has recorded that nobody serves the \
                 first of its regions; both are started again after 4 s"
            }
            Self::KilledInCatchUp => {
                "The primary of all regions is killed while a backup that was away catches up; it is started again \
                 after 4 s"
            }
            Self::LeftInCatchUp => {
                "The same, and the other backup is killed as well; started again after 4 s, the backup first"
            }
            Self::DeviceLost => {
                "A server is killed, its device is removed, and after 4 s it is started with `--new-device`"
            }
            Self::OldDevice => {
                "A server is killed, and after 4 s started with its device as that was before its last start; where it \
                 refuses, with `--new-device`"
            }
            Self::OldDeviceFirst => {
                "All are killed; after 4 s one is started with its device as that was before its last start, and 4 s \
                 later the others; where it refuses, it is then started with `--new-device`"
            }
            Self::SnapshotFirst => {
                "The same, with a copy of the device that was made while the server was halted, and ran on"
            }
            Self::CoordinatorAway => "The coordinator's directory is away for 10 s",
            Self::PrimaryHalted => "A primary is halted for 30 s (SIGSTOP), and goes on",
            Self::CleanStop => "A server is stopped (SIGTERM), and started again after 4 s",
        }
    }

    /// Which servers lead the regions of its cluster.
    pub(crate) const fn leads(self) -> Leads {
        match self {
            Self::BackupKilled
            | Self::KilledInPromotion
            | Self::KilledInCatchUp
            | Self::LeftInCatchUp => Leads::First,
            _ => Leads::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_a_name_of_its_own() {
        for kind in FaultKind::value_variants() {
            assert_eq!(FaultKind::from_str(&kind.name(), false), Ok(*kind));
        }
        assert_eq!(FaultKind::OldDeviceFirst.name(), "old-device-first");
        assert!(FaultKind::from_str("fire", false).is_err());
    }
}
