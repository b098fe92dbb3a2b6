//! A backup whose windows take long to be connected to, and what its region does meanwhile: it is written to, flushed,
//! and detached.

use std::time::Duration;

use argosy_base::ServerId;
use argosy_coordinator::Replication;
use argosy_fabric::sim::SimSettings;

use super::copies_tests::{Pair, REGIONS, settings};
use super::readers_tests::set_clock;
use super::region::Driver;
use super::{Mutants, NodeSettings};
use crate::service::{Maintenance, Request, Service};

const BACKUP: ServerId = ServerId(1);

/// Two servers of which the second, the backup, has reported, and takes no connection from now on. Everything else it
/// does.
fn pair() -> Pair {
    let fabric = SimSettings {
        break_max: Duration::from_secs(1 << 30),
        ..SimSettings::default()
    };
    let settings = NodeSettings {
        deadline: Duration::from_secs(10),
        ..settings(Mutants::default())
    };
    let mut pair = Pair::with(Replication::SendIndex, fabric, settings);
    pair.open();
    pair.put(0, 1);
    pair.run(20);
    assert_eq!(pair.acknowledged(), (1, 1));
    pair.prepare_anew();
    pair.run(20);
    assert_eq!(pair.nodes[0].ready().lacks, None, "it is attached again");
    pair.world.stop(BACKUP);
    pair
}

/// Bytes of the first region's log that were written to the backup.
fn written(pair: &Pair) -> u64 {
    let region = pair.nodes[0].region(REGIONS[0]).expect("a member");
    match &*region.driver() {
        Driver::Primary(driver) => driver.log_bytes().values().sum(),
        _ => panic!("it is the primary"),
    }
}

/// Writes four pairs under each of four keys, and has all logs flushed.
fn write_and_flush(pair: &mut Pair) {
    for key in 10..14 {
        pair.put(0, key);
        pair.run(2);
    }
    pair.begin(Request::Maintain {
        what: Maintenance::Flush,
    });
    pair.run(40);
}

/// Nothing is shipped before the windows are connected to, and so nothing acknowledged. All of it is then.
#[test]
fn writes_and_a_flush_wait_for_a_slow_connection() {
    let mut pair = pair();
    let before = written(&pair);
    write_and_flush(&mut pair);
    assert_eq!(pair.acknowledged(), (0, 0));
    assert_eq!(written(&pair), before);
    pair.world.resume(BACKUP);
    pair.run(200);
    assert_eq!(pair.acknowledged(), (4, 5));
    assert!(written(&pair) > before + 4000);
    assert_eq!(pair.world.counters().connections.dropped, 0);
    assert_eq!(pair.nodes[0].inspect().counts().links_lost, 0);
}

/// Another attempt gives up what is being connected to, and begins anew. What was written meanwhile reaches the
/// backup, which has all of it when the primary has lost it.
#[test]
fn a_detach_gives_up_a_slow_connection() {
    let mut pair = pair();
    let before = written(&pair);
    write_and_flush(&mut pair);
    assert_eq!(pair.world.counters().connections.dropped, 0);
    pair.prepare_anew();
    pair.run(20);
    assert!(pair.world.counters().connections.dropped > 0);
    pair.put(0, 14);
    pair.run(20);
    assert_eq!(pair.acknowledged(), (0, 0));
    assert_eq!(written(&pair), before);
    pair.world.resume(BACKUP);
    pair.run(200);
    assert_eq!(pair.acknowledged(), (5, 6));
    pair.replace(0);
    pair.open();
    for key in 10..15 {
        assert!(pair.has(0, key), "{key}");
    }
}

/// While a connection is being made, and nothing else is to be done, the steps of the primary do nothing, and it parks
/// between them.
#[test]
fn a_slow_connection_is_not_looked_for() {
    let mut pair = pair();
    pair.put(0, 10);
    pair.run(20);
    let begun = pair.world.counters().connections.begun;
    let (mut made, mut busy) = (0, 0);
    for _ in 0..400 {
        pair.now = pair.now + Duration::from_micros(250);
        pair.world.step(pair.now);
        set_clock(pair.now.as_nanos());
        let primary = pair.nodes[0].step_fabric(pair.now);
        made += usize::from(primary.made);
        busy += usize::from(primary.idle_for < Some(Duration::from_micros(250)));
        pair.nodes[1].step_fabric(pair.now);
    }
    assert_eq!(pair.acknowledged(), (0, 0), "it is still being made");
    assert!(made <= 4 && busy <= 4, "{made} steps, {busy} short rests");
    assert_eq!(pair.world.counters().connections.begun, begun);
}

/// A server that was started with other sizes is there, and its link cannot be opened. That is said of it, with what to
/// do, and not that it shows no sign of life; and no more once it has the same sizes.
#[test]
fn a_server_with_other_settings_is_told_of() {
    let usual = settings(Mutants::default());
    let mut pair = Pair::with(Replication::SendIndex, SimSettings::default(), usual);
    pair.open();
    let told = |pair: &Pair| {
        let degraded = pair.nodes[0].ready().degraded;
        let says = |part: &str| degraded.iter().any(|what| what.contains(part));
        let refused = says("the link to server 1 cannot be opened") && says("; start both servers");
        (refused, says("no sign of life"))
    };
    pair.settings.link.ring_bytes /= 2;
    pair.restart(1);
    pair.run(3000);
    assert_eq!(told(&pair), (true, false));
    pair.settings.link.ring_bytes *= 2;
    pair.restart(1);
    pair.run(1000);
    assert_eq!(told(&pair), (false, false));
}
