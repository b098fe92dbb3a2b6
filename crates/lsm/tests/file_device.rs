//! The conformance suite on a real file, with windows in real files beside it.
//!
//! What ends here is only the engine: whatever it has given to the kernel stays. Crashes of the
//! device are the business of the tests on a device in memory.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeMap;
use std::io::{Write as _, stderr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::sorted::bulk_load;
use crate::common::wall::Wall;
use crate::common::{REGION, tiny};
use argosy_base::{Clock, Instant, Moment, SEGMENT_SIZE, ServerId};
use argosy_device::{
    Device, FileDevice, FileSettings, FormatOptions, IoMethod, Store, StoreSettings,
};
use argosy_engine::conformance::{self, FullHost, Host};
use argosy_engine::{Source as _, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::{Lsm, Settings};
use argosy_memory::{BootId, Others, WindowFiles, WindowFilesOptions};

const SEGMENTS: u64 = 4096;

/// A directory with a device and windows, removed at the end.
struct Directory {
    path: PathBuf,
    _kept: tempfile::TempDir,
    settings: Settings,
    now: u64,
    wall: Arc<Wall>,
    store: Option<Arc<Store>>,
}

impl Directory {
    fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let path = kept.path().to_path_buf();
        std::fs::create_dir_all(path.join("windows")).unwrap();
        let device = open_device(&path);
        let options = FormatOptions {
            device_id: 1,
            cluster_id: 1,
            server: ServerId(1),
            created_by: "test".to_owned(),
        };
        Store::format(&device, &options).unwrap();
        Self {
            path,
            _kept: kept,
            settings: tiny(),
            now: 0,
            wall: Arc::default(),
            store: None,
        }
    }
}

fn open_device(path: &Path) -> FileDevice {
    let bytes = SEGMENTS * SEGMENT_SIZE as u64;
    FileDevice::open_or_create(&path.join("device"), bytes, &FileSettings::default()).unwrap()
}

impl Host for Directory {
    type Engine = Lsm;

    fn open(&mut self) -> Lsm {
        let device: Arc<dyn Device> = Arc::new(open_device(&self.path));
        let store = Store::open(device, &StoreSettings::default()).unwrap();
        let options = WindowFilesOptions {
            directory: self.path.join("windows"),
            fallback: None,
            boot: BootId(1),
            incarnation: store.incarnation(),
            device: store.superblock().device_id,
            others: Others::Refuse,
        };
        let windows = WindowFiles::open(options).unwrap();
        let engine = Lsm::open(&store, REGION, &windows, &self.settings, None)
            .unwrap_or_else(|error| panic!("the engine does not open: {error}"));
        engine.set_clock(Arc::clone(&self.wall) as Arc<dyn Clock>);
        self.store = Some(store);
        engine
    }

    fn step(&mut self, engine: &Lsm) -> bool {
        self.now += 1_000_000;
        let before = self.now;
        let progress = engine
            .step(Instant::from_nanos(before))
            .unwrap_or_else(|error| panic!("a step failed: {error}"));
        if !progress.made {
            // The device works in threads of its own.
            std::thread::park_timeout(Duration::from_micros(200));
        }
        progress.made || engine.background_pending() > 0
    }

    fn close(&mut self, engine: Lsm) {
        engine.close().unwrap();
        drop(engine);
        self.store = None;
        // A clean end needs no windows.
        std::fs::remove_dir_all(self.path.join("windows")).unwrap();
        std::fs::create_dir_all(self.path.join("windows")).unwrap();
    }

    fn kill(&mut self, engine: Lsm) {
        drop(engine);
        self.store = None;
    }
}

impl FullHost for Directory {
    fn set_time(&mut self, now: Moment) {
        self.wall.set(now.0);
    }

    fn bulk_load(&mut self, engine: &Lsm, pairs: &BTreeMap<Vec<u8>, Vec<u8>>) {
        bulk_load(engine, pairs, || _ = self.step(engine));
    }
}

#[test]
fn conformance_on_a_file() {
    conformance::run(Directory::new, 600, 3);
}

/// Puts `count` pairs in an order of their own, and waits until the levels are as they should be.
fn load(directory: &mut Directory, engine: &Lsm, count: u64) {
    for number in 0..count {
        let mut batch = WriteBatch::new();
        let key = format!("{:06}", number * 7_919 % count);
        batch.put(key.as_bytes(), [b'v'; 40]).unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            directory.step(engine);
        }
    }
    while directory.step(engine) {}
}

