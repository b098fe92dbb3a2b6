#!/bin/sh
# A mixed run of the embedded store in a control group of its budget and a tenth, as long as one asks.
#
#   scripts/memory.sh PROGRAM [MIX] [MIB] [OPS]
#
# 300 million operations take an hour or so. Beside the budget the group has 32 MiB for the program and for
# what the bench keeps to verify answers. Without a control group (only root can make one) the kernel ends
# nobody, and the rows say what was taken all the same.
set -eu
program=$1 mix=${2:-sd} mib=${3:-128} ops=${4:-300000000}
group=
for at in /sys/fs/cgroup:memory.max /sys/fs/cgroup/memory:memory.limit_in_bytes; do
    made=${at%:*}/argosy-memory-$$
    mkdir "$made" 2>/dev/null || continue
    if [ -e "$made/${at#*:}" ] && echo $(((mib + mib / 10 + 32) << 20)) >"$made/${at#*:}"; then
        group=$made
        break
    fi
    rmdir "$made"
done
echo "mix $mix, $mib MiB, $ops operations, control group: ${group:-none could be made}" >&2
trap '[ -z "$group" ] || rmdir "$group"' EXIT
(
    [ -z "$group" ] || sh -c 'echo $PPID' >"$group/cgroup.procs"
    exec "$program" bench --embedded --budget --memory "${mib}MiB" --mix "$mix" \
        --workload load-a,run-a,run-g --records 1000000 --ops "$ops" -o json
)
