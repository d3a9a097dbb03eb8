#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_faults: the real daemon when storage, grants, xenstore and memory fail.
#
# Sweeps: the 1st, 2nd, ... failure of one kind, until a run meets none.  After
# each, every request has been answered once (loopfront sees to it), nothing is
# left behind, and the daemon serves the next disk.  SOAK=1 leaves out nothing;
# without it, the long sweeps go in strides.
set -u
. tests/machine.sh
SOAK=${SOAK:-}

# ---- helpers ---------------------------------------------------------------------

# leftovers: whatever is still there of disks of guest 7
leftovers() {
	xenstore-ls -f / | grep -E '/backend/[a-z0-9]+/[0-9]+/|/device/vbd/'
	find "$dir/run" -mindepth 1 ! -name control ! -name lock
	disk_processes
	guest 7 counters |
	    grep -v '"mapped_now": 0, "bound_now": 0, "grants": 0}'
	grep -iE 'sanitizer|runtime error' "$dir"/*.log
}

nothing_left() {
	left=$(leftovers)
	[ -z "$left" ] || echo "$left"
	[ -z "$left" ]
}

new_image() {
	rm -f "$1" && truncate -s "$2" "$1"
}

ms() {
	echo $(($(date +%s%N) / 1000000))
}

# within MS CMD ...: CMD succeeds, and does not take longer
within() {
	limit=$1 began=$(ms)
	shift
	"$@" || return 1
	took=$(($(ms) - began))
	[ $took -le "$limit" ] || {
		echo "it took $took ms, not at most $limit"
		return 1
	}
}

# fails_with WORDS CMD ...: exit status 1, and one line that has the WORDS,
# which are separated by '|', in that order
fails_with() {
	words=$(echo "$1" | sed 's/|/.*/g')
	shift
	"$@" >"$dir/said" 2>&1
	status=$?
	cat "$dir/said"
	[ $status -eq 1 ] && [ "$(wc -l <"$dir/said")" -eq 1 ] &&
	    grep -q "$words" "$dir/said"
}

# io ERRORS DISK OPTIONS ...: so many I/Os end with ERROR, the rest is right
io() {
	errors=$1
	shift
	guest 7 io "$@" --json >"$dir/json" 2>"$dir/io.err"
	[ "$(number failed_ios "$dir/json")" = "$errors" ] &&
	    [ "$(number unanswered_requests "$dir/json")" = 0 ] &&
	    ! grep -v 'did not end with' "$dir/io.err" && return
	cat "$dir/io.err"
	grep -E 'failed_ios|unanswered' "$dir/json"
	return 1
}

stat_of() {
	rb --json stats guest-7 "$1" >"$dir/stats" && number "$2" "$dir/stats"
}

# attach DISK SPEC: a disk of which the guest knows nothing yet
attach() {
	rb attach guest-7 "$1" "$2" >/dev/null && guest 7 forget "$1"
}

detach() {
	rb detach guest-7 "$1"
}

# One that fails must not take the next ones with it.
scene() {
	before=$failed
	check "$@"
	[ "$failed" -eq "$before" ] && return
	guest 7 fault
	for disk in xvda xvdb xvdc; do
		rb detach guest-7 $disk --timeout 3 >/dev/null 2>&1
	done
}

# ---- storage -----------------------------------------------------------------------

# One failure of OP, and what it costs: one I/O that is not merged.
# sweep_op OP EXTRA-RULES IOS OPTIONS...
sweep_op() {
	op=$1 rules=$2 ios=$3 nth=0
	shift 3
	while :; do
		nth=$((nth + 1))
		attach xvda "fault,merge=0:nth=$nth,op=$op$rules:raw:$dir/a.img" ||
		    return 1
		expected=1
		[ $nth -le "$ios" ] || expected=0
		io $expected xvda --ios "$ios" "$@" && detach xvda ||
		    { echo "number $nth"; return 1; }
		[ $expected -eq 1 ] || break
	done
	nothing_left
}

