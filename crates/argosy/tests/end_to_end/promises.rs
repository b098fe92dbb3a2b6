//! What each durability mode promises, cell by cell of the table in `docs/operations.md`: what is lost when a process
//! is killed, when all are, when one host's memory is lost, and when all hosts lose theirs, as they do without power.
//! (What devices do that had not synced is the simulator's part.)

use std::path::Path;

use argosy_bench::resp::{Connection, Reply};

use crate::missing_device::shared_memory;
use crate::playground_commands::done;
use crate::support::{Playground, bulk, call, connect, empty_dir, ok, until, until_ready};

/// Writes of one region, in the order of their numbers.
const WRITES: usize = 300;

fn key(number: usize) -> String {
    format!("a-{number:04}")
}

fn start(dir: &Path, mode: &str) -> Playground {
    let dir = dir.to_str().unwrap();
    let playground = Playground::start(&["--data-dir", dir, "--durability", mode]);
    for server in &playground.servers {
        until_ready(server.admin);
    }
    playground
}

/// Sets the keys of `numbers`, each as often as it takes until that is acknowledged.
fn write(playground: &Playground, numbers: std::ops::Range<usize>) {
    let mut client = connect(playground.servers[1].resp);
    for number in numbers {
        let key = key(number);
        let set: [&[u8]; 3] = [b"SET", key.as_bytes(), key.as_bytes()];
        until("a write is acknowledged", || {
            call(&mut client, &set) == ok()
        });
    }
}

/// Kills all servers at once, and the playground. (They have been restarted: their processes are others by now.)
fn kill_all(mut playground: Playground, dir: &Path) {
    done(dir, &["kill", "0", "1", "2"]);
    playground.kill();
}

/// How many of the first writes are there, behind which nothing is.
fn prefix(playground: &Playground) -> usize {
    let mut client = connect(playground.servers[1].resp);
    let is_there: Vec<bool> = (0..WRITES).map(|number| has(&mut client, number)).collect();
    let found = is_there.iter().take_while(|there| **there).count();
    assert!(!is_there[found..].contains(&true), "a hole at {found}");
    found
}

fn has(client: &mut Connection, number: usize) -> bool {
    let key = key(number);
    let mut found = Reply::Bulk(None);
    until("a read is answered", || {
        found = call(client, &[b"GET", key.as_bytes()]);
        !matches!(found, Reply::Error(_))
    });
    assert!(
        found == Reply::Bulk(None) || found == bulk(&key),
        "{found:?}"
    );
    found != Reply::Bulk(None)
}

/// Runs through the table's row of `mode`. Returns how many writes are there when all have lost their memory, of
/// [`WRITES`], the first third of which were flushed.
fn row(mode: &str) -> usize {
    let dir = empty_dir(&format!("promises-{mode}"));
    let third = WRITES / 3;
    let playground = start(&dir, mode);
    write(&playground, 0..third);
    let flushed = call(&mut connect(playground.servers[1].resp), &[b"KV.FLUSH"]);
    assert_eq!(flushed, ok());

    // A process is killed: the region's primary.
    done(&dir, &["kill", "0"]);
    assert_eq!(prefix(&playground), third, "{mode}: a process was killed");
    done(&dir, &["restart", "0"]);
    until_ready(playground.servers[0].admin);
    write(&playground, third..2 * third);

    // All processes are.
    let shm = shared_memory(&playground.servers[0].config);
    kill_all(playground, &dir);
    let playground = start(&dir, mode);
    assert_eq!(prefix(&playground), 2 * third, "{mode}: all were killed");

    // One host loses its memory: it is killed, and comes back without windows.
    done(&dir, &["kill", "2"]);
    std::fs::remove_dir_all(shm.join("server-2")).unwrap();
    done(&dir, &["restart", "2"]);
    until_ready(playground.servers[2].admin);
    assert_eq!(prefix(&playground), 2 * third, "{mode}: memory was lost");

    // All lose theirs.
    write(&playground, 2 * third..WRITES);
    kill_all(playground, &dir);
    std::fs::remove_dir_all(&shm).unwrap();
    let playground = start(&dir, mode);
    let found = prefix(&playground);
    assert!(found >= third, "{mode}: what was flushed was lost: {found}");
    assert!(playground.interrupt().success());
    std::fs::remove_dir_all(dir).unwrap();
    found
}

#[test]
fn last_write_keeps_what_was_acknowledged_while_one_memory_is_left() {
    row("last-write");
}

#[test]
fn last_flush_keeps_what_was_flushed_and_loses_an_end_at_most() {
    row("last-flush");
}

#[test]
fn sync_keeps_what_was_acknowledged_whatever_memory_is_lost() {
    assert_eq!(row("sync"), WRITES);
}
