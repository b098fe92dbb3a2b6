#!/usr/bin/env bash
# Fuzzes a decoder: scripts/fuzz.sh TARGET [SECONDS]. Targets: wire, levels, logs, edits, device.
#
# Stable Rust and a C++ compiler do. What it finds is kept in fuzz/artifacts, what it has learnt in fuzz/corpus.
# The programs are built without checksums (feature no-checksums of argosy-base), or nothing would get past them.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
target=${1:?name a target: wire, levels, logs, edits or device}
seconds=${2:-60}
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
host=$(rustc -vV | sed -n "s/^host: //p")
# With a target, build scripts are not instrumented.
RUSTFLAGS="$coverage -Ccodegen-units=1" cargo build --release --target "$host" --bin "$target"
mkdir -p "corpus/$target" "artifacts/$target"
exec "${CARGO_TARGET_DIR:-target}/$host/release/$target" "corpus/$target" \
  -artifact_prefix="artifacts/$target/" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 -timeout=10
