#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_queues: disks with several queues, from the guest to the image and back.
# The guest has a thread for each queue, as Linux has a processor; what it
# verifies, neighbouring queues have written side by side.
#
# PARTS="qcow2; raw_kills 9": only those.
# SOAK=1: deaths and reconnects, for SOAK_SECONDS (600).
set -u
. tests/machine.sh

if [ "$(id -u)" -ne 0 ]; then
	say "skip queues: it needs root"
	exit 77
fi
daemon_options="--verbose --max-deaths 0"
seed=0

# ---- helpers ---------------------------------------------------------------------

# leftovers: whatever is still there of disks of guest 7
leftovers() {
	xenstore-ls -f / | grep -E '/backend/[a-z0-9]+/[0-9]+/|/device/vbd/'
	find "$dir/run" -mindepth 1 ! -name control ! -name lock
	disk_processes
	guest 7 counters |
	    grep -v '"mapped_now": 0, "bound_now": 0, "grants": 0}'
	grep -iE 'sanitizer|runtime error' "$dir/ringbackd.log"
}

no_leftovers() {
	[ -z "$(leftovers)" ]
}

pid_of() {
	disk_processes | sed 's/ .*//'
}

exactly() {
	if [ "$2" = "$3" ]; then
		ok "$1: $2"
	else
		bad "$1: ${2:-nothing}, not $3"
	fi
}

# An image of which the guest knows nothing: raw, or qcow2 with those options.
new_image() {
	rm -f "$dir/a.img"
	if [ "$1" = raw ]; then
		truncate -s 24m "$dir/a.img"
	else
		qemu-img create -q -f qcow2 -o "$2" "$dir/a.img" 24m
	fi
}

# connect NAME QUEUES SPEC OPTIONS: a guest that connects like that, and has as
# many queues
connect() {
	what=$1 queues=$2 spec=$3
	shift 3
	guest 7 forget xvda 2>/dev/null
	# A death leaves its holds to Xen, which frees them a moment later.
	guest 7 set --check-padding --grace 2 "$@"
	check "$what: attach" rb attach guest-7 xvda "$spec:$dir/a.img"
	check "$what: $queues queues" has_queues "$queues"
}

has_queues() {
	guest 7 list | grep "disk=xvda .* queues=$1 "
}

disconnect() {
	check "$1: detach" rb detach guest-7 xvda
	check "$1: the guest let go" guest 7 released xvda
	wait_until 3 no_leftovers || bad "$1: nothing is left" "$(leftovers)"
}

# io NAME OPTIONS: verified, at other places each time
io() {
	name_of_io=$1 seed=$((seed + 1))
	shift
	check "$name_of_io" guest 7 io xvda --verify --zeroed --seed $seed \
	    --stall 20 "$@"
}

# What the guest knows is what the image holds, in the eyes of others.
same() {
	io "$1: everything reads back" --rw read --bs 256k --depth 8
	check "$1: the guest knows the image" guest 7 image xvda "$dir/want"
	disconnect "$1"
	case $2 in
	raw)	check "$1: the image is what was written" \
		    cmp "$dir/want" "$dir/a.img" ;;
	*)	check "$1: qemu-img finds no fault" faultless "$2"
		check "$1: qemu-img finds what was written" qemu-img compare \
		    -f raw -F qcow2 "$dir/want" "$dir/a.img" ;;
	esac
}

# faultless qcow2|leaks: clusters may leak only where a process was killed
faultless() {
	qemu-img check -f qcow2 "$dir/a.img"
	status=$?
	[ $status -eq 0 ] || { [ $status -eq 3 ] && [ "$1" = leaks ]; }
}

# ---- I/O ---------------------------------------------------------------------------

# Every kind of I/O, on all queues at once.
kinds() {
	io "$1: 4k" --rw randrw --bs 4k --depth 64 --ios 4000 --flush-every 100
	io "$1: 512 bytes" --rw randrw --bs 512 --depth 16 --ios 1000
	io "$1: 44k, not aligned" --rw randrw --bs 44k --depth 16 --ios 300 \
	    --misalign 3
	io "$1: 1m" --rw randrw --bs 1m --depth 8 --ios 60 --misalign 1
	io "$1: flushes from another queue" --rw randwrite --bs 8k --depth 32 \
	    --ios 1500 --flush-every 20 --flush-elsewhere
	io "$1: discards" --rw randtrim --bs 64k --depth 16 --ios 200
	# What was discarded may be old or zeros: make it certain.
	io "$1: writes" --rw write --bs 64k --depth 32
}

