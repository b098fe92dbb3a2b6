//! The Redis protocol, RESP2 and RESP3: how requests are read and how replies are written.
//!
//! ```text
//! request := array | inline
//! array   := "*" count CRLF bulk{count}          count: 0 to ARGS_MAX, decimal
//! bulk    := "$" length CRLF byte{length} CRLF   length: 0 to BULK_BYTES_MAX, decimal
//! inline  := words, apart by blanks, "..." and '...' quote them, up to LF (CR before it is dropped)
//! ```
//!
//! Reading order: [`parse`] (bytes to arguments, piece by piece, without copying), [`encode`]
//! (replies to bytes). Neither does I/O nor allocates by a length that a client merely claims.

pub mod encode;
mod inline;
pub mod parse;

pub use encode::{Encoder, Protocol};
pub use parse::{Args, Kept, Parser, ProtocolError, Step};
