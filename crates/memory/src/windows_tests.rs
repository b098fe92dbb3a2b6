//! Tests of both stores of windows: see [`super`].

use std::os::unix::fs::symlink;

use argosy_base::Incarnation;

use super::*;
use crate::shared::{BootId, Stamp};
use crate::testing::{TempDir, grant};
use crate::window_files::{Fallback, Others, WindowFiles, WindowFilesOptions, lock_windows};

/// A store, and what happens to its process and its machine.
trait World {
    fn store(&self) -> &dyn WindowStore;
    fn restart(&mut self);
    fn reboot(&mut self);
}

impl World for AnonymousWindows {
    fn store(&self) -> &dyn WindowStore {
        self
    }

    fn restart(&mut self) {
        *self = Self::restart(self);
    }

    fn reboot(&mut self) {
        self.lose();
        World::restart(self);
    }
}

struct Files {
    store: WindowFiles,
    dir: TempDir,
}

impl Files {
    fn new() -> Self {
        let dir = TempDir::in_memory();
        let store = WindowFiles::open(WindowFilesOptions {
            directory: dir.join("windows"),
            fallback: Some(Fallback {
                directory: dir.join("fallback"),
                names: vec![0..=u64::MAX],
            }),
            boot: BootId(7),
            incarnation: Incarnation(1),
            device: 5,
            others: Others::Refuse,
        });
        let store = store.unwrap();
        Self { store, dir }
    }

    fn reopen(&mut self, boot: BootId) {
        let mut options = self.store.options().clone();
        options.boot = boot;
        options.incarnation = options.incarnation.next();
        self.store = WindowFiles::open(options).unwrap();
    }
}

impl World for Files {
    fn store(&self) -> &dyn WindowStore {
        &self.store
    }

    fn restart(&mut self) {
        self.reopen(self.store.options().boot);
    }

    fn reboot(&mut self) {
        self.reopen(BootId(self.store.options().boot.0 + 1));
    }
}

/// Runs a test on both stores.
fn on_both(test: impl Fn(&mut dyn World)) {
    test(&mut Files::new());
    test(&mut AnonymousWindows::new());
}

fn content(memory: &SharedMemory) -> u64 {
    memory.load_u64(8)
}

#[test]
fn memory_survives_a_kill_and_is_revoked() {
    on_both(|world| {
        assert!(world.store().survivors(1).is_none());
        let memory = world.store().create(1, 8192).unwrap();
        assert_eq!(memory.access(), 0, "nobody may write before it is granted");
        memory.grant(grant(1, 1));
        memory.store_u64(8, 42);

        world.restart();
        assert_eq!(world.store().survivor_names(), [1]);
        let survivor = world.store().survivors(1).unwrap();
        assert_eq!(content(&survivor), 42);
        assert_eq!(survivor.len(), 8192);
        assert_eq!(survivor.access(), 0);
        assert_eq!(memory.access(), 0, "a peer's mapping is revoked too");
    });
}

#[test]
fn a_kill_before_the_name_is_given_away_leaves_the_old_memory() {
    on_both(|world| {
        world.store().create(1, 64).unwrap().store_u64(8, 1);
        world.restart();
        world.store().create(1, 64).unwrap().store_u64(8, 2);
        world.restart();
        let survivor = |world: &dyn World| content(&world.store().survivors(1).unwrap());
        assert_eq!(survivor(world), 1);
        // Even if the new memory is made twice.
        world.store().create(1, 64).unwrap().store_u64(8, 3);
        world.store().create(1, 64).unwrap().store_u64(8, 4);
        assert_eq!(survivor(world), 1);
        world.store().forget_survivors(1).unwrap();
        assert!(world.store().survivors(1).is_none());
        world.restart();
        assert_eq!(survivor(world), 4);
    });
}

