//! The one binary. See the library of the same name.

#![deny(unsafe_code)]

use std::process::ExitCode;

mod allocator;

fn main() -> ExitCode {
    argosy::cli::main(allocator::give_back_soon)
}
