//! `argosy export` and `argosy import`: pairs to lines of text and back.
//!
//! [`format`](mod@format) is what lines look like, `export` and `import` the two commands; `lines` reads
//! lines of bounded length, `writers` applies batches over several connections, `sorted` has sorted ones bulk-loaded,
//! `reader` reads, `checkpoint` is how an import goes on where it was interrupted, `progress` what is said meanwhile.

pub(crate) mod export;
pub mod format;
pub(crate) mod import;

mod checkpoint;
mod lines;
mod progress;
mod reader;
mod snapshot;
mod sorted;
mod writers;
