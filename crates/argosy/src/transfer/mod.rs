//! `argosy export` and `argosy import`: pairs to lines of text and back.
//!
//! [`format`](mod@format) is what lines look like, [`parts`] those of hashes, sorted sets and sets; `export` and
//! `import` are the two commands. `lines` reads lines of bounded length, `writers` applies batches over several
//! connections, `part_writer` those with parts, `sorted` has sorted ones bulk-loaded. `reader` reads, `part_reader`
//! what is no string. `checkpoint` is how an import goes on where it was interrupted, `progress` what is said
//! meanwhile.

pub(crate) mod export;
pub mod format;
pub(crate) mod import;
pub mod parts;

mod checkpoint;
mod lines;
mod part_reader;
mod part_writer;
mod progress;
mod reader;
mod snapshot;
mod sorted;
mod writers;
