//! Leases between two servers, over a simulated fabric: an answer is given while its server holds them, and no two
//! servers answer for one region. Each planted mistake is found.

use std::time::Duration;

use argosy_base::{Epoch, RegionId, ServerId};
use argosy_coordinator::{
    ClusterMap, CopyReport, CopyStatus, PromotionClaim, RegionState, Replication,
};
use argosy_engine::Condition;
use argosy_fabric::sim::SimSettings;
use argosy_replication::lease;
use argosy_wire::ring::Header;

use super::copies_tests::{Pair, REGIONS, settings};
use super::gate_tests::{self, Ask, answered};
use super::readers_tests::{Answers, set_clock};
use super::views_tests::{changed, got, move_to, raised};
use super::{LeaseSettings, Mutants, NodeSettings};
use crate::service::{Failure, ReplySink, Request, Response, Service};

/// How long the leases of most tests last, in milliseconds.
const TERM: u64 = 50;
/// And of those in which nobody is to wait for one.
const LONG: u64 = 10_000;
/// A link opens again within this time.
const REOPENED: u64 = 300;

fn slow() -> SimSettings {
    SimSettings {
        delay_max: Duration::from_millis(3),
        late_percent: 0,
        ..SimSettings::default()
    }
}

fn leased(term: u64, mutants: Mutants, lease_mutants: lease::Mutants) -> NodeSettings {
    let leases = LeaseSettings::new(Duration::from_millis(term), 0).expect("within the bounds");
    NodeSettings {
        leases: Some(LeaseSettings {
            mutants: lease_mutants,
            ..leases
        }),
        deadline: Duration::from_secs(1),
        ..settings(mutants)
    }
}

/// Two servers with leases of `term` milliseconds, and a pair in each region.
fn opened(settings: NodeSettings, fabric: SimSettings) -> Pair {
    let mut pair = Pair::with(Replication::SendIndex, fabric, settings);
    pair.open();
    for region in 0..2 {
        pair.put(region, 7);
    }
    pair.run(40);
    assert_eq!(pair.acknowledged(), (2, 2));
    pair
}

/// So much time passes in which nobody does anything, and then some in which they do.
fn pause(pair: &mut Pair, millis: u64) {
    pair.now = pair.now + Duration::from_millis(millis);
    pair.run(50);
}

/// Lets a quarter of a millisecond pass. The processes of all but `servers` are stopped.
fn step(pair: &mut Pair, servers: &[usize]) {
    pair.now = pair.now + Duration::from_micros(250);
    pair.world.step(pair.now);
    set_clock(pair.now.as_nanos());
    for server in servers {
        pair.nodes[*server].step_fabric(pair.now);
        pair.nodes[*server].step_background(pair.now);
    }
}

pub(super) fn run(pair: &mut Pair, servers: &[usize], millis: u64) {
    for _ in 0..millis * 4 {
        step(pair, servers);
    }
}

/// Whether `server` answers a get of the first region with its value, at once.
fn shows(pair: &Pair, server: usize) -> bool {
    matches!(got(pair, server, 7), Some(Response::Value(Some(_))))
}

// --- A member that does not answer ---

/// How many of the writes are acknowledged, of 20, that come while the member's process has been stopped for longer
/// than a lease lasts.
fn acknowledged_beside_a_stopped_member(lease_mutants: lease::Mutants) -> (usize, usize) {
    let mut pair = opened(
        leased(TERM, Mutants::default(), lease_mutants),
        SimSettings::default(),
    );
    // While the lease lasts, they are.
    pair.put(0, 8);
    run(&mut pair, &[0], 10);
    assert_eq!(pair.acknowledged(), (1, 1));
    for _ in 0..TERM {
        pair.put_values(0, 8, 10);
        run(&mut pair, &[0], 1);
    }
    pair.acknowledged();
    for key in 0..20 {
        pair.put_values(0, key, 10);
        run(&mut pair, &[0], 1);
    }
    let while_stopped = pair.acknowledged().0;
    // Its memory has taken them. They are acknowledged once it grants leases again.
    run(&mut pair, &[0, 1], 40);
    (while_stopped, while_stopped + pair.acknowledged().0)
}

