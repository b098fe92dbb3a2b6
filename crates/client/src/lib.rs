//! Clients of a cluster.
//!
//! [`Kv`] is what every client can do, whatever protocol it speaks: tools that read and write keys
//! are written against it. [`resp::RespClient`] does it over the Redis protocol, on any server.
//!
//! Reading order: [`kv`] (what can be asked), [`error`] (what may come back instead, and what became
//! of a write), [`resp`].
//!
//! ```no_run
//! use argosy_client::{Kv, RespClient, Span};
//!
//! let mut client = RespClient::connect("127.0.0.1:7379".parse()?)?;
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
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod error;
pub mod kv;
pub mod resp;

pub use error::ClientError;
pub use kv::{Kv, Only, Page, Pairs, Span, Write};
pub use resp::RespClient;