#[test]
fn the_present_memory_becomes_the_survivor_of_the_next() {
    on_both(|world| {
        let first = world.store().create(1, 64).unwrap();
        first.grant(grant(1, 1));
        first.store_u64(8, 1);
        world.store().create(1, 64).unwrap().store_u64(8, 2);
        assert_eq!(first.access(), 0);
        let survivor = |world: &dyn World| content(&world.store().survivors(1).unwrap());
        assert_eq!(survivor(world), 1);
        world.restart();
        assert_eq!(survivor(world), 1);
        world.store().create(1, 64).unwrap().store_u64(8, 3);
        world.store().forget_survivors(1).unwrap();
        world.store().forget_survivors(1).unwrap();
        world.restart();
        assert_eq!(survivor(world), 3);
    });
}

#[test]
fn orphans_can_be_removed() {
    on_both(|world| {
        for name in [3, 1, 2] {
            world.store().create(name, 64).unwrap();
        }
        world.restart();
        assert_eq!(world.store().survivor_names(), [1, 2, 3]);
        world.store().forget_survivors(2).unwrap();
        assert_eq!(world.store().survivor_names(), [1, 3]);
        world.restart();
        assert_eq!(world.store().survivor_names(), [1, 3]);
    });
}

#[test]
fn nothing_survives_a_reboot() {
    on_both(|world| {
        world.store().create(1, 64).unwrap();
        world.restart();
        world.reboot();
        assert!(world.store().survivors(1).is_none());
        assert_eq!(world.store().survivor_names(), []);
        world.store().create(1, 64).unwrap();
        world.restart();
        assert!(world.store().survivors(1).is_some());
    });
}

