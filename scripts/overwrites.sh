#!/bin/sh
# Loads the embedded store and overwrites what it holds, and looks twice a second how much room its device file
# takes on the file system.
#
#   scripts/overwrites.sh PROGRAM [MIX] [RECORDS] [OPS] [MORE ARGUMENTS OF bench]
#
# 20 GB of overwrites of 0.4 GB, on a device of 2 GiB:
#
#   scripts/overwrites.sh PROGRAM l 330000 16500000 --device-bytes 2GiB
#
# The rows go to the standard output: `space_bytes` is what the store says, `second_ops` has the slowest second.
# What the file system says goes to the standard error.
set -eu
program=$1 mix=${2:-sd} records=${3:-3000000} ops=${4:-170000000}
[ $# -lt 4 ] && shift $# || shift 4
root=./overwrites-$$
mkdir "$root"
bench=
trap '[ -z "$bench" ] || kill "$bench" 2>/dev/null || true; rm -rf "$root"' EXIT
"$program" bench --embedded --mix "$mix" --records "$records" --ops "$ops" --workload load-a,run-g \
    --data-root "$root" -o json "$@" &
bench=$!
highest=0 last=0
while kill -0 "$bench" 2>/dev/null; do
    mib=$(du -sm "$root" 2>/dev/null | cut -f1)
    # The store removes its files at the end.
    [ "${mib:-0}" -le 1 ] || last=$mib
    [ "${mib:-0}" -le "$highest" ] || highest=$mib
    sleep 0.5
done
echo "du: at most $highest MiB, $last MiB at the end" >&2
wait "$bench"
