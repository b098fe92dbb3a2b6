//! What may happen while a connection is being made.

use std::sync::Arc;

use super::{
    FIRST, KEY, LEN, Pair, SECOND, TARGET, WRITER, assert_successes_are_in, successes,
    write_numbers,
};
use crate::{Connecting, Descriptor, FabricError, MemoryKey};

/// A connection that was begun.
enum Begun {
    Connecting(Box<dyn Connecting>),
    /// The first poll has ended it.
    Ended(Result<(), FabricError>),
}

impl Pair {
    /// Begins to connect with the last grant; it has been polled once, and is on its way where that takes time.
    fn begin(&self) -> Begun {
        let mut connecting = self.writer.connect(TARGET, self.granted, LEN);
        match connecting.poll() {
            Ok(None) => Begun::Connecting(connecting),
            ended => Begun::Ended(ended.map(|_| ())),
        }
    }
}

/// A connection that is begun ends once, and rings where that takes time.
pub(super) fn ends(mut pair: Pair) {
    let mut made = 0;
    for _ in 0..20 {
        let seen = pair.writer.bell();
        let mut connecting = match pair.begin() {
            Begun::Connecting(connecting) => connecting,
            Begun::Ended(result) => {
                assert_eq!(result, Ok(()), "nothing speaks against it");
                made += 1;
                continue;
            }
        };
        let ended = pair.end(&mut *connecting);
        assert_ne!(pair.writer.bell(), seen, "it ended unheard");
        match ended {
            Ok(mut remote) => {
                assert_eq!((remote.len(), remote.incarnation()), (LEN, FIRST));
                made += 1;
                write_numbers(&mut *remote, 1..=1);
                assert_eq!(successes(&pair.ended(&mut *remote)), [1]);
            }
            Err(error) => assert_eq!(error, FabricError::Broken, "nothing else"),
        }
        let again = connecting.poll().map(|_| ());
        assert_eq!(again, Err(FabricError::Broken), "it has ended");
    }
    assert!(made >= 10, "{made}");
}

/// A grant that is taken back while a peer connects is of no use to it, also once the peer could have learnt that it is
/// connected.
pub(super) fn revoked(mut pair: Pair) {
    let mut refused = 0;
    for round in 0..21 {
        let mut connecting = pair.writer.connect(TARGET, pair.granted, 0);
        match round % 3 {
            0 if !matches!(connecting.poll(), Ok(None)) => continue,
            1 => pair.world.settle(),
            _ => {}
        }
        pair.target.revoke(KEY);
        let result = pair.end(&mut *connecting).map(|_| ());
        refused += u32::from(result == Err(FabricError::Revoked));
        assert!(result == Err(FabricError::Broken) || result == Err(FabricError::Revoked));
        let memory = Arc::clone(&pair.memory);
        pair.grant(memory);
    }
    assert!(refused >= 5, "{refused}");
    assert_eq!(pair.try_connect(), Ok(()));
}

/// Nor is one in whose place there is another one meanwhile, of the same memory or of other.
pub(super) fn granted_anew(mut pair: Pair) {
    let mut refused = 0;
    for other in (0..20).map(|round| round % 2 == 0) {
        let mut connecting = pair.writer.connect(TARGET, pair.granted, 0);
        if other {
            pair.memory = pair.world.memory(TARGET, LEN);
        }
        let memory = Arc::clone(&pair.memory);
        pair.grant(memory);
        let result = pair.end(&mut *connecting).map(|_| ());
        refused += u32::from(result == Err(FabricError::Revoked));
        assert!(result == Err(FabricError::Broken) || result == Err(FabricError::Revoked));
    }
    assert!(refused >= 10, "{refused}");
    assert_eq!(pair.try_connect(), Ok(()));
}

/// One that is begun with the descriptor of an earlier grant is refused, and a refusal is heard, too.
pub(super) fn refused(mut pair: Pair) {
    let earlier = pair.granted;
    let memory = Arc::clone(&pair.memory);
    pair.grant(memory);
    for _ in 0..20 {
        let mut connecting = pair.writer.connect(TARGET, earlier, LEN);
        let first = connecting.poll().map(|made| made.map(|_| ()));
        if first != Ok(None) {
            assert_eq!(first, Err(FabricError::Revoked));
            continue;
        }
        let seen = pair.writer.bell();
        let result = pair.end(&mut *connecting).map(|_| ());
        assert_ne!(pair.writer.bell(), seen, "it was refused unheard");
        assert!(result == Err(FabricError::Broken) || result == Err(FabricError::Revoked));
    }
}

