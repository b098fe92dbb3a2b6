//! What a handle watches, and which of it has to be reported.

use std::collections::BTreeSet;

use crate::contract::{CoordinatorError, WATCHES_MAX, check_key_or_root, is_under};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    watched: BTreeSet<String>,
    /// Under these, which are watched, something may have changed.
    due: BTreeSet<String>,
}

impl Hints {
    /// Watches `key`, and what is below it.
    pub(crate) fn watch(&mut self, key: &str) -> Result<(), CoordinatorError> {
        check_key_or_root(key)?;
        if self.watched.len() >= WATCHES_MAX && !self.watched.contains(key) {
            return Err(CoordinatorError::TooMany {
                what: "watches",
                max: WATCHES_MAX,
            });
        }
        self.watched.insert(key.to_owned());
        Ok(())
    }

    /// `key` may have changed.
    pub(crate) fn touch(&mut self, key: &str) {
        let concerned = self.watched.iter().filter(|watched| is_under(key, watched));
        self.due.extend(concerned.cloned());
    }

    /// All may have changed.
    pub(crate) fn touch_all(&mut self) {
        self.due.clone_from(&self.watched);
    }

    /// A key that is watched and has not been reported since it may have changed.
    pub(crate) fn next(&mut self) -> Option<String> {
        self.due.pop_first()
    }
}
