//! A device that is missing, empty or another one is not taken for a server that has no data yet.

use std::fs::File;
use std::path::{Path, PathBuf};

use argosy_bench::resp::Reply;
use rustix::process::Signal;

use crate::inspect_command::{Dir, path};
use crate::support::{
    ByHand, Playground, argosy, bulk, call, connect, empty_dir, info, keep_ports, lives, ok,
    signal, text, until, until_ready,
};

/// Runs `argosy` with `args` to its end, which is a refusal: its exit code, and what it said.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let output = argosy().args(args).output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{args:?} was not refused: {said}");
    (output.status.code(), said)
}

fn device(dir: &Dir, server: usize) -> PathBuf {
    dir.0.join(format!("server-{server}/device"))
}

/// A playground in `dir`, of which writes are acknowledged.
fn written(dir: &Dir, servers: &str) -> Playground {
    let playground = Playground::start(&["--servers", servers, "--data-dir", path(&dir.0)]);
    let mut client = connect(playground.servers[0].resp);
    for n in 0..100 {
        let key = format!("key-{n}");
        assert_eq!(call(&mut client, &[b"SET", key.as_bytes(), b"v"]), ok());
    }
    playground
}

fn get(playground: &Playground, key: &str) -> Reply {
    call(
        &mut connect(playground.servers[0].resp),
        &[b"GET", key.as_bytes()],
    )
}

/// Ends a playground and its servers at once.
fn kill_all(mut playground: Playground) {
    let servers = playground.servers.clone();
    for server in &servers {
        signal(server.pid, Signal::KILL);
        until("the server dies", || !lives(server.pid));
    }
    playground.kill();
}

pub(crate) fn shared_memory(config: &Path) -> PathBuf {
    let config = std::fs::read_to_string(config).unwrap();
    let line = config.lines().find(|line| line.starts_with("shm-dir"));
    PathBuf::from(line.unwrap().split('"').nth(1).unwrap())
}

/// How many files of a server's windows have a name that contains `part`.
fn windows(shm: &Path, server: usize, part: &str) -> usize {
    let files = std::fs::read_dir(shm.join(format!("server-{server}/windows"))).unwrap();
    files
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().contains(part))
        .count()
}

#[test]
fn a_missing_or_empty_device_is_not_made_anew() {
    let dir = Dir(empty_dir("missing-device"));
    assert!(written(&dir, "1").interrupt().success());
    let config = dir.0.join("server-0/argosy.toml");
    let (device, aside) = (device(&dir, 0), dir.0.join("aside"));
    std::fs::rename(&device, &aside).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            File::create(&device).unwrap();
        }
        let (code, said) = refused(&["server", "--config", path(&config)]);
        assert_eq!(code, Some(3), "{said}");
        let found = if is_empty { "an empty one" } else { "none" };
        for part in ["is missing", found, "mount it", "--new-device", "server-0"] {
            assert!(said.contains(part), "{part:?} is not in: {said}");
        }
        let (code, said) = refused(&["playground", "--data-dir", path(&dir.0)]);
        assert!(code == Some(1) && said.contains("is missing"), "{said}");
        assert_eq!(device.exists(), is_empty, "nothing was made");
    }
    std::fs::remove_file(&device).unwrap();

    // Back in its place it serves as before, and is no new one.
    std::fs::rename(&aside, &device).unwrap();
    let (code, said) = refused(&["server", "--new-device", "--config", path(&config)]);
    assert!(code == Some(3) && said.contains("already"), "{said}");
    let playground = Playground::start(&["--data-dir", path(&dir.0)]);
    assert_eq!(get(&playground, "key-7"), bulk("v"));
    assert!(playground.interrupt().success());

    // Said to be lost, it is made anew, and the earlier one is another from then on.
    std::fs::rename(&device, &aside).unwrap();
    let data = ["--data-dir", path(&dir.0)];
    let (code, said) = refused(&["playground", "--new-device", "1", data[0], data[1]]);
    assert_eq!(code, Some(2), "{said}");
    let playground = Playground::start(&[&data[..], &["--new-device", "0"]].concat());
    assert_eq!(get(&playground, "key-7"), Reply::Bulk(None));
    assert!(playground.interrupt().success());
    std::fs::rename(&aside, &device).unwrap();
    let (code, said) = refused(&["server", "--config", path(&config)]);
    assert!(code == Some(3) && said.contains("this is device"), "{said}");
}

