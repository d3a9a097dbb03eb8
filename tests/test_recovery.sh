#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_recovery: disk processes and the supervisor die under load; the guest
# sees a pause.  The guest is strict: an answer it does not wait for, a second
# one, or a sector that is not what was acknowledged ends its I/O with a line.
#
# PARTS="random 9; both_die": only those.
# SOAK=1: thousands of deaths, for SOAK_SECONDS (600).
set -u
. tests/machine.sh

if [ "$(id -u)" -ne 0 ]; then
	say "skip recovery: it needs root"
	exit 77
fi

deaths=0
page=
steps='copied taken consumed fetched submitted reaped written answered
    committed published notified freed'

# As in machine.sh, but how many deaths are too many is ours to say.
daemon_start() {
	"$O/ringbackd" --run-dir "$dir/run" --max-deaths "$deaths" \
	    >>"$dir/ringbackd.log" 2>&1 &
	daemon=$!
	wait_until 10 rb list && return
	say "ringbackd does not answer:" >&2
	tail -5 "$dir/ringbackd.log" >&2
	return 1
}

daemon_stop() {
	kill "-${1-TERM}" "$daemon"
	wait "$daemon" 2>/dev/null
}

daemon_restart() {
	daemon_stop "$1"
	daemon_start || exit 1
}

new_image() {
	rm -f "$1" && truncate -s "$2" "$1"
}

poke() {
	"$O/page_poke" "$page" "$@"
}

pid_of() {
	poke show | sed 's/^pid=\([0-9]*\) .*/\1/'
}

# Closing, and the guest may have gone on from there.
is_closing() {
	case $(xenstore-read "$(be 7 51712)/state" 2>/dev/null) in
	[56])	return 0 ;;
	*)	return 1 ;;
	esac
}

list_says() {
	rb list | grep -q "$1"
}

# fresh ORDER SPEC [ABI [SEGMENTS [on]]]: a disk on a new image, connected with a
# ring of that order
fresh() {
	new_image "$dir/a.img" 16m
	page=$dir/run/7-51712.page
	guest 7 forget xvda 2>/dev/null
	# A death leaves its holds to Xen, which frees them a moment later.
	guest 7 set --ring-order "$1" --abi "${3-native}" --check-padding \
	    --grace 2 --segments "${4-32}" --persistent="${5-off}"
	check "attach, ring order $1" rb attach guest-7 xvda "$2"
}

left() {
	find "$dir/run" -mindepth 1 ! -name control ! -name lock
	disk_processes
}

nothing_left() {
	[ -z "$(left)" ]
}

gone() {
	check "$1: detach" rb detach guest-7 xvda
	check "$1: the guest let go of it" guest 7 released xvda
	# detach answers when the nodes are gone; the files follow at once.
	wait_until 2 nothing_left || bad "$1: nothing is left" "$(left)"
	if grep -iE 'sanitizer|runtime error' "$dir/ringbackd.log" >&2; then
		bad "$1: a sanitizer has spoken"
	fi
}

same_image() {
	check "$1: everything reads back" \
	    guest 7 io xvda --rw read --bs 256k --depth 4 --verify --zeroed
	check "$1: the guest knows the image" guest 7 image xvda "$dir/want"
	check "$1: the image is what was acknowledged" \
	    cmp "$dir/want" "$dir/a.img"
}

# io_while NAME JOB IO...: I/O, again and again, as long as the job runs
io_while() {
	io_name=$1 job=$2 rounds=0 broken=
	shift 2
	while kill -0 "$job" 2>/dev/null; do
		if ! guest 7 io xvda --stall 20 --time 0.5 "$@" >"$dir/io" 2>&1
		then
			broken=1
			break
		fi
		rounds=$((rounds + 1))
	done
	if [ -n "$broken" ]; then
		bad "$io_name: the guest sees no error" "$(cat "$dir/io"; rb list
		    tail -5 "$dir/ringbackd.log")"
	else
		ok "$io_name: the guest sees no error"
	fi
	job_ended "$io_name" "$job"
}

# job_ended NAME JOB: as it should
job_ended() {
	wait "$2"
	status=$?
	check "$1: $(tr '\n' ' ' <"$dir/job")" [ $status -eq 0 ]
}