/// One that is dropped before its end leaves nothing: the memory can be connected to, and revoked.
pub(super) fn dropped(mut pair: Pair) {
    let zeros = vec![0; LEN];
    for round in 0..50 {
        drop(pair.begin());
        if round % 3 == 0 {
            pair.world.settle();
        }
    }
    let mut remote = pair.connect();
    assert_eq!(pair.memory.read_vec(0, LEN), zeros);
    write_numbers(&mut *remote, 1..=5);
    assert_eq!(successes(&pair.ended(&mut *remote)), [1, 2, 3, 4, 5]);
    drop(pair.begin());
    pair.target.revoke(KEY);
    pair.world.settle();
    assert_eq!(pair.try_connect(), Err(FabricError::Revoked));
}

/// What is answered to one that was dropped ends no other: the next one reaches the memory that it is for.
pub(super) fn late(mut pair: Pair) {
    let mut made = 0;
    for _ in 0..20 {
        let given_up = pair.begin();
        let other = pair.world.memory(TARGET, 2 * LEN);
        pair.grant(other);
        let mut connecting = pair.writer.connect(TARGET, pair.granted, 0);
        drop(given_up);
        match pair.end(&mut *connecting) {
            Ok(remote) => {
                assert_eq!(remote.len(), 2 * LEN);
                made += 1;
            }
            Err(error) => assert_eq!(error, FabricError::Broken, "nothing else"),
        }
        let memory = Arc::clone(&pair.memory);
        pair.grant(memory);
    }
    assert!(made >= 10, "{made}");
}

/// Those that are under way at one time end each for itself, and each with its own memory.
pub(super) fn many(mut pair: Pair) {
    let granted: Vec<(Descriptor, usize)> = (1..=12_u64)
        .map(|number| {
            let len = 4096 * usize::try_from(number).expect("it is small");
            let memory = pair.world.memory(TARGET, len);
            let key = MemoryKey(KEY.0 + number);
            let granted = pair.target.grant(key, memory, WRITER);
            (granted.expect("it is new"), len)
        })
        .collect();
    let begin = |(granted, len): &(Descriptor, usize)| pair.writer.connect(TARGET, *granted, *len);
    let mut begun: Vec<_> = granted.iter().map(begin).collect();
    // One in three is given up, and the others do not notice.
    begun.truncate(8);
    let mut made = 0;
    for (connecting, (_, len)) in begun.iter_mut().zip(&granted) {
        match pair.end(&mut **connecting) {
            Ok(remote) => {
                assert_eq!(remote.len(), *len);
                made += 1;
            }
            Err(error) => assert_eq!(error, FabricError::Broken, "nothing else"),
        }
    }
    assert!(made >= 4, "{made}");
}

/// It ends where the target dies meanwhile. Where it was made all the same, the memory takes writes or not, as that
/// of any target that was killed; once that has started again, nothing is made.
pub(super) fn killed(mut pair: Pair) {
    let mut connecting = pair.writer.connect(TARGET, pair.granted, 0);
    pair.world.kill(TARGET);
    match pair.end(&mut *connecting) {
        Ok(mut remote) => {
            write_numbers(&mut *remote, 1..=5);
            let ended = pair.ended(&mut *remote);
            assert_successes_are_in(&pair.memory.read_vec(0, LEN), &ended);
        }
        Err(error) => assert_eq!(error, FabricError::Broken),
    }
    let mut connecting = pair.writer.connect(TARGET, pair.granted, 0);
    pair.target = pair.world.start(TARGET, SECOND);
    let result = pair.end(&mut *connecting).map(|_| ());
    assert!(result == Err(FabricError::Broken) || result == Err(FabricError::Revoked));
    assert_eq!(pair.try_connect(), Err(FabricError::Revoked));
}

/// It ends where the target does nothing, made or not, and is made once the target goes on.
pub(super) fn stopped(mut pair: Pair) {
    let mut connecting = pair.writer.connect(TARGET, pair.granted, 0);
    pair.world.stop(TARGET);
    let result = pair.end(&mut *connecting).map(|_| ());
    assert!(result == Err(FabricError::Broken) || result == Ok(()));
    pair.world.resume(TARGET);
    assert_eq!(pair.try_connect(), Ok(()));
}

/// It fails at a link that is cut and stays so; another one is made once that is healed.
pub(super) fn cut(mut pair: Pair) {
    let mut connecting = pair.writer.connect(TARGET, pair.granted, 0);
    if !pair.world.cut(WRITER, TARGET) {
        return;
    }
    let seen = pair.writer.bell();
    let result = pair.end(&mut *connecting).map(|_| ());
    assert_eq!(result, Err(FabricError::Broken));
    assert_ne!(pair.writer.bell(), seen, "a failure is heard, too");
    pair.world.heal(WRITER, TARGET);
    assert_eq!(pair.try_connect(), Ok(()));
}
