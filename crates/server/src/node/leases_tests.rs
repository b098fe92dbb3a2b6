//! Bookkeeping beside the machines: what is told once, and what a region waits for.

use argosy_base::KeyRange;
use argosy_coordinator::{
    ClusterId, CopyStatus, PromotionClaim, Region as MapRegion, Replication, Server,
};

use super::*;

const OWN: ServerId = ServerId(0);
const PEER: ServerId = ServerId(1);

fn map(epoch: u32) -> Arc<ClusterMap> {
    let servers = [OWN, PEER].map(|id| Server {
        id,
        resp: format!("127.0.0.1:700{}", id.0),
        admin: format!("127.0.0.1:800{}", id.0),
    });
    let mut region = MapRegion::first(RegionId(1), KeyRange::all(), OWN, vec![OWN, PEER]);
    region.epoch = Epoch(epoch);
    let map = ClusterMap::new(
        ClusterId(1),
        Replication::SendIndex,
        servers.to_vec(),
        vec![region],
    );
    Arc::new(map.expect("it is valid"))
}

fn state() -> State {
    let terms = LeaseTerms::new(Duration::from_millis(100), 0).expect("within the bounds");
    let mutants = lease::Mutants::default();
    let zero = Instant::default();
    let granter = Granter::restarted(terms, LastStop::Clean, zero, mutants);
    let mut held = lease::Leases::new(OWN);
    held.add(PEER, Holder::new(terms, Incarnation(1), mutants));
    State {
        incarnation: Incarnation(1),
        held,
        peers: [(PEER, Peer::new(granter))].into(),
        bounds: BTreeMap::new(),
        taken: map(1),
        is_stopping: false,
    }
}

/// What a peer tells is taken once the own views are as new, and told back once.
#[test]
fn views_are_taken_when_they_are_as_new() {
    let mut state = state();
    let session = state.link_up(PEER, 7);
    state.told(PEER, 1);
    assert_eq!(state.caught_up(PEER), Some((session, 1)));
    assert_eq!(state.caught_up(PEER), None, "that was said");
    state.risen(PEER, RegionId(1), Epoch(3));
    state.risen(PEER, RegionId(1), Epoch(2));
    state.risen(PEER, RegionId(9), Epoch(2));
    state.told(PEER, 2);
    assert!(state.is_behind());
    assert_eq!(state.caught_up(PEER), None);
    state.taken(map(2));
    assert!(state.is_behind(), "not as new yet");
    state.taken(map(3));
    assert_eq!(state.caught_up(PEER), Some((session, 2)));
    // Another session has to be told anew.
    state.link_up(PEER, 8);
    assert_eq!(state.caught_up(PEER), None);
}

/// Nothing is asked of a peer that is not wanted, over no link, or by a server that stops.
#[test]
fn leases_are_asked_while_they_are_wanted() {
    let mut state = state();
    let zero = Instant::default();
    state.link_up(PEER, 7);
    assert_eq!((state.next(), state.ask(zero)), (None, vec![]));
    state.want(&BTreeSet::from([PEER]));
    assert_eq!(state.next(), Some(zero));
    assert_eq!(state.ask(zero).len(), 1);
    let third = zero + Duration::from_millis(100) / 3;
    assert_eq!(state.next(), Some(third));
    assert_eq!(state.ask(zero), vec![]);
    assert_eq!(state.ask(third).len(), 1);
    state.link_down(PEER);
    assert_eq!((state.next(), state.ask(third)), (None, vec![]));
    state.link_up(PEER, 8);
    assert_eq!(state.stop(third), LastStop::Clean);
    assert_eq!((state.next(), state.ask(third)), (None, vec![]));
}

/// A region waits for all that was promised, and no longer.
/// The session in which the peer asks.
const THEIRS: LinkSession = LinkSession {
    incarnation: Incarnation(5),
    number: 1,
};

/// When a lease was promised, and by which rise its holder gives way.
struct Promised {
    at: Instant,
    rise: u64,
}

/// Promises the peer a lease of 100 ms, and has region 1 wait for it.
fn promise(state: &mut State) -> Promised {
    assert!(state.hear(PEER, THEIRS), "it begins");
    assert!(!state.hear(PEER, THEIRS), "it has begun");
    let request = LeaseRequest {
        session: THEIRS,
        number: 1,
        term: Duration::from_millis(100),
    };
    let at = Instant::from_nanos(1_000_000);
    assert!(state.answer(PEER, &request, at).is_some());
    let waits = state.obey();
    let view = View::of(&map(2).regions()[0]);
    state.bind(RegionId(1), &view, &waits, at);
    let rise = waits[0].wait.rise();
    Promised { at, rise }
}

#[test]
fn a_region_is_free_when_promises_are_over() {
    let mut state = state();
    let Promised { at, .. } = promise(&mut state);
    let end = at + Duration::from_millis(100);
    assert_eq!(state.next(), Some(end + Duration::from_nanos(1)));
    assert!(state.free(end).is_empty() && state.binds(RegionId(1)));
    assert_eq!(state.stop(end), LastStop::Other, "it owes");
    let past = end + Duration::from_nanos(1);
    assert_eq!(state.free(past), vec![RegionId(1)]);
    assert!(!state.binds(RegionId(1)));
    assert_eq!(state.stop(past), LastStop::Clean);
}

/// Who was no member of the last epoch that served has promised nothing that would tell how long to wait.
#[test]
fn who_was_no_member_waits_for_the_longest_lease() {
    let claim = |member| PromotionClaim {
        status: CopyStatus::Cut,
        cut: Epoch(1),
        edit: argosy_base::EditSeq(0),
        lsn: argosy_base::Lsn(0),
        member,
    };
    let longest = Instant::from_nanos(1000);
    for member in [true, false] {
        let mut state = state();
        let mut view = View::of(&map(2).regions()[0]);
        view.claim = Some(claim(member));
        let waits = state.obey();
        state.bind(RegionId(1), &view, &waits, longest);
        assert_eq!(state.free(longest).is_empty(), !member);
        assert_eq!(state.binds(RegionId(1)), !member);
        let past = longest + Duration::from_nanos(1);
        assert_eq!(state.free(past).is_empty(), member);
    }
}

/// Who confirms that it has taken the view, or hands back, is not waited for.
#[test]
fn a_region_is_free_when_the_peer_gives_way() {
    for hands_back in [false, true] {
        let mut state = state();
        let Promised { at, rise } = promise(&mut state);
        assert!(state.free(at).is_empty());
        match hands_back {
            true => state.handed_back(
                PEER,
                HandBack {
                    incarnation: Incarnation(5),
                    through: 1,
                },
            ),
            false => state.confirmed(PEER, THEIRS, rise),
        }
        assert_eq!(state.free(at), vec![RegionId(1)]);
    }
}
