//! What other threads have for this one: answers, connections and the order to stop.

use std::sync::Arc;

use super::Arrival;
use crate::mailbox::{Mailbox, Post};
use crate::service::ReplySink;

/// The mailbox of a thread, and what was taken out of it.
pub(super) struct Mail {
    mailbox: Arc<Mailbox<Arrival>>,
    /// The same, as where answers go.
    sink: Arc<dyn ReplySink>,
    post: Post<Arrival>,
}

impl Mail {
    /// That of `mailbox`.
    pub(super) fn new(mailbox: &Arc<Mailbox<Arrival>>) -> Self {
        Self {
            mailbox: Arc::clone(mailbox),
            sink: Arc::clone(mailbox) as Arc<dyn ReplySink>,
            post: Post::default(),
        }
    }

    /// Where answers go.
    pub(super) const fn sink(&self) -> &Arc<dyn ReplySink> {
        &self.sink
    }

    /// Whether the thread may sleep, since whoever has something for it from now on rings.
    pub(super) fn may_sleep(&self) -> bool {
        self.mailbox.may_sleep()
    }

    /// The thread is awake; `rung`: by the bell.
    pub(super) fn awake(&self, rung: bool) {
        self.mailbox.awake(rung);
    }

    /// Takes what has come. To be given back to [`reuse`](Self::reuse).
    pub(super) fn take(&mut self) -> Post<Arrival> {
        let mut post = std::mem::take(&mut self.post);
        self.mailbox.take(&mut post);
        post
    }

    /// Keeps the memory of what was taken, and is empty by now.
    pub(super) fn reuse(&mut self, post: Post<Arrival>) {
        self.post = post;
    }
}
