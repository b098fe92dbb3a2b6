//! What a message of another epoch leaves on a link, which outlasts such changes.

use argosy_base::{Epoch, SegmentNumber, ServerId};
use argosy_fabric::sim::SimSettings;
use argosy_wire::message::Message;
use argosy_wire::ring::Header;

use crate::node::Mutants;
use crate::node::copies_tests::{Pair, REGIONS};

/// Has the second server ask for bytes of segments under an epoch that nobody knows, into all slots that there are.
/// Returns how many of them, in percent, are free again when that is answered.
fn free_behind_fetches(mutants: Mutants) -> usize {
    let mut pair = Pair::new(SimSettings::default(), mutants);
    pair.open();
    let taken = take_all(&pair);
    let count = taken.len();
    for slot in taken {
        let fetch = Message::Fetch {
            segment: SegmentNumber(1),
            from: 0,
            to: 1,
            slot,
        };
        let header = Header {
            kind: fetch.kind(),
            region: REGIONS[0],
            epoch: Epoch(99),
            request: 0,
        };
        let mut payload = Vec::new();
        fetch.encode(&mut payload);
        pair.nodes[0].receive(ServerId(1), header, &payload);
    }
    pair.run(20);
    take_all(&pair).len() * 100 / count
}

/// All slots that are free for what the second server fetches.
fn take_all(pair: &Pair) -> Vec<u8> {
    let mut link = pair.nodes[1].link(ServerId(0));
    std::iter::from_fn(|| link.take_fetch_slot()).collect()
}

#[test]
fn a_fetch_of_another_epoch_gives_its_slot_back() {
    assert_eq!(free_behind_fetches(Mutants::default()), 100);
    let planted = Mutants {
        keep_declined: true,
        ..Mutants::default()
    };
    assert_eq!(free_behind_fetches(planted), 0);
}