verified() {
	for threads in 4 1 3; do
		new_image raw
		connect "4 queues, $threads threads" 4 \
		    "raw,iothreads=$threads,queues=4" --queues 4 \
		    --ring-order $((threads - 1)) --abi x86_64
		kinds "4 queues, $threads threads"
		same "4 queues, $threads threads" raw
	done
	new_image raw
	connect "persistent" 4 "raw,iothreads=2,queues=4,grants=persistent" \
	    --queues 4 --ring-order 1 --abi x86_32 --segments 256 --persistent
	kinds "persistent"
	guest 7 counters >"$dir/counters"
	at_least "persistent: pages mapped" \
	    "$(number mapped_now "$dir/counters")" 64
	same "persistent" raw
	new_image raw
	connect "16 queues" 16 "raw,iothreads=16" --queues 16 --ring-order 4
	kinds "16 queues"
	same "16 queues" raw
}

# offered NAME OFFERED WANTED GOT NODE: and that many work
offered() {
	new_image raw
	connect "$1" "$4" "raw,queues=$2" --queues "$3"
	exactly "$1: offered" "$(xenstore-read \
	    "$(be 7 51712)/multi-queue-max-queues")" "$2"
	exactly "$1: the guest says" "$(xenstore-read \
	    "$(fe 7 51712)/multi-queue-num-queues" 2>/dev/null)" "$5"
	io "$1: I/O" --rw randrw --bs 4k --depth 32 --ios 500
	same "$1" raw
}

negotiated() {
	offered "3 queues for a guest that wants 16" 3 16 3 3
	offered "2 of 3 queues" 3 2 2 2
	offered "a guest that knows one queue" 4 1 1 ''
	new_image raw
	connect "one queue, by name" 1 "raw,queues=4" --queues 1 --name-queues
	check "one queue, by name: below queue-0" xenstore-exists \
	    "$(fe 7 51712)/queue-0/event-channel"
	refuse "one queue, by name: not at the top" xenstore-exists \
	    "$(fe 7 51712)/event-channel"
	io "one queue, by name: I/O" --rw randrw --ios 200 --depth 8
	# A boot loader's nodes at the top, and a kernel's below.
	guest 7 close xvda >/dev/null
	xenstore-write "$(fe 7 51712)/ring-ref" 4711 \
	    "$(fe 7 51712)/event-channel" 4712
	check "firmware, then a kernel: reconnect" guest 7 reopen xvda \
	    --queues 4
	check "firmware, then a kernel: 4 queues" has_queues 4
	io "firmware, then a kernel: I/O" --rw randrw --ios 500 --depth 32
	check "no hurry: from state 1 to 4 at once" guest 7 reopen xvda --jump
	io "no hurry: I/O" --rw randrw --ios 100 --depth 8
	same "one queue, by name" raw
}

# What was written through one queue and flushed through another is in the
# image for whoever opens it then.
flushed_elsewhere() {
	io "$1: writes of one queue" --queue 1 --rw randwrite --bs 8k \
	    --depth 16 --ios 300
	io "$1: a flush of another queue" --queue 3 --op 3 --bs 0 --ios 1
	cp "$dir/a.img" "$dir/flushed.img"
	check "$1: the guest knows the image" guest 7 image xvda "$dir/want"
	check "$1: it is all there" qemu-img compare -f raw -F qcow2 \
	    "$dir/want" "$dir/flushed.img"
}

qcow2() {
	for options in cluster_size=64k cluster_size=2k \
	    cluster_size=32k,extended_l2=on; do
		new_image qcow2 $options
		connect "qcow2, $options" 4 "qcow2,iothreads=4" --queues 4 \
		    --ring-order 2
		flushed_elsewhere "qcow2, $options"
		io "qcow2, $options: neighbours in a cluster" --rw randwrite \
		    --bs 512 --depth 32 --ios 2000 --flush-every 100
		kinds "qcow2, $options"
		same "qcow2, $options" qcow2
	done
}

# ---- a flush that fails ----------------------------------------------------------

# expect NAME RESULT QUEUE OPTIONS
expect() {
	expected="$1 on queue $3 is $2"
	result=$2 queue=$3
	shift 3
	check "$expected" guest 7 io xvda --queue "$queue" --expect "$result" \
	    "$@"
}

