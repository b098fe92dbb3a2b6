//! Payloads that are longer than a ring message: taken apart by who sends, put together by who receives.
//!
//! ```text
//! payload    ├──────── part ────────┼──────── part ────────┼── part ──┤
//! message    kind | CONTINUED         kind | CONTINUED        kind        the rest of the header: the same
//! ```
//!
//! The parts lie directly behind each other in the ring, and are put together up to `LONG_BYTES_MAX` bytes: a
//! peer that sends more, or another message in between, sends nonsense.

use argosy_wire::message::{CONTINUED, LONG_BYTES_MAX};
use argosy_wire::ring::Header;

/// The ring messages that `payload` goes as, each of at most `max` bytes.
pub(super) fn parts(
    header: Header,
    payload: &[u8],
    max: usize,
) -> impl Iterator<Item = (Header, &[u8])> {
    let count = payload.len().div_ceil(max).max(1);
    (0..count).map(move |part| {
        let to = payload.len().min((part + 1) * max);
        let more = if part + 1 < count { CONTINUED } else { 0 };
        let kind = header.kind | more;
        (Header { kind, ..header }, &payload[part * max..to])
    })
}

/// What a ring message was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// The end of a message, or all of it.
    Whole,
    /// There is more to come.
    Part,
    /// It does not belong behind the one before it, or is too long.
    Nonsense,
}

/// A message that arrives in parts.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    /// As it was at the first part, without the bit.
    header: Option<Header>,
    bytes: Vec<u8>,
}

impl Joiner {
    /// Bytes of memory that are held.
    pub(super) const fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Takes what the ring gave: with [`Joined::Whole`], `payload` is that of the whole message, whose
    /// header this is.
    pub(super) fn take(&mut self, header: Header, payload: &mut Vec<u8>) -> Joined {
        let kind = header.kind & !CONTINUED;
        let goes_on = header.kind != kind;
        let whole = Header { kind, ..header };
        if self.header.is_none() && !goes_on {
            return Joined::Whole;
        }
        let len = self.bytes.len() + payload.len();
        if *self.header.get_or_insert(whole) != whole || len > LONG_BYTES_MAX || payload.is_empty()
        {
            return Joined::Nonsense;
        }
        self.bytes.extend_from_slice(payload);
        if goes_on {
            return Joined::Part;
        }
        self.header = None;
        *payload = std::mem::take(&mut self.bytes);
        Joined::Whole
    }
}

#[cfg(test)]
mod tests {
    use argosy_base::{Epoch, RegionId};

    use super::*;

    const HEADER: Header = Header {
        kind: 20,
        region: RegionId(3),
        epoch: Epoch(4),
        request: 5,
    };

    fn taken_apart(payload: &[u8], max: usize) -> Vec<(Header, Vec<u8>)> {
        let owned = |(header, part): (Header, &[u8])| (header, part.to_vec());
        parts(HEADER, payload, max).map(owned).collect()
    }

    #[test]
    fn a_payload_of_any_length_returns_as_it_was() {
        let mut joiner = Joiner::default();
        for len in [0_usize, 1, 99, 100, 101, 199, 200, 201, 1000, 10_000] {
            let bytes = 7_654_321_u64.to_le_bytes().into_iter().cycle();
            let payload: Vec<u8> = bytes.take(len).collect();
            let sent = taken_apart(&payload, 100);
            assert_eq!(sent.len(), len.div_ceil(100).max(1));
            let last = sent.len() - 1;
            for (at, (header, mut part)) in sent.into_iter().enumerate() {
                assert!(part.len() <= 100);
                let joined = joiner.take(header, &mut part);
                if at < last {
                    assert_eq!(joined, Joined::Part);
                } else {
                    assert_eq!((joined, header), (Joined::Whole, HEADER));
                    assert_eq!(part, payload);
                }
            }
            assert_eq!(joiner.held_bytes(), 0);
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let begun = || {
            let mut joiner = Joiner::default();
            let kind = HEADER.kind | CONTINUED;
            let first = Header { kind, ..HEADER };
            assert_eq!(joiner.take(first, &mut vec![1; 10]), Joined::Part);
            joiner
        };
        let others = [
            Header { kind: 21, ..HEADER },
            Header {
                request: 6,
                ..HEADER
            },
            Header {
                region: RegionId(1),
                ..HEADER
            },
        ];
        for other in others {
            assert_eq!(begun().take(other, &mut vec![1]), Joined::Nonsense);
        }
        assert_eq!(begun().take(HEADER, &mut Vec::new()), Joined::Nonsense);
        let mut long = vec![0; LONG_BYTES_MAX - 9];
        assert_eq!(begun().take(HEADER, &mut long), Joined::Nonsense);
        long.pop();
        assert_eq!(begun().take(HEADER, &mut long), Joined::Whole);
        assert_eq!(long.len(), LONG_BYTES_MAX);
    }
}
