#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_cache: every cache mode on threads, and threads without a cache, through
# the daemon: verified I/O, the deaths of disk processes, and one that dies while
# the kernel holds its writes back.
#
# PARTS="kills 9; blocked": only those.
set -u
. tests/machine.sh
. tests/qcow2_guest.sh

# made FORMAT: an empty image of that
made() {
	nothing_known
	img=$dir/x.$1
	rm -f "$img"
	if [ "$1" = raw ]; then
		truncate -s $size "$img"
	else
		new cluster_size=64k
	fi
}

# is_right NAME FORMAT: the image, to dom0
is_right() {
	if [ "$2" = qcow2 ]; then
		same "$1" leaks
		return
	fi
	check "$1: the guest knows the image" guest 7 image xvda "$dir/have.raw"
	check "$1: the image is what was written" cmp "$dir/have.raw" "$img"
}

# flags_of PID: how the image is open, in octal
flags_of() {
	for f in /proc/"$1"/fd/*; do
		[ "$(readlink "$f")" = "$img" ] || continue
		sed -n 's/^flags:[[:space:]]*//p' "/proc/$1/fdinfo/${f##*/}"
	done
}

# opened_as NAME DIRECT DSYNC: 1 or 0 each
opened_as() {
	flags=$(flags_of "$(pid_of)")
	check "$1: direct: $2" [ $((${flags:-0} >> 14 & 1)) -eq "$2" ]
	check "$1: synchronous: $3" [ $((${flags:-0} >> 12 & 1)) -eq "$3" ]
}

threads_of() {
	sed -n 's/^Threads:[[:space:]]*//p' "/proc/$1/status"
}

# one_mode FORMAT OPTIONS DIRECT DSYNC
one_mode() {
	what=$1,$2
	spec=$what
	made "$1" || bad "$what: make it" "$1"
	: >"$dir/ringbackd.log"
	attach "$what"
	opened_as "$what" "$3" "$4"
	at_least "$what: threads" "$(threads_of "$(pid_of)")" 17
	for x in 512:4:200 4k:32:400 64k:8:80 1m:4:12; do
		ios=${x##*:} x=${x%:*}
		io "$what: I/O of ${x%:*}" --rw randrw --bs "${x%:*}" \
		    --depth "${x#*:}" --ios "$ios" --flush-every 20
	done
	check "$what: discards" guest 7 io xvda --rw randtrim --bs 64k \
	    --ios 20 --verify --zeroed
	io "$what: all of it" --rw write --bs 256k --depth 4
	detach "$what"
	is_right "$what" "$1"
	if [ "$2" = cache=unsafe ]; then
		check "$what: the log says what it is" grep -q \
		    'cache=unsafe: flushes are ignored' "$dir/ringbackd.log"
	else
		refuse "$what: nothing is said of unsafe" grep -q unsafe: \
		    "$dir/ringbackd.log"
	fi
}

modes() {
	for format in raw qcow2; do
		one_mode $format io=threads 1 0
		one_mode $format cache=directsync,io=threads 1 1
		one_mode $format cache=writethrough 0 1
		one_mode $format cache=writeback 0 0
		one_mode $format cache=unsafe 0 0
	done
}

# ---- deaths ---------------------------------------------------------------------

kills() {
	total=0
	for x in raw:io=threads raw:cache=writeback raw:cache=unsafe \
	    qcow2:cache=writethrough qcow2:cache=writeback; do
		format=${x%%:*} spec=${x%%:*},${x#*:}
		what="kills, $spec"
		torn=--torn
		[ "$spec" != raw,io=threads ] || torn=
		made "$format" || bad "$what: make it" "$format"
		attach "$what"
		kills_while "$what" "$1" 1000 150000 --rw randrw --mix 30 \
		    --bs 8k --depth 32 --flush-every 40 $torn
		io "$what: everything reads back" --rw read --bs 256k --depth 4
		detach "$what"
		is_right "$what" "$format"
	done
	at_least "kills" "$total" $((10 * $1))
}

# ---- writes that the kernel holds back ---------------------------------------------

mounted() {
	truncate -s 64m "$dir/fs.img" && mkfs.ext4 -q "$dir/fs.img" &&
	    mkdir "$dir/mnt" && mount -o loop "$dir/fs.img" "$dir/mnt"
}

blocked_threads() {
	grep -l '^State:[[:space:]]*D' "/proc/$1"/task/*/status 2>/dev/null |
	    wc -l
}

is_blocked() {
	[ "$(blocked_threads "$1")" -gt 0 ]
}

# While a killed process has a write under way there is no successor.
blocked() {
	if ! mounted >"$dir/out" 2>&1; then
		say "skip blocked writes: no file system can be mounted here"
		rm -rf "$dir/mnt" "$dir/fs.img"
		return
	fi
	nothing_known
	img=$dir/mnt/x.raw spec=raw,cache=writeback
	truncate -s $size "$img"
	attach "blocked"
	io "blocked: before" --rw write --bs 64k
	victim=$(pid_of)
	check "blocked: freeze it" fsfreeze -f "$dir/mnt"
	guest 7 io xvda --rw randwrite --bs 4k --depth 16 --ios 400 --verify \
	    --zeroed --seed 77 >"$dir/io" 2>&1 &
	job=$!
	check "blocked: a write hangs" wait_until 5 is_blocked "$victim"
	: >"$dir/ringbackd.log"
	kill -KILL "$victim"
	sleep 0.5
	check "blocked: the dead one is still in its write" is_blocked "$victim"
	refuse "blocked: nobody is told that it died" grep -q . \
	    "$dir/ringbackd.log"
	check "blocked: thaw it" fsfreeze -u "$dir/mnt"
	wait $job
	status=$?
	check "blocked: the guest sees a pause" sh -c "cat '$dir/io'
	    exit $status"
	check "blocked: there is a successor" grep -q 'goes on with' \
	    "$dir/ringbackd.log"
	io "blocked: everything reads back" --rw read --bs 256k --depth 4
	detach "blocked"
	is_right "blocked" raw
	umount "$dir/mnt"
}

# Nobody could end what hangs in a frozen file system.
end() {
	if mountpoint -q "$dir/mnt"; then
		fsfreeze -u "$dir/mnt" 2>/dev/null
		disk_processes | while read -r pid _; do
			kill -KILL "$pid"
		done
		umount -l "$dir/mnt"
	fi
	machine_stop
}

qcow2_machine
trap end EXIT
eval "${PARTS-modes; kills 1; blocked}"
qcow2_end