#[test]
fn without_room_nothing_is_left_behind() {
    let world = Files::new();
    // More than any machine has: both directories refuse.
    let error = world.store.create(1, 1 << 46).unwrap_err();
    assert!(matches!(error, MemoryError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("room"), "{error}");
    for at in ["windows", "fallback"] {
        assert_eq!(std::fs::read_dir(world.dir.join(at)).unwrap().count(), 0);
    }
    assert!(world.store.create(1, 64).is_ok());
}

#[test]
fn of_two_files_of_one_name_the_newer_is_kept() {
    for newer_in_fallback in [false, true] {
        let mut world = Files::new();
        let [old, new] = [1, 2].map(|n| {
            let memory = world.store.create(n, 64).unwrap();
            memory.store_u64(8, n);
            memory.path().unwrap().to_path_buf()
        });
        // As a crash in `forget_survivors` leaves them: both have the name 1.
        let fallback = world.dir.join("fallback").join(old.file_name().unwrap());
        if newer_in_fallback {
            std::fs::rename(new, fallback).unwrap();
        } else {
            std::fs::rename(&old, fallback).unwrap();
            std::fs::rename(new, old).unwrap();
        }
        world.restart();
        assert_eq!(world.store.survivor_names(), [1]);
        assert_eq!(content(&world.store.survivors(1).unwrap()), 2);
        world.store.forget_survivors(1).unwrap();
        world.restart();
        assert_eq!(world.store.survivor_names(), []);
    }
}

#[test]
fn a_survivor_in_the_data_directory_moves_back() {
    let mut world = Files::new();
    let memory = world.store.create(1, 64).unwrap();
    memory.store_u64(8, 1);
    let file = memory.path().unwrap();
    let fallback = world.dir.join("fallback").join(file.file_name().unwrap());
    std::fs::rename(file, &fallback).unwrap();
    world.restart();
    world.store.create(1, 64).unwrap().store_u64(8, 2);
    world.store.forget_survivors(1).unwrap();
    assert!(!fallback.exists());
    world.restart();
    assert_eq!(content(&world.store.survivors(1).unwrap()), 2);
}

#[test]
fn what_is_no_window_is_reported() {
    let mut world = Files::new();
    let (window, notes) = ("windows/0000000000000005.window", "windows/notes.txt");
    for name in [window, notes] {
        std::fs::write(world.dir.join(name), b"text").unwrap();
    }
    world.restart();
    let findings = world.store.findings();
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(world.store.survivors(5).is_none());
    assert!(world.dir.join(notes).exists(), "not ours to remove");
    assert!(!world.dir.join(window).exists());
}

/// In the place of a window it is an error, since a window could be lost behind it; the name of a new one is taken
/// from it. What it leads to stays in any case.
#[test]
fn a_link_is_no_window_and_what_it_leads_to_stays() {
    let world = Files::new();
    let elsewhere = world.dir.join("elsewhere");
    let stamp = Stamp {
        incarnation: Incarnation(1),
        boot: BootId(7),
        serial: 9,
        device: 5,
    };
    let memory = SharedMemory::create_stamped(&elsewhere, 64, stamp).unwrap();
    memory.grant(grant(1, 1));
    let before = std::fs::read(&elsewhere).unwrap();
    let at = |name: &str| world.dir.join("windows").join(name);
    let plant = |name: &str| symlink(&elsewhere, at(name)).unwrap();
    let (window, new) = ("0000000000000001.window", "0000000000000001.new");

    plant(window);
    for others in [Others::Refuse, Others::SetAside] {
        let mut options = world.store.options().clone();
        options.others = others;
        // Of this device it would be a survivor, of another one it would be told or set aside.
        for device in [5, 6] {
            options.device = device;
            let opened = WindowFiles::open(options.clone());
            assert!(
                matches!(opened, Err(MemoryError::Refused { .. })),
                "{others:?}, {device}"
            );
            assert!(at(window).is_symlink(), "{others:?}, {device}");
        }
    }
    assert_ne!(memory.access(), 0, "nothing is revoked");

    let made = world.store.create(1, 64).unwrap();
    made.store_u64(8, 42);
    assert!(!at(window).is_symlink());
    plant(new);
    let options = world.store.options().clone();
    let store = WindowFiles::open(options).unwrap();
    assert!(!at(new).is_symlink(), "nobody finished it");
    assert_eq!(content(&store.survivors(1).unwrap()), 42);
    plant(new);
    store.create(1, 64).unwrap().store_u64(8, 43);
    assert!(!at(new).is_symlink());
    store.forget_survivors(1).unwrap();
    assert_eq!(content(&SharedMemory::open(&at(window)).unwrap()), 43);
    assert_eq!(std::fs::read(&elsewhere).unwrap(), before);
}

#[test]
fn windows_of_another_device_are_left_as_they_are() {
    let world = Files::new();
    let memory = world.store.create(1, 64).unwrap();
    memory.grant(grant(1, 1));
    memory.store_u64(8, 42);
    let mut others = world.store.options().clone();
    others.device = 6 << 64;
    let Err(error) = WindowFiles::open(others.clone()) else {
        panic!("windows of another device were taken");
    };
    let path = memory.path().unwrap().display().to_string();
    assert!(
        matches!(&error, MemoryError::OtherWindows { path: at, found: 5, device }
            if *at == path && *device == 6 << 64),
        "{error}"
    );
    assert_ne!(memory.access(), 0, "nothing is revoked");
    // Nor is anything in the first directory changed for the sake of the second.
    let fallback = world.dir.join("fallback").join("0000000000000001.window");
    std::fs::rename(memory.path().unwrap(), fallback).unwrap();
    std::fs::write(world.dir.join("windows/0000000000000002.new"), b"").unwrap();
    assert!(WindowFiles::open(others.clone()).is_err());
    assert!(world.dir.join("windows/0000000000000002.new").exists());
    assert_ne!(memory.access(), 0);
    // Who does not say which device it has takes what it finds.
    others.device = 0;
    let taken = WindowFiles::open(others).unwrap();
    assert_eq!(content(&taken.survivors(1).unwrap()), 42);
}

#[test]
fn memory_of_the_first_version_is_of_no_known_device() {
    use std::os::unix::fs::FileExt;
    let mut world = Files::new();
    let memory = world.store.create(1, 64).unwrap();
    memory.store_u64(8, 42);
    assert_eq!(memory.stamp().device, 5);
    let path = memory.path().unwrap().to_path_buf();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let patch = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).unwrap();
    patch(8, &1_u64.to_le_bytes());
    patch(64, &[0; 16]);
    world.restart();
    let survivor = world.store.survivors(1).unwrap();
    assert_eq!((survivor.stamp().device, content(&survivor)), (0, 42));
    drop((memory, survivor));
    // A later version, and any garbage in the control block: an error or a stamp, never a panic.
    patch(8, &4_u64.to_le_bytes());
    assert!(matches!(
        SharedMemory::open(&path),
        Err(MemoryError::Unusable { .. })
    ));
    patch(8, &2_u64.to_le_bytes());
    for at in 0..128 {
        patch(at, &[0xff]);
        if let Ok(memory) = SharedMemory::open(&path) {
            assert!((16..32).contains(&at) || at >= 40, "byte {at} is checked");
            let _ = memory.stamp();
        }
        let restored = if at == 8 { 2 } else { 0 };
        patch(
            at,
            &[if at < 8 {
                b"argosymm"[usize::try_from(at).unwrap()]
            } else {
                restored
            }],
        );
        patch(32, &64_u64.to_le_bytes());
    }
}

