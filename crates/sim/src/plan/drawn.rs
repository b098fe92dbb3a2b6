//! Settings that a seed draws: of the engine, the fabric, and what is looked at by and by.

use std::time::Duration;

use argosy_engine::long::SweepPace;
use argosy_engine::scrub::Pace as ScrubPace;
use argosy_fabric::SimSettings;

use crate::engine::{Placement, Settings};
use crate::random::Random;

/// In half of the seeds nothing waits for a primary, as where failover is off. In the others requests wait until theirs
/// is back, or where groups change until there is another one, for less or more than the pauses between probes.
pub(super) fn failover_wait(deadline: Duration, random: &mut Random) -> Duration {
    match random.chance(50) {
        true => deadline / 4,
        false => Duration::ZERO,
    }
}

/// Half of the seeds read everything while it changes.
pub(super) fn scrub(random: &mut Random) -> ScrubPace {
    let period = match random.chance(50) {
        true => random.micros(50_000, 2_000_000),
        false => Duration::ZERO,
    };
    ScrubPace {
        period,
        bytes_per_second_max: 256 << 20,
    }
}

/// Values in parts are few, and written fast, so that what is left of them is looked for all the time.
pub(super) fn sweep(random: &mut Random) -> SweepPace {
    SweepPace {
        every: random.micros(2_000, 50_000),
        brief: random.micros(0, 50_000),
        readers: random.micros(0, 100_000),
        writers: random.micros(0, 200_000),
    }
}

pub(super) fn engine(random: &mut Random) -> Settings {
    let (segment, window) = random.pick(&[
        (24 * KIB, 8 * KIB),
        (24 * KIB, 12 * KIB),
        (32 * KIB, 8 * KIB),
        (32 * KIB, 16 * KIB),
        (48 * KIB, 24 * KIB),
        (64 * KIB, 16 * KIB),
        (64 * KIB, 64 * KIB),
    ]);
    let l1_runs = random.between(1, 4);
    Settings::default().with(|of| {
        of.memtables.bytes = random.between(6, 40) * KIB;
        of.memtables.log_bytes = (random.between(24, 128) * KIB) as u64;
        of.memtables.count_max = random.between(2, 4);
        of.cache_bytes = random.pick(&[16 * KIB, 256 * KIB]);
        of.layout.node_bytes = random.pick(&[512, 1024, 2048]);
        of.layout.segment_bytes = segment;
        of.layout.window_bytes = window;
        of.layout.window_slots = random.between(2, 4);
        of.levels.growth_factor = u32::try_from(random.between(2, 4)).expect("small");
        of.levels.l1_runs = l1_runs;
        of.levels.l1_runs_max = l1_runs + random.between(1, 6);
        of.values.placement = random.pick(&[
            Placement::Hybrid,
            Placement::Hybrid,
            Placement::InPlace,
            Placement::Separated,
        ]);
        of.values.small_bytes = 100;
        of.values.large_bytes = random.pick(&[300, 1000]);
        of.logs.flush_interval = random.micros(1_000, 40_000);
        of.levels.number_block = random.between(16, 64) as u64;
        of.levels.part_bytes = (segment * random.between(1, 4)) as u64;
        of.levels.step_bytes = random.between(4, 32) * KIB;
        of.check_frees = true;
    })
}

pub(super) const KIB: usize = 1 << 10;

/// Bytes of the rings that there are, of which a message has a quarter at most.
pub(super) const RING_BYTES: [usize; 6] = [
    16 * KIB,
    32 * KIB,
    64 * KIB,
    128 * KIB,
    256 * KIB,
    512 * KIB,
];

/// In two of five seeds most pairs are medium, and there are levels enough to put them apart.
pub(super) fn with_medium_pairs(engine: Settings, random: &mut Random) -> Settings {
    if !random.chance(40) {
        return engine;
    }
    engine.with(|of| {
        of.values.placement = Placement::Hybrid;
        of.values.small_bytes = random.pick(&[16, 40]);
        of.values.medium_log_percent = random.pick(&[10, 50, 1000]);
        of.values.medium_levels_min = random.pick(&[1, 2, 3]);
        of.memtables.bytes = random.between(4, 10) * KIB;
        of.levels.growth_factor = 2;
        of.levels.l1_runs = of.levels.l1_runs.min(2);
    })
}

pub(super) fn fabric(random: &mut Random) -> SimSettings {
    SimSettings {
        delay_max: random.micros(2, 200),
        late_percent: u32::try_from(random.between(0, 10)).expect("small"),
        late_max: random.micros(200, 8_000),
        torn_percent: u32::try_from(random.between(5, 60)).expect("small"),
        pieces_max: u32::try_from(random.between(2, 8)).expect("small"),
        in_flight_max: random.between(64, 512),
        break_max: random.micros(5_000, 200_000),
        // Where nothing is wrong, nothing is lost: only cuts keep anything away.
        lost_percent: 0,
        linger_max: Duration::ZERO,
    }
}