#[test]
fn writes_wait_while_a_member_grants_no_lease() {
    let (early, all) = acknowledged_beside_a_stopped_member(lease::Mutants::default());
    assert_eq!(early, 0);
    // And what had waited from before.
    assert!(all >= 20, "{all}");
}

#[test]
fn a_lease_that_completions_renew_is_found() {
    let lease_mutants = lease::Mutants {
        renew_by_completion: true,
        ..lease::Mutants::default()
    };
    let (early, _) = acknowledged_beside_a_stopped_member(lease_mutants);
    assert!(early > 0, "nobody finds the planted mistake");
}

// --- Every kind of answer ---

/// What `ask` is answered once the lease has run out and the server's threads have not been stepped since. Its key is
/// there.
fn without_a_lease(replication: Replication, mutants: Mutants, ask: Ask) -> Option<Response> {
    let settings = leased(TERM, mutants, lease::Mutants::default());
    let mut pair = Pair::with(replication, SimSettings::default(), settings);
    pair.open();
    let write: Ask = |node, sink| gate_tests::write(node, sink, Condition::Always);
    assert_eq!(answered(&pair, write), None, "it is not committed yet");
    pair.run(20);
    assert!(
        answered(&pair, gate_tests::get).is_some(),
        "there is a lease"
    );
    set_clock(pair.now.as_nanos() + TERM * 1_000_000);
    // To be told that something cannot be had at the moment reveals nothing.
    let told = answered(&pair, ask);
    told.filter(|it| !matches!(it, Response::Failed(Failure::Unavailable { .. })))
}

/// `ask` waits for a lease, and does not with a planted mistake; `own` is one of answers of its kind.
fn assert_waits(replication: Replication, ask: Ask, own: &str) {
    assert_eq!(without_a_lease(replication, Mutants::default(), ask), None);
    let mut of_its_kind = Mutants::default();
    assert!(of_its_kind.plant(own), "there is a mistake {own}");
    let planted = [
        of_its_kind,
        Mutants {
            bypass_lease: true,
            ..Mutants::default()
        },
        Mutants {
            stale_clock: true,
            ..Mutants::default()
        },
    ];
    for mutants in planted {
        let shown = without_a_lease(replication, mutants, ask);
        assert!(shown.is_some(), "nobody finds the planted mistake");
    }
}

#[test]
fn values_wait_for_a_lease() {
    assert_waits(
        Replication::SendIndex,
        gate_tests::get,
        "bypass_lease_of_values",
    );
}

#[test]
fn hits_in_memory_wait_for_a_lease() {
    assert_waits(
        Replication::SendIndex,
        gate_tests::hit,
        "bypass_lease_of_hits",
    );
}

#[test]
fn failed_conditions_wait_for_a_lease() {
    assert_waits(
        Replication::SendIndex,
        gate_tests::fail_condition,
        "bypass_lease_of_conditions",
    );
}

#[test]
fn counts_wait_for_a_lease() {
    assert_waits(
        Replication::SendIndex,
        gate_tests::count,
        "bypass_lease_of_counts",
    );
}

#[test]
fn pages_wait_for_a_lease() {
    assert_waits(
        Replication::SendIndex,
        gate_tests::page,
        "bypass_lease_of_pages",
    );
}

#[test]
fn snapshots_wait_for_a_lease() {
    assert_waits(
        Replication::SendIndex,
        gate_tests::lease,
        "bypass_lease_of_snapshots",
    );
}

#[test]
fn forwarded_answers_wait_for_a_lease() {
    assert_waits(
        Replication::SendIndex,
        gate_tests::forward,
        "bypass_lease_of_values",
    );
}