#[test]
fn a_directory_has_one_user() {
    let dir = TempDir::in_memory();
    let at = dir.join("windows");
    let held = lock_windows(&at).unwrap();
    let error = lock_windows(&at).unwrap_err();
    assert!(matches!(error, MemoryError::WindowsInUse { .. }), "{error}");
    drop(held);
    assert!(lock_windows(&at).is_ok());
}

#[test]
fn windows_tell_of_the_latest_incarnation_of_their_device() {
    let mut world = Files::new();
    let at = |world: &Files| ["windows", "fallback", "none"].map(|name| world.dir.join(name));
    let latest = |world: &Files, device| crate::latest_incarnation(&at(world), device).unwrap();
    assert_eq!(latest(&world, 5), None);
    world.store.create(1, 64).unwrap();
    assert_eq!(latest(&world, 5), Some(Incarnation(1)));
    assert_eq!(latest(&world, 6), None, "they are of another device");
    world.reopen(BootId(7));
    let memory = world.store.create(2, 64).unwrap();
    assert_eq!(latest(&world, 5), Some(Incarnation(2)));
    // The directory makes no difference, nor does the boot.
    let fallback = world.dir.join("fallback").join("0000000000000002.window");
    std::fs::rename(memory.path().unwrap(), fallback).unwrap();
    assert_eq!(latest(&world, 5), Some(Incarnation(2)));
    std::fs::write(world.dir.join("windows/0000000000000003.window"), b"x").unwrap();
    assert_eq!(latest(&world, 5), Some(Incarnation(2)));
}

#[test]
fn windows_of_another_device_are_set_aside_and_stay() {
    let world = Files::new();
    let content_of = |path: std::path::PathBuf| content(&SharedMemory::open(&path).unwrap());
    let open = |device: u128, incarnation: u64| {
        let options = WindowFilesOptions {
            device,
            incarnation: Incarnation(incarnation),
            others: Others::SetAside,
            ..world.store.options().clone()
        };
        WindowFiles::open(options).unwrap()
    };
    let at = |name: &str| world.dir.join("windows").join(name);
    let (window, aside) = ("0000000000000001.window", format!("{:032x}", 5));
    // Of device 5, then 6, then 5 and 6 once more.
    for (turn, device) in [5, 6, 5, 6].into_iter().enumerate() {
        let store = open(device, turn as u64 + 2);
        assert!(store.survivors(1).is_none(), "none of this device");
        assert_eq!(store.set_aside().len(), usize::from(turn > 0));
        let memory = store.create(1, 64).unwrap();
        memory.grant(grant(1, 1));
        memory.store_u64(8, turn as u64);
        assert!(store.findings().is_empty(), "{:?}", store.findings());
    }
    let first = at(&format!("0000000000000001.of-{aside}"));
    let second = at(&format!("0000000000000001.of-{aside}-1"));
    assert_eq!([first, second, at(window)].map(content_of), [0, 2, 3]);
    let refused = WindowFiles::open(WindowFilesOptions {
        device: 5,
        others: Others::Refuse,
        ..world.store.options().clone()
    });
    assert!(matches!(refused, Err(MemoryError::OtherWindows { .. })));
}