sweep_storage() {
	new_image "$dir/a.img" 4m
	scene "EIO on the nth write" sweep_op write "" 6 \
	    --rw write --bs 8k --depth 3 --verify
	scene "EIO on the nth read" sweep_op read "" 6 \
	    --rw read --bs 8k --depth 3
	scene "ENOSPC on the nth write" sweep_op write ,error=ENOSPC 4 \
	    --rw write --bs 44k --depth 4 --verify
	scene "a short write" sweep_op write ,short=512 4 \
	    --rw write --bs 8k --depth 4
	scene "a short read" sweep_op read ,short=4096 4 \
	    --rw read --bs 8k --depth 4
	scene "EIO on the nth discard" sweep_op discard "" 4 \
	    --rw trim --bs 64k --depth 2
	scene "the nth write is late" sweep_late
}

# What is late is answered all the same, and what is not late is not held up.
sweep_late() {
	attach xvda "fault,merge=0:nth=2,op=write,delay-ms=300:raw:$dir/a.img" &&
	    io 0 xvda --rw write --bs 4k --depth 4 --ios 40 --verify &&
	    [ "$(stat_of xvda write-wait-max-ns)" -ge 300000000 ] &&
	    detach xvda && nothing_left
}

# The sector that fails belongs to one request of those that became one I/O.
merged() {
	attach xvda "fault:op=$1,offset=20480,length=512:raw:$dir/a.img" &&
	    io 1 xvda --rw "$1" --bs 4k --depth 16 --batch 16 --ios 64 &&
	    [ "$(stat_of xvda ios-retried)" -ge 2 ] && detach xvda &&
	    nothing_left
}

# After flush number N has failed, no write and no flush succeeds, reads do.
flush_fails() {
	nth=$1
	attach xvda "fault:nth=$nth,op=flush:raw:$dir/a.img" || return 1
	i=1
	while [ $i -lt "$nth" ]; do
		guest 7 io xvda --rw write --ios 1 &&
		    guest 7 io xvda --op 3 --bs 0 --ios 1 || return 1
		i=$((i + 1))
	done
	guest 7 io xvda --rw write --ios 4 --verify &&
	    guest 7 io xvda --op 3 --bs 0 --ios 1 --expect error &&
	    guest 7 io xvda --rw write --offset 1m --ios 3 --expect error &&
	    guest 7 io xvda --op 3 --bs 0 --ios 2 --expect error &&
	    guest 7 io xvda --op 2 --bs 4k --offset 1m --ios 1 --expect error &&
	    guest 7 io xvda --rw read --ios 4 --verify &&
	    guest 7 reopen xvda &&
	    guest 7 io xvda --rw write --offset 1m --ios 3 --expect error &&
	    detach xvda &&
	    attach xvda "raw:$dir/a.img" &&
	    guest 7 io xvda --rw write --offset 1m --ios 3 &&
	    guest 7 io xvda --op 3 --bs 0 --ios 1 && detach xvda &&
	    nothing_left
}

# The file system of the image is full, then has room again.
full() {
	new_image "$dir/small/b.img" 32m
	attach xvdb "raw:$dir/small/b.img" || return 1
	guest 7 io xvdb --rw write --bs 64k --depth 8 --size 8m --verify --json \
	    >"$dir/json" 2>&1
	failed=$(number failed_ios "$dir/json")
	[ "${failed:-0}" -gt 0 ] && [ "$failed" -lt 128 ] &&
	    [ "$(number unanswered_requests "$dir/json")" = 0 ] || {
		echo "${failed:-no} writes failed"
		return 1
	}
	rm "$dir/small/filler"
	guest 7 io xvdb --rw read --bs 64k --depth 4 --size 8m --verify &&
	    guest 7 io xvdb --rw write --bs 64k --depth 8 --size 8m --verify &&
	    guest 7 io xvdb --rw read --bs 64k --depth 4 --size 8m --verify &&
	    guest 7 io xvdb --op 3 --bs 0 --ios 1 && detach xvdb &&
	    nothing_left
}

full_file_system() {
	mkdir "$dir/small"
	if ! mount -t tmpfs -o size=12m none "$dir/small" 2>/dev/null; then
		say "skip a full file system: this machine mounts no tmpfs"
		return
	fi
	head -c 6m /dev/zero >"$dir/small/filler"
	scene "the image's file system is full" full
	umount "$dir/small" || bad "the file system is still used" ""
}