/// A copy of a device from before a start, put back after a kill, would count as whole: its windows have survived.
#[test]
fn a_device_that_goes_back_in_time_is_not_opened() {
    let dir = Dir(empty_dir("earlier-device"));
    let device = device(&dir, 0);
    let (old, new) = (dir.0.join("old"), dir.0.join("new"));
    let args = ["--servers", "1", "--device-bytes", "1GiB"];
    let args = [&args[..], &["--data-dir", path(&dir.0)]].concat();
    assert!(Playground::start(&args).interrupt().success());
    std::fs::copy(&device, &old).unwrap();
    let playground = written(&dir, "1");
    let config = playground.servers[0].config.clone();
    kill_all(playground);
    std::fs::rename(&device, &new).unwrap();
    std::fs::copy(&old, &device).unwrap();
    // As often as one likes: a start that is refused counts for nothing.
    for _ in 0..2 {
        let (code, said) = refused(&["server", "--config", path(&config)]);
        assert_eq!(code, Some(3), "{said}");
        for part in ["opened 1 times", "opening 2", "--new-device"] {
            assert!(said.contains(part), "{part:?} is not in: {said}");
        }
    }
    std::fs::rename(&new, &device).unwrap();
    let playground = Playground::start(&["--data-dir", path(&dir.0)]);
    assert_eq!(get(&playground, "key-7"), bulk("v"));
    assert!(playground.interrupt().success());
}

#[test]
fn a_server_whose_directory_is_removed_confirms_no_more_writes() {
    let dir = Dir(empty_dir("removed"));
    let playground = written(&dir, "1");
    let server = playground.servers[0].clone();
    let mut client = connect(server.resp);
    assert_eq!(call(&mut client, &[b"KV.FLUSH"]), ok());
    std::fs::remove_dir_all(dir.0.join("server-0")).unwrap();
    let refusal = |reply| match reply {
        Reply::Error(line) => Some(line),
        _ => None,
    };
    let mut last = None;
    until("writes are refused", || {
        last = refusal(call(&mut client, &[b"SET", b"k", b"w"]));
        last.is_some()
    });
    let said = last.unwrap();
    assert!(
        said.starts_with("MISCONF") && said.contains("not applied"),
        "{said}"
    );
    let flushed = refusal(call(&mut client, &[b"KV.FLUSH"]));
    assert!(
        flushed.is_some_and(|line| !line.is_empty()),
        "a flush is not confirmed"
    );
    assert_eq!(info(server.resp, "argosy")["device_failed"], "1");
    assert_eq!(call(&mut client, &[b"GET", b"key-7"]), bulk("v"));
    kill_all(playground);
}

#[test]
fn all_devices_at_once_are_not_made_anew() {
    let dir = Dir(empty_dir("missing-devices"));
    let playground = written(&dir, "3");
    let shm = shared_memory(&playground.servers[0].config);
    kill_all(playground);
    let before = windows(&shm, 0, ".window");
    for server in 0..3 {
        std::fs::rename(device(&dir, server), dir.0.join(format!("aside-{server}"))).unwrap();
    }
    let (_, said) = refused(&["playground", "--data-dir", path(&dir.0)]);
    assert!(said.contains("is missing"), "{said}");
    assert_eq!(windows(&shm, 0, ".window"), before, "windows stay");
    for server in 0..3 {
        std::fs::rename(dir.0.join(format!("aside-{server}")), device(&dir, server)).unwrap();
    }
    let playground = Playground::start(&["--data-dir", path(&dir.0)]);
    for n in 0..100 {
        assert_eq!(get(&playground, &format!("key-{n}")), bulk("v"));
    }
    assert!(playground.interrupt().success());
}

#[test]
fn windows_of_a_lost_device_are_set_aside_and_its_keys_come_from_the_others() {
    let dir = Dir(empty_dir("lost-device"));
    let playground = written(&dir, "3");
    let shm = shared_memory(&playground.servers[0].config);
    kill_all(playground);
    let before = windows(&shm, 1, ".window");
    assert!(before > 0);
    std::fs::remove_file(device(&dir, 1)).unwrap();
    let playground = Playground::start(&["--data-dir", path(&dir.0), "--new-device", "1"]);
    assert_eq!(windows(&shm, 1, ".of-"), before, "none was removed");
    for n in 0..100 {
        assert_eq!(get(&playground, &format!("key-{n}")), bulk("v"));
    }
    assert!(playground.interrupt().success());
}

#[test]
fn a_directory_that_is_not_mounted_is_not_taken_for_a_new_one() {
    let dir = Dir(empty_dir("not-mounted"));
    let data = dir.0.join("data");
    std::fs::create_dir(&data).unwrap();
    let data = Dir(data);
    let playground = written(&data, "1");
    let shm = shared_memory(&playground.servers[0].config);
    kill_all(playground);
    let away = dir.0.join("away");
    std::fs::rename(&data.0, &away).unwrap();
    for exists in [false, true] {
        if exists {
            std::fs::create_dir_all(&data.0).unwrap();
        }
        let (code, said) = refused(&["playground", "--data-dir", path(&data.0)]);
        assert_eq!(code, Some(3), "{said}");
        for part in [path(&data.0), path(&shm), "mount it", "--discard-windows"] {
            assert!(said.contains(part), "{part:?} is not in: {said}");
        }
    }
    std::fs::remove_dir_all(&data.0).unwrap();
    std::fs::rename(&away, &data.0).unwrap();
    let place = ["--data-dir", path(&data.0)];
    let (code, said) = refused(&["playground", "--discard-windows", place[0], place[1]]);
    assert!(code == Some(2) && said.contains("is there"), "{said}");
    let playground = Playground::start(&place);
    for n in 0..100 {
        assert_eq!(get(&playground, &format!("key-{n}")), bulk("v"));
    }
    kill_all(playground);
    std::fs::rename(&data.0, &away).unwrap();
    let playground = Playground::start(&[&place[..], &["--discard-windows"]].concat());
    assert_eq!(get(&playground, "key-7"), Reply::Bulk(None));
    assert!(playground.interrupt().success());
}

