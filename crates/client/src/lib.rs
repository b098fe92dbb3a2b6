//! Clients of a cluster.
//!
//! [`Kv`] is what every client can do, whatever protocol it speaks: tools that read and write keys
//! are written against it. [`native::Client`] does it in memory that it shares with the servers of its
//! host, [`resp::RespClient`] over the Redis protocol, on any server.
//!
//! Reading order: [`kv`] (what can be asked), [`error`] (what may come back instead, and what became
//! of a write), [`native`], [`resp`].
//!
//! ```no_run
//! use argosy_client::{Client, Kv, Span};
//!
//! let mut client = Client::connect("127.0.0.1:7379")?;
//! client.put(b"ship/argo", b"fifty oars")?;
//! assert_eq!(client.get(b"ship/argo")?.as_deref(), Some(&b"fifty oars"[..]));
//!
//! let mut left = Some(Span::prefix(b"ship/"));
//! while let Some(span) = left {
//!     let page = client.page(&span, 1000)?;
//!     for (key, value) in &page.pairs {
//!         println!("{} bytes under a key of {}", value.len(), key.len());
//!     }
//!     left = page.rest;
//! }
//! # Ok::<(), argosy_client::ClientError>(())
//! ```

#![forbid(unsafe_code)]

pub mod error;
pub mod kv;
pub mod native;
pub mod resp;

pub use argosy_base::KeyRange;
pub use error::ClientError;
pub use kv::{Kv, Page, Pairs, PutOnly, Span, Write};
pub use native::Client;
pub use resp::RespClient;