# On one queue: from then on nothing is written on any.
flush_fails() {
	new_image raw
	connect "a flush fails" 4 "fault,iothreads=$1,queues=4:nth=1,op=flush:raw" \
	    --queues 4
	for queue in 0 1 2 3; do
		expect "a write" okay $queue --rw write --ios 3
	done
	expect "the flush" error 2 --op 3 --bs 0 --ios 1
	for queue in 0 1 2 3; do
		expect "a write, after that," error $queue --rw write --ios 3
		expect "a flush, after that," error $queue --op 3 --bs 0 --ios 2
		expect "a barrier, after that," error $queue --op 2 --bs 4k \
		    --ios 1
		expect "a read, after that," okay $queue --rw read --ios 3
	done
	check "a flush fails: reconnect" guest 7 reopen xvda --queues 2
	expect "a write, after a reconnect," error 1 --rw write --ios 2
	kill -KILL "$(pid_of)"
	expect "a write, after a death," error 0 --rw write --ios 2
	disconnect "a flush fails"
}

# ---- a full file system ------------------------------------------------------------

# Writes of all queues wait until there is room, and then all of them go on.
space_runs_out() {
	mkdir -p "$dir/small"
	if ! mount -t tmpfs -o size=4m tmpfs "$dir/small" 2>/dev/null; then
		say "skip a full file system: nothing can be mounted here"
		return
	fi
	truncate -s 16m "$dir/small/a.img"
	ln -sf small/a.img "$dir/a.img"
	connect "no space, $1 threads" 4 \
	    "raw,iothreads=$1,queues=4,on-error=stop-enospc" --queues 4
	guest 7 io xvda --rw write --bs 64k --depth 16 --verify --zeroed \
	    >"$dir/io" 2>&1 &
	job=$!
	check "no space, $1 threads: list says that it waits" \
	    wait_until 10 list_says 'No space left'
	check "no space, $1 threads: what failed is held" \
	    wait_until 5 in_flight 4
	check "no space, $1 threads: resume in vain" rb resume guest-7 xvda
	check "no space, $1 threads: it waits again" \
	    wait_until 10 list_says 'No space left'
	mount -o remount,size=32m "$dir/small"
	check "no space, $1 threads: resume" rb resume guest-7 xvda
	io_went_well "no space, $1 threads: no I/O failed" $job
	same "no space, $1 threads" raw
	rm "$dir/a.img"
	umount "$dir/small" || bad "the file system is still used"
}

in_flight() {
	[ "$(stat_of in-flight)" -ge "$1" ]
}

# ---- deaths ------------------------------------------------------------------------

# io_went_well NAME JOB: one in the background, with its output in $dir/io
io_went_well() {
	wait "$2"
	status=$?
	check "$1" sh -c "cat '$dir/io'; tail -3 '$dir/ringbackd.log'
	    exit $status"
}

# io_while NAME JOB IO...: I/O, again and again, as long as the job runs
io_while() {
	loop_name=$1 job=$2 broken=''
	shift 2
	while kill -0 "$job" 2>/dev/null && [ -z "$broken" ]; do
		seed=$((seed + 1))
		guest 7 io xvda --stall 20 --time 0.4 --verify --zeroed \
		    --seed $seed "$@" >"$dir/io" 2>&1 || broken=1
	done
	if [ -n "$broken" ]; then
		bad "$loop_name: the guest sees no error" "$(cat "$dir/io"
		    rb list; tail -5 "$dir/ringbackd.log")"
	else
		ok "$loop_name: the guest sees no error"
	fi
	wait "$job"
	status=$?
	check "$loop_name: $(tr '\n' ' ' <"$dir/job")" [ $status -eq 0 ]
}

# kills NAME SECONDS IO...: SIGKILL at any time
kills() {
	kills_name=$1
	"$O/page_poke" - kill "$daemon" "$2" 1000 120000 \
	    "$(date +%s)" >"$dir/job" 2>&1 &
	shift 2
	io_while "$kills_name" $! "$@"
	n=$(sed 's/[^0-9].*//' "$dir/job")
	total=$((total + ${n:-0}))
}