#[test]
fn bulk_loads_wait_for_a_lease() {
    assert_waits(
        Replication::BuildIndex,
        gate_tests::bulk_load,
        "bypass_lease_of_bulk_loads",
    );
}

/// A write that is committed is not acknowledged either. (It was never answered in `without_a_lease`: there it is not
/// committed.)
#[test]
fn acknowledgements_wait_for_a_lease() {
    for bypass_lease in [false, true] {
        let mutants = Mutants {
            bypass_lease,
            ..Mutants::default()
        };
        let mut pair = opened(
            leased(TERM, mutants, lease::Mutants::default()),
            SimSettings::default(),
        );
        run(&mut pair, &[0], TERM);
        pair.put(0, 9);
        run(&mut pair, &[0], 10);
        assert_eq!(pair.acknowledged().0, usize::from(bypass_lease));
    }
}

// --- Another primary ---

/// The map of `pair` with the first region at `epoch` under server 1, of which `stood` is the copy, and without server
/// 0.
fn taken_over(pair: &Pair, epoch: u32, stood: &CopyReport) -> ClusterMap {
    changed(pair, |region| {
        if region.id == REGIONS[0] {
            (region.epoch, region.since) = (Epoch(epoch), Epoch(epoch));
            (region.state, region.primary) = (RegionState::Serving, ServerId(1));
            region.members = vec![ServerId(1)];
            region.last = vec![ServerId(0), ServerId(1)];
            region.claim = Some(PromotionClaim {
                status: stood.status,
                cut: stood.cut,
                edit: stood.edit,
                lsn: stood.lsn,
                member: true,
            });
        }
    })
}

/// Who has answered for the first region while something was run.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    old: bool,
    both: bool,
    /// Milliseconds until the new one did.
    new_after: Option<u64>,
}

/// Runs `servers` for a while, and looks who answers after each step.
fn watch(pair: &mut Pair, servers: &[usize], millis: u64) -> Seen {
    let mut seen = Seen::default();
    for quarter in 0..millis * 4 {
        step(pair, servers);
        let [old, new] = [0, 1].map(|server| shows(pair, server));
        seen.old |= old;
        seen.both |= old && new;
        if new {
            seen.new_after = seen.new_after.or(Some(quarter / 4));
        }
    }
    seen
}

/// Has server 1 take the first region over, of which server 0 is told nothing, while `servers` run. Returns who
/// answered while links open again, and three leases run out.
fn take_over(pair: &mut Pair, servers: &[usize]) -> Seen {
    let map = raised(pair, 2);
    pair.nodes[1].set_map(map).expect("newer");
    let mut stood = None;
    for _ in 0..100 {
        step(pair, servers);
        let report = pair.nodes[1].report_to_master(pair.now);
        stood = report.copies.get(&REGIONS[0]).copied();
        if stood.is_some() {
            break;
        }
    }
    let stood = stood.expect("it says where it stands");
    assert_eq!(stood.status, CopyStatus::Whole);
    let map = taken_over(pair, 3, &stood);
    pair.nodes[1].set_map(map).expect("newer");
    watch(pair, servers, 3 * TERM + REOPENED)
}

fn with_mistakes(mutants: Mutants, lease_mutants: lease::Mutants, servers: &[usize]) -> Seen {
    let mut pair = opened(leased(TERM, mutants, lease_mutants), slow());
    take_over(&mut pair, servers)
}

/// The thread that moves leases on has stopped, those that read have not.
#[test]
fn a_new_primary_waits_for_the_lease_of_one_that_stopped() {
    let none = lease::Mutants::default();
    let seen = with_mistakes(Mutants::default(), none, &[1]);
    assert!(seen.old && !seen.both, "{seen:?}");
    let after = seen.new_after.expect("it serves in the end");
    assert!(after >= TERM / 3, "{seen:?}");

    let hasty = Mutants {
        serve_before_lease: true,
        ..Mutants::default()
    };
    assert!(with_mistakes(hasty, none, &[1]).both, "it is found");
    let late = lease::Mutants {
        count_from_receipt: true,
        ..none
    };
    let seen = with_mistakes(Mutants::default(), late, &[1]);
    assert!(seen.both, "it is found");
    let bypassed = Mutants {
        bypass_lease: true,
        ..Mutants::default()
    };
    assert!(with_mistakes(bypassed, none, &[1]).both, "it is found");
}

