#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# bench_qd1: what Ringback adds to the latency of one small read.
#
#   tests/bench_qd1.sh [FILE]
#
# 4 KiB random reads, one at a time, from a file with O_DIRECT: by fio (libaio),
# and by a guest through ringbackd.  The disk process polls and the frontend
# spins, so that nobody has to be woken.  The two take turns; compared are the
# medians of each turn.  While fio runs, a process of the lowest class keeps
# each CPU from halting, so that it does not pay for waking one up either.  A
# turn waits for the machine to be quiet; one in which somebody else took a CPU
# away from the two that spin is done again.  All three have a raised priority.
#
# FILE is written if it does not exist (512 MiB) and left there; without it, a
# file in the private folder serves.  REPEATS (9), RUNTIME (2, seconds of each
# turn) and LIMIT (10, microseconds) can be given.  Exit status 0: at most LIMIT
# added.
set -u
. tests/machine.sh
repeats=${REPEATS:-9} runtime=${RUNTIME:-2} limit=${LIMIT:-10}

# One turn each: the median latency in nanoseconds.
fio_turn() {
	spin
	nice -n -15 fio --name=qd1 --filename="$file" --readonly --rw=randread --bs=4k \
	    --ioengine=libaio --direct=1 --iodepth=1 --time_based \
	    --runtime="$runtime" --lat_percentiles=1 --randseed="$1" \
	    --output-format=json >"$dir/fio.json"
	status=$?
	unspin
	[ $status -eq 0 ] || return 1
	awk '/"read"/ { r = 1 } r && /"lat_ns"/ { l = 1 }
	    l && /"50.000000"/ { gsub(/[^0-9]/, "", $3); print $3; exit }' \
	    "$dir/fio.json"
}

ringback_turn() {
	guest 7 io xvda --rw randread --bs 4k --depth 1 --spin \
	    --time "$runtime" --seed "$1" --json >"$dir/ours.json" || return 1
	grep '"lat_ns"' "$dir/ours.json" | head -1 |
	    sed 's/.*"50.000000": *\([0-9]*\).*/\1/'
}

# Jiffies that all CPUs were not idle.
busy() {
	awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }' /proc/stat
}

# Little else runs: below a fifth of one CPU, in a fifth of a second.
quiet() {
	before=$(busy)
	sleep 0.2
	[ $(($(busy) - before)) -le 4 ]
}

# How often the two that spin had to give up their CPU.
preempted() {
	cat /proc/"$disk"/task/*/status /proc/"$guest"/task/*/status \
	    2>/dev/null |
	    awk '/^nonvoluntary/ { n += $2 } END { print n + 0 }'
}

# turns N: one of each; sets f and r.  1: disturbed.
turns() {
	wait_until 10 quiet
	f=$(fio_turn "$1") || exit 1
	wait_until 10 quiet
	switches=$(preempted)
	r=$(ringback_turn "$1") || exit 1
	[ $(($(preempted) - switches)) -le $((50 * runtime)) ]
}

median() {
	sort -n "$1" | awk '{ v[NR] = $1 }
	    END { m = int((NR + 1) / 2)
	    printf "%.2f\n", (NR % 2 ? v[m] : (v[m] + v[m + 1]) / 2) / 1000 }'
}

machine_start
file=${1:-$dir/qd1.img}
if [ ! -e "$file" ]; then
	say "writing $file ..."
	dd if=/dev/urandom of="$file" bs=1M count=512 conv=fsync 2>/dev/null ||
	    exit 1
fi
guest_start 7 || exit 1
rb attach guest-7 xvda "raw,poll=1000:$file" >/dev/null || exit 1
disk=$(disk_processes | sed 's/ .*//')
guest=$(pgrep -f "^$O/loopfront domain .*$dir/guest-7.sock")
for task in /proc/"$disk"/task/* /proc/"$guest"/task/*; do
	renice -n -15 -p "${task##*/}" >/dev/null
done
say "4 KiB random reads at queue depth 1, $repeats turns of $runtime s each," \
    "median latency in us:"
i=1 again=0
while [ $i -le "$repeats" ]; do
	if ! turns $i && [ $again -lt "$repeats" ]; then
		again=$((again + 1))
		continue
	fi
	echo "$f" >>"$dir/fio"
	echo "$r" >>"$dir/ours"
	echo $((r - f)) >>"$dir/added"
	awk "BEGIN { printf \"  %2d   fio %7.2f   ringback %7.2f   added %6.2f\\n\",
	    $i, $f / 1000, $r / 1000, ($r - $f) / 1000 }"
	i=$((i + 1))
done
rb detach guest-7 xvda >/dev/null || exit 1
guest 7 quit || exit 1
[ $again -eq 0 ] || say "$again turns were disturbed and done again"
say "fio $(median "$dir/fio"), ringback $(median "$dir/ours"): at the median" \
    "$(median "$dir/added") us are added"
at_most "added microseconds" "$(median "$dir/added")" "$limit"
summary >/dev/null