raw_kills() {
	total=0
	for threads in 1 4; do
		new_image raw
		connect "kills, $threads threads" 4 \
		    "raw,iothreads=$threads,queues=4" --queues 4 \
		    --ring-order 2
		kills "kills, $threads threads, 4k" "$1" --rw randrw --bs 4k \
		    --depth 64 --flush-every 50
		kills "kills, $threads threads, 160k" "$1" --rw randrw \
		    --bs 160k --depth 12 --flush-elsewhere --flush-every 9
		same "kills, $threads threads" raw
	done
	# Completions come in another order than requests.
	new_image raw
	connect "kills, persistent, out of order" 4 \
	    "fault,iothreads=2,queues=4,grants=persistent:every=3,delay-ms=2:raw" \
	    --queues 4 --persistent --abi x86_32
	kills "kills, persistent, out of order" "$1" --rw randrw --bs 16k \
	    --depth 32 --flush-every 20
	same "kills, persistent, out of order" raw
	at_least "kills of raw disks" "$total" $((10 * $1))
}

qcow2_kills() {
	total=0
	for options in cluster_size=64k cluster_size=512; do
		new_image qcow2 $options
		connect "kills, $options" 4 "qcow2,iothreads=4" --queues 4 \
		    --ring-order 3
		kills "kills, $options" "$1" --rw randrw --mix 20 --bs 4k \
		    --depth 32
		same "kills, $options" leaks
	done
	at_least "kills of qcow2 disks" "$total" $((5 * $1))
}

# At each step of a request, of each queue; the others are anywhere.
step_kills() {
	new_image raw
	connect "a death at each step" 4 "raw,iothreads=2,queues=4" \
	    --queues 4 --ring-order 1
	for queue in 0 1 2 3; do
		plan=
		for step in copied taken consumed fetched submitted reaped \
		    written answered committed published notified freed; do
			plan="$plan $step:$((queue % 2))"
		done
		# shellcheck disable=SC2086 # a list
		"$O/page_poke" -q $queue "$dir/run/7-51712.page" die 20 $plan \
		    >"$dir/job" 2>&1 &
		io_while "a death at each step of queue $queue" $! --rw \
		    randrw --bs 16k --depth 32 --flush-every 9
	done
	same "a death at each step" raw
}

# in_background SECONDS OPTIONS
in_background() {
	seed=$((seed + 1)) seconds=$1
	shift
	guest 7 io xvda --rw randrw --bs 4k --depth 64 --flush-every 40 \
	    --verify --zeroed --seed $seed --stall 20 --time "$seconds" "$@" \
	    >"$dir/io" 2>&1 &
	job=$!
	sleep 0.3
}

list_says() {
	rb list | grep -q "$1"
}

# The disk process goes on while there is no supervisor, and is found again; and
# when both die, a successor goes on with all queues.
supervisor_dies() {
	new_image raw
	connect "no supervisor" 4 "raw,iothreads=2,queues=4" --queues 4 \
	    --ring-order 1
	before=$(pid_of) connects=$(stat_of connects)
	in_background 1.5
	kill -KILL "$daemon"
	wait "$daemon" 2>/dev/null
	sleep 0.2
	daemon_start || exit 1
	check "no supervisor: the next one finds the disk" \
	    wait_until 10 list_says Connected
	io_went_well "no supervisor: the guest sees no error" $job
	exactly "no supervisor: the same process" "$(pid_of)" "$before"
	check "no supervisor: still 4 queues" has_queues 4
	exactly "no supervisor: connections since" \
	    $(($(stat_of connects) - connects)) 0
	kill -KILL "$before"
	io "no supervisor: a successor of what was found" --rw randrw \
	    --depth 32 --ios 500
	in_background 1
	kill -KILL "$daemon" "$(pid_of)"
	wait "$daemon" 2>/dev/null
	daemon_start || exit 1
	io_went_well "both killed: the guest sees no error" $job
	same "both killed" raw
}

# ---- coming and going ---------------------------------------------------------------

detach_in_use() {
	new_image raw
	connect "detach in use" 4 "raw,iothreads=4" --queues 4
	in_background 30
	check "detach in use" rb detach guest-7 xvda
	wait $job
	check "detach in use: the guest's I/O ends there" \
	    grep 'the backend closed the disk' "$dir/io"
	check "detach in use: the guest let go" guest 7 released xvda
	wait_until 3 no_leftovers || bad "detach in use: nothing is left" \
	    "$(leftovers)"
	check "detach in use: attach it again" rb attach guest-7 xvda \
	    "raw:$dir/a.img"
	io "detach in use: what was acknowledged is there" --rw read --bs 256k
	disconnect "detach in use"
}