/// The old primary runs, renews its lease for the other region, and has not read the map: its lease ends all the same.
#[test]
fn a_primary_that_has_not_heard_stops_answering() {
    let none = lease::Mutants::default();
    let mut pair = opened(leased(TERM, Mutants::default(), none), slow());
    let seen = take_over(&mut pair, &[0, 1]);
    assert!(!seen.both && seen.new_after.is_some(), "{seen:?}");
    assert!(
        pair.nodes[0].take_map_wanted(),
        "it knows that it is behind"
    );
    // It reads the map, and goes on with the other region.
    pair.put(1, 8);
    run(&mut pair, &[0, 1], 20);
    assert_eq!(pair.acknowledged().0, 0);
    let map = (*pair.nodes[1].map()).clone();
    pair.nodes[0].set_map(map).expect("newer");
    run(&mut pair, &[0, 1], REOPENED);
    assert_eq!(pair.acknowledged().0, 1);

    let deaf = lease::Mutants {
        lease_after_revoke: true,
        ..none
    };
    let seen = with_mistakes(Mutants::default(), deaf, &[0, 1]);
    assert!(seen.both, "it is found");
}

/// What is told of more regions than a message has room for counts once all of it has come.
#[test]
fn epochs_are_told_in_parts() {
    let mut settings = leased(TERM, Mutants::default(), lease::Mutants::default());
    settings.link.part_bytes = 16;
    let mut pair = opened(settings, SimSettings::default());
    let map = changed(&pair, |region| region.epoch = Epoch(2));
    pair.nodes[1].set_map(map.clone()).expect("newer");
    run(&mut pair, &[0, 1], REOPENED);
    assert!(!shows(&pair, 0) && pair.nodes[0].take_map_wanted());
    pair.nodes[0].set_map(map).expect("newer");
    run(&mut pair, &[0, 1], REOPENED);
    assert!(shows(&pair, 0), "{:?}", pair.nodes[0].ready());
}

/// Whoever knows a later epoch tells whoever does not, primary or backup; and again when the link between them broke.
#[test]
fn who_has_an_older_map_is_told_in_both_directions() {
    for newer in [0, 1] {
        let settings = leased(TERM, Mutants::default(), lease::Mutants::default());
        let mut pair = opened(settings, SimSettings::default());
        let wanted = |pair: &Pair| [0, 1].map(|of: usize| pair.nodes[of].take_map_wanted());
        assert_eq!(wanted(&pair), [false, false]);
        let map = changed(&pair, |region| region.epoch = Epoch(2));
        pair.nodes[newer].set_map(map.clone()).expect("newer");
        for _ in 0..2 {
            run(&mut pair, &[0, 1], REOPENED);
            let mut expected = [true, true];
            expected[newer] = false;
            assert_eq!(wanted(&pair), expected);
            pair.nodes[0].link(ServerId(1)).reset("the test wants it");
        }
        run(&mut pair, &[0, 1], REOPENED);
        pair.nodes[1 - newer].set_map(map).expect("newer");
        wanted(&pair);
        run(&mut pair, &[0, 1], REOPENED);
        assert_eq!(wanted(&pair), [false, false]);
        assert!(shows(&pair, 0), "{:?}", pair.nodes[0].ready());
    }
}

