#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# bench_cpu: the time on a CPU that the disk process needs for a request.
#
#   tests/bench_cpu.sh
#
# 4 KiB random reads and writes, 32 in flight and published together, on a null
# disk: all that a request costs but the storage.  The guest has CPU 0, the disk
# process CPU 1.  Told are the median, the smallest and the largest of REPEATS
# (9) runs of RUNTIME (0.5) seconds each; LIMIT (1000) nanoseconds are allowed.
set -u
. tests/machine.sh
repeats=${REPEATS:-9} runtime=${RUNTIME:-0.5} limit=${LIMIT:-1000}

# turn READ|WRITE: prints nanoseconds per request
turn() {
	before=$(on_cpu "$disk")
	guest 7 io xvda --rw "rand$1" --bs 4k --depth 32 --batch 32 \
	    --time "$runtime" --json >"$dir/out.json" || return 1
	python3 -c 'import json, sys
print(int(sys.argv[2]) //
    json.load(open(sys.argv[1]))["jobs"][0][sys.argv[3]]["total_ios"])' \
	    "$dir/out.json" $(($(on_cpu "$disk") - before)) "$1"
}

machine_start
guest_start 7 || exit 1
rb attach guest-7 xvda null:1G >/dev/null || exit 1
disk=$(disk_processes | sed 's/ .*//')
taskset -a -p -c 1 "$disk" >/dev/null || exit 1
taskset -a -p -c 0 "$(pgrep -f "^$O/loopfront domain .*$dir/guest-7.sock")" \
    >/dev/null || exit 1
for rw in read write; do
	i=0
	while [ $i -lt "$repeats" ]; do
		turn $rw >>"$dir/$rw" || exit 1
		i=$((i + 1))
	done
	sort -n "$dir/$rw" >"$dir/sorted"
	median=$(sed -n "$(((repeats + 1) / 2))p" "$dir/sorted")
	say "4k QD32 rand$rw on null: $median ns of the disk process per" \
	    "request ($(sed -n 1p "$dir/sorted")-$(sed -n '$p' "$dir/sorted"))"
	check "at most $limit ns, rand$rw" [ "$median" -le "$limit" ]
done
summary
