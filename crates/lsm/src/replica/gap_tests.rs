//! Logs that lack what the levels have: both machines lose their windows, the primary's levels being ahead of the
//! durable part of its logs.

use std::time::Duration;

use super::*;

const SERVER: ServerId = ServerId(2);

impl Pair {
    /// Both machines lose power, the backup's when it was `earlier`; the primary opens what it has, and the backup
    /// follows it again. Returns up to which LSN the backup had the history then.
    fn lose_both(&mut self, earlier: Machine) -> Lsn {
        self.listen();
        self.live = false;
        let device = self.primary_machine.device.crash(Crash::PowerLoss);
        self.primary_machine = Machine {
            device: Arc::new(device),
            ..Machine::new(0)
        };
        let own = self.primary_machine.open(&self.settings, false).unwrap();
        let in_levels = own.version().replay_from();
        let kept = own.position().lsn.next().max(in_levels);
        self.history.retain(|(_, last, _)| *last < kept);
        self.model.clear();
        for (key, value) in self.history.iter().flat_map(|(_, _, ops)| ops) {
            match value {
                Some(value) => self.model.insert(key.clone(), value.clone()),
                None => self.model.remove(key),
            };
        }
        self.promote_primary(own);
        self.backup_machine = earlier;
        self.crash_backup(Crash::PowerLoss);
        let had = self.backup.position().lsn;
        self.catch_up();
        had
    }

    /// Below which LSN the primary says that its logs may lack something.
    fn logged_from(&self) -> Option<Lsn> {
        let checkpoint = self.primary.checkpoint().checkpoint;
        Edit::decode(&checkpoint.bytes).unwrap().numbers.logged_from
    }
}

/// What the primary has in levels alone reaches a copy that builds its own, by the levels.
#[test]
fn what_the_logs_lack_comes_with_the_levels() {
    // Memtables go to the levels long before a window is full, or is flushed because time has passed.
    let settings = settings().with(|of| {
        of.memtables.bytes = 4 << 10;
        of.logs.flush_interval = Duration::from_secs(3600);
        of.layout.window_bytes = 16 << 10;
        of.values.large_bytes = 4 << 10;
    });
    let (mut gaps, mut behind) = (0, 0);
    for seed in 1..40 {
        let mut pair = Pair::with_backup(seed, settings.clone(), Some(SERVER));
        pair.go_on(40 + 20 * seed);
        let earlier = pair.backup_machine.crashed(Crash::PowerLoss, seed);
        pair.go_on(40);
        let backup = pair.lose_both(earlier);
        if let Some(from) = pair.logged_from() {
            gaps += 1;
            behind += u32::from(backup.next() < from);
        }
        pair.go_on(30);
        pair.settle();
        pair.ship();
        let cache = Arc::new(NodeCache::new(pair.settings.cache_bytes));
        let service = Service {
            epoch: Epoch(9),
            since: Epoch(9),
            ..Service::default()
        };
        let promoted = Lsm::promote(pair.backup, &cache, service).unwrap();
        assert_holds(&promoted, &pair.model);
    }
    assert!(gaps > 5 && behind > 5, "{gaps} gaps, {behind} behind");
}