/// Another playground, with a directory of its own, starts and stops; what it said.
fn another(dir: &Dir) {
    std::fs::create_dir_all(&dir.0).unwrap();
    let other = Playground::start(&["--servers", "1", "--data-dir", path(&dir.0)]);
    assert!(other.interrupt().success());
}

#[test]
fn another_playground_leaves_the_memory_of_a_cluster_that_cannot_be_seen() {
    let dir = Dir(empty_dir("unseen"));
    let data = Dir(dir.0.join("data"));
    std::fs::create_dir(&data.0).unwrap();
    let playground = written(&data, "3");
    let shm = shared_memory(&playground.servers[0].config);
    kill_all(playground);
    let away = dir.0.join("away");
    std::fs::rename(&data.0, &away).unwrap();
    another(&Dir(dir.0.join("other")));
    assert!(shm.exists(), "what was acknowledged may lie there alone");
    std::fs::rename(&away, &data.0).unwrap();
    let playground = Playground::start(&["--data-dir", path(&data.0)]);
    for n in 0..100 {
        assert_eq!(get(&playground, &format!("key-{n}")), bulk("v"));
    }
    assert!(playground.interrupt().success());
    assert!(!shm.exists(), "all of it is on devices now");
}

#[test]
fn a_clean_stop_of_all_leaves_no_memory_although_a_server_was_started_by_hand() {
    let dir = Dir(empty_dir("by-hand"));
    let playground = written(&dir, "3");
    let shm = shared_memory(&playground.servers[0].config);
    let lost = playground.servers[1].clone();
    let ports = keep_ports();
    signal(lost.pid, Signal::KILL);
    until("the server dies", || !lives(lost.pid));
    let mut back = ByHand::start(&lost.config);
    until_ready(lost.admin);
    drop(ports);
    assert!(playground.interrupt().success());
    assert!(back.wait().success());
    assert!(!shm.exists(), "all of it is on devices now");

    // One that is dead at the end may have left records.
    let playground = Playground::start(&["--data-dir", path(&dir.0)]);
    let lost = playground.servers[1].clone();
    signal(lost.pid, Signal::KILL);
    until("the server dies", || !lives(lost.pid));
    let _ = playground.interrupt();
    assert!(shm.exists(), "one server did not stop cleanly");
    let playground = Playground::start(&["--data-dir", path(&dir.0)]);
    assert_eq!(get(&playground, "key-7"), bulk("v"));
    assert!(playground.interrupt().success());
    assert!(!shm.exists());
}

#[test]
fn directories_are_closed_to_other_users() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir(empty_dir("closed"));
    let data = Dir(dir.0.join("data"));
    let playground = Playground::start(&["--servers", "2", "--data-dir", path(&data.0)]);
    let shm = shared_memory(&playground.servers[0].config);
    let mut left = vec![data.0.clone(), shm];
    let mut seen = 0;
    while let Some(at) = left.pop() {
        let mode = std::fs::metadata(&at).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", at.display());
        seen += 1;
        let entries = std::fs::read_dir(&at).unwrap().flatten();
        let directories = entries.filter(|entry| entry.file_type().unwrap().is_dir());
        left.extend(directories.map(|entry| entry.path()));
    }
    assert!(seen >= 10, "two servers, their windows and memory: {seen}");
    assert!(playground.interrupt().success());
}

#[test]
fn a_playground_takes_no_directory_that_is_not_one() {
    let dir = Dir(empty_dir("foreign"));
    std::fs::write(dir.0.join("letter.txt"), "dear").unwrap();
    let data = ["playground", "--data-dir", path(&dir.0)];
    let (code, said) = refused(&data);
    assert!(code == Some(2) && said.contains("letter.txt"), "{said}");
    std::fs::rename(dir.0.join("letter.txt"), dir.0.join("device")).unwrap();
    let (code, said) = refused(&data);
    assert!(
        code == Some(2) && said.contains("the store of a program"),
        "{said}"
    );
    assert_eq!(
        std::fs::read_dir(&dir.0).unwrap().count(),
        1,
        "nothing was made"
    );

    // A new file system has a directory already.
    std::fs::remove_file(dir.0.join("device")).unwrap();
    std::fs::create_dir(dir.0.join("lost+found")).unwrap();
    another(&dir);
}
