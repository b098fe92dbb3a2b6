//! A primary becomes a replica again at any moment of its work, on a device that takes its time: no record is lost, and
//! nothing stays in use that belongs to nobody.

use super::*;

/// What demotions have met.
#[derive(Default)]
struct Met {
    /// Work was under way in the background.
    busy: u64,
    /// Something was under way on its device.
    in_flight: u64,
    /// Edits had been handed in and were not durable.
    gave_up: u64,
}

/// Demotes a primary at a moment that `seed` decides.
fn demote_primary(seed: u64, settings: &Settings, met: &mut Met) {
    let mut pair = Pair::new(seed, settings.clone());
    for _ in 0..200 + pair.random.below(600) {
        pair.write();
        pair.pump();
    }
    let device = Arc::clone(&pair.primary_machine.device);
    met.busy += u64::from(pair.primary.background_pending() > 0);
    met.in_flight += u64::from(device.in_flight() > 0);
    let (last, edit) = (pair.primary.last_lsn(), pair.primary.edit());
    let segments = pair.primary.device_segments();
    let held = pair.primary.snapshot();
    let replica = pair.primary.become_replica(fresh_slots(&pair.settings));
    let replica = replica.map_err(|no| no.error).unwrap();
    assert_eq!(
        replica.position().lsn,
        last,
        "seed {seed}: no record is lost"
    );
    let version = Arc::clone(replica.version());
    assert!(version.seq() >= edit, "seed {seed}: no edit is lost");
    assert_eq!(version.check(), Ok(()));
    assert!(matches!(held.get(b"key0001"), Err(EngineError::NotServing)));
    assert!(pair.primary.step(Instant::default()).is_err());
    assert_eq!(pair.primary.device_segments(), 0);
    drop(held);
    device.run_all();
    let used = replica.storage.store().used() as usize;
    let own = replica.storage.device_segments();
    assert_eq!(used, 1 + own, "seed {seed}: leaked");
    met.gave_up += u64::from(own < segments);
    let cache = Arc::new(NodeCache::new(pair.settings.cache_bytes));
    let service = Service {
        epoch: Epoch(2),
        since: Epoch(2),
        ..Service::default()
    };
    let again = Lsm::promote(replica, &cache, service).unwrap();
    assert_eq!(again.edit().cut_epoch(), Epoch(2));
    assert_holds(&again, &pair.model);
    assert_remembers(&again, &pair.history);
}

#[test]
fn a_primary_can_be_demoted_at_any_moment() {
    for settings in [settings(), in_places()] {
        let mut met = Met::default();
        for seed in 1..25 {
            demote_primary(seed, &settings, &mut met);
        }
        let Met {
            busy,
            in_flight,
            gave_up,
        } = met;
        assert!(
            busy > 6 && in_flight > 6 && gave_up > 2,
            "{busy} busy, {in_flight} in flight, {gave_up} gave something up"
        );
    }
}