/// Where the old primary says that it has taken the view, or gives its leases up, nobody waits for a lease of ten
/// seconds.
#[test]
fn nobody_waits_for_a_lease_that_was_given_up() {
    let none = lease::Mutants::default();
    let settings = leased(LONG, Mutants::default(), none);
    let mut pair = opened(settings, SimSettings::default());
    // What it may have promised before its start has run out.
    pause(&mut pair, LONG);
    move_to(&mut pair, 2, 1, &[0, 1]);
    let seen = watch(&mut pair, &[0, 1], 2 * REOPENED);
    assert!(!seen.both && seen.new_after.is_some(), "{seen:?}");

    for hand_back_first in [false, true] {
        let lease_mutants = lease::Mutants {
            hand_back_first,
            ..none
        };
        let settings = leased(LONG, Mutants::default(), lease_mutants);
        let mut pair = opened(settings, SimSettings::default());
        pause(&mut pair, LONG);
        assert!(pair.nodes[0].end_leases(), "it owes nothing");
        run(&mut pair, &[0, 1], 10);
        let seen = take_over(&mut pair, &[1]);
        assert!(seen.new_after.is_some(), "{seen:?}");
        assert_eq!(seen.both, hand_back_first);
    }
}

/// A server that was killed has forgotten its promises: it waits before it serves in place of another.
#[test]
fn a_restarted_server_waits_for_what_it_may_have_promised() {
    for forget_promises in [false, true] {
        let lease_mutants = lease::Mutants {
            forget_promises,
            ..lease::Mutants::default()
        };
        let mut pair = opened(leased(TERM, Mutants::default(), lease_mutants), slow());
        pair.restart(1);
        let seen = take_over(&mut pair, &[1]);
        assert!(seen.new_after.is_some(), "{seen:?}");
        assert_eq!(seen.both, forget_promises, "{seen:?}");
    }
}

/// One that stopped cleanly, and owed nothing, does not.
#[test]
fn a_clean_stop_that_owes_nothing_is_remembered_once() {
    let settings = leased(LONG, Mutants::default(), lease::Mutants::default());
    let mut pair = opened(settings, SimSettings::default());
    pause(&mut pair, LONG);
    assert!(!pair.nodes[1].end_leases(), "it has promised");
    assert!(pair.nodes[0].end_leases());
    run(&mut pair, &[0, 1], 10);
    assert!(pair.nodes[1].end_leases(), "all is handed back");
    assert!(pair.nodes[1].close());
    pair.restart(1);
    let seen = take_over(&mut pair, &[1]);
    assert!(seen.new_after.is_some_and(|after| after < 100), "{seen:?}");
    // The record is good for one start.
    pair.map = (*pair.nodes[1].map()).clone();
    pair.restart(1);
    let seen = watch(&mut pair, &[1], 200);
    assert_eq!(seen.new_after, None);
}

/// What another server passes on to a primary of before its promotion is refused.
#[test]
fn calls_of_an_old_epoch_are_refused() {
    for answer_old_epoch in [false, true] {
        let mutants = Mutants {
            answer_old_epoch,
            ..Mutants::default()
        };
        let mut pair = opened(
            leased(TERM, mutants, lease::Mutants::default()),
            SimSettings::default(),
        );
        move_to(&mut pair, 2, 0, &[0, 1]);
        pair.run(REOPENED);
        assert!(shows(&pair, 0), "{:?}", pair.nodes[0].ready());
        let told = std::sync::Arc::<Answers>::default();
        let sink: std::sync::Arc<dyn ReplySink> = std::sync::Arc::<Answers>::clone(&told);
        let node = &pair.nodes[0];
        node.links.set_answerer(ServerId(1), sink);
        let header = Header {
            kind: 0,
            region: RegionId(1),
            epoch: Epoch(1),
            request: 1,
        };
        let mut call = Vec::new();
        Request::Get { key: b"a000000070" }.encode(&mut call);
        assert!(node.answer_call(ServerId(1), header, &call));
        let (_, answer) = told.0.lock().pop().expect("it is answered");
        let shown = matches!(answer, Response::Value(Some(_)));
        assert_eq!(shown, answer_old_epoch, "{answer:?}");
    }
}
