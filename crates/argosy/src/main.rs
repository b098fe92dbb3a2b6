//! The one binary. See the library of the same name.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Leaves and values of the cache, and pairs on their way to clients, come and go in sizes of some hundred
/// bytes to some thousand, from several threads. The C library's allocator takes a tenth to a fifth of a
/// read's time for that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    argosy::cli::main()
}
