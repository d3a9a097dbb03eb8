#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# bench_think: what a guest that thinks between its requests gets from poll=auto.
#
#   tests/bench_think.sh [FILE]
#
# 4 KiB random reads, one at a time, with a pause of 50 us, 500 us and 5 ms after
# each, through two disks on one file: poll=auto and poll=8000, which spins for
# 8 ms as tapdisk does.  They take turns; told are the medians of the ratios auto
# / spin, of the mean latency and of the time that the disk process was on a CPU,
# with the interval between the second smallest and the second largest ratio.
#
# FILE is written if it does not exist (256 MiB) and left there; without it, a
# file in the private folder serves.  REPEATS (9) and RUNTIME (0.5, seconds of
# each turn) can be given.
set -u
. tests/machine.sh
repeats=${REPEATS:-9} runtime=${RUNTIME:-0.5}

pid_of() {
	rb list --json | python3 -c 'import json, sys
print(*[d["pid"] for d in json.load(sys.stdin)["disks"]
    if d["vdev"] == sys.argv[1]])' "$1"
}

# turn VDEV PID THINK: prints the mean latency and the CPU per request, in ns
turn() {
	before=$(on_cpu "$2")
	guest 7 io "$1" --rw randread --bs 4k --depth 1 --think-us "$3" \
	    --time "$runtime" --json >"$dir/out.json" || return 1
	python3 -c 'import json, sys
read = json.load(open(sys.argv[1]))["jobs"][0]["read"]
print(round(read["lat_ns"]["mean"]), int(sys.argv[2]) // read["total_ios"])' \
	    "$dir/out.json" $(($(on_cpu "$2") - before))
}

# ratios FILE: the median of its numbers, and the interval
ratios() {
	sort -n "$1" | awk '{ v[NR] = $1 }
	    END { printf "%.2f [%.2f-%.2f]", v[int((NR + 1) / 2)], v[2],
	    v[NR - 1] }'
}

machine_start
file=${1:-$dir/think.img}
if [ ! -e "$file" ]; then
	say "writing $file ..."
	dd if=/dev/urandom of="$file" bs=1M count=256 conv=fsync 2>/dev/null ||
	    exit 1
fi
guest_start 7 || exit 1
rb attach --readonly guest-7 xvda "raw:$file" >/dev/null || exit 1
rb attach --readonly guest-7 xvdb "raw,poll=8000:$file" >/dev/null || exit 1
auto=$(pid_of xvda) always=$(pid_of xvdb)
say "4 KiB random reads at queue depth 1, $repeats turns of $runtime s," \
    "poll=auto / poll=8000:"
for think in 50 500 5000; do
	i=1
	while [ $i -le "$repeats" ]; do
		a=$(turn xvda "$auto" $think) || exit 1
		s=$(turn xvdb "$always" $think) || exit 1
		echo "$a $s" | awk '{ print $1 / $3 }' >>"$dir/lat-$think"
		echo "$a $s" | awk '{ print $2 / $4 }' >>"$dir/cpu-$think"
		i=$((i + 1))
	done
	say "  $think us: latency $(ratios "$dir/lat-$think")," \
	    "CPU $(ratios "$dir/cpu-$think")  (last: $a; $s ns)"
done