# io_ended NAME: the I/O in the background was a success
io_ended() {
	if wait "$io"; then
		ok "$1: the guest sees no error"
	else
		bad "$1: the guest sees no error" "$(cat "$dir/io"; rb list
		    tail -5 "$dir/ringbackd.log")"
	fi
}

# ---- a death at each step -------------------------------------------------------

# die_at_steps NAME "N N ..." IO...: at the Nth time of each step
die_at_steps() {
	step_name=$1 plan=
	for n in $2; do
		for s in $steps; do
			plan="$plan $s:$n"
		done
	done
	shift 2
	# shellcheck disable=SC2086 # a list
	poke die 20 $plan >"$dir/job" 2>&1 &
	io_while "$step_name" $! "$@"
}

# A successor that dies before it is done with what it has taken up.
die_and_die() {
	plan=
	for s in $steps; do
		plan="$plan answered:2 $s:1 written:1 $s:0 consumed:0"
	done
	# shellcheck disable=SC2086 # a list
	poke die 20 $plan >"$dir/job" 2>&1 &
	io_while "successors that die as well" $! --rw randrw --bs 8k \
	    --depth 30 --flush-every 5 --verify --zeroed
}

# A guest that spins sees what is published before the event that was not sent.
die_unheard() {
	poke die 20 published:0 published:1 published:2 published:0 \
	    committed:0 published:1 published:0 published:2 >"$dir/job" 2>&1 &
	io_while "$1, the guest spins" $! --rw randrw --bs 4k --depth 8 \
	    --spin ring --verify --zeroed
}

each_step() {
	for order in 0 4; do
		fresh "$order" "raw:$dir/a.img" native $((32 + order * 56))
		what="order $order"
		die_at_steps "$what, reads, writes, flushes" "0 ${1-3}" --rw \
		    randrw --bs 16k --depth 24 --flush-every 7 --verify --zeroed
		die_at_steps "$what, 4k in batches" "$((order * 5 + 1))" --rw \
		    randrw --bs 4k --depth 64 --batch 8 --verify --zeroed
		# Indirect ones, of 32 or of 256 segments.
		die_at_steps "$what, 1m" "$((order / 4))" --rw randrw --bs 1m \
		    --depth 4 --flush-every 5 --misalign "$order" --verify \
		    --zeroed
		die_unheard "$what"
		die_at_steps "$what, discards" 1 --rw randtrim --bs 64k \
		    --depth 16 --verify --zeroed
		# What was discarded may be old or zeros: make it certain.
		check "$what: writes" guest 7 io xvda --rw write --bs 256k \
		    --depth 8 --verify --zeroed
		same_image "$what"
		die_at_steps "$what, barriers" 0 --op 2 --bs 32k --depth 8
		gone "$what"
	done
	# Completions come in another order than requests.
	fresh 1 "fault:every=3,delay-ms=3:raw:$dir/a.img" x86_32
	die_and_die
	same_image "successors that die as well"
	gone "successors that die as well"
}

# ---- deaths at any time ------------------------------------------------------------

# random_kills NAME SECONDS MIN MAX IO...
random_kills() {
	kill_name=$1
	poke kill "$daemon" "$2" "$3" "$4" "$(date +%s)" >"$dir/job" 2>&1 &
	shift 4
	io_while "$kill_name" $! "$@" --verify --zeroed
	total=$((total + $(sed 's/[^0-9].*//' "$dir/job")))
}

random() {
	total=0
	fresh 2 "raw:$dir/a.img"
	random_kills "kills at any time, 4k" "$1" 1000 200000 --rw randrw \
	    --bs 4k --depth 64 --flush-every 50
	random_kills "kills at any time, 64k" "$1" 1000 150000 --rw randrw \
	    --bs 64k --depth 8 --misalign 3
	random_kills "kills at any time, 256k of 32 segments" "$1" 1000 150000 \
	    --rw randrw --bs 256k --depth 8 --misalign 1
	random_kills "kills of those that have just started" "$1" 100 40000 \
	    --rw randrw --bs 16k --depth 16 --flush-every 9
	same_image "kills at any time"
	gone "kills at any time"
	fresh 4 "fault:every=5,delay-ms=2:raw:$dir/a.img" x86_64
	random_kills "kills, completions out of order" "$1" 1000 150000 --rw \
	    randrw --bs 8k --depth 64 --flush-every 20
	same_image "kills, completions out of order"
	gone "kills, completions out of order"
	fresh 2 "fault:every=3,delay-ms=3:raw:$dir/a.img" x86_32 256
	random_kills "kills at any time, 1m of 256 segments" "$1" 1000 150000 \
	    --rw randrw --bs 1m --depth 8 --flush-every 9 --misalign 5
	same_image "kills at any time, 1m"
	gone "kills at any time, 1m"
	at_least "random kills" "$total" 20
}

