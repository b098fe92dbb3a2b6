//! What native clients have no part in: values of over 1 MiB, and the keys under which these lie.

use argosy_base::Outcome;
use argosy_engine::long::{RESERVED, check_users, is_head};
use argosy_wire::call::{ERASE, GUARD, Op, Until};

use crate::service::{Response, ServiceError};

const TOO_LONG: &str =
    "a value has over 1048576 bytes: read it through the Redis protocol, or leave values out";

/// `response`, unless it has something in the place of a value of over 1 MiB.
pub(super) fn whole_only(response: Response) -> Response {
    let is_long = |value: &Option<Vec<u8>>| value.as_deref().is_some_and(is_head);
    let invalid = |is: bool| is.then(|| ServiceError::Invalid(TOO_LONG.to_owned()));
    let failed = match &response {
        Response::Value(value) | Response::Versioned { value, .. } => invalid(is_long(value)),
        Response::Values(values) => invalid(values.iter().any(is_long)),
        Response::Page { pairs, .. } => invalid(pairs.iter().any(|(_, value)| is_head(value))),
        Response::Written { previous, .. } if previous.iter().any(is_long) => {
            Some(ServiceError::Unavailable {
                what: TOO_LONG.to_owned(),
                outcome: Outcome::Applied,
            })
        }
        _ => None,
    };
    failed.map_or(response, Response::Failed)
}

/// Keeps to what users have: refuses operations on other keys, and such as are for servers among each other; ends
/// ranges where users' keys do.
pub(super) fn users_only(ops: &mut [Op<'_>], until: &[Until]) -> Result<(), String> {
    if until.contains(&GUARD) {
        return Err("guards are for servers among each other".to_owned());
    }
    for (at, (key, value)) in ops.iter_mut().enumerate() {
        if is_range(until, at) {
            let to = value.get_or_insert_default();
            if to.is_empty() || **to > RESERVED[..] {
                *to = &RESERVED;
            }
            continue;
        }
        check_users(key).map_err(|error| error.to_string())?;
        if value.is_some_and(is_head) {
            return Err(argosy_engine::BatchError::ValueReserved.to_string());
        }
    }
    Ok(())
}

/// Whether the operation at this place removes a range.
pub(super) fn is_range(until: &[Until], at: usize) -> bool {
    until.get(at) == Some(&ERASE)
}
