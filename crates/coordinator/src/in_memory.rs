//! A coordinator that lives in memory, for the simulator and tests. Handles share its values; a
//! handle that is cut off keeps its requests until it is connected again, which is when they take
//! effect.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::contract::{
    Coordinator, CoordinatorAnswer, CoordinatorError, Entry, EntryVersion, Request, RequestId,
};

type Values = BTreeMap<String, Entry>;

/// See the module documentation. A clone shares the values and nothing else.
#[derive(Debug, Default)]
pub struct InMemory {
    values: Arc<Mutex<Values>>,
    waiting: VecDeque<(RequestId, Request)>,
    submitted: u64,
    cut_off: bool,
}

impl InMemory {
    /// A coordinator without values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts this handle off from the values, or connects it again.
    pub fn cut_off(&mut self, cut_off: bool) {
        self.cut_off = cut_off;
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        self.values.lock().expect("no holder of the lock panics")
    }

    fn answer(&self, request: Request) -> Result<Entry, CoordinatorError> {
        request.check()?;
        let mut values = self.values();
        let found = values.get(request.key()).cloned().unwrap_or_default();
        let Request::CompareAndSet {
            key,
            expected,
            value,
        } = request
        else {
            return Ok(found);
        };
        if found.version != expected {
            return Err(CoordinatorError::Conflict {
                key,
                expected,
                found: found.version,
            });
        }
        let version = EntryVersion(expected.0 + 1);
        let entry = Entry { version, value };
        values.insert(key, entry.clone());
        Ok(entry)
    }
}

impl Clone for InMemory {
    fn clone(&self) -> Self {
        Self {
            values: self.values.clone(),
            ..Self::default()
        }
    }
}

impl Coordinator for InMemory {
    fn submit(&mut self, request: Request) -> RequestId {
        self.submitted += 1;
        let id = RequestId(self.submitted);
        self.waiting.push_back((id, request));
        id
    }

    fn poll(&mut self) -> Option<CoordinatorAnswer> {
        if self.cut_off {
            return None;
        }
        let (id, request) = self.waiting.pop_front()?;
        Some((id, self.answer(request)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str, expected: u64, value: &str) -> Request {
        Request::CompareAndSet {
            key: key.to_owned(),
            expected: EntryVersion(expected),
            value: value.into(),
        }
    }

    #[test]
    fn the_first_of_two_changes_wins() {
        let mut one = InMemory::new();
        let mut two = one.clone();
        let first = one.submit(set("k", 0, "one"));
        two.submit(set("k", 0, "two"));
        let (id, result) = one.poll().unwrap();
        assert_eq!(id, first);
        assert_eq!(result.unwrap().version, EntryVersion(1));
        let conflict = two.poll().unwrap().1.unwrap_err();
        assert!(matches!(
            conflict,
            CoordinatorError::Conflict {
                found: EntryVersion(1),
                ..
            }
        ));
        two.submit(Request::Read { key: "k".into() });
        assert_eq!(two.poll().unwrap().1.unwrap().value, b"one");
        assert!(two.poll().is_none());
    }

    #[test]
    fn requests_of_a_handle_that_is_cut_off_wait() {
        let mut handle = InMemory::new();
        handle.cut_off(true);
        handle.submit(set("k", 0, "late"));
        assert!(handle.poll().is_none());
        handle.cut_off(false);
        assert_eq!(handle.poll().unwrap().1.unwrap().value, b"late");
    }

    #[test]
    fn keys_and_values_have_bounds() {
        let mut handle = InMemory::new();
        for key in ["", "../x", "A", "a b", &"k".repeat(65)] {
            handle.submit(set(key, 0, ""));
            let error = handle.poll().unwrap().1.unwrap_err();
            assert!(matches!(error, CoordinatorError::BadKey { .. }), "{key:?}");
        }
        handle.submit(Request::CompareAndSet {
            key: "k".into(),
            expected: EntryVersion(0),
            value: vec![0; crate::contract::VALUE_BYTES_MAX + 1],
        });
        let error = handle.poll().unwrap().1.unwrap_err();
        assert!(matches!(error, CoordinatorError::TooLong { .. }));
    }
}
