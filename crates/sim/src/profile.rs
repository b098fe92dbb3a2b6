//! Named seeds beside the usual ones: what a seed stands for under a *profile* is not what it stands for without.
//!
//! A profile changes the plan, and draws from streams of its own, so that the usual seeds stay what they are.

use std::time::Duration;

use argosy_base::{AddressMode, BLOCK_SIZE, DurabilityMode, SEGMENT_SIZE};
use argosy_engine::conformance::toy;

use crate::engine::Compaction;
use crate::plan::{Plan, WorldKind, all_without_power};
use crate::random::Random;
use crate::{alone, failover, lone, many, partitions, rotting, slow, wire};

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// What a seed stands for where nothing else is said.
    #[default]
    Usual,
    /// Regions of ten thousand segments and more, the smallest that there can be (see `many`).
    ManySegments,
    /// Servers are stepped when a step is due or something rang for them, and at no other time (see
    /// `cluster::parked`).
    WhenDue,
    /// Bits flip in windows (see `rotting.rs`).
    DamagedWindows,
    /// Servers have the toy engine of the suite that every engine passes.
    Toy,
    /// Writes are synced, and nothing that was acknowledged may be lost, whoever loses power.
    Synced,
    /// Writes are acknowledged when they are on their way, and all members lose power: of what was acknowledged the
    /// first is there, up to one write, and at least what was flushed.
    LastFlush,
    /// Groups change: a master moves regions away from servers that are lost (see `failover.rs`).
    Failover,
    /// The same, where servers are there that do not hear each other, or not the coordinator (see `partitions.rs`).
    Partitions,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Usual,
        Self::ManySegments,
        Self::WhenDue,
        Self::DamagedWindows,
        Self::Toy,
        Self::Synced,
        Self::LastFlush,
        Self::Failover,
        Self::Partitions,
    ];

    /// Its name, as a command line has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::ManySegments => "many-segments",
            Self::WhenDue => "when-due",
            Self::DamagedWindows => "damaged-windows",
            Self::Toy => "toy",
            Self::Synced => "synced",
            Self::LastFlush => "last-flush",
            Self::Failover => "failover",
            Self::Partitions => "partitions",
        }
    }

    /// How many seeds it has; of the usual ones as many as one likes.
    #[must_use]
    pub const fn seeds(self) -> u64 {
        match self {
            Self::Usual => 1,
            Self::ManySegments => 20,
            Self::WhenDue | Self::DamagedWindows | Self::Toy => 100,
            Self::Synced | Self::LastFlush | Self::Partitions => 100,
            Self::Failover => 200,
        }
    }

    /// That of this name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}

/// The plan, with servers that are stepped when a step is due. In half of the seeds none is due for long where
/// nothing is asked: logs are flushed as seldom as in production. Devices are not small: what waits for room
/// there is given up at its deadline, which a thread that sleeps is late to notice.
fn when_due(mut plan: Plan, random: &mut Random) -> Plan {
    plan.when_due = true;
    if random.chance(50) {
        plan.engine.logs.flush_interval = Duration::from_secs(1);
    }
    plan
}

/// The plan, with the toy in place of the engine. Its windows take the longest batch that the plan's would.
fn with_toy(mut plan: Plan, random: &mut Random) -> Plan {
    plan.groups.builds = false;
    plan.engine.layout.addresses = AddressMode::Logical;
    plan.engine.levels.compaction = Compaction::Partial;
    let layout = &plan.engine.layout;
    let window_bytes = layout.window_bytes * (layout.window_slots + 1);
    let window_bytes = window_bytes.next_multiple_of(BLOCK_SIZE).min(SEGMENT_SIZE);
    plan.toy = Some(toy::Settings {
        window_bytes,
        windows: random.between(6, 10),
        flush_interval: plan.engine.logs.flush_interval,
        mutants: toy::Mutants::default(),
    });
    plan
}

/// The plan, where each write is synced. Members of a region lose power together then, too; and a single copy that
/// loses it is judged like one that is killed.
fn synced(mut plan: Plan, random: &mut Random) -> Plan {
    plan.groups.durability = DurabilityMode::Sync;
    plan.engine.logs.sync = true;
    match plan.kind {
        WorldKind::Replicated => {
            for _ in 0..random.between(1, 3) {
                let at = random.between(0, plan.episodes.len());
                plan.episodes.insert(at, all_without_power(random));
            }
        }
        WorldKind::Killed | WorldKind::Powerless => plan.kind = WorldKind::Killed,
    }
    plan
}

/// The plan, where writes are acknowledged once they are on their way. All members lose power together now and then.
fn last_flush(mut plan: Plan, random: &mut Random) -> Plan {
    plan.kind = WorldKind::Replicated;
    plan.groups.durability = DurabilityMode::LastFlush;
    plan.devices.window_files = false;
    // What is left is judged by the order in which primaries were handed writes.
    plan.load.direct_percent = 100;
    for _ in 0..random.between(1, 3) {
        let at = random.between(0, plan.episodes.len());
        plan.episodes.insert(at, all_without_power(random));
    }
    plan
}

impl Plan {
    /// The plan of `seed` under `profile`.
    #[must_use]
    pub(crate) fn of(seed: u64, profile: Profile) -> Self {
        match profile {
            Profile::Usual => Self::new(seed),
            Profile::ManySegments => {
                let plan = Self::beginning(seed);
                let plan = many::with_many_segments(plan, &mut Random::new(seed, 60));
                many::without_costly_reads(plan.with_troubles(seed))
            }
            Profile::WhenDue => {
                let plan = Self::beginning(seed).with_troubles(seed);
                when_due(plan, &mut Random::new(seed, 62))
            }
            Profile::DamagedWindows => rotting::of_damaged_windows(seed),
            Profile::Failover => failover::of_failover(seed),
            Profile::Synced => {
                let plan = Self::beginning(seed);
                let plan = wire::with_bad_wires(plan, &mut Random::new(seed, 51));
                let plan = slow::with_slow_devices(plan, &mut Random::new(seed, 54));
                let plan = synced(plan, &mut Random::new(seed, 73));
                lone::with_lone_devices(plan, &mut Random::new(seed, 91))
            }
            Profile::LastFlush => last_flush(Self::beginning(seed), &mut Random::new(seed, 92)),
            Profile::Partitions => partitions::of_partitions(seed),
            Profile::Toy => {
                let plan = Self::beginning(seed);
                let plan = alone::with_failed_copies(plan, &mut Random::new(seed, 26));
                let plan = alone::with_scarce_memory(plan, &mut Random::new(seed, 25));
                let plan = lone::with_lone_members(plan, &mut Random::new(seed, 50));
                let plan = wire::with_bad_wires(plan, &mut Random::new(seed, 51));
                let plan = slow::with_slow_devices(plan, &mut Random::new(seed, 54));
                with_toy(plan, &mut Random::new(seed, 64))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_the_name_by_which_it_is_found() {
        for profile in Profile::ALL {
            assert_eq!(Profile::named(profile.name()), Some(profile));
        }
        assert_eq!(Profile::named("no such"), None);
    }

    #[test]
    fn settings_of_all_profiles_work() {
        for profile in Profile::ALL {
            for seed in 0..100 {
                let plan = Plan::of(seed, profile);
                assert_eq!(plan.engine.validate(), Ok(()), "seed {seed}");
                assert_eq!(
                    plan.devices.many.is_some(),
                    profile == Profile::ManySegments
                );
            }
        }
    }
}
