//! The one binary. See the library of the same name.

#![deny(unsafe_code)]

use std::process::ExitCode;

mod allocator;

fn main() -> ExitCode {
    argosy::cli::main(argosy::cli::Allocator {
        give_back_soon: allocator::give_back_soon,
        trim: allocator::trim,
        have_huge_pages: allocator::have_huge_pages,
    })
}
