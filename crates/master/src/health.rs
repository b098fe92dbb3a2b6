//! Whom to take for lost.
//!
//! A server is *absent* when its session is gone. It is *suspected* when a majority of the other servers that are there
//! say that they cannot reach it; with one other, when that one does. The servers decide how long they have not reached
//! it before they say so; here they are counted.
//!
//! Where two parts of a cluster suspect each other, both cannot be right. So servers are judged one by one, who is
//! suspected by most first, and by the highest id among equals; who was found guilty accuses nobody any more.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::ServerId;

use crate::cluster::LiveServer;

/// How fit a server is to lead a region, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Nothing is known against it.
    Well,
    /// It was promoted, and has not opened the region in time.
    Late,
    /// It is about to stop.
    Leaving,
    /// Others cannot reach it.
    Suspected,
    /// Its store of the region has failed.
    Failed,
    /// It has no session.
    Absent,
}

/// The servers that too many others cannot reach. See the module documentation.
#[must_use]
pub fn suspected(servers: &BTreeMap<ServerId, LiveServer>) -> BTreeSet<ServerId> {
    let mut left: BTreeSet<ServerId> = servers.keys().copied().collect();
    let mut lost = BTreeSet::new();
    loop {
        let accusers = |id: ServerId| {
            let others = left.iter().filter(|other| **other != id);
            let accuse = |other: &&ServerId| servers[*other].presence.unreachable.contains(&id);
            others.filter(accuse).count()
        };
        let is_guilty = |count: usize| 2 * count > left.len() - 1;
        let worst = left.iter().map(|id| (accusers(*id), *id)).max();
        match worst {
            Some((count, id)) if 0 < count && is_guilty(count) => {
                left.remove(&id);
                lost.insert(id);
            }
            _ => return lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who says of whom that it cannot be reached.
    fn lost(says: &[&[u32]]) -> Vec<u32> {
        let server = |(id, unreachable): (u32, &&[u32])| {
            let mut live = LiveServer::default();
            live.presence.unreachable = unreachable.iter().copied().map(ServerId).collect();
            (ServerId(id), live)
        };
        let servers = (0..).zip(says).map(server).collect();
        suspected(&servers).into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn a_majority_of_the_others_decides() {
        assert!(lost(&[]).is_empty());
        assert!(lost(&[&[0]]).is_empty());
        assert!(lost(&[&[], &[], &[]]).is_empty());
        // One of two others is no majority; two are.
        assert!(lost(&[&[2], &[], &[]]).is_empty());
        assert_eq!(lost(&[&[2], &[2], &[]]), [2]);
        assert!(lost(&[&[3], &[], &[], &[]]).is_empty());
        assert_eq!(lost(&[&[3], &[3], &[], &[]]), [3]);
        // With one other, that one decides, and nobody who is not there.
        assert_eq!(lost(&[&[1], &[]]), [1]);
        assert!(lost(&[&[7], &[7]]).is_empty());
    }

    #[test]
    fn who_is_cut_off_does_not_take_the_others_along() {
        assert_eq!(lost(&[&[1, 2], &[0], &[0]]), [0]);
        assert_eq!(lost(&[&[1, 2, 3], &[0], &[0], &[0]]), [0]);
        // Of two that do not reach each other, and of two halves, the lower ids stay.
        assert_eq!(lost(&[&[1], &[0]]), [1]);
        assert_eq!(lost(&[&[2, 3], &[2, 3], &[0, 1], &[0, 1]]), [2, 3]);
    }
}
