#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_e2e: the daemon, the command and the script as they are installed, the
# real xenstored, and a guest that is as strict as Linux; only Xen is played.
#
# loopfront knows what every sector must contain; here the image is compared
# with that as well, from outside.
#
# PARTS="matrix figures": only those.
set -u
. tests/machine.sh

perf_ok() {
	perf stat -e raw_syscalls:sys_enter true >/dev/null 2>&1
}

# ---- what must not be left ---------------------------------------------------

# leftovers N: whatever is still there of disks of guest N
leftovers() {
	xenstore-ls -f / | grep -E '/backend/[a-z0-9]+/[0-9]+/|/device/vbd/'
	find "$dir/run" -mindepth 1 ! -name control ! -name lock
	disk_processes
	guest "$1" counters | grep -v '"mapped_now": 0, "bound_now": 0, "grants": 0}'
	grep -iE 'sanitizer|runtime error' "$dir/ringbackd.log"
}

no_disk_process() {
	! disk_processes
}

nothing_left() {
	if left=$(leftovers "$2") && [ -n "$left" ]; then
		bad "$1" "$left"
	else
		ok "$1"
	fi
}

# same_image NAME N VDEV FILE: dom0's view of the image against the guest's
same_image() {
	check "$1: the guest knows the image" guest "$2" image "$3" "$dir/want"
	check "$1: the image is what was written" cmp "$dir/want" "$4"
	rm -f "$dir/want"
}

# io_went_well FILE: the output of a job that ran in the background
io_went_well() {
	cat "$1"
	grep -q '^ring ' "$1" && ! grep -q '^loopfront:' "$1"
}

new_image() {
	rm -f "$1" && truncate -s "$2" "$1"
}

# ---- layouts, rings and sizes --------------------------------------------------

