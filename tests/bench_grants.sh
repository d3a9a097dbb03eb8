#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# bench_grants: grants=copy against grants=persistent.
#
#   tests/bench_grants.sh
#
# A guest reads and writes a disk on tmpfs (no latency of its own), in both
# modes, which take turns.  Counted is the time on a CPU, per I/O, of the disk
# process and of the guest, which also copies when grants are persistent: on a
# machine that does other things as well that says more than the clock.  At
# queue depth 1 the two add up, at higher ones the larger one is the limit.
# Neither polls.  A line is the median of the turns of each, in microseconds,
# and of the ratios of their sums, persistent to copy.  Once with what the
# libraries of loopxen cost, once with what calls cost under Xen: CALL_NS (1500)
# of each copy, map or unmap, SEGMENT_NS (200) of each page of it, NOTIFY_NS
# (1000).
#
# REPEATS (5) and MIB (64, of a turn; at most 4000 I/Os) may be given.
set -u
. tests/machine.sh
repeats=${REPEATS:-5} mib=${MIB:-64} shm=

# Nanoseconds that a process was on a CPU.
on_cpu() {
	cat /proc/"$1"/task/*/schedstat | awk '{ n += $1 } END { print n }'
}

# turn VDEV PID RW BS DEPTH IOS: microseconds per I/O, disk process and guest
turn() {
	d=$(on_cpu "$2")
	guest 7 io "$1" --rw "$3" --bs "$4" --depth "$5" --batch 32 \
	    --ios "$6" --json >"$dir/json" || exit 1
	echo $((($(on_cpu "$2") - d) / $6)) \
	    $(($(number cpu_ns "$dir/json") / $6))
}

# median FILE COLUMN
median() {
	awk "{ print \$$2 }" "$1" | sort -n |
	    awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] }'
}

# line RW BS DEPTH IOS
line() {
	rm -f "$dir/turns"
	i=0
	while [ $i -lt "$repeats" ]; do
		c=$(turn xvda "$copy" "$@") m=$(turn xvdb "$mapped" "$@") ||
		    exit 1
		echo "$c $m" | awk '{ print $1 / 1000, $2 / 1000, $3 / 1000,
		    $4 / 1000, ($3 + $4) / ($1 + $2), $3 / $1 }' >>"$dir/turns"
		i=$((i + 1))
	done
	printf '%-9s %4s QD%-2s  %8s %8s  %8s %8s   %5s %5s\n' "$1" "$2" "$3" \
	    "$(median "$dir/turns" 1)" "$(median "$dir/turns" 2)" \
	    "$(median "$dir/turns" 3)" "$(median "$dir/turns" 4)" \
	    "$(median "$dir/turns" 5)" "$(median "$dir/turns" 6)"
}

# Disk processes inherit the costs from the supervisor.
lines() {
	machine_start
	guest_start 7 --persistent --ring-order 2 || exit 1
	for x in xvda:copy xvdb:persistent; do
		truncate -s 64m "$shm/${x%:*}"
		rb attach guest-7 "${x%:*}" \
		    "raw,poll=off,grants=${x#*:}:$shm/${x%:*}" >/dev/null || exit 1
		guest 7 io "${x%:*}" --rw write --bs 1m --depth 4 >/dev/null ||
		    exit 1
		[ ${x#*:} = persistent ] || copy=$(disk_processes |
		    sed 's/ .*//')
	done
	mapped=$(disk_processes | sed 's/ .*//' | grep -vx "$copy")
	for rw in randread randwrite; do
		for x in 4k:1 4k:32 64k:1 64k:8 1m:1 1m:4; do
			bs=${x%:*}
			case $bs in
			4k)	n=$((mib * 256)) ;;
			64k)	n=$((mib * 16)) ;;
			*)	n=$mib ;;
			esac
			[ $n -le 4000 ] || n=4000
			line $rw "$bs" "${x#*:}" $n
		done
	done
	rb detach guest-7 xvda >/dev/null
	rb detach guest-7 xvdb >/dev/null
	guest 7 quit
	machine_stop
}

shm=$(mktemp -d /dev/shm/ringback.XXXXXX) || exit 1
chmod 755 "$shm"
say "                     copy: disk    guest persist.: disk guest     sum  disk"
say "calls that cost what loopxen's cost:"
lines
LOOPXEN_COST_CALL_NS=${CALL_NS:-1500} LOOPXEN_COST_SEGMENT_NS=${SEGMENT_NS:-200}
LOOPXEN_COST_NOTIFY_NS=${NOTIFY_NS:-1000}
export LOOPXEN_COST_CALL_NS LOOPXEN_COST_SEGMENT_NS LOOPXEN_COST_NOTIFY_NS
say "a call $LOOPXEN_COST_CALL_NS ns, a page $LOOPXEN_COST_SEGMENT_NS ns," \
    "an event $LOOPXEN_COST_NOTIFY_NS ns:"
lines
rm -rf "$shm"
