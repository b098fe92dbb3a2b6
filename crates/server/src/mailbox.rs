//! How other threads reach a front end's thread: see [`post`].

mod post;
mod sync;

pub(crate) use post::{Mailbox, Post};