# ---- pages that stay mapped ------------------------------------------------------

# since COUNTER: how much it has grown
since() {
	guest 7 counters >"$dir/now"
	echo $(($(number "$1" "$dir/now") - $(number "$1" "$dir/then")))
}

# A successor knows of no page of its predecessor's: it maps what it needs,
# and what was in flight as well.
persistent_dies() {
	fresh 2 "raw,grants=persistent:$dir/a.img" x86_32 32 on
	guest 7 counters >"$dir/then"
	check "persistent: 64 pages of writes" guest 7 io xvda --rw write \
	    --bs 4k --depth 64 --verify --zeroed
	at_least "persistent: pages mapped" "$(since mapped_pages)" 64
	guest 7 counters >"$dir/then"
	kill -KILL "$(pid_of)"
	check "persistent: after a death" guest 7 io xvda --rw randrw \
	    --bs 4k --depth 64 --ios 1000 --verify --zeroed
	at_least "persistent: pages mapped by a successor" \
	    "$(since mapped_pages)" 64
	at_most "persistent: copies" "$(since copy_calls)" 0
	poke kill "$daemon" 1 20000 150000 "$(date +%s)" >"$dir/job" 2>&1 &
	io_while "persistent, kills at any time" $! --rw randrw --bs 160k \
	    --depth 8 --flush-every 20 --verify --zeroed
	die_at_steps "persistent" 1 --rw randrw --bs 16k --depth 24 \
	    --flush-every 7 --verify --zeroed
	same_image "persistent"
	gone "persistent"
	guest 7 counters >"$dir/now"
	at_most "persistent: pages mapped after that" \
	    "$(number mapped_now "$dir/now")" 0
}

# ---- pages that do not fit ------------------------------------------------------------

# Requests that stay in flight as long as anybody wants.
hang() {
	fresh 0 "fault:from=1,delay-ms=600000:raw:$dir/a.img"
	guest 7 io xvda --rw randwrite --bs 4k --depth 24 --time 60 \
	    >"$dir/io" 2>&1 &
	io=$!
	wait_until 10 in_flight 24 || bad "24 requests in flight" "$(poke show)"
}

in_flight() {
	poke show | grep -q "inflight=$1 "
}

kill_both() {
	kill -KILL "$daemon" "$(pid_of)"
	wait "$daemon" 2>/dev/null
}

# refused NAME WHY: the disk is given up, and it is said why
refused() {
	check "$1: the disk goes to Closing" wait_until 10 is_closing
	check "$1: list says what happened" list_says "$2\|process.* died"
	check "$1: the log says why" grep -q "$2" "$dir/ringbackd.log"
	if grep -E "goes on|signal [^9]|assert|anitizer" "$dir/ringbackd.log"
	then
		bad "$1: refused, nothing else" "$(cat "$dir/ringbackd.log")"
	fi
	check "$1: nothing is written" cmp "$dir/before" "$dir/a.img"
	wait "$io"
	check "$1: the guest's I/O ends there" \
	    grep -q 'the backend closed the disk' "$dir/io"
	gone "$1"
}

# stale NAME WHY DO...: after the death of both
stale() {
	lie="stale: $1" why=$2
	shift 2
	hang
	kill_both
	"$@"
	cp "$dir/a.img" "$dir/before"
	: >"$dir/ringbackd.log"
	daemon_start || exit 1
	refused "$lie" "$why"
}

# stale_alive NAME WHY DO...: a supervisor that remembers what it connected
stale_alive() {
	lie="stale, supervisor alive: $1" why=$2
	shift 2
	hang
	kill -STOP "$daemon"
	kill -KILL "$(pid_of)"
	"$@"
	cp "$dir/a.img" "$dir/before"
	: >"$dir/ringbackd.log"
	kill -CONT "$daemon"
	refused "$lie" "$why"
}

other_image() {
	cp "$dir/a.img" "$dir/b.img"
	mv "$dir/b.img" "$dir/a.img"
}