truncated() {
	new_image "$dir/b.img" 8m
	attach xvdb "raw:$dir/b.img" &&
	    guest 7 io xvdb --rw write --bs 64k --verify &&
	    truncate -s 1m "$dir/b.img" &&
	    guest 7 io xvdb --rw read --bs 64k --size 1m --verify &&
	    guest 7 io xvdb --rw read --bs 64k --offset 4m --ios 4 \
		--expect error &&
	    guest 7 io xvdb --rw read --bs 64k --size 1m --verify &&
	    detach xvdb &&
	    attach xvdb "raw:$dir/b.img" &&
	    guest 7 list | grep "disk=xvdb .*sectors=2048 " &&
	    detach xvdb && nothing_left
}

deleted() {
	new_image "$dir/b.img" 8m
	attach xvdb "raw:$dir/b.img" && rm "$dir/b.img" &&
	    guest 7 io xvdb --rw write --bs 64k --verify --zeroed &&
	    guest 7 io xvdb --op 3 --bs 0 --ios 1 &&
	    guest 7 io xvdb --rw read --bs 64k --verify && detach xvdb &&
	    nothing_left
}

storage() {
	sweep_storage
	scene "a merged write, retried" merged write
	scene "a merged read, retried" merged read
	scene "the first fdatasync fails" flush_fails 1
	scene "the third fdatasync fails" flush_fails 3
	full_file_system
	scene "the image is truncated" truncated
	scene "the image is deleted" deleted
}

# ---- storage that hangs --------------------------------------------------------------

# While xvda hangs: everything that is not xvda.
others_go_on() {
	within 1000 rb list &&
	    within 1000 rb stats guest-7 xvda &&
	    within 1000 guest 7 io xvdb --rw randrw --ios 200 --depth 8 &&
	    within 1000 rb attach guest-7 xvdc "raw:$dir/c.img" &&
	    within 1000 guest 7 io xvdc --rw randrw --ios 200 --depth 8 &&
	    within 1000 rb detach guest-7 xvdc
}

hang() {
	new_image "$dir/b.img" 8m
	new_image "$dir/c.img" 8m
	check "attach what will hang" attach xvda \
	    "fault:op=read,delay-ms=4000:raw:$dir/a.img"
	check "attach what will not" attach xvdb "raw:$dir/b.img"
	guest 7 io xvda --rw read --ios 4 --depth 4 >"$dir/job" 2>&1 &
	job=$!
	check "it hangs" wait_until 3 sh -c "'$O/ringback' --run-dir \
	    '$dir/run' --json stats guest-7 xvda | grep '\"in-flight\":4'"
	began=$(ms)
	check "the others go on" others_go_on
	check "a detach in time says what is wrong" within 2500 fails_with \
	    "vbd 7/51712|has not finished|within 1 s|storage" \
	    rb detach guest-7 xvda --timeout 1
	check "the others go on, again" others_go_on
	check "it still hangs" sh -c "[ $(($(ms) - began)) -lt 3800 ]"
	check "and is listed" sh -c \
	    "'$O/ringback' --run-dir '$dir/run' list | grep xvda"
	wait $job
	check "the detach is done when the storage is back" wait_until 10 \
	    no_disk xvda
	check "detach the other" detach xvdb
	check "the guest let go" guest 7 released xvda
	check "a hung image: nothing is left" nothing_left
}

detached() {
	no_disk "$1" || rb detach guest-7 "$1" --timeout 2
}

no_disk() {
	! rb list | grep "$1"
}

# The supervisor waits for no image either.
hangs_at_flush() {
	check "attach one whose flush hangs" attach xvda \
	    "fault:op=flush,delay-ms=2000:raw:$dir/a.img"
	guest 7 io xvda --op 3 --bs 0 --ios 1 >/dev/null 2>&1 &
	job=$!
	sleep 0.2
	attach xvdb "raw:$dir/b.img"
	check "a flush that hangs: the others go on" others_go_on
	wait $job
	status=$?
	check "and is answered" [ $status -eq 0 ]
	check "a flush that hung: detach" detach xvda
	check "a flush that hung: detach the other" detach xvdb
}

