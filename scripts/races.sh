#!/usr/bin/env bash
# Tests of shared memory under ThreadSanitizer: whatever is neither atomic nor ordered fails them.
#
# Copies into and out of memory that others write meanwhile are made of atomic words here: the system's memcpy,
# which takes their place otherwise (see crates/device/src/memory/copy.rs), would be reported, as it should be. The
# standard library is not compiled for the sanitizer, so the end of a test's thread is no order for it, and what
# the test harness does behind that is left out.
set -euo pipefail
cd "$(dirname "$0")/.."

suppressions=$(mktemp)
trap 'rm -f "$suppressions"' EXIT
cat >"$suppressions" <<'S'
race:compiler_copy::<core::mem::maybe_uninit::MaybeUninit<test::event::CompletedTest>
race:<alloc::sync::Arc<std::sync::poison::mutex::Mutex<core::option::Option<test::run_test
race:<std::thread::lifecycle::Packet
S

# Sanitizers are for nightly compilers; this one has them, too.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS='-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg atomic_words'
export TSAN_OPTIONS="suppressions=$suppressions"
target=$(rustc -vV | sed -n 's/^host: //p')
cargo test --locked --target "$target" --target-dir "${CARGO_TARGET_DIR:-target}/races" \
    -p argosy-device --lib memory::tests
