//! How the memory for native clients is divided among them.
//!
//! A connection is *large* if it is made for requests or replies that do not fit the usual ones: the
//! longest value fits. Room for one of them is kept free of usual connections, so that however many
//! clients there are, each can have a large value written in its turn. Who would like a large one and
//! finds no room is refused, and tries again; meanwhile threads let go large connections on which
//! nothing is under way ([`Shares::is_room_wanted`]): their clients open another one when they need it.
//!
//! Usual connections are given what they would like while there is plenty, and otherwise a part of what
//! is left, so that there is some for many.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use argosy_engine::Lent;
use argosy_wire::native::Shape;

use super::front::{Front, Settings};

/// A usual client that would like more gets no less of either buffer.
const USEFUL_BYTES_MIN: usize = 64 << 10;
/// A usual client is given at most this part of what is left, if that is useful.
const PART: usize = 4;
/// Bytes of memory from which on a connection is large.
const LARGE_BYTES: usize = 1 << 20;
/// Bytes of the largest connection.
const LARGEST_BYTES: usize = match Shape::new(Shape::BYTES_MAX, Shape::BYTES_MAX) {
    Some(shape) => shape.bytes(),
    None => unreachable!(),
};

/// What all clients have. Relaxed throughout: sums that nothing else depends on; only the thread that
/// takes clients in raises them.
#[derive(Debug, Default)]
pub(super) struct Shares {
    clients: AtomicUsize,
    usual_bytes: AtomicUsize,
    large_bytes: AtomicUsize,
    room_wanted: AtomicBool,
    /// Where the cache has what they do not take, if it has.
    lent: Option<Arc<Lent>>,
}

/// A client's part of the bounds; gives it back when dropped.
pub(super) struct Share {
    front: Arc<Front>,
    bytes: usize,
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({} bytes)", self.bytes)
    }
}

/// Whether a connection of this shape is large.
pub(super) const fn is_large(shape: Shape) -> bool {
    shape.bytes() > LARGE_BYTES
}

impl Shares {
    /// Those of no clients: the cache has their memory from `lent`.
    pub(super) fn lending(lent: Arc<Lent>) -> Self {
        Self {
            lent: Some(lent),
            ..Self::default()
        }
    }

    /// Has the cache follow, after what clients have has changed.
    fn follow(&self) {
        if let Some(lent) = &self.lent {
            lent.follow(|| self.bytes());
        }
    }

    /// Clients.
    pub(super) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Bytes of all their memory.
    pub(super) fn bytes(&self) -> usize {
        self.usual_bytes.load(Ordering::Relaxed) + self.large_bytes.load(Ordering::Relaxed)
    }

    /// Whether somebody found no room for a large connection, and there still is none.
    pub(super) fn is_room_wanted(&self, settings: &Settings) -> bool {
        self.room_wanted.load(Ordering::Relaxed)
            && self.bytes() + LARGEST_BYTES > settings.memory_bytes_max
    }

    fn of(&self, bytes: usize) -> &AtomicUsize {
        if bytes > LARGE_BYTES {
            &self.large_bytes
        } else {
            &self.usual_bytes
        }
    }

    /// The shape for a client that would like `wished`, and which fits.
    fn fitting(&self, settings: &Settings, wished: Shape) -> Option<Shape> {
        let max = settings.memory_bytes_max;
        // Where not even one large connection is possible there is nothing to keep for it.
        let keeps = max > LARGEST_BYTES + LARGE_BYTES;
        if is_large(wished) && keeps {
            let fits = self.bytes() + wished.bytes() <= max;
            self.room_wanted.store(!fits, Ordering::Relaxed);
            return fits.then_some(wished);
        }
        let kept = if keeps { LARGEST_BYTES } else { 0 };
        let large = self.large_bytes.load(Ordering::Relaxed).max(kept);
        let left = max.saturating_sub(self.usual_bytes.load(Ordering::Relaxed) + large);
        let (mut requests, mut replies) = (wished.requests(), wished.replies());
        let least = |wished: usize| wished.min(USEFUL_BYTES_MIN);
        let halved = |bytes: usize, wished: usize| {
            let half = (bytes / 2).next_multiple_of(Shape::BYTES_MIN);
            half.max(least(wished))
        };
        loop {
            let shape = Shape::new(requests, replies).expect("halved within the bounds");
            let is_least =
                requests == least(wished.requests()) && replies == least(wished.replies());
            if shape.bytes() <= if is_least { left } else { left / PART } {
                return Some(shape);
            }
            if is_least {
                return None;
            }
            requests = halved(requests, wished.requests());
            replies = halved(replies, wished.replies());
        }
    }
}

/// Takes a share for a client that would like `wished`. Says why where there is none. Called by one
/// thread.
pub(super) fn admit(front: &Arc<Front>, wished: Shape) -> Result<(Share, Shape), String> {
    let (settings, shares) = (&front.settings, &front.shares);
    if shares.clients() >= settings.clients_max {
        let max = settings.clients_max;
        return Err(format!(
            "there are {max} native clients already; try again later"
        ));
    }
    let Some(shape) = shares.fitting(settings, wished) else {
        return Err(format!(
            "native clients have {} of the {} bytes that they may have together; raise \
             memory.limit, or try again when some have gone",
            shares.bytes(),
            settings.memory_bytes_max
        ));
    };
    let bytes = shape.bytes();
    shares.clients.fetch_add(1, Ordering::Relaxed);
    shares.of(bytes).fetch_add(bytes, Ordering::Relaxed);
    shares.follow();
    let front = Arc::clone(front);
    Ok((Share { front, bytes }, shape))
}

impl Drop for Share {
    fn drop(&mut self) {
        let shares = &self.front.shares;
        shares.clients.fetch_sub(1, Ordering::Relaxed);
        shares
            .of(self.bytes)
            .fetch_sub(self.bytes, Ordering::Relaxed);
        shares.follow();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_connections_leave_room_for_a_large_one_and_for_each_other() {
        let (usual, large) = (shape(256, 512), shape(2048, 2048));
        for (mib, least) in [(6, 10), (64, 80)] {
            let settings = Settings {
                memory_bytes_max: mib << 20,
                ..Settings::default()
            };
            let shares = Shares::default();
            let mut given = Vec::new();
            while let Some(shape) = shares.fitting(&settings, usual) {
                let bytes = shape.bytes();
                shares.of(bytes).fetch_add(bytes, Ordering::Relaxed);
                given.push(shape);
            }
            assert!(given.len() >= least, "{} in {mib} MiB", given.len());
            assert!(given.last().unwrap().requests() >= USEFUL_BYTES_MIN);
            assert_eq!(shares.fitting(&settings, large), Some(large));
            assert!(!shares.is_room_wanted(&settings));
            let bytes = large.bytes();
            shares.of(bytes).fetch_add(bytes, Ordering::Relaxed);
            assert!(shares.bytes() <= settings.memory_bytes_max);
            assert_eq!(shares.fitting(&settings, large), None);
            assert!(shares.is_room_wanted(&settings));
            shares.of(bytes).fetch_sub(bytes, Ordering::Relaxed);
            assert!(!shares.is_room_wanted(&settings));
        }
    }

    fn shape(requests_kib: usize, replies_kib: usize) -> Shape {
        Shape::new(requests_kib << 10, replies_kib << 10).unwrap()
    }
}