# ---- grants ----------------------------------------------------------------------------

# sweep_copies RW: 6 I/Os of two segments each
sweep_copies() {
	attach xvda "raw:$dir/a.img" || return 1
	nth=0
	while :; do
		nth=$((nth + 1))
		expected=1
		[ $nth -le 12 ] || expected=0
		guest 7 fault --copy-nth $nth
		io $expected xvda --rw "$1" --bs 8k --ios 6 --depth 3 \
		    --verify || { echo "segment $nth"; return 1; }
		[ $expected -eq 1 ] || break
	done
	guest 7 fault
	io 0 xvda --rw "$1" --bs 8k --ios 6 --verify && detach xvda &&
	    nothing_left
}

# A ring that cannot be mapped is said, and another try is possible.
map_fails() {
	guest 7 fault --map-nth 1
	fails_with "7/51712|cannot map the ring" rb attach guest-7 xvda \
	    "raw:$dir/a.img" || return 1
	guest 7 fault
	detach xvda && nothing_left &&
	    attach xvda "raw:$dir/a.img" && io 0 xvda --rw read --ios 10 &&
	    detach xvda && nothing_left
}

# A copy may wait for the guest's memory (paged out, say) for a long time.
copies_wait() {
	attach xvda "raw:$dir/a.img" || return 1
	guest 7 fault --copy-delay-ms 1500
	guest 7 io xvda --rw write --ios 1 --verify >"$dir/job" 2>&1 &
	job=$!
	sleep 0.1
	within 1000 rb list && within 1000 rb stats guest-7 xvda || return 1
	guest 7 fault
	wait $job && detach xvda && nothing_left
}

grants() {
	scene "the nth copy from the guest" sweep_copies write
	scene "the nth copy to the guest" sweep_copies read
	scene "the ring cannot be mapped" map_fails
	scene "a copy that takes long" copies_wait
}

# ---- xenstore and memory ----------------------------------------------------------------

# le32 N: four octal escapes
le32() {
	printf '\\%03o\\%03o\\%03o\\%03o' $(($1 & 255)) $(($1 >> 8 & 255)) \
	    $(($1 >> 16 & 255)) 0
}

# arm CLASS N ERRNO: see fail_calls.c; the Nth call from now on fails.
arm() {
	printf "$(le32 "$2")$(le32 "$3")$(le32 0)" | dd of="$dir/calls" bs=12 \
	    seek="$1" conv=notrunc status=none
}

# How many of that class have failed since.
failed_calls() {
	od -An -tu4 -j $((12 * $1 + 8)) -N 4 "$dir/calls" | tr -d ' '
}

# Once through everything while the Nth call of a class fails.  True: all is
# as it should be, whatever this disk has come to.
once() {
	class=$1
	arm "$class" "$2" "$3"
	rb attach guest-7 xvda "raw:$dir/a.img" --timeout 2 >"$dir/said" 2>&1
	status=$?
	if [ $status -eq 0 ]; then
		io 0 xvda --rw write --ios 3 || return 1
	elif [ $status -ne 1 ] || [ "$(wc -l <"$dir/said")" -ne 1 ] ||
	    grep 'took longer' "$dir/said"; then
		echo "attach: exit status $status:"
		cat "$dir/said"
		return 1
	fi
	rb detach guest-7 xvda --timeout 2 >"$dir/said" 2>&1
	done=$(failed_calls "$class")
	arm "$class" 0 0
	kill -0 "$daemon" || return 1
	# Who could not wait for an attach has one that goes on all the same.
	wait_until 3 detached xvda || return 1
	wait_until 3 nothing_left || { nothing_left; return 1; }
}

# sweep_calls CLASS ERRNO STRIDE: the later calls, the longer strides (there
# are hundreds in libseccomp alone), but for STRIDE 0.
sweep_calls() {
	nth=1
	while once "$1" $nth "$2"; do
		[ "$done" -ne 0 ] || break
		[ "$3" -eq 0 ] && nth=$((nth + 1)) ||
			nth=$((nth + 1 + nth / $3))
	done
	[ "$done" -eq 0 ] || { echo "call $nth"; return 1; }
	if [ $nth -eq 1 ]; then
		echo "nothing has failed"
		return 77
	fi
	io_after
}

