#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_passages: every passage by which a disk comes and goes, under a toolstack
# that does what libxl does (tests/toolstack.c) and guests that do what Linux,
# firmware and others do.  xenstored keeps a record of every write, so that the
# walk of both states is told in full:  b5 f6 b6  is: the backend (or the
# toolstack in its directory) goes to Closing, the frontend to Closed, the
# backend to Closed; b- and f-: the directory is removed.
#
#	passage					where
#	create; hot attach			created, hot
#	detach, idle and under load		hot, under_load
#	a detach that the guest refuses		refused (its end: refused_end)
#	reboot, shutdown			rebooted
#	firmware, then a kernel; jump 1 -> 4	firmware
#	destroy under load			destroyed
#	the domain dies under load, or idle	crashed
#	pause and unpause			paused
#	save and restore			saved
#	migration, live and aborted		migrated, aborted
#	kexec					kexeced
#	state 3 twice				three_twice
#	never connects				never
#	never leaves 5				stuck
#	domain 0 as the guest (bootloader)	bootloader
#	attach and destroy at once		at_once
#	20 disks at a time			twenty
#	how fast, how many, how large		figures
#
# Elsewhere: a frontend that shows another ring, junk, a lock that is waited for,
# drains that hang (test_supervisor.c); every pair of states (test_device.c);
# the first attach of a file that is not there, by hand or by xl (test_e2e.sh);
# deaths of our own processes (test_recovery.sh, test_redo.c).
#
# PARTS="created hot": only those.  DISKS=200: for the figures of so many.
# shellcheck disable=SC2030,SC2031 # there() has a folder of its own
set -u
. tests/machine.sh

if [ "$(id -u)" -ne 0 ]; then
	say "skip passages: it needs root"
	exit 77
fi
slow=1
if nm "$O/ringbackd" 2>/dev/null | grep -qE '__(asan|tsan)_init'; then
	slow=8
fi

# ---- two hosts -------------------------------------------------------------------

# there CMD ...: on the second host, which has a Xen, a xenstored and a ringbackd
# of its own, and the disks in common
there() (
	dir=$dir/b
	eval "$(tests/loopxen/loopxen env "$dir")"
	BLOCK_SCRIPT=$dir/bin/block-ringback
	export BLOCK_SCRIPT
	"$@"
)

second_start() {
	mkdir -m 755 "$dir/b"
	tests/loopxen/loopxen start "$dir/b" || exit 1
	mkdir -m 700 "$dir/b/run"
	there xl_prepare
	chmod +x "$dir/b/bin/block-ringback"
	there "$O/ringbackd" --run-dir "$dir/b/run" \
	    --verbose >>"$dir/b/ringbackd.log" 2>&1 &
	wait_until 10 there rb list || exit 1
	second=$(cat "$dir/b/run/lock")
}

second=
stop_both() {
	trap - EXIT
	for s in "$dir"/guest-*.pid "$dir"/b/guest-*.pid; do
		[ ! -e "$s" ] || kill -CONT "$(cat "$s")" 2>/dev/null
	done
	if [ -n "$second" ]; then
		kill "$second"
		wait_until 5 sh -c "! kill -0 $second"
		(daemon='' && there machine_stop)
	fi
	machine_stop
}

# ---- guests ----------------------------------------------------------------------

# born N [OPTIONS]
born() {
	n=$1
	shift
	"$O/loopfront" domain --domid "$n" --name "guest-$n" --background \
	    --socket "$dir/guest-$n.sock" --check-padding "$@" \
	    >"$dir/guest-$n.pid" || exit 1
}

pause() {
	kill -STOP "$(cat "$dir/guest-$1.pid")"
}

unpause() {
	kill -CONT "$(cat "$dir/guest-$1.pid")"
}

# At an end that is no shutdown; what Xen forgets, xl forgets too.
die() {
	unpause "$1"
	guest "$1" crash >/dev/null
	rm -f "$dir/guest-$1.pid"
}

# ended N: in order; what it has left is xl's to take away
ended() {
	check "guest $1 ends" guest "$1" quit
	rm -f "$dir/guest-$1.pid"
	! xenstore-exists "/libxl/$1" ||
		check "guest $1's disks are destroyed" "$O/toolstack" destroy "$1"
	forgotten "$1"
}