# The same disk for one guest after the other, and what each has written.
reconnects() {
	new_image raw
	connect "reconnects" 4 "raw,iothreads=3,queues=8" --queues 4
	for x in 1:native:0 8:x86_64:3 2:x86_32:4 5:native:1 1:x86_64:2 \
	    3:x86_32:0; do
		queues=${x%%:*} abi=${x#*:}
		check "reconnect with $queues queues" guest 7 reopen xvda \
		    --queues "$queues" --abi "${abi%:*}" \
		    --ring-order "${x##*:}" --check-padding --grace 0
		check "reconnect: $queues queues" has_queues "$queues"
		io "reconnect with $queues queues: I/O" --rw randrw --bs 8k \
		    --depth 40 --ios 800 --flush-every 30
	done
	same "reconnects" raw
	brief
}

# A guest for fifteen connections, each of another kind.
brief() {
	"$O/loopfront" run --domid 9 --name brief --vdev xvda --reconnect 14 \
	    --vary --queues 4 --rw randrw --bs 40k --depth 8 --ios 80 \
	    --verify --zeroed --check-padding >"$dir/io" 2>&1 &
	job=$!
	new_image raw
	wait_until 5 xenstore-exists /local/domain/9/name
	check "attach to a guest of 15 connections" rb attach brief xvda \
	    "raw,iothreads=2,queues=3:$dir/a.img"
	io_went_well "15 connections of 1 to 3 queues" $job
	wait_until 5 no_leftovers || bad "15 connections: nothing is left" \
	    "$(leftovers)"
}

# ---- figures ---------------------------------------------------------------------------

# stat_of NAME: of all queues
stat_of() {
	rb --json stats guest-7 xvda >"$dir/stats" && number "$1" "$dir/stats"
}

switches() {
	cat "/proc/$(pid_of)"/task/*/status |
	    awk '/ctxt_switches/ { n += $2 } END { print n }'
}

# What the guest has counted is what the disk has counted, and when nothing is
# to be done, nobody wakes up.
figures() {
	new_image raw
	connect "figures" 4 "raw,iothreads=$1,queues=4" --queues 4
	before=$(stat_of reqs-answered) reads=$(stat_of reads)
	check "figures: reads" guest 7 io xvda --rw randread --bs 4k \
	    --depth 16 --ios 4000 --json
	guest 7 io xvda --rw randread --bs 4k --depth 16 --ios 4000 --json \
	    >"$dir/json"
	exactly "figures: requests of all queues" \
	    "$(($(stat_of reqs-answered) - before))" 8000
	exactly "figures: reads of all queues" \
	    "$(($(stat_of reads) - reads))" 8000
	exactly "figures: as the guest has counted" \
	    "$(number requests "$dir/json")" 4000
	exactly "figures: in flight" "$(stat_of in-flight)" 0
	sleep 0.5
	sleeps=$(stat_of sleeps) before=$(switches)
	sleep 1.5
	exactly "idle, $1 threads: wakeups" \
	    "$(($(stat_of sleeps) - sleeps))" 0
	exactly "idle, $1 threads: context switches" \
	    "$(($(switches) - before))" 0
	# And each of them wakes up when it has to.
	for queue in 3 1 0 2; do
		check "idle, $1 threads: then queue $queue" guest 7 io xvda \
		    --queue $queue --rw read --ios 1 --stall 2
	done
	disconnect "figures"
}

machine_start
guest_start 7 || exit 1
if [ -n "${SOAK-}" ]; then
	end=$(($(date +%s) + ${SOAK_SECONDS:-600}))
	while [ "$(date +%s)" -lt $end ] && [ "$failed" -eq 0 ]; do
		raw_kills 10
		qcow2_kills 10
		step_kills
		verified
		qcow2
		reconnects
		detach_in_use
		supervisor_dies
	done
else
	eval "${PARTS-verified; negotiated; qcow2; flush_fails 4; flush_fails 1
	    space_runs_out 1; space_runs_out 4
	    raw_kills 1; qcow2_kills 1; step_kills; supervisor_dies
	    detach_in_use; reconnects; figures 4; figures 1}"
fi
check "the guest ends" guest 7 quit
summary
