//! A page of a range, out of one region.

use argosy_base::range::successor;
use argosy_base::{Direction, KeyRange};
use argosy_engine::{EngineError, Snapshot};

use super::serve::PAGE_BYTES_MAX;
use crate::service::{Paging, Response};

/// The first pairs of `here`, a part of a region; behind it, the scan goes on at `rest`.
pub(super) fn page(
    snapshot: &dyn Snapshot,
    here: &KeyRange,
    rest: Option<Vec<u8>>,
    paging: Paging,
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
    let mut scan = snapshot.scan(here, direction)?;
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
        let value = if keys_only { Vec::new() } else { value };
        bytes += key.len() + value.len();
        pairs.push((key, value));
    }
    Ok(Response::Page { pairs, next: rest })
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
