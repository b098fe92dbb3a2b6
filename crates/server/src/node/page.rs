//! A page of a range, out of one region.

use argosy_base::range::successor;
use argosy_base::{Direction, KeyRange};
use argosy_engine::{EngineError, Reach, Snapshot};

use super::serve::PAGE_BYTES_MAX;
use crate::service::{Paging, Response};

/// Most pairs of a page within [`Reach::Memory`]: the thread that goes through them has other clients to serve.
const PAIRS_IN_MEMORY_MAX: usize = 128;
/// Such a page ends when its keys and values have so many bytes.
const BYTES_IN_MEMORY_MAX: usize = 64 << 10;

/// A part of a region, and what lies behind it.
pub(super) struct Part {
    /// The part.
    pub(super) here: KeyRange,
    /// The key at which the scan continues after it; `None` if this is the last part.
    pub(super) rest: Option<Vec<u8>>,
}

/// The first pairs of a `part`. Within [`Reach::Memory`] few of them.
///
/// # Errors
/// The engine's; [`EngineError::NotInMemory`], too, where there are more than few.
pub(super) fn page(
    snapshot: &dyn Snapshot,
    part: &Part,
    paging: Paging,
    reach: Reach,
) -> Result<Response, EngineError> {
    let Paging {
        direction,
        pairs_max,
        bytes_max,
        keys_only,
        at: _,
    } = paging;
    let mut pairs = Vec::new();
    let mut bytes = 0;
    let mut scan = snapshot.scan_within(&part.here, direction, reach)?;
    scan.expect(pairs_max.saturating_add(1));
    if keys_only {
        scan.leave_values_out();
    }
    while let Some((key, value)) = scan.next()? {
        if pairs.len() >= pairs_max || bytes >= bytes_max.min(PAGE_BYTES_MAX) {
            let next = Some(match direction {
                Direction::Up => key,
                Direction::Down => successor(&key),
            });
            return Ok(Response::Page { pairs, next });
        }
        let is_much = pairs.len() >= PAIRS_IN_MEMORY_MAX || bytes >= BYTES_IN_MEMORY_MAX;
        if reach == Reach::Memory && is_much {
            return Err(EngineError::NotInMemory);
        }
        let value = if keys_only { Vec::new() } else { value };
        bytes += key.len() + value.len();
        pairs.push((key, value));
    }
    Ok(Response::Page {
        pairs,
        next: part.rest.clone(),
    })
}

/// Where the part of `range` begins that lies in the regions behind `region`, on the way through it.
pub(super) fn rest_of(
    region: &KeyRange,
    range: &KeyRange,
    direction: Direction,
) -> Option<Vec<u8>> {
    let next = match direction {
        Direction::Up => region.to.clone()?,
        Direction::Down => region.from.clone(),
    };
    let mut rest = range.clone();
    rest.go_on_at(direction, next.clone());
    (!rest.is_empty()).then_some(next)
}

#[cfg(test)]
mod tests {
    use argosy_base::Lsn;
    use argosy_engine::Scan;

    use super::*;

    /// So many pairs of so many bytes.
    #[derive(Clone, Copy)]
    struct Pairs {
        count: usize,
        bytes: usize,
    }

    struct Walk {
        next: usize,
        of: Pairs,
    }

    impl Snapshot for Pairs {
        fn lsn(&self) -> Lsn {
            Lsn(1)
        }

        fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
            Ok(None)
        }

        fn scan_within(
            &self,
            _: &KeyRange,
            _: Direction,
            _: Reach,
        ) -> Result<Box<dyn Scan>, EngineError> {
            Ok(Box::new(Walk { next: 0, of: *self }))
        }
    }

    type Pair = (Vec<u8>, Vec<u8>);

    impl Scan for Walk {
        fn next(&mut self) -> Result<Option<Pair>, EngineError> {
            let at = self.next;
            self.next += 1;
            let pair = || (format!("{at:08}").into_bytes(), vec![0; self.of.bytes - 8]);
            Ok((at < self.of.count).then(pair))
        }
    }

    /// How many pairs a page of at most `most` has; `None`: a worker has to go through them.
    fn told(of: Pairs, most: usize, reach: Reach) -> Option<usize> {
        let part = Part {
            here: KeyRange::all(),
            rest: None,
        };
        let paging = Paging {
            direction: Direction::Up,
            pairs_max: most,
            bytes_max: PAGE_BYTES_MAX,
            keys_only: false,
            at: None,
        };
        match page(&of, &part, paging, reach) {
            Ok(Response::Page { pairs, .. }) => Some(pairs.len()),
            Err(EngineError::NotInMemory) => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_thread_that_does_not_wait_goes_through_little() {
        let pairs = |count, bytes| Pairs { count, bytes };
        let many = 4096;
        assert_eq!(told(pairs(128, 100), many, Reach::Memory), Some(128));
        assert_eq!(told(pairs(129, 100), many, Reach::Memory), None);
        assert_eq!(told(pairs(129, 100), many, Reach::Device), Some(129));
        // What is asked for counts, not what there is.
        assert_eq!(told(pairs(1000, 100), 100, Reach::Memory), Some(100));
        assert_eq!(told(pairs(4, 16 << 10), many, Reach::Memory), Some(4));
        assert_eq!(told(pairs(5, 16 << 10), many, Reach::Memory), None);
    }
}