forgotten() {
	xenstore-rm "/local/domain/$1" 2>/dev/null
	xenstore-rm "/libxl/$1" 2>/dev/null
	return 0
}

# ---- the toolstack ---------------------------------------------------------------

# xl SECONDS NAME COMMAND ...: and it must not take longer
xl() {
	most=$(($1 * slow)) xl_name=$2
	shift 2
	began=$(date +%s%N)
	check "$xl_name" "$O/toolstack" "$@"
	took=$((($(date +%s%N) - began) / 1000000))
	[ $took -le $((most * 1000)) ] ||
		bad "$xl_name: took $took ms, not $most s"
}

new_image() {
	rm -f "$1" && truncate -s "$2" "$1"
}

# ---- the record --------------------------------------------------------------------

# From here on.
mark() {
	marked=$(stat -c %s "$dir/trace")
}

# committed: writes and removals since the mark, in the order in which they took
# effect, without those of transactions that had to be tried again
committed() {
	tail -c +$((marked + 1)) "$dir/trace" | awk '
	function op(c, what) {
		if (c in open)
			held[c, n[c]++] = what
		else
			print what
	}
	{ c = $2; what = $5; path = substr($6, 2) }
	$1 == "IN" && (what == "WRITE" || what == "RM") {
		value = $7
		sub(/\)$/, "", value)
		last[c] = what == "RM" ? "- " path : value " " path
	}
	$1 == "OUT" && (what == "WRITE" || what == "RM") && (c in last) {
		op(c, last[c])
	}
	$1 == "IN" && what == "TRANSACTION_END" { keep[c] = path ~ /^T/ }
	$1 == "OUT" && what == "TRANSACTION_START" { open[c]; n[c] = 0 }
	$1 == "OUT" && what == "TRANSACTION_END" {
		for (i = 0; keep[c] && i < n[c]; i++)
			print held[c, i]
	}
	$1 == "OUT" && (what == "TRANSACTION_END" || (what == "ERROR" &&
	    (c in keep))) { delete open[c]; delete keep[c] }
	$1 == "OUT" && what != "WATCH_EVENT" { delete last[c] }
	'
}

# walk N DEVID
walk() {
	committed | awk -v b="$(be "$1" "$2" vbd)" -v f="$(fe "$1" "$2")" '
	function is(side, state) {
		if (state != "-" || now[side] != "-")
			out = out " " side state
		now[side] = state
	}
	$2 == b "/state" { is("b", $1) }
	$2 == f "/state" { is("f", $1) }
	$1 == "-" && index(b "/state", $2 "/") == 1 { is("b", "-") }
	$1 == "-" && index(f "/state", $2 "/") == 1 { is("f", "-") }
	END { print substr(out, 2) }'
}

# walked NAME N DEVID WALK
walked() {
	# What has taken effect is on record a moment later.
	for try in 1 2 3 4 5 6; do
		is=$(walk "$2" "$3")
		[ "$is" != "$4" ] || break
		sleep 0.1
	done
	if [ "$is" = "$4" ]; then
		ok "$1: $is"
	else
		bad "$1: $is, not $4"
	fi
}

# ---- what must not be left ---------------------------------------------------------

