#!/usr/bin/env bash
# Tests of shared memory under ThreadSanitizer: whatever is neither atomic nor ordered fails them.
#
# Copies into and out of memory that others write meanwhile are made of atomic words here: the system's memcpy,
# which takes their place otherwise (see crates/memory/src/shared/copy.rs), would be reported, as it should be. The
# standard library is not compiled for the sanitizer, so the end of a test's thread is no order for it, and what
# the test harness does behind that is left out, as is a test of names of files that ends threads.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(rustc -vV | sed -n 's/^host: //p')
runtime=$(rustc --print sysroot)/lib/rustlib/$target/lib
if ! compgen -G "$runtime/librustc-*_rt.tsan.a" >/dev/null; then
    echo "test result: skipped: this compiler has no ThreadSanitizer for $target"
    exit
fi

suppressions=$(mktemp)
said=$(mktemp)
trap 'rm -f "$suppressions" "$said"' EXIT
cat >"$suppressions" <<'S'
race:compiler_copy::<core::mem::maybe_uninit::MaybeUninit<test::event::CompletedTest>
race:<alloc::sync::Arc<std::sync::poison::mutex::Mutex<core::option::Option<test::run_test
race:<std::thread::lifecycle::Packet
S

# Sanitizers are for nightly compilers; this one has them, too.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS='-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg atomic_words'
export TSAN_OPTIONS="suppressions=$suppressions"
if ! cargo test --locked --target "$target" --target-dir "${CARGO_TARGET_DIR:-target}/races" \
    -p argosy-memory --lib shared::tests -- --test-threads=1 --skip a_link_that_comes_in_between 2>&1 | tee "$said"; then
    # Some kernels place memory where it cannot be watched.
    grep -q 'FATAL: ThreadSanitizer: unexpected memory mapping' "$said" || exit 1
    echo 'test result: skipped: ThreadSanitizer cannot watch memory on this machine'
fi
