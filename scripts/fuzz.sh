#!/usr/bin/env bash
# Fuzzes the decoders of one kind: scripts/fuzz.sh TARGET [SECONDS]. The targets are those of fuzz/targets/mod.rs.
#
# Stable Rust and a C++ compiler do. What it finds is kept in fuzz/artifacts, what it has learnt in fuzz/corpus, which
# begins with the seeds of the target.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
export FUZZ_TARGET=${1:?name a target: one of those in fuzz/targets/mod.rs}
export FUZZ_SEEDS=corpus/$FUZZ_TARGET
seconds=${2:-60}
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
host=$(rustc -vV | sed -n "s/^host: //p")
# With a target, build scripts are not instrumented.
RUSTFLAGS="$coverage -Ccodegen-units=1" cargo build --release --target "$host"
mkdir -p "$FUZZ_SEEDS" "artifacts/$FUZZ_TARGET"
exec "${CARGO_TARGET_DIR:-target}/$host/release/fuzz" "$FUZZ_SEEDS" \
  -artifact_prefix="artifacts/$FUZZ_TARGET/" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 -timeout=10