# Locks of our images, unless the other host has them.
moved=
locks() {
	[ -z "$moved" ] || return 0
	for f in "$dir"/*.img "$dir"/*.qcow2; do
		[ ! -e "$f" ] || grep ":$(stat -c %i "$f") " /proc/locks
	done
}

leftovers() {
	xenstore-ls -f / | grep -E '/backend/|/device/|^/libxl/[0-9]'
	find "$dir/run" -mindepth 1 ! -name control ! -name lock
	disk_processes
	locks
	for p in "$dir"/guest-*.pid; do
		[ -e "$p" ] || continue
		n=${p##*-}
		guest "${n%.pid}" counters | grep -v \
		    '"mapped_now": 0, "bound_now": 0, "grants": 0}'
	done
	fds=$(find "/proc/$daemon/fd" -mindepth 1 | wc -l)
	[ "$fds" -le "${fds_before:=$fds}" ] ||
		echo "ringbackd has $fds descriptors, not $fds_before"
	grep -iE 'sanitizer|runtime error' "$dir/ringbackd.log"
}

no_leftovers() {
	[ -z "$(leftovers)" ]
}

nothing_left() {
	if wait_until 2 no_leftovers; then
		ok "$1: nothing is left"
	else
		bad "$1: nothing is left" "$(leftovers)"
	fi
}

# ---- I/O ---------------------------------------------------------------------------

# load N VDEV SECONDS [OPTIONS]: in the background, verified
load() {
	n=$1 vdev=$2 seconds=$3
	shift 3
	guest "$n" io "$vdev" --rw randrw --bs 8k --depth 16 --verify --zeroed \
	    --time "$seconds" --stall $((20 * slow)) "$@" >"$dir/io" 2>&1 &
	io=$!
}

# It was a success.
load_ends() {
	if wait "$io"; then
		ok "$1: the guest sees no error"
	else
		bad "$1: the guest sees no error" "$(cat "$dir/io"; rb list)"
	fi
}

# The disk was taken away, and that is all that was wrong.
load_ends_early() {
	wait "$io"
	check "$1: the guest's I/O ends there" \
	    grep 'the backend closed the disk' "$dir/io"
}

io() {
	io_name=$1 n=$2 vdev=$3
	shift 3
	check "$io_name" guest "$n" io "$vdev" --verify --zeroed \
	    --stall $((20 * slow)) "$@"
}

# reads_back NAME N VDEV
reads_back() {
	io "$1: what was acknowledged is there" "$2" "$3" --rw read --bs 256k \
	    --depth 4
}

# fresh N [OPTIONS]: a guest with a connected disk, xvda, on a new image
fresh() {
	n=$1
	shift
	new_image "$dir/a.img" 16m
	born "$n" "$@"
	mark
	xl 5 "attach" attach --connected "$n" 51712 "${spec:-raw:$dir/a.img}"
}

is_state() {
	[ "$(xenstore-read "$1/state")" = "$2" ]
}

# ---- coming and going in order -----------------------------------------------------

# xl create: disks first, then the domain runs.
created() {
	new_image "$dir/0.img" 16m
	new_image "$dir/1.img" 16m
	born 7
	pause 7
	mark
	xl 5 "create: two disks of a domain that does not run yet" \
	    attach 7 x2 "raw:$dir/%u.img"
	walked "create: before it runs" 7 51712 "f1 b1 b2"
	unpause 7
	for d in xvda xvdb; do
		check "create: $d connects" guest 7 wait $d
		io "create: $d: I/O" 7 $d --rw randrw --bs 16k --depth 8 \
		    --ios 100
	done
	walked "create: the first" 7 51712 "f1 b1 b2 f3 b4 f4"
	walked "create: the second" 7 51728 "f1 b1 b2 f3 b4 f4"
	published
}

# What a frontend reads at InitWait is there by then, and the rest by Connected.
published() {
	committed | awk -v b="$(be 7 51712 vbd)/" '
	index($2, b) == 1 {
		name = substr($2, length(b) + 1)
		if (name == "state" && ($1 == 2 || $1 == 4))
			before[$1] = seen
		seen = seen " " name
	}
	function need(state, list, n, i, a) {
		n = split(list, a, " ")
		for (i = 1; i <= n; i++)
			if (index(before[state] " ", " " a[i] " ") == 0)
				print a[i] " is not there at " state
	}
	END {
		need(2, "max-ring-page-order max-ring-pages " \
		    "multi-queue-max-queues feature-persistent " \
		    "feature-max-indirect-segments feature-flush-cache")
		need(4, "sectors sector-size physical-sector-size info " \
		    "feature-flush-cache feature-barrier feature-discard " \
		    "discard-granularity discard-alignment hotplug-status")
	}' >"$dir/missing"
	if [ -s "$dir/missing" ]; then
		bad "create: everything is there in time" "$(cat "$dir/missing")"
	else
		ok "create: everything is there in time"
	fi
}

# The other disks of the guest, under load, do not feel it.
hot() {
	load 7 xvda 1
	new_image "$dir/2.img" 16m
	for i in 1 2; do
		mark
		xl 5 "hot attach $i" \
		    attach --connected 7 51744 "raw:$dir/2.img"
		walked "hot attach $i" 7 51744 "f1 b1 b2 f3 b4 f4"
		refuse "attach it once more" "$O/toolstack" attach 7 51744 \
		    "raw:$dir/1.img"
		io "hot attach $i: I/O" 7 xvdc --rw randrw --ios 50
		mark
		xl 5 "detach $i, idle" detach 7 51744
		check "detach $i, idle: the guest let go" guest 7 released xvdc
		walked "detach $i, idle" 7 51744 "b5 f6 b6 f- b-"
	done
	load_ends "beside those"
}

# What is in flight when the guest closes is finished before we say Closed.
under_load() {
	load 7 xvdb 20 --ios 1000000
	sleep 0.2
	mark
	xl 3 "detach under load" detach 7 51728
	load_ends_early "detach under load"
	check "detach under load: the guest let go" guest 7 released xvdb
	walked "detach under load" 7 51728 "b5 f6 b6 f- b-"
	xl 5 "attach it again" attach --connected 7 51728 "raw:$dir/1.img"
	reads_back "detach under load" 7 xvdb
}

# Reboot: the domain shuts down, is destroyed, and comes again by another number.
rebooted() {
	load 7 xvda 20
	check "shutdown: the guest suspends nothing" sleep 0.1
	guest 7 suspend xvda
	wait "$io"
	guest 7 save xvda "$dir/memory"
	mark
	pause 7
	xl 3 "reboot: destroy" destroy 7
	walked "reboot: destroy" 7 51712 "f- b5 b6 b-"
	die 7
	forgotten 7
	nothing_left "reboot"
	born 8 --abi x86_32 --ring-order 2
	xl 3 "reboot: create" attach --connected 8 x2 "raw:$dir/%u.img"
	check "reboot: the guest knows its disk" \
	    guest 8 restore xvda "$dir/memory"
	reads_back "reboot" 8 xvda
	io "reboot: I/O" 8 xvda --rw randrw --ios 100 --depth 8
	mark
	check "shutdown: the guest closes its disks" guest 8 quit
	rm -f "$dir/guest-8.pid"
	walked "shutdown" 8 51712 "f5 b5 f6 b6 f-"
	mark
	xl 5 "shutdown: destroy" destroy 8
	walked "shutdown: destroy" 8 51712 "b-"
	forgotten 8
	nothing_left "shutdown"
}

# ---- a guest that boots --------------------------------------------------------------

# OVMF has one page, shows its ring at once, waits for exactly 5 and then 6, and
# leaves nodes behind; then Linux comes with what it likes better.
firmware() {
	new_image "$dir/a.img" 16m
	born 7 --jump
	mark
	kill -STOP "$daemon"
	"$O/toolstack" attach --connected 7 51712 "raw,queues=3:$dir/a.img" \
	    >"$dir/out" 2>&1 &
	job=$!
	check "firmware: its ring is there before us" \
	    wait_until 5 is_state "$(fe 7 51712)" 4
	kill -CONT "$daemon"
	wait $job || bad "firmware: attach" "$(cat "$dir/out")"
	walked "firmware: 1 to 4" 7 51712 "f1 b1 f4 b2 b4"
	guest 7 set --jump=off
	io "firmware: reads" 7 xvda --rw read --bs 4k --ios 20
	mark
	check "firmware: closes" guest 7 close xvda
	xenstore-write "$(fe 7 51712)/ring-ref" 8 \
	    "$(fe 7 51712)/event-channel" 9
	check "a kernel: connects" guest 7 reopen xvda --abi x86_32 \
	    --ring-order 3 --queues 3
	walked "firmware, then a kernel" 7 51712 \
	    "f5 b5 f6 b6 f1 b2 f3 b4 f4"
	check "a kernel: as it asked for" sh -c "'$O/loopfront' to \
	    '$dir/guest-7.sock' list |
	    grep 'abi=x86_32 ring-order=3 .*queues=3 '"
	io "a kernel: I/O" 7 xvda --rw randrw --ios 300 --depth 32 --bs 64k
	mark
	check "a kernel that jumps, too" guest 7 reopen xvda --jump
	walked "a kernel that jumps" 7 51712 "f5 b5 f6 b6 f1 b2 f4 b4"
	reads_back "a kernel that jumps" 7 xvda
	mark
	xl 5 "detach from it" detach 7 51712
	walked "detach from it" 7 51712 "b5 f6 b6 f- b-"
	nothing_left "firmware"
	ended 7
}

# Under load, the old kernel stops in the middle.
kexeced() {
	spec="fault,queues=2:every=7,delay-ms=40:raw:$dir/a.img"
	fresh 7
	spec=
	for how in "--abi x86_64 --ring-order 1 --queues 2" \
	    "--abrupt --abi x86_32 --queues 1" "--abrupt --jump"; do
		case $how in
		*--jump)	walk="f6 b6 f1 b2 f4 b4" ;;
		*--abrupt*)	walk="f6 b6 f1 b2 f3 b4 f4" ;;
		*)		walk="f5 b5 f6 b6 f1 b2 f3 b4 f4" ;;
		esac
		load 7 xvda 20
		sleep 0.1
		mark
		# shellcheck disable=SC2086 # options
		check "kexec $how" guest 7 kexec xvda $how
		wait "$io"
		walked "kexec $how" 7 51712 "$walk"
		io "kexec $how: I/O" 7 xvda --rw randrw --ios 100 --depth 8
	done
	reads_back "kexec" 7 xvda
	three_twice
	xl 5 "kexec: detach" detach 7 51712
	check "kexec: the guest let go" guest 7 released xvda
	nothing_left "kexec"
	ended 7
}

# One that says it again is not connected again.
three_twice() {
	load 7 xvda 0.4
	mark
	xenstore-write "$(fe 7 51712)/state" 3
	xenstore-write "$(fe 7 51712)/state" 3
	xenstore-write "$(fe 7 51712)/state" 4
	load_ends "state 3 twice"
	walked "state 3 twice" 7 51712 "f3 f3 f4"
}

# ---- the toolstack takes it by force -----------------------------------------------

# xl pauses the domain first: what is in flight is slow storage's.
destroyed() {
	spec="fault:every=3,delay-ms=100:raw:$dir/a.img"
	fresh 7
	load 7 xvda 20
	sleep 0.3
	pause 7
	mark
	xl 5 "destroy under load" destroy 7
	walked "destroy under load" 7 51712 "f- b5 b6 b-"
	unpause 7
	load_ends_early "destroy under load"
	check "destroy under load: the guest has all of it" \
	    guest 7 released xvda
	check "destroy under load: save" guest 7 save xvda "$dir/memory"
	die 7
	forgotten 7
	nothing_left "destroy under load"
	spec="raw:$dir/a.img"
	born 8
	xl 5 "destroy under load: another domain" attach --connected 8 51712 \
	    "$spec"
	check "destroy under load: it knows" guest 8 restore xvda "$dir/memory"
	reads_back "destroy under load" 8 xvda
	spec=
}

# The domain is gone at once, its nodes are there until xl hears of it.
crashed() {
	load 8 xvda 20
	sleep 0.2
	mark
	kill -KILL "$(cat "$dir/guest-8.pid")"
	rm -f "$dir/guest-8.pid"
	wait "$io"
	check "crash: the disk is closed by itself" \
	    wait_until 5 is_state "$(be 8 51712 vbd)" 6
	walked "crash" 8 51712 "b6"
	xl 5 "crash: destroy" destroy 8
	walked "crash: destroy" 8 51712 "b6 f- b-"
	forgotten 8
	nothing_left "crash"
	# And one that had nothing to do.
	fresh 9
	die 9
	check "crash, idle: the disk is closed" \
	    wait_until 5 is_state "$(be 9 51712 vbd)" 6
	xl 5 "crash, idle: destroy" destroy 9
	forgotten 9
	nothing_left "crash, idle"
}

# It does not answer, and nobody minds.
paused() {
	fresh 7
	load 7 xvda 1.5
	sleep 0.2
	mark
	pause 7
	sleep 1
	check "pause: connected" is_state "$(be 7 51712 vbd)" 4
	unpause 7
	load_ends "pause"
	walked "pause" 7 51712 ""
}

# One that never came: nothing to wait for.
never() {
	new_image "$dir/b.img" 16m
	pause 7
	mark
	xl 5 "never connects: attach" attach 7 51728 "raw:$dir/b.img"
	xl 3 "never connects: detach" detach 7 51728
	walked "never connects" 7 51728 "f1 b1 b2 b5 b6 f- b-"
	unpause 7
}

# One that has gone to 5 and hangs there; the ring is mapped until the end.
stuck() {
	mark
	pause 7
	xenstore-write "$(fe 7 51712)/state" 5
	check "never leaves 5: we follow" \
	    wait_until 5 is_state "$(be 7 51712 vbd)" 5
	sleep 0.2
	walked "never leaves 5: and wait" 7 51712 "f5 b5"
	xl 5 "never leaves 5: destroy" destroy 7
	walked "never leaves 5: destroy" 7 51712 "f5 b5 f- b5 b6 b-"
	die 7
	forgotten 7
	nothing_left "never leaves 5"
}

# The nodes are gone before we had time to look.
at_once() {
	born 7
	new_image "$dir/a.img" 16m
	for i in 1 2 3 4 5 6; do
		"$O/toolstack" attach 7 51712 "raw:$dir/a.img" \
		    >/dev/null 2>&1 &
		job=$!
		xenstore-read "$(be 7 51712 vbd)/state" >/dev/null 2>&1
		wait_until 2 xenstore-exists "$(be 7 51712 vbd)/state"
		[ $((i % 2)) -eq 0 ] || kill -KILL $job 2>/dev/null
		"$O/toolstack" destroy 7 >"$dir/out" 2>&1 ||
			bad "attach and destroy at once" "$(cat "$dir/out")"
		wait $job 2>/dev/null
	done
	nothing_left "attach and destroy at once"
	xl 5 "attach after that" attach --connected 7 51712 "raw:$dir/a.img"
	io "attach after that: I/O" 7 xvda --rw randrw --ios 50
	xl 5 "detach after that" detach 7 51712
	check "detach after that: released" guest 7 released xvda
	ended 7
}

# FreeBSD with a mounted file system: xl gives up, the disk stays, and goes when
# the guest lets it.  xl's ten seconds run beside the other passages.
refused() {
	new_image "$dir/b/h.img" 16m
	there born 17 --hold
	check "refused: attach" there "$O/toolstack" attach --connected 17 \
	    51712 "raw:$dir/b/h.img"
	there "$O/toolstack" detach 17 51712 >"$dir/refused" 2>&1 &
	refused=$!
	check "refused: we ask" \
	    wait_until 5 there is_state "$(be 17 51712 vbd)" 5
}

refused_end() {
	wait "$refused"
	check "refused: xl gives up" grep 'closed took more than 10 s' \
	    "$dir/refused"
	check "refused: I/O goes on" there guest 17 io xvda --rw randrw \
	    --ios 200 --depth 8 --verify --zeroed
	check "refused: the guest still has it" \
	    there is_state "$(fe 17 51712)" 4
	check "refused: and we still ask" there is_state "$(be 17 51712 vbd)" 5
	check "refused: the guest lets go" there guest 17 close xvda
	check "refused: so do we" there is_state "$(be 17 51712 vbd)" 6
	check "refused: what was acknowledged is there" \
	    there guest 17 image xvda "$dir/want"
	check "refused: in the image" cmp "$dir/want" "$dir/b/h.img"
	check "refused: detach" there "$O/toolstack" detach 17 51712
	there ended 17
}

# ---- to another host, or back ------------------------------------------------------

# Memory is saved, the domain is destroyed, and restored under another number.
saved() {
	fresh 7
	load 7 xvda 20
	sleep 0.2
	check "save: suspend under load" guest 7 suspend xvda
	wait "$io"
	check "save: memory" guest 7 save xvda "$dir/memory"
	xl 5 "save: destroy" destroy 7
	die 7
	forgotten 7
	nothing_left "save"
	born 8 --ring-order 1
	pause 8
	xl 5 "restore: attach" attach 8 51712 "raw:$dir/a.img"
	unpause 8
	check "restore: connects" guest 8 wait xvda
	check "restore: memory" guest 8 restore xvda "$dir/memory"
	reads_back "restore" 8 xvda
	io "restore: I/O" 8 xvda --rw randrw --ios 100
	ended 8
	nothing_left "restore"
}

waits_for_image() {
	there rb list | grep 'waiting for the image'
}

# target SPEC: the domain on the other host, as xl migrate-receive leaves it
target() {
	there born 8
	there pause 8
	check "$what: the target is told that the image is fine" \
	    there "$O/toolstack" attach 8 51712 "$1"
	check "$what: and has not locked it" \
	    there is_state "$(be 8 51712 vbd)" 2
}

# migrate NAME SPEC.  xl unpauses the target before it destroys the source.
migrate() {
	what=$1
	xl 5 "$what: attach" attach --connected 7 51712 "$2"
	io "$what: the source writes" 7 xvda --rw randwrite --bs 8k --ios 300 \
	    --depth 8
	target "$2"
	load 7 xvda 20
	sleep 0.3
	check "$what: the source suspends" guest 7 suspend xvda
	wait "$io"
	check "$what: memory" guest 7 save xvda "$dir/memory"
	pause 7
	there unpause 8
	check "$what: the target waits for the image" \
	    wait_until 5 waits_for_image
	check "$what: and is not connected" \
	    there is_state "$(be 8 51712 vbd)" 2
	began=$(date +%s%N)
	xl 5 "$what: the source is destroyed" destroy 7
	check "$what: the target connects" there guest 8 wait xvda
	took=$((($(date +%s%N) - began) / 1000000))
	at_most "$what: ms from destroy to connected" $took $((2000 * slow))
	die 7
	forgotten 7
	moved=1
	nothing_left "$what: on the source"
	moved=
	check "$what: memory arrives" \
	    there guest 8 restore xvda "$dir/memory"
	there reads_back "$what" 8 xvda >"$dir/out"
	check "$what: what the source wrote is there" grep '^ok' "$dir/out"
	check "$what: the target goes on" there guest 8 io xvda --rw randrw \
	    --ios 200 --depth 8 --verify --zeroed
	check "$what: the target lets go" there "$O/toolstack" detach 8 51712
	there ended 8 >"$dir/out"
	check "$what: it ends" grep '^ok' "$dir/out"
	nothing_left "$what"
}

migrated() {
	new_image "$dir/a.img" 16m
	born 7
	migrate "migration, raw" "fault:every=5,delay-ms=150:raw:$dir/a.img"
	rm -f "$dir/a.qcow2"
	qemu-img create -q -f qcow2 "$dir/a.qcow2" 16m
	born 7
	migrate "migration, qcow2" "qcow2:$dir/a.qcow2"
	check "migration, qcow2: no fault" \
	    qemu-img check -f qcow2 "$dir/a.qcow2"
}

# The target has come as far as to wait; then it is given up, and the source
# goes on with the ring that it had.
aborted() {
	what="aborted migration"
	fresh 7
	load 7 xvda 1.5
	target "raw:$dir/a.img"
	mark
	pause 7
	there unpause 8
	check "$what: the target waits for the image" \
	    wait_until 5 waits_for_image
	there pause 8
	check "$what: the target is destroyed" \
	    there "$O/toolstack" destroy 8
	there die 8
	there forgotten 8
	unpause 7
	load_ends "$what"
	walked "$what" 7 51712 ""
	reads_back "$what" 7 xvda
	ended 7
	nothing_left "$what"
}

# ---- domain 0 ----------------------------------------------------------------------

# A bootloader in domain 0 looks for a kernel: frontend and backend are one.
bootloader() {
	new_image "$dir/a.img" 16m
	"$O/loopfront" domain --domid 0 --memory 15m --background \
	    --socket "$dir/guest-0.sock" >"$dir/guest-0.pid" || exit 1
	mark
	xl 5 "bootloader: attach to domain 0" \
	    attach --connected 0 51952 "raw:$dir/a.img"
	walked "bootloader" 0 51952 "f1 b1 b2 f3 b4 f4"
	io "bootloader: I/O" 0 xvdp --rw randrw --ios 100
	xl 5 "bootloader: detach" detach 0 51952
	check "bootloader: released" guest 0 released xvdp
	nothing_left "bootloader"
	refuse "bootloader: no complaint" grep 'restrict' "$dir/ringbackd.log"
	check "bootloader: ends" guest 0 quit
	rm -f "$dir/guest-0.pid"
	check "bootloader: domain 0 stays" xenstore-exists /local/domain/0/name
}

# ---- many ----------------------------------------------------------------------------

twenty() {
	for i in $(seq 0 19); do
		new_image "$dir/$i.img" 1m
	done
	there born 9
	check "20 disks: attach" there "$O/toolstack" attach --connected 9 x20 \
	    "raw:$dir/%u.img"
	for how in detach destroy; do
		began=$(date +%s%N)
		check "20 disks: $how" there "$O/toolstack" $how 9 x20
		took=$((($(date +%s%N) - began) / 1000000))
		at_most "20 disks: ms to $how" $took $((2000 * slow))
		[ $how = destroy ] || check "20 disks: attach again" there \
		    "$O/toolstack" attach --connected 9 x20 "raw:$dir/%u.img"
	done
	there ended 9
}

# In milliseconds, of each disk.
connect_times() {
	sed -n 's/.* connected \([0-9.]*\) ok$/\1/p' "$1"
}

median() {
	sort -n | awk '{ t[NR] = $1 } END { print t[int((NR + 1) / 2)] }'
}

# How much memory a disk has of its own, in KiB, on the average.
memory_per_disk() {
	there disk_processes | while read -r pid _; do
		awk '/^Private_(Clean|Dirty):/ { n += $2 } END { print n }' \
		    "/proc/$pid/smaps_rollup"
	done | awk '{ n += $1 } END { print NR ? int(n / NR) : "" }'
}

few() {
	"$O/toolstack" attach --connected --in-turn 20-23 x9 null:1M \
	    >"$dir/few" && "$O/toolstack" detach 20-23 x9
}

figures() {
	if [ $slow -gt 1 ]; then
		say "skip figures: a sanitizer takes its time"
		return
	fi
	disks=${DISKS-100}
	for n in 20 21 22 23; do
		there born $n
	done
	# Others may have the machine for a while.
	# shellcheck disable=SC2034 # counts
	for try in 1 2 3 4 5 6; do
		check "figures: one after the other" there few
		best=$(connect_times "$dir/b/few" | sort -n | head -1)
		[ "${best%.*}" -ge 20 ] || break
	done
	at_most "figures: ms from attach to connected, best of 9" "$best" 20
	say "from attach to connected: median of 9:" \
	    "$(connect_times "$dir/b/few" | median) ms"
	check "figures: $disks disks" there sh -c "'$O/toolstack' attach \
	    --connected --in-turn 20-23 x$disks null,memory=1M:1M >'$dir/many'"
	quarter=$((disks / 4))
	first=$(connect_times "$dir/many" | head -$quarter | median)
	last=$(connect_times "$dir/many" | tail -$quarter | median)
	say "$disks disks: median of the first $quarter: $first ms, of the" \
	    "last $quarter: $last ms"
	# That is at the mercy of others; what grows has no fast ones at the end.
	last=$(connect_times "$dir/many" | tail -$quarter | sort -n | head -1)
	at_most "figures: ms for the best of the last ones" "$last" \
	    "$(awk "BEGIN { print 2 * $first + 1 }")"
	at_most "figures: KiB of each, with 1 MiB for data" \
	    "$(memory_per_disk)" 6144
	began=$(date +%s%N)
	check "figures: list" sh -c "'$O/ringback' --run-dir '$dir/b/run' list |
	    grep -c Connected | grep -x $disks"
	at_most "figures: ms to list them" \
	    $((($(date +%s%N) - began) / 1000000)) 500
	check "figures: destroy" there "$O/toolstack" destroy 20-23 "x$disks"
	for n in 20 21 22 23; do
		there ended $n
	done
	check "figures: nothing is left" wait_until 5 none_there
}

none_there() {
	! there disk_processes &&
	    [ -z "$(find "$dir/b/run" -name '*-*')" ]
}

# ------------------------------------------------------------------------------------

LOOPXEN_TRACE=1
export LOOPXEN_TRACE
machine_start
unset LOOPXEN_TRACE
trap stop_both EXIT
xl_prepare
chmod +x "$dir/bin/block-ringback"
BLOCK_SCRIPT=$dir/bin/block-ringback
export BLOCK_SCRIPT
second_start
fds_before=$(find "/proc/$daemon/fd" -mindepth 1 | wc -l)
spec=

# Some go on with the guest of the one before: created to rebooted, destroyed and
# crashed, paused to stuck.
for part in ${PARTS-refused created hot under_load rebooted firmware kexeced
    destroyed crashed paused never stuck at_once bootloader saved migrated
    aborted refused_end twenty figures}; do
	$part
	if ! kill -0 "$daemon"; then
		bad "$part: ringbackd is dead" "$(tail -5 "$dir/ringbackd.log")"
		break
	fi
done
[ -n "${PARTS-}" ] || nothing_left "the end"
check "the daemon is still the same" kill -0 "$daemon"
summary
