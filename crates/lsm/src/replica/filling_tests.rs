//! A copy that is no member's is filled: the group goes on without it, so what declares LSNs durable comes before these
//! LSNs are here.

use super::*;

impl Pair {
    /// Writes to both logs.
    fn write_both(&mut self) {
        for (key, len) in [("key0001", 8), ("key0002", 1500)] {
            let (key, value) = (key.as_bytes().to_vec(), vec![b'v'; len]);
            let mut batch = WriteBatch::new();
            batch.put(&key, &value).unwrap();
            while let Err(error) = self.primary.write(&batch, WriteOptions::default()) {
                assert!(matches!(error, EngineError::Busy(_)), "{error}");
                self.pump_alone();
            }
            self.model.insert(key, value);
        }
    }

    /// A round without the backup, for which nobody waits.
    fn pump_alone(&mut self) {
        self.live = false;
        self.primary.flush_now();
        self.pump();
        self.primary_machine.device.run_all();
        for range in std::mem::take(&mut self.flushes) {
            self.acknowledge(range);
        }
        self.primary.commit(self.recorder.0.lock().unwrap().1);
    }

    /// The primary flushes writes of which the backup has none, and goes on in both logs, behind marks.
    fn go_on_alone(&mut self) {
        self.write_both();
        let last = self.primary.last_lsn();
        for _ in 0..20 {
            self.pump_alone();
        }
        assert!(self.primary.durable_lsn() >= last);
        self.write_both();
    }

    /// The windows of one log arrive, and of the others nothing; then the backup finds where its logs end.
    fn cut_off(&mut self, arrives: LogId) -> Result<Position, ReplicaError> {
        let mut slots = fresh_slots(&self.settings);
        let there = &self.backup_machine.slots;
        slots[arrives.index()].clone_from(&there[arrives.index()]);
        self.copy_windows(&slots);
        let fresh = fresh_slots(&self.settings);
        self.backup_machine.slots = fresh.clone();
        self.backup.detach(fresh)
    }
}

fn either(seed: u64) -> Settings {
    match seed % 2 {
        0 => settings(),
        _ => in_places(),
    }
}

/// How many of some copies whose writes were cut off count as damaged: while they are filled, and as members before and
/// after that.
fn damaged(fills: bool, comes_after: bool) -> usize {
    let mut damaged = 0;
    for seed in 1..40 {
        let mut pair = Pair::new(seed, either(seed));
        pair.go_on(40 + seed);
        pair.ship();
        if fills {
            pair.backup.begin_filling().unwrap();
            assert_eq!(pair.backup.standing(), Standing::Filling);
        }
        pair.detach_backup();
        if comes_after {
            pair.catch_up();
            pair.backup.become_ordinary();
            pair.settle();
            pair.detach_backup();
        }
        let before = pair.backup.position().lsn;
        pair.go_on_alone();
        let arrives = LOGS[(seed % 2) as usize];
        match pair.cut_off(arrives) {
            Ok(at) => assert!(at.lsn >= before, "seed {seed}: {at:?}"),
            Err(ReplicaError::CorruptLog { .. }) => {
                damaged += 1;
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
        if !fills || comes_after {
            continue;
        }
        // So it is after its process was killed, and after its machine has lost its power.
        let kind = [Crash::Kill, Crash::PowerLoss][(seed / 2 % 2) as usize];
        pair.crash_backup(kind);
        assert_eq!(pair.backup.standing(), Standing::Filling, "seed {seed}");
        pair.catch_up();
        pair.backup.become_ordinary();
        pair.go_on(40);
        pair.settle();
        assert_eq!(pair.backup.standing(), Standing::Ordinary);
        pair.assert_equal();
        pair.promote_backup();
    }
    damaged
}

/// Of a member marks are believed, and of a copy that is filled they are not: it ends where something is missing.
#[test]
fn what_is_declared_durable_is_no_damage_while_a_copy_is_filled() {
    assert_eq!(damaged(true, false), 0);
    let members = damaged(false, false);
    assert!(members > 10, "{members} of 39");
    let filled = damaged(true, true);
    assert!(filled > 10, "{filled} of 39");
}

/// What says that a copy is being filled is durable before anything of that is.
#[test]
fn a_copy_says_that_it_is_filled_before_it_is() {
    for kind in [Crash::Kill, Crash::PowerLoss] {
        let mut pair = Pair::new(3, settings());
        pair.go_on(60);
        pair.backup.begin_filling().unwrap();
        pair.backup.begin_filling().unwrap();
        pair.crash_backup(kind);
        assert_eq!(pair.backup.standing(), Standing::Filling);
        // That it is whole is told later, and becomes durable with the steps behind that.
        pair.catch_up();
        pair.backup.become_ordinary();
        pair.settle();
        pair.crash_backup(kind);
        assert_eq!(pair.backup.standing(), Standing::Ordinary);
    }
}