# Verified reads and writes in every size a guest may choose.
sizes() {
	for x in 512:4:300 4k:32:400 44k:8:100 64k:8:60 256k:4:30 1m:4:12 4m:2:6
	do
		bs=${x%%:*} depth=${x#*:}
		guest 7 io xvda --bs "$bs" --depth "${depth%:*}" \
		    --ios "${x##*:}" --rw randrw --mix 40 --verify --zeroed \
		    "$@" >"$dir/sizes.out" 2>&1 || {
			echo "bs $bs:"
			cat "$dir/sizes.out"
			return 1
		}
	done
}

# reconnected ABI ORDER [SEGMENTS]
reconnected() {
	guest 7 reopen xvda --abi "$1" --ring-order "$2" --check-padding \
	    --segments "${3-32}" &&
	    guest 7 list | grep "abi=$1 ring-order=$2 " |
	    grep -q "segments=${3-32} "
}

matrix() {
	new_image "$dir/a.img" 64m
	check "attach, connected" rb attach guest-7 xvda "raw:$dir/a.img"
	misalign=0
	for abi in native x86_64 x86_32; do
		for order in 0 1 2 3 4; do
			# None indirect, as many as Linux, as many as can be.
			segments=$(echo 11 32 256 | cut -d ' ' \
			    -f $((order % 3 + 1)))
			check "reconnect: $abi, ring order $order" \
			    reconnected $abi $order "$segments"
			misalign=$(((misalign + 3) % 8))
			check "512 to 4m verified: $abi, ring order $order" \
			    sizes --misalign $misalign
		done
	done
	check "reads of everything" guest 7 io xvda --rw read --bs 1m --verify
	same_image "sizes" 7 xvda "$dir/a.img"
	check "from state 1 to 4 at once, as firmware does" \
	    guest 7 reopen xvda --jump
	check "I/O after that" \
	    guest 7 io xvda --rw randrw --bs 16k --ios 100 --verify --depth 8
	check "flushes among writes" guest 7 io xvda --rw randwrite --bs 4k \
	    --depth 8 --ios 500 --flush-every 20 --verify
	rb --json stats guest-7 xvda >"$dir/stats"
	at_least "flushes answered" "$(number flushes "$dir/stats")" 24
	same_image "flushes" 7 xvda "$dir/a.img"
}

# ---- indirect requests ---------------------------------------------------------

exactly() {
	if [ "$2" = "$3" ]; then
		ok "$1: $2"
	else
		bad "$1: ${2:-nothing}, not $3"
	fi
}

# The number of host I/Os since the last call.
host_ios() {
	rb --json stats guest-7 xvda >"$dir/stats"
	new=$(number ios "$dir/stats")
	host_ios=$((new - ${all_ios-0}))
	all_ios=$new
}

# counted NAME REQUESTS IOS COPY_CALLS COPIED IO...: what I/O costs, exactly
counted() {
	what=$1 requests=$2 ios=$3 calls=$4 copied=$5
	shift 5
	host_ios
	guest 7 io xvda --bs 1m --verify --zeroed --spin --json "$@" \
	    >"$dir/json" || bad "$what" "$(cat "$dir/json")"
	host_ios
	exactly "$what: requests" "$(number requests "$dir/json")" "$requests"
	exactly "$what: host I/Os" "$host_ios" "$ios"
	exactly "$what: copy calls" "$(number copy_calls "$dir/json")" "$calls"
	exactly "$what: segments copied, descriptors as well" \
	    "$(number copy_segments "$dir/json")" "$copied"
}

# Sixteen I/Os of 1 MiB: one request each, or eight, or twenty-four.
large_requests() {
	check "indirect: $1: reconnect" reconnected "$1" 2 256
	counted "256 segments, $1, writes" 16 16 32 4112 --rw write --ios 16
	counted "256 segments, $1, reads" 16 16 32 4112 --rw read --ios 16
	# A round is 1 MiB at most.
	counted "256 segments, $1, four writes at a time" 16 16 32 4112 \
	    --rw write --ios 16 --depth 4 --batch 4
	# Not on whole pages: 257 segments, the last in a request of its own, for
	# which a round has no room.
	counted "256 segments, $1, not aligned" 32 32 48 4128 --rw write \
	    --ios 16 --misalign 3
	check "indirect: $1: verified" guest 7 io xvda --rw randrw --bs 1m \
	    --depth 6 --ios 60 --misalign 5 --verify --zeroed
	check "indirect: $1: sizes" sizes --misalign 1
	same_image "indirect: $1" 7 xvda "$dir/a.img"
	check "indirect: $1: reconnect as Linux" reconnected "$1" 1 32
	counted "32 segments, $1, writes" 128 16 32 4224 --rw write --ios 16
	check "indirect: $1: reconnect without" reconnected "$1" 3 11
	counted "11 segments, $1, writes" 384 16 16 4096 --rw write --ios 16
}

# small_memory MEMORY SEGMENTS: as many as it has pages, and no request hangs
small_memory() {
	guest 7 forget xvda
	check "memory=$1: attach" rb attach guest-7 xvda \
	    "raw,memory=$1:$dir/a.img"
	exactly "memory=$1: segments offered" "$(xenstore-read \
	    "$(be 7 51712)/feature-max-indirect-segments")" "$2"
	check "memory=$1: reconnect" reconnected x86_64 4 "$2"
	check "memory=$1: I/O" guest 7 io xvda --rw randrw --bs 1m --depth 8 \
	    --ios 40 --misalign 2 --verify --stall 10
	check "memory=$1: detach" rb detach guest-7 xvda
}

indirect() {
	new_image "$dir/a.img" 64m
	all_ios=0
	guest 7 forget xvda
	check "indirect: attach" rb attach guest-7 xvda \
	    "raw,merge=1M:$dir/a.img"
	exactly "indirect: segments offered" "$(xenstore-read \
	    "$(be 7 51712)/feature-max-indirect-segments")" 256
	for abi in x86_64 x86_32; do
		large_requests $abi
	done
	check "descriptors granted read-write, as Linux does" \
	    guest 7 reopen xvda --writable-grants
	check "indirect I/O after that" guest 7 io xvda --rw randrw --bs 256k \
	    --ios 50 --verify
	guest 7 reopen xvda
	check "an indirect read of one segment" \
	    guest 7 io xvda --op 6 --bs 4k --ios 3
	check "an indirect read across the end is ERROR" guest 7 io xvda \
	    --op 6 --offset 65535k --bs 4k --ios 1 --expect error
	check "an indirect read beyond the end is ERROR" guest 7 io xvda \
	    --op 6 --offset 1t --bs 4k --ios 1 --expect error
	exactly "the log tells what was asked for" "$(grep -c \
	    'refused: indirect operation 0, 1 segments' \
	    "$dir/ringbackd.log")" 2
	check "indirect: detach" rb detach guest-7 xvda
	small_memory 1M 256
	small_memory 64K 16
	guest 7 forget xvda
	check "segments=11: attach" rb attach guest-7 xvda \
	    "raw,segments=11:$dir/a.img"
	refuse "segments=11: nothing is offered" xenstore-exists \
	    "$(be 7 51712)/feature-max-indirect-segments"
	check "segments=11: an indirect read is EOPNOTSUPP" guest 7 io xvda \
	    --op 6 --bs 4k --ios 3 --expect unsupported
	check "segments=11: the guest does without" reconnected x86_32 0 11
	check "segments=11: detach" rb detach guest-7 xvda
	check "segments=11: the guest let go of it" guest 7 released xvda
	nothing_left "nothing is left of indirect requests" 7
}

# ---- what a guest may not do ---------------------------------------------------

# Does the backend offer it?  What it does not offer it must not do.
offered() {
	[ -n "$1" ] &&
	    [ "$(xenstore-read "$(be 7 51712)/$1" 2>/dev/null)" != "" ] &&
	    [ "$(xenstore-read "$(be 7 51712)/$1")" != 0 ]
}

# What not every backend does, if this one says that it does.
extras() {
	! offered feature-barrier || check "a barrier with data" \
	    guest 7 io xvda --op 2 --bs 8k --ios 20
	offered feature-discard || return
	for abi in x86_64 x86_32; do
		guest 7 forget xvda
		check "discards: $abi: reconnect" reconnected $abi 1
		check "discards: $abi: writes" guest 7 io xvda --rw write \
		    --bs 64k --size 8m --verify
		check "discards: $abi: discards" guest 7 io xvda \
		    --rw randtrim --bs 64k --size 8m --depth 8 --verify
		check "discards: $abi: reads" guest 7 io xvda --rw read \
		    --bs 64k --size 8m --verify
		check "discards: $abi: writes, again" guest 7 io xvda \
		    --rw randrw --bs 16k --depth 8 --size 8m --verify
	done
	check "a discard across the end is ERROR" guest 7 io xvda --rw trim \
	    --op 5 --offset 65535k --bs 1m --ios 1 --expect error
}

refusals() {
	for x in 2:feature-barrier 4: 5:feature-discard \
	    6:feature-max-indirect-segments 127:; do
		offered "${x#*:}" || check "operation ${x%:*} is EOPNOTSUPP" \
		    guest 7 io xvda --op "${x%:*}" --bs 4k --ios 3 \
		    --expect unsupported
	done
	check "a read of nothing is ERROR" \
	    guest 7 io xvda --op 0 --bs 0 --ios 1 --expect error
	check "a read across the end is ERROR" guest 7 io xvda --op 0 \
	    --offset 65535k --bs 4k --ios 1 --expect error
	check "a write beyond the end is ERROR" guest 7 io xvda --op 1 \
	    --offset 1t --bs 4k --ios 1 --expect error
	check "a read as far away as can be is ERROR" guest 7 io xvda --op 0 \
	    --offset 0xfffffffffffffe00 --bs 4k --ios 1 --expect error
	extras
	check "and the ring lives" guest 7 io xvda --rw read --ios 10
	check "detach" rb detach guest-7 xvda
	check "the guest let go of it" guest 7 released xvda
	nothing_left "nothing is left of it" 7

	cp "$dir/a.img" "$dir/before"
	check "attach --readonly" \
	    rb attach guest-7 xvda "raw:$dir/a.img" --readonly
	check "the guest is told so" \
	    sh -c "'$O/loopfront' to '$dir/guest-7.sock' list |
	    grep 'disk=xvda .*readonly=1'"
	check "a write is ERROR" \
	    guest 7 io xvda --rw write --bs 4k --ios 5 --expect error
	check "a read is fine" guest 7 io xvda --rw read --bs 64k --ios 50
	check "the image is unchanged" cmp "$dir/a.img" "$dir/before"
	check "detach it" rb detach guest-7 xvda

	refuse "attach what is not there" \
	    rb attach guest-7 xvda "raw:$dir/none.img"
	refuse "attach to nobody" rb attach guest-9 xvda "raw:$dir/a.img"
	nothing_left "nothing is left of those" 7
}

# ---- disks that go away, or fail -------------------------------------------------

# A job that ends because the disk is taken away says so, and nothing else.
detach_in_use() {
	new_image "$dir/b.img" 64m
	check "attach" rb attach guest-7 xvdb "raw:$dir/b.img"
	guest 7 io xvdb --rw randrw --bs 4k --depth 32 --verify --zeroed \
	    --time 30 >"$dir/job" 2>&1 &
	job=$!
	sleep 1
	check "detach under load" rb detach guest-7 xvdb
	wait $job
	check "the guest's I/O ends there" \
	    grep 'the backend closed the disk' "$dir/job"
	check "the guest let go" guest 7 released xvdb
	nothing_left "nothing is left of it" 7
	check "attach it again" rb attach guest-7 xvdb "raw:$dir/b.img"
	check "what was acknowledged is there" \
	    guest 7 io xvdb --rw read --bs 256k --verify
	check "detach it" rb detach guest-7 xvdb
}

# The disk process is the guest's disk; the supervisor is not.
daemon_restarts() {
	guest 7 forget xvdb
	check "attach before a restart" rb attach guest-7 xvdb \
	    "raw:$dir/b.img"
	guest 7 io xvdb --rw randrw --bs 4k --depth 32 --verify --time 2 \
	    >"$dir/job" 2>&1 &
	job=$!
	sleep 0.5
	kill "$daemon"
	wait "$daemon"
	sleep 0.3
	daemon_start || exit 1
	check "it finds the disk" sh -c \
	    "'$O/ringback' --run-dir '$dir/run' list | grep 'xvdb.*Connected'"
	wait $job
	check "the guest has not noticed" io_went_well "$dir/job"
	check "detach it" rb detach guest-7 xvdb
	nothing_left "nothing is left of it" 7
}

# The guest sees a pause (tests/test_recovery.sh goes on from here).
disk_process_dies() {
	guest 7 forget xvdb
	check "attach before a death" rb attach guest-7 xvdb "raw:$dir/b.img"
	guest 7 io xvdb --rw randrw --bs 4k --depth 32 --time 3 --verify \
	    >"$dir/job" 2>&1 &
	job=$!
	sleep 0.5
	victim=$(disk_processes | sed 's/ .*//')
	kill -KILL "$victim"
	wait $job
	check "I/O across a death went well" io_went_well "$dir/job"
	check "another process serves the disk" sh -c \
	    "'$O/ringback' --run-dir '$dir/run' list | grep Connected |
	    grep -v '[^0-9]$victim '"
	check "detach it" rb detach guest-7 xvdb
	check "the guest let go" guest 7 released xvdb
	nothing_left "nothing is left of it" 7
}

guest_dies() {
	guest_start 8 || exit 1
	check "attach to a guest that dies" rb attach guest-8 xvda \
	    "raw:$dir/b.img"
	guest 8 io xvda --rw randrw --bs 4k --depth 32 --time 10 \
	    >/dev/null 2>&1 &
	job=$!
	sleep 0.5
	guest 8 crash
	wait $job
	check "its disk process ends" wait_until 5 no_disk_process
	xenstore-rm /local/domain/8
	wait_until 5 no_nodes 8
	nothing_left "nothing is left of it" 7
}

no_nodes() {
	! xenstore-ls -f / | grep -E "/backend/[a-z0-9]+/$1/"
}

failed_ios() {
	guest 7 io xvdb --rw write --bs 4k --ios 40 --verify --json "$@" \
	    >"$dir/json" 2>/dev/null
	[ "$(number failed_ios "$dir/json")" = 1 ]
}

storage_fails() {
	new_image "$dir/c.img" 16m
	guest 7 forget xvdb
	check "attach an image whose 5th write fails" rb attach guest-7 xvdb \
	    "fault:nth=5,op=write:raw:$dir/c.img"
	check "one write is ERROR" failed_ios
	check "the others are there" \
	    guest 7 io xvdb --rw read --bs 4k --verify --ios 40
	check "detach it" rb detach guest-7 xvdb
	guest 7 forget xvdb
	check "attach an image whose first flush fails" rb attach guest-7 \
	    xvdb "fault:nth=1,op=flush:raw:$dir/c.img"
	check "a write is fine" guest 7 io xvdb --rw write --ios 1
	check "the flush is ERROR" \
	    guest 7 io xvdb --op 3 --bs 0 --ios 1 --expect error
	check "from then on writes are ERROR" \
	    guest 7 io xvdb --rw write --ios 3 --expect error
	check "and flushes" \
	    guest 7 io xvdb --op 3 --bs 0 --ios 2 --expect error
	check "detach it" rb detach guest-7 xvdb
	nothing_left "nothing is left of them" 7
}

# Two guests, three disks, all at once.
side_by_side() {
	guest 7 forget xvdb
	guest_start 8 --abi x86_32 --ring-order 3 || exit 1
	jobs=
	for x in 7:xvda 7:xvdb 8:xvda; do
		n=${x%:*} vdev=${x#*:}
		new_image "$dir/$n-$vdev.img" 32m
		check "attach $x" rb attach "guest-$n" "$vdev" \
		    "raw:$dir/$n-$vdev.img"
		guest "$n" forget "$vdev"
		guest "$n" io "$vdev" --rw randrw --bs 8k --depth 16 \
		    --time 2 --verify --zeroed >"$dir/job-$x" 2>&1 &
		jobs="$jobs $x:$!"
	done
	for x in $jobs; do
		wait "${x##*:}"
		check "I/O beside others: ${x%:*}" io_went_well \
		    "$dir/job-${x%:*}"
	done
	for x in 7:xvda 7:xvdb 8:xvda; do
		n=${x%:*} vdev=${x#*:}
		same_image "beside others: $x" "$n" "$vdev" \
		    "$dir/$n-$vdev.img"
		check "detach $x" rb detach "guest-$n" "$vdev"
	done
	nothing_left "nothing is left of guest 8's" 8
	check "guest 8 ends" guest 8 quit
}


# ---- as xl does it -----------------------------------------------------------------

# as_xl_of KIND
as_xl_of() {
	XL_KIND=$1 how="xl, $1"
	new_image "$dir/d.img" 32m
	guest 7 forget xvda
	check "$how: InitWait, and the script says yes" \
	    xl_attach 7 51712 "raw:$dir/d.img"
	check "$how: hotplug-status is connected" sh -c \
	    "[ \$(xenstore-read $(be 7 51712 $1)/hotplug-status) = connected ]"
	check "$how: the guest connects" guest 7 wait xvda
	check "$how: I/O" guest 7 io xvda --rw randrw --bs 32k --depth 8 \
	    --ios 300 --verify --zeroed
	same_image "$how" 7 xvda "$dir/d.img"
	check "$how: the guest reconnects" guest 7 reopen xvda --abi x86_32 \
	    --ring-order 1
	check "$how: I/O after that" guest 7 io xvda --rw randrw --ios 300 --verify
	check "$how: detach" xl_detach 7 51712
	check "$how: the guest let go" guest 7 released xvda
	nothing_left "$how: nothing is left" 7
	refuse "$how: the script says no to a missing image" \
	    xl_attach 7 51712 "raw:$dir/none.img"
	check "$how: hotplug-error says why" sh -c \
	    "xenstore-read $(be 7 51712 $1)/hotplug-error | grep none.img"
	xl_script remove 7 51712
	xl_remove 7 51712
	XL_KIND=vbd
	# The daemon has to hear of it first.
	wait_until 5 no_disk_process
	nothing_left "$how: nothing is left of that" 7
}

# backendtype=phy, and backendtype=tap
as_xl() {
	xl_prepare
	as_xl_of vbd
	as_xl_of vbd3
}

# ---- what a request costs ------------------------------------------------------------

# count_calls PID CMD ...: CMD's output to $dir/json; prints the system calls
# that the process made meanwhile.  77: nothing here can count them.
count_calls() {
	pid=$1
	shift
	if perf_ok; then
		perf stat -x , -o "$dir/perf" -e raw_syscalls:sys_enter \
		    -p "$pid" -- "$@" >"$dir/json" || return 1
		sed -n 's/^\([0-9]*\),.*sys_enter.*/\1/p' "$dir/perf"
	elif command -v strace >/dev/null; then
		strace -c -f -o "$dir/strace" -p "$pid" &
		tracer=$!
		sleep 0.5
		"$@" >"$dir/json" || return 1
		kill -INT $tracer
		wait $tracer
		awk '$NF == "total" { print $3 + 0 ? $3 : $4 }' "$dir/strace"
	else
		return 77
	fi
}

# costs NAME SPEC.  On loopxen, a copy and an unmask are no system calls, but
# everything else is: to what is seen, those two are added.
costs() {
	what=$1
	check "$what: attach" rb attach guest-7 xvdc "$2"
	pid=$(rb --json list | grep -o '"pid": *[0-9]*' | grep -o '[0-9]*')
	set -- "$O/loopfront" to "$dir/guest-7.sock" io xvdc \
	    --rw randread --bs 4k --depth 32 --batch 32 --spin --json
	"$@" --ios 3200 >/dev/null 2>&1	# first touch of everything
	real=$(count_calls "$pid" "$@" --ios 64000)
	if [ $? -eq 77 ]; then
		say "skip $what: system calls: neither perf nor strace is here"
		"$@" --ios 64000 >"$dir/json"
	else
		silent=$(number silent_calls "$dir/json")
		requests=$(number requests "$dir/json")
		at_most "$what: system calls per request" "$(awk "BEGIN {
		    print (${real:-1e9} + ${silent:-1e9}) / ${requests:-1}
		    }")" 0.12
	fi
	grep per_request "$dir/json" >"$dir/per"
	at_most "$what: copy calls per request" \
	    "$(number copy_calls "$dir/per")" 0.06
	at_most "$what: notifications per request" \
	    "$(number notifies "$dir/per")" 0.06
	check "$what: detach" rb detach guest-7 xvdc
}

merging() {
	check "merging: attach" rb attach guest-7 xvdc "$1"
	check "merging: sequential writes" guest 7 io xvdc --rw write --bs 4k \
	    --depth 32 --batch 32 --spin --ios 32000
	rb --json stats guest-7 xvdc >"$dir/stats"
	answered=$(number reqs-answered "$dir/stats")
	ios=$(number ios "$dir/stats")
	at_least "merging: requests per host I/O" \
	    "$(awk "BEGIN { print ${answered:-0} / ${ios:-1} }")" 24
	check "merging: detach" rb detach guest-7 xvdc
}

figures() {
	shm=$(mktemp -d /dev/shm/ringback.XXXXXX) || shm=$dir
	chmod 755 "$shm"
	truncate -s 256m "$shm/e.img"
	costs "null" "null,poll=100000:1G"
	costs "raw on tmpfs" "raw,poll=100000:$shm/e.img"
	merging "raw,poll=100000:$shm/e.img"
	[ "$shm" = "$dir" ] || rm -rf "$shm"
	nothing_left "nothing is left after measuring" 7
}

# A guest that comes, works, reconnects as others would, and goes.
short_life() {
	"$O/loopfront" run --domid 9 --name brief --vdev xvda --reconnect 14 \
	    --vary --rw randrw --bs 100k --depth 8 --ios 60 --verify --zeroed \
	    --check-padding >"$dir/job" 2>&1 &
	job=$!
	new_image "$dir/f.img" 16m
	wait_until 5 xenstore-exists /local/domain/9/name
	check "attach to a guest for one job" rb attach brief xvda \
	    "raw:$dir/f.img"
	if wait $job; then
		ok "15 connections, 3 layouts, 5 ring orders, 3 sizes"
	else
		bad "15 connections" "$(cat "$dir/job")"
	fi
	wait_until 5 no_disk_process
	wait_until 5 no_nodes 9
	nothing_left "it took its disk with it" 7
}

# With on-error=stop-enospc the guest waits until there is room again.
space_runs_out() {
	mkdir "$dir/small"
	if ! mount -t tmpfs -o size=4m tmpfs "$dir/small" 2>/dev/null; then
		echo "skip a full file system: nothing can be mounted here"
		return
	fi
	new_image "$dir/small/a.img" 16m
	check "attach a disk that will not fit" rb attach guest-7 xvdb \
	    "raw,on-error=stop-enospc:$dir/small/a.img"
	guest 7 io xvdb --rw write --bs 64k --depth 8 --verify >"$dir/job" 2>&1 &
	job=$!
	check "list says that it waits" wait_until 10 sh -c \
	    "'$O/ringback' --run-dir '$dir/run' list | grep 'No space left'"
	check "resume while there is no room" rb resume guest-7 xvdb
	check "it waits again" wait_until 10 sh -c \
	    "'$O/ringback' --run-dir '$dir/run' list | grep 'No space left'"
	mount -o remount,size=32m "$dir/small"
	check "resume when there is" rb resume guest-7 xvdb
	wait $job
	check "no I/O failed" io_went_well "$dir/job"
	same_image "after a full file system" 7 xvdb "$dir/small/a.img"
	check "nothing is left to resume" sh -c \
	    "! '$O/ringback' --run-dir '$dir/run' resume guest-7 xvdb"
	check "detach it" rb detach guest-7 xvdb
	check "the guest let go" guest 7 released xvdb
	umount "$dir/small"
	nothing_left "nothing is left of it" 7
}

# ---- persistent grants -----------------------------------------------------------

# persist SPEC [OPTIONS]: attach it to a guest that connects like that
persist() {
	spec=$1
	shift
	! guest 7 list | grep -q disk=xvdd || guest 7 forget xvdd
	guest 7 set "$@" --check-padding &&
	    rb attach guest-7 xvdd "$spec"
}

# guest_says TEXT: of the disk, in its list
guest_says() {
	guest 7 list | grep "disk=xvdd .*$1"
}

# amount WHAT KEY NUMBER: of the last job
amount() {
	is=$(number "$2" "$dir/json")
	if [ "$is" = "$3" ]; then
		ok "$1: $2 $is"
	else
		bad "$1: $2 ${is:-nothing}, not $3" "$(cat "$dir/json")"
	fi
}

# job NAME OPTIONS: verified I/O, its result in $dir/json
job() {
	what=$1
	shift
	check "$what" sh -c '"$0" to "$@" --verify --zeroed --json >"$json"' \
	    "$O/loopfront" "$dir/guest-7.sock" io xvdd "$@"
}

# Everything is mapped once.  As many pages as can be in flight are in use from
# the first moment on, so that the second round finds them all.
mapped_once() {
	mode=$1 pages=$2
	shift 2
	job "$mode: warm up" --rw randrw --mix 40 "$@"
	amount "$mode: warm up" maps "$pages"
	job "$mode: I/O" --rw randrw --mix 60 "$@"
	for counter in maps mapped_pages unmaps copy_calls copy_errors; do
		amount "$mode" $counter 0
	done
}

# mappings NAME MAPPED UNMAPPED COPIED: what the disk's statistics say
mappings() {
	rb --json stats guest-7 xvdd >"$dir/stats"
	exactly "$1: pages mapped since the attach" \
	    "$(number map-calls "$dir/stats")" "$2"
	exactly "$1: unmapped" "$(number unmap-calls "$dir/stats")" "$3"
	exactly "$1: segments copied" \
	    "$(number copy-segments "$dir/stats")" "$4"
}

# Agreed by one side only: every segment is copied, none is mapped.
copied() {
	mode=$1
	job "$mode: I/O" --rw randrw --bs 4k --depth 8 --ios 200
	amount "$mode" copy_segments 200
	amount "$mode" maps 0
	mappings "$mode" 0 0 200
	check "$mode: detach" rb detach guest-7 xvdd
	nothing_left "$mode: nothing is left" 7
}

persistent() {
	json=$dir/json
	export json
	# Where to remove what was written costs nothing.
	shm=$(mktemp -d /dev/shm/ringback.XXXXXX) || shm=$dir
	chmod 755 "$shm"
	for x in raw,cache=writeback:x86_64 raw,grants=persistent:x86_32 \
	    qcow2,grants=auto,cache=writeback:x86_64 \
	    qcow2,grants=persistent:x86_32; do
		spec=${x%:*} abi=${x#*:} driver=${x%%[,:]*}
		p="$spec, $abi, persistent"
		rm -f "$shm/p.img"
		check "$p: create" qemu-img create -q -f "$driver" \
		    "$shm/p.img" 32M
		check "$p: attach" persist "$spec:$shm/p.img" \
		    --persistent --abi "$abi" --ring-order 1
		check "$p: both sides say so" guest_says "persistent=1"
		mapped_once "$p, direct" 32 --bs 4k --depth 32 --ios 600
		mapped_once "$p, indirect" $((4 * 33 - 32)) --bs 128k --depth 4 \
		    --ios 80
		mappings "$p" $((4 * 33)) 0 0
		job "$p: every kind" --rw randrw --bs 44k --depth 16 \
		    --ios 150 --misalign 3
		check "$p: everything reads back" guest 7 io xvdd --rw read \
		    --bs 1m --depth 2 --verify --zeroed
		[ "$driver" != raw ] || same_image "$p" 7 xvdd "$shm/p.img"
		check "$p: detach" rb detach guest-7 xvdd
		check "$p: the guest let go" guest 7 released xvdd
		nothing_left "$p: no grant is left mapped" 7
	done
	new_image "$shm/p.img" 16m
	check "a guest without persistent grants: attach" \
	    persist "raw,grants=persistent:$shm/p.img" --persistent=off
	copied "a guest without persistent grants"
	for option in grants=copy cache=none cache=writeback,memory=4m; do
		new_image "$shm/p.img" 16m
		check "$option: attach" \
		    persist "raw,$option:$shm/p.img" --persistent
		check "$option: agreed" guest_says "persistent=0"
		copied "$option"
	done
	few_mappings
	[ "$shm" = "$dir" ] || rm -rf "$shm"
	guest 7 set --persistent=off --abi native --ring-order 0
}

# Fewer pages than the guest uses: of 2000 that are asked for, 16 are mapped,
# and as many again in every second.
few_mappings() {
	new_image "$shm/p.img" 16m
	check "16 mappings: attach" persist \
	    "raw,memory=64k,segments=16,grants=persistent:$shm/p.img" \
	    --persistent --ring-order 1
	job "16 mappings: I/O" --rw randrw --bs 20k --depth 16 --ios 200
	job "16 mappings: indirect" --rw randrw --bs 64k --depth 4 --ios 60
	guest 7 counters >"$dir/counters"
	at_most "16 mappings, and the ring's" \
	    "$(number mapped_now "$dir/counters")" 18
	rb --json stats guest-7 xvdd >"$dir/stats"
	at_most "16 mappings: maps" "$(number map-calls "$dir/stats")" 200
	at_least "16 mappings: segments copied" \
	    "$(number copy-segments "$dir/stats")" 500
	same_image "16 mappings" 7 xvdd "$shm/p.img"
	check "16 mappings: detach" rb detach guest-7 xvdd
	nothing_left "16 mappings: nothing is left" 7
}

machine_start
guest_start 7 || exit 1

# PARTS="indirect ...": only those.
for part in ${PARTS-matrix refusals indirect persistent detach_in_use
    daemon_restarts disk_process_dies
    guest_dies short_life storage_fails space_runs_out side_by_side as_xl
    figures}; do
	if ! guest 7 list >/dev/null || ! kill -0 "$daemon"; then
		bad "$part: guest 7 or ringbackd is dead"
		break
	fi
	$part
done
check "the daemon is still the same" kill -0 "$daemon"
check "guest 7 ends" guest 7 quit
summary