stale_pages() {
	stale domain "of another domain" \
	    poke set uuid 0f9d2e2a-0000-4000-8000-000000000000
	stale backend "of another backend" \
	    poke set backend /local/domain/0/backend/vbd/7/51712
	stale disk "of another disk" poke set devid 51728
	stale image "of another image" other_image
	stale image-number "of another image" poke set image_ino 4711
	stale_alive generation "of another connection" poke set generation 99
	stale_alive ring "of another connection" poke set port 17
	stale abi "of another connection" poke set abi 2
	stale ring "of another connection" poke set 'gref[0]' 40
	stale order "of another connection" poke set order 1
	stale port "of another connection" poke set port 17
	stale layout "page file" poke set layout 77
	stale magic "page file" poke set magic QINGBACK
	stale size "page file" truncate -s 100 "$page"
	stale nothing "page file" rm "$page"
	stale unconnected "page file" poke set connected 0
	stale indices "in-flight table" poke set rsp_prod 4000000000
	for seed in $(date +%s) 2; do
		stale "junk $seed" "in-flight table" poke junk "$seed"
	done
}

# ---- deaths without end --------------------------------------------------------------

three_deaths() {
	deaths=3
	daemon_restart TERM
	fresh 0 "raw:$dir/a.img"
	check "three deaths: before" guest 7 io xvda --rw write --bs 64k \
	    --verify --zeroed
	poke die 10 submitted:0 submitted:0 submitted:0 >"$dir/job" 2>&1 &
	job=$!
	sleep 0.2
	guest 7 io xvda --rw randwrite --bs 4k --depth 16 --ios 16 \
	    --stall 20 --json >"$dir/json" 2>"$dir/io"
	job_ended "three deaths" $job
	at_least "three deaths: I/Os answered with ERROR" \
	    "$(number failed_ios "$dir/json")" 1
	at_most "three deaths: I/Os not answered" \
	    "$(number unanswered_requests "$dir/json")" 0
	check "three deaths: the disk goes to Closing" wait_until 10 is_closing
	check "three deaths: list says so" list_says "3 disk processes died"
	check "three deaths: so does the log" \
	    grep -q "3 disk processes died in a minute" "$dir/ringbackd.log"
	gone "three deaths"
	check "three deaths: attach it again" \
	    rb attach guest-7 xvda "raw:$dir/a.img"
	check "three deaths: it works again" \
	    guest 7 io xvda --rw randrw --ios 100
	gone "three deaths, once more"
	deaths=0
	daemon_restart TERM
}

# ---- the supervisor dies ----------------------------------------------------------------

supervisor_dies() {
	fresh 3 "raw:$dir/a.img"
	before=$(pid_of)
	io_in_background
	for i in 1 2 3; do
		daemon_restart KILL
		check "supervisor killed, $i: it finds the disk" \
		    wait_until 10 list_says Connected
	done
	io_ended "supervisor killed"
	check "supervisor killed: the disk process is the same" \
	    [ "$before" = "$(pid_of)" ]
	check "supervisor killed: a successor, from then on" \
	    kill -KILL "$before"
	check "supervisor killed: goes on" guest 7 io xvda --rw randrw \
	    --bs 4k --ios 300 --depth 16 --verify --zeroed
	same_image "supervisor killed"
	gone "supervisor killed"
}

io_in_background() {
	guest 7 io xvda --rw randrw --bs 8k --depth 32 --flush-every 30 \
	    --verify --zeroed --time 3 >"$dir/io" 2>&1 &
	io=$!
}

both_die() {
	fresh 1 "raw:$dir/a.img"
	io_in_background
	for i in 1 2 3; do
		sleep 0.2
		kill_both
		daemon_start || exit 1
		check "both killed, $i: it goes on" \
		    wait_until 10 list_says Connected
	done
	io_ended "both killed"
	same_image "both killed"
	gone "both killed"
}