#[test]
fn merges_read_ahead_into_registered_memory() {
    let mut directory = Directory::new();
    // Segments of more than one read ahead.
    directory.settings = tiny().with(|of| {
        of.memtables.bytes = 512 << 10;
        of.memtables.log_bytes = 2 << 20;
        of.layout.segment_bytes = 512 << 10;
        of.levels.part_bytes = 1 << 20;
    });
    let engine = directory.open();
    let store = directory.store.clone().expect("it is open");
    let here = store.device().io_method();
    if here < IoMethod::Registered {
        // Past what keeps the output of tests that pass.
        let test = "merges_read_ahead_into_registered_memory";
        let why = format!("the best way to read that this machine allows is {here}");
        return writeln!(stderr(), "\ntest result: skipped: {test}: {why}").unwrap();
    }
    load(&mut directory, &engine, 20_000);
    let (stats, read) = (engine.stats(), store.device().counters());
    assert!(stats.work.compactions > 0, "there is something to merge");
    assert!(read.fixed_reads > 0, "{read:?}");
    assert!(
        read.ahead_reads > 0 && read.ahead_reads < read.fixed_reads,
        "{read:?}"
    );
    for number in (0..20_000).step_by(777) {
        let found = engine.get(format!("{number:06}").as_bytes()).unwrap();
        assert_eq!(found.value.as_deref(), Some(&[b'v'; 40][..]), "{number}");
    }
}

/// Bytes that the files of windows take.
fn taken(directory: &Directory) -> u64 {
    let files = std::fs::read_dir(directory.path.join("windows")).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().blocks() * 512)
        .sum()
}

#[test]
fn the_windows_of_an_idle_region_take_little() {
    let mut directory = Directory::new();
    directory.settings = tiny().with(|of| {
        of.logs.flush_interval = Duration::from_millis(1);
        of.logs.rest_after = Duration::from_millis(50);
        // As a server makes them.
        of.memtables.bytes = 1 << 20;
        of.layout.segment_bytes = SEGMENT_SIZE;
        of.layout.window_bytes = 512 << 10;
        of.layout.window_slots = 4;
        of.levels.part_bytes = 4 << 20;
    });
    let mut engine = directory.open();
    let in_use = taken(&directory);
    assert!(in_use > 4 << 20, "{in_use}");
    let mut before = Vec::new();
    for round in 0..4u8 {
        for (key, len) in [("short", 30), ("long", 40_000)] {
            let mut batch = WriteBatch::new();
            let key = format!("{key} {round}");
            batch.put(key.as_bytes(), vec![round; len]).unwrap();
            engine.write(&batch, WriteOptions::default()).unwrap();
            before.push((key, vec![round; len]));
        }
        assert!(round == 0 || taken(&directory) == in_use, "it is awake");
        if round == 2 {
            // What is in windows alone is found there, behind what was there before the rest.
            directory.kill(engine);
            engine = directory.open();
        }
        for _ in 0..2_000 {
            directory.step(&engine);
            if engine.is_at_rest() {
                break;
            }
        }
        let idle = taken(&directory);
        assert!(idle <= 64 << 10, "{idle} in round {round}");
        for (key, value) in &before {
            let found = engine.get(key.as_bytes()).unwrap().value;
            assert_eq!(found.as_ref(), Some(value), "{key}");
        }
        assert_eq!(taken(&directory), idle, "reads take nothing");
        if round == 1 {
            directory.kill(engine);
            engine = directory.open();
        }
    }
}
