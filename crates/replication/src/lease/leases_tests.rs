//! What the gate of a region asks: sets of members, and what ends early.

use core::time::Duration;

use argosy_base::{Incarnation, Instant, ServerId};

use super::super::granter::FIRST_RISE;
use super::super::{LeaseTerms, LinkSession, Mutants};
use super::*;

const OWN: ServerId = ServerId(1);
const PEERS: [ServerId; 2] = [ServerId(2), ServerId(3)];

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Asks `peer` at `at`, which answers.
fn grant(leases: &mut Leases, peer: ServerId, at: Instant) {
    let request = leases.ask(peer, at).expect("one is due");
    let answer = LeaseAnswer {
        session: request.session,
        number: request.number,
        term: request.term,
        rise: FIRST_RISE,
    };
    leases.answered(peer, &answer, at);
}

/// Server 1 with links to 2 and 3, and leases of 90 ms from what is asked.
fn linked() -> Leases {
    let terms = LeaseTerms::new(Duration::from_millis(100), 100_000).expect("within the bounds");
    let mut leases = Leases::new(OWN);
    for peer in PEERS {
        let holder = Holder::new(terms, Incarnation(1), Mutants::default());
        leases.add(peer, holder);
        leases.link_up(peer, 1);
        let session = LinkSession {
            incarnation: Incarnation(1),
            number: 1,
        };
        leases.took(peer, session, FIRST_RISE);
    }
    leases
}

#[test]
fn a_group_of_one_needs_no_lease() {
    let leases = Leases::new(OWN);
    assert!(leases.all_held(&[OWN], ms(1)));
    assert_eq!(leases.until(&[OWN]), Some(FOR_EVER));
    assert!(!leases.all_held(&[OWN, PEERS[0]], ms(1)));
}

#[test]
fn a_set_is_held_before_its_earliest_lease_ends() {
    let mut leases = linked();
    let all = [PEERS[0], OWN, PEERS[1]];
    grant(&mut leases, PEERS[0], ms(10));
    assert_eq!(leases.until(&all), None);
    assert!(leases.all_held(&all[..2], ms(99)));
    assert!(!leases.all_held(&all[..2], ms(100)));
    grant(&mut leases, PEERS[1], ms(20));
    assert_eq!(leases.until(&all), Some(ms(100)));
    grant(&mut leases, PEERS[0], ms(40));
    assert_eq!(leases.until(&all), Some(ms(110)));
}

/// Everything that can make a kept moment wrong is counted, and a renewal is not.
#[test]
fn what_ends_early_is_counted() {
    let mut leases = linked();
    let before = leases.ended();
    for at in [10, 40, 70] {
        grant(&mut leases, PEERS[0], ms(at));
    }
    assert_eq!(leases.ended(), before);
    assert!(leases.give_up(PEERS[0]).is_some());
    assert_eq!(leases.until(&PEERS[..1]), None);
    leases.link_down(PEERS[1]);
    leases.link_up(PEERS[1], 2);
    leases.remove(PEERS[1]);
    leases.remove(PEERS[1]);
    assert_eq!(leases.ended(), before + 4);
}
