#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# bench_cell: one run of tests/bench_grid.sh, which has ringback compare call it.
#
#   tests/bench_cell.sh TARGET RW BS QD SECONDS VERIFY
#
# TARGET is guest:DISK:PID, a disk of the guest behind $BENCH_GUEST that process
# PID serves; fio:FILE; or copy:FILE, which is fio on the file plus the time of
# one copy of the data, at the rate of a memcpy between as many buffers.  Prints
# fio's JSON; a guest's also has the backend's time on the CPUs.  VERIFY 1
# writes patterns and reads them again instead.
#
# At depth 1 nobody but the one whose turn it is would keep a CPU from halting,
# and waking one up costs more than an I/O in memory: then the processes
# BENCH_SPINNERS, if any, go on, one for each CPU and of the lowest class; else
# they are stopped.
# shellcheck disable=SC2086 # lists of words
set -u
target=$1 rw=$2 bs=$3 qd=$4 seconds=$5 verify=$6
guest="$O/loopfront to $BENCH_GUEST"
[ "$qd" -ne 1 ] || [ -z "$BENCH_SPINNERS" ] || kill -CONT $BENCH_SPINNERS
trap '[ -z "$BENCH_SPINNERS" ] || kill -STOP $BENCH_SPINNERS' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Nanoseconds that the threads of a process were on a CPU.
on_cpu() {
	cat /proc/"$1"/task/*/schedstat 2>/dev/null |
	    awk '{ n += $1 } END { printf "%.0f", n }'
}

# All of a part of the disk is written twice and read; told is the one that was
# asked for.
guest_verify() {
	area="--bs $bs --depth $qd --size 64m --verify --json"
	$guest io "$1" --rw randwrite --ios 500 $area >/dev/null &&
	    wrote=$($guest io "$1" --rw write $area) &&
	    read=$($guest io "$1" --rw read $area) &&
	    $guest forget "$1" >/dev/null || return 1
	case $rw in
	*write)	printf '%s\n' "$wrote" ;;
	*)	printf '%s\n' "$read" ;;
	esac
}

guest_run() {
	disk=${1%%:*} pid=${1#*:}
	if [ "$verify" -eq 1 ]; then
		guest_verify "$disk"
		return
	fi
	before=$(on_cpu "$pid")
	out=$($guest io "$disk" --rw "$rw" --bs "$bs" --depth "$qd" \
	    --time "$seconds" --json $BENCH_FRONT) || return 1
	printf '{ "backend_cpu_ns": %.0f,%s\n' \
	    $(($(on_cpu "$pid") - before)) "${out#\{}"
}

fio_run() {
	if [ "$verify" -eq 1 ]; then
		set -- "$1" --rw=write --io_size=64M --verify=crc32c \
		    --do_verify=1 --verify_fatal=1
	else
		# fio knows no fraction of a second but in milliseconds.
		set -- "$1" --rw="$rw" --time_based --norandommap \
		    --runtime="$(awk "BEGIN { print $seconds * 1000 }")ms"
	fi
	file=$1
	shift
	$BENCH_FIO fio --name=limit --filename="$file" --size=100% \
	    --allow_file_create=0 --ioengine=libaio --direct=1 --bs="$bs" \
	    --iodepth="$qd" --output-format=json --verify_state_save=0 "$@"
}

# The rates of fio, as they would be with the copy.  Nothing is said of its
# latencies.
copy_run() {
	out=$(fio_run "$1") || return 1
	[ "$verify" -eq 0 ] || set -- "$1" 1e15
	copy=${2-$($BENCH_FIO "$O/copy_rate" "$bs" "$qd")} || return 1
	printf '%s\n' "$out" | awk -v dir="${rw#rand}" -v copy="$copy" '
	/^ *"(read|write|trim)" *:/ { here = index($0, "\"" dir "\"") > 0 }
	here && /^ *"(bw_bytes|iops|total_ios)" *:/ {
		key = $1
		gsub(/[^a-z_]/, "", key)
		gsub(/[^0-9.]/, "", $3)
		n[key] = $3
	}
	END {
		factor = 1 / (1 + n["bw_bytes"] / copy)
		printf "{\"jobs\": [{\"error\": 0, \"%s\": {" \
		    "\"total_ios\": %.0f, \"bw_bytes\": %.0f, " \
		    "\"iops\": %.3f}}]}\n", dir, n["total_ios"],
		    n["bw_bytes"] * factor, n["iops"] * factor
	}'
}

case $target in
guest:*)	guest_run "${target#guest:}" ;;
fio:*)		fio_run "${target#fio:}" ;;
copy:*)		copy_run "${target#copy:}" ;;
esac
