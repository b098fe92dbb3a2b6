//! With which descriptors a peer connects, and with which it does not.

use std::sync::Arc;

use argosy_base::ServerId;

use super::{FIRST, KEY, LEN, Pair, SECOND, TARGET, WRITER};
use crate::{Descriptor, FabricError, MemoryKey};

/// Of who grants nothing, nothing is found; it may be later.
pub(super) fn nothing_granted(mut pair: Pair) {
    let not_there = |peer, key| FabricError::NotThere { peer, key };
    let other = MemoryKey(7);
    let found = pair.writer.find(TARGET, other);
    assert_eq!(found, Err(not_there(TARGET, other)));
    let nobody = ServerId(77);
    assert_eq!(pair.writer.find(nobody, KEY), Err(not_there(nobody, KEY)));
    let invented = Descriptor {
        key: other,
        grant: 1,
    };
    let result = pair.reach(invented, 0).map(|_| ());
    assert_eq!(result, Err(FabricError::Revoked));

    let memory = pair.world.memory(TARGET, 4096);
    let granted = pair.target.grant(other, memory, WRITER);
    let remote = pair.reach(granted.expect("it is new"), 0);
    assert_eq!(remote.expect("it is granted").len(), 4096);
    pair.target.revoke(MemoryKey(1234)); // Nothing is granted there: nothing happens.
}

/// What is found is the grant that stands.
pub(super) fn found_grant(mut pair: Pair) {
    assert_eq!(pair.writer.find(TARGET, KEY), Ok(pair.granted));
    let memory = Arc::clone(&pair.memory);
    pair.grant(memory);
    assert_eq!(pair.writer.find(TARGET, KEY), Ok(pair.granted));
    pair.target.revoke(KEY);
    assert!(pair.writer.find(TARGET, KEY).is_err());
}

/// The descriptor of an earlier grant is of no use: not once there is another one of the same memory, nor one of
/// other memory, nor after another start.
pub(super) fn earlier_grant(mut pair: Pair) {
    let mut before = vec![pair.granted];
    let same = Arc::clone(&pair.memory);
    pair.grant(same);
    before.push(pair.granted);
    let other = pair.world.memory(TARGET, LEN);
    pair.grant(other);
    before.push(pair.granted);
    pair.world.kill(TARGET);
    pair.target = pair.world.start(TARGET, SECOND);
    let last = pair.world.memory(TARGET, LEN);
    pair.grant(last);
    for earlier in before {
        assert_ne!(earlier, pair.granted);
        let result = pair.reach(earlier, 0).map(|_| ());
        assert_eq!(result, Err(FabricError::Revoked), "{earlier:?}");
    }
    assert_eq!(pair.try_connect(), Ok(()));
}

/// A peer neither finds nor uses what another one was granted.
pub(super) fn grant_of_another(mut pair: Pair) {
    let (peer, key) = (TARGET, KEY);
    let other = pair.world.start(ServerId(3), FIRST);
    let result = other.find(peer, key);
    assert_eq!(result, Err(FabricError::NotThere { peer, key }));
    let result = pair.reach_from(&*other, pair.granted, 0).map(|_| ());
    assert_eq!(result, Err(FabricError::Revoked));
    assert_eq!(pair.try_connect(), Ok(()));
}

/// Memory that is one byte too short is not connected to, so that nobody writes behind its end.
pub(super) fn too_short(mut pair: Pair) {
    let (peer, key, len, least) = (TARGET, KEY, LEN, LEN + 1);
    let result = pair.reach(pair.granted, least).map(|_| ());
    let too_short = FabricError::TooShort {
        peer,
        key,
        len,
        least,
    };
    assert_eq!(result, Err(too_short));
    let remote = pair.reach(pair.granted, LEN);
    assert_eq!(remote.expect("it is long enough").len(), LEN);
}