# The supervisor dies a little after the disk process, so that the next one
# finds a successor that is not done with starting: not told anything, or busy
# with OPEN, or with CONNECT.
starting_dies() {
	fresh 1 "raw:$dir/a.img"
	for after in 0 0.002 0.005 0.01 0.015 0.02 0.03; do
		guest 7 io xvda --rw randrw --bs 8k --depth 32 \
		    --flush-every 30 --verify --zeroed --time 0.4 \
		    >"$dir/io" 2>&1 &
		io=$!
		sleep 0.1
		kill -KILL "$(pid_of)"
		sleep $after
		daemon_restart KILL
		io_ended "supervisor killed $after s after a disk process"
	done
	same_image "killed while starting"
	# One that is found, but dies before it says a word.
	guest 7 io xvda --rw randrw --bs 8k --depth 32 --verify --zeroed \
	    --time 1 >"$dir/io" 2>&1 &
	io=$!
	sleep 0.2
	pid=$(pid_of)
	kill -STOP "$pid"
	daemon_restart KILL
	kill -KILL "$pid"
	io_ended "killed while it is adopted"
	same_image "killed while it is adopted"
	gone "killed while starting"
}

# A successor that drains is not one that is starting.
draining_dies() {
	fresh 1 "fault:from=1,delay-ms=2500:raw:$dir/a.img"
	guest 7 io xvda --rw randwrite --bs 4k --depth 16 --time 20 \
	    >"$dir/io" 2>&1 &
	io=$!
	sleep 0.2
	: >"$dir/ringbackd.log"
	kill -KILL "$(pid_of)"
	check "draining: a successor" wait_until 10 grep -q 'goes on with the' \
	    "$dir/ringbackd.log"
	rb detach guest-7 xvda >"$dir/job" 2>&1 &
	job=$!
	sleep 0.5
	: >"$dir/ringbackd.log"
	daemon_restart KILL
	check "draining: the disk goes, with a new supervisor" \
	    wait_until 15 sh -c "! xenstore-exists '$(be 7 51712)'"
	wait $io $job
	refuse "draining: nobody takes it for starting" \
	    grep -q 'found a successor' "$dir/ringbackd.log"
	check "draining: the guest let go of it" guest 7 released xvda
}

# ---- how long it takes ---------------------------------------------------------------------

# The longest time that an I/O took, in ms, with one death meanwhile.
one_recovery() {
	guest 7 io xvda --rw randread --bs 4k --depth "$1" --time 0.3 --json \
	    >"$dir/json" 2>&1 &
	io=$!
	sleep 0.12
	kill -KILL "$(pid_of)"
	wait $io || echo 1e9
	sed -n '/"read"/,/"write"/p' "$dir/json" | grep '"lat_ns"' |
	    sed 's/.*"max": \([0-9]*\),.*/\1/' | awk '{ print $1 / 1e6 }'
}

how_long() {
	fresh 4 "raw:$dir/a.img"
	dd if=/dev/urandom of="$dir/a.img" bs=1M count=16 conv=notrunc \
	    2>/dev/null
	for depth in 1 32; do
		# shellcheck disable=SC2034 # counts
		for i in $(seq "$1"); do
			one_recovery $depth
		done | sort -n >"$dir/times.$depth"
	done
	sort -n "$dir/times.1" "$dir/times.32" >"$dir/times"
	awk '{ t[NR] = $1 } END { printf "recovery: median %.0f ms, max %.0f " \
	    "ms over %d kills\n", t[int((NR + 1) / 2)], t[NR], NR }' \
	    "$dir/times"
	at_most "recovery: the longest, in ms" "$(tail -1 "$dir/times")" 2000
	at_least "recovery: kills that were measured" \
	    "$(wc -l <"$dir/times")" $((2 * $1))
	gone "recovery"
}

end() {
	# What hangs would drain for as long as it was told to.
	disk_processes | while read -r pid _; do
		kill -KILL "$pid" 2>/dev/null
	done
	machine_stop
}

machine_start
trap end EXIT
guest_start 7 || exit 1
if [ -n "${SOAK-}" ]; then
	SOAK_SECONDS=${SOAK_SECONDS:-600}
	end=$(($(date +%s) + SOAK_SECONDS))
	while [ "$(date +%s)" -lt $end ] && [ "$failed" -eq 0 ]; do
		random $((SOAK_SECONDS / 30 + 1))
		persistent_dies
		each_step $((total % 40 + 2))
		starting_dies
		both_die
	done
	how_long 50
else
	eval "${PARTS-each_step; random 1; persistent_dies; stale_pages; three_deaths
	    supervisor_dies; both_die; starting_dies; draining_dies
	    how_long 10}"
fi
check "the guest ends" guest 7 quit
summary