io_after() {
	attach xvda "raw:$dir/a.img" && io 0 xvda --rw randrw --ios 50 &&
	    detach xvda && nothing_left
}

# A sanitizer may have an allocator that is not to be had.
check_sweep() {
	name=$1
	shift
	out=$(sweep_calls "$@" 2>&1)
	status=$?
	case $status in
	0)	ok "$name" ;;
	77)	say "skip $name: no call can be made to fail here" ;;
	*)	bad "$name" "$out
$(tail -5 "$dir/start.log")" ;;
	esac
}

# start_preloaded: ringbackd, its calls as armed; true when it is ready
start_preloaded() {
	LD_PRELOAD="$O/fail_calls.so" FAIL_CALLS="$dir/calls" \
	    ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" \
	    "$O/ringbackd" --run-dir "$dir/run" >"$dir/start.log" 2>&1 &
	daemon=$!
	until rb list >"$dir/list" 2>/dev/null; do
		kill -0 "$daemon" 2>/dev/null || return 1
		sleep 0.02
	done
}

# Each xenstore call of its start, while a disk is served: it says what it was
# and ends, or comes up with the disk.
sweep_start() {
	attach xvda "raw:$dir/a.img" || return 1
	kill "$daemon"
	wait "$daemon"
	nth=0
	while :; do
		nth=$((nth + 1))
		arm 0 $nth 5
		if start_preloaded; then
			wait_until 3 is_connected xvda || break
			[ "$(failed_calls 0)" -ne 0 ] || break
			kill "$daemon"
			wait "$daemon" || break
		else
			wait "$daemon"
			[ $? -eq 1 ] && [ "$(wc -l <"$dir/start.log")" -eq 1 ] ||
				break
		fi
	done
	arm 0 0 0
	echo "call $nth"
	cat "$dir/start.log" "$dir/list"
	rb list | grep 'xvda.*Connected *Connected' && [ $nth -gt 4 ] &&
	    io 0 xvda --rw read --ios 10 && detach xvda && nothing_left
}

# Each read of a look at a disk that is in use: it must not cost the disk.
sweep_look() {
	attach xvda "raw:$dir/a.img" || return 1
	nth=0
	while :; do
		nth=$((nth + 1))
		arm 0 $nth 5
		xenstore-write "$(fe 7 51712)/state" 4
		sleep 0.05
		done=$(failed_calls 0)
		arm 0 0 0
		wait_until 2 is_connected xvda || break
		[ "$done" -ne 0 ] || break
	done
	echo "read $nth"
	rb list
	[ "$done" -eq 0 ] && [ $nth -gt 3 ] &&
	    io 0 xvda --rw read --ios 10 && detach xvda && nothing_left
}

is_connected() {
	rb list | grep "$1.*Connected *Connected"
}

calls() {
	new_image "$dir/a.img" 4m
	head -c 36 /dev/zero >"$dir/calls"
	# Not check: what it starts is to be our child.
	if sweep_start >"$dir/out" 2>&1; then
		ok "the nth xenstore call of a start"
	else
		bad "the nth xenstore call of a start" "$(cat "$dir/out")"
		kill -0 "$daemon" || start_preloaded
	fi
	scene "the nth xenstore call of a look" sweep_look
	if [ -n "$SOAK" ]; then
		xs=0 memory=0
	else
		xs=4 memory=3
	fi
	# EIO, ENOMEM: what xenstored and a full machine say.
	check_sweep "the nth xenstore call: EIO" 0 5 $xs
	[ -z "$SOAK" ] || check_sweep "the nth xenstore call: ENOSPC" 0 28 0
	check_sweep "the nth allocation of the supervisor" 1 12 $memory
	check_sweep "the nth allocation of the disk process" 2 12 0
}

machine_start
guest_start 7 || exit 1
storage
hang
hangs_at_flush
grants
check "the daemon is still the same" kill -0 "$daemon"
calls
check "the daemon is the same, still" kill -0 "$daemon"
check "guest 7 ends" guest 7 quit
summary
