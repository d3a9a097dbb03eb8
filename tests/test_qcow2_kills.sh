#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_qcow2_kills: SIGKILL to disk processes that serve qcow2 images, at any
# time and without a flush.  The guest sees no error, and nothing that it was
# told was done is lost, neither for itself nor for qemu-img afterwards.
#
# PARTS="kills 9; both_die": only those.
# SOAK=1: for SOAK_SECONDS (600).
set -u
. tests/machine.sh
. tests/qcow2_guest.sh

# ---- deaths -------------------------------------------------------------------------------------

# went_well NAME JOB: one in the background, with its output in $dir/io
went_well() {
	wait "$2"
	status=$?
	check "$1" sh -c "cat '$dir/io'; exit $status"
}

# after_kills NAME: it is all there, for the guest and for qemu-img
after_kills() {
	io "$1: everything reads back" --rw read --bs 256k --depth 4
	detach "$1"
	same "$1" leaks
}

# Under allocating writes, copies on write, discards and tables that grow.
kills() {
	total=0
	nothing_known
	check "kills: 64k: make it" new cluster_size=64k
	attach "kills: 64k"
	kills_while "kills: 64k" "$1" 1000 150000 --rw randrw --mix 20 \
	    --bs 4k --depth 32
	after_kills "kills: 64k"
	check "kills: extended L2: make it" over extended_l2=on
	attach "kills: extended L2"
	kills_while "kills: extended L2" "$1" 1000 100000 --rw randrw \
	    --mix 20 --bs 8k --depth 16 --flush-every 40
	after_kills "kills: extended L2"
	nothing_known
	check "kills: 512: make it" new cluster_size=512
	attach "kills: 512"
	kills_while "kills: 512" "$1" 1000 100000 --rw randwrite --bs 16k \
	    --depth 16
	after_kills "kills: 512"
	check "kills: compressed: make it" copy cluster_size=32k -c
	attach "kills: compressed"
	kills_while "kills: compressed" "$1" 100 60000 --rw randrw --mix 20 \
	    --bs 4k --depth 16
	after_kills "kills: compressed"
	kill_discards "$1"
	at_least "kills" "$total" $((10 * $1))
}

kill_discards() {
	check "kills: discards: make it" over cluster_size=64k
	attach "kills: discards"
	kills_while "kills: discards" "$1" 1000 100000 --rw randtrim \
	    --bs 128k --depth 4
	kills_while "kills: writes among them" "$1" 1000 100000 --rw \
	    randwrite --bs 32k --depth 8
	io "kills: discards: all of it" --rw write --bs 256k --depth 4
	after_kills "kills: discards"
}

# Between two connections, while it lets go, while it closes.
kill_idle() {
	nothing_known
	check "killed idle: make it" new cluster_size=64k
	attach "killed idle"
	for i in 1 2 3; do
		io "killed idle, $i: writes" --rw randwrite --bs 4k --ios 200 \
		    --depth 16
		check "killed idle, $i: the guest closes it" \
		    guest 7 close xvda
		victim=$(pid_of)
		kill -KILL "$victim"
		check "killed idle, $i: another one" \
		    wait_until 10 other_process "$victim"
		check "killed idle, $i: the guest comes again" \
		    guest 7 reopen xvda
		io "killed idle, $i: reads" --rw read --bs 256k --depth 4
	done
	check "killed idle: the image got what it lacked" grep -q \
	    'has got what' "$dir/ringbackd.log"
	detach "killed idle"
	same "killed idle" leaks
}

other_process() {
	[ -n "$(pid_of)" ] && [ "$(pid_of)" != "$1" ]
}

kill_closing() {
	nothing_known
	check "killed closing: make it" over cluster_size=64k
	for i in 1 2 3 4 5 6 7 8; do
		attach "killed closing, $i"
		io "killed closing, $i: writes" --rw randwrite --bs 4k \
		    --ios 300 --depth 16
		victim=$(pid_of)
		rb detach guest-7 xvda >"$dir/io" 2>&1 &
		job=$!
		sleep "0.0$(random 3)$(random 10)"
		kill -KILL "$victim" 2>/dev/null
		went_well "killed closing, $i: detach" $job
		nothing_left "killed closing, $i"
		same "killed closing, $i" leaks
	done
}

# A toolstack's disk is active only while it is connected.
as_xl() {
	nothing_known
	[ -d "$dir/bin" ] || xl_prepare
	img=$dir/xl.qcow2
	check "xl: make it" over cluster_size=64k
	check "xl: attach" xl_attach 7 51712 "qcow2:$img"
	check "xl: the guest connects" guest 7 wait xvda
	total=0
	kills_while "xl: kills" "$1" 1000 150000 --rw randrw --mix 20 \
	    --bs 8k --depth 16
	for i in 1 2 3 4; do
		io "xl, $i: writes" --rw randwrite --bs 4k --ios 200 --depth 16
		victim=$(pid_of)
		guest 7 close xvda >"$dir/job" 2>&1 &
		job=$!
		sleep "0.00$(random 10)"
		kill -KILL "$victim" 2>/dev/null
		wait $job
		check "xl, $i: the guest comes again" guest 7 reopen xvda
		io "xl, $i: reads" --rw read --bs 256k --depth 4
	done
	check "xl: detach" xl_detach 7 51712
	check "xl: the guest let go" guest 7 released xvda
	nothing_left "xl"
	same "xl" leaks
	img=$dir/x.qcow2
}

# The supervisor is dead as well.
both_die() {
	nothing_known
	check "both killed: make it" over cluster_size=64k
	attach "both killed"
	for i in 1 2 3; do
		seed=$((seed + 1))
		guest 7 io xvda --rw randrw --mix 20 --bs 4k --depth 32 \
		    --time 0.6 --stall 20 --verify --zeroed --seed $seed \
		    >"$dir/io" 2>&1 &
		job=$!
		sleep 0.2
		kill -KILL "$daemon" "$(pid_of)"
		wait "$daemon" 2>/dev/null
		daemon_start || exit 1
		went_well "both killed, $i: the guest sees no error" $job
	done
	guest 7 close xvda
	kill -KILL "$daemon" "$(pid_of)"
	wait "$daemon" 2>/dev/null
	daemon_start || exit 1
	check "both killed while idle: the guest comes again" \
	    guest 7 reopen xvda
	after_kills "both killed"
}

is_closing() {
	state_is "$(be 7 51712)" 5 || state_is "$(be 7 51712)" 6
}

# The last process answers what is in flight with an error; but what had been
# done before is in the image even so.
three_deaths() {
	nothing_known
	check "three deaths: make it" over cluster_size=64k
	daemon_options=--verbose
	daemon_restart
	attach "three deaths"
	io "three deaths: writes" --rw randwrite --bs 4k --ios 400 --depth 16
	"$O/page_poke" "$dir/run/7-51712.page" die 10 submitted:0 submitted:0 \
	    submitted:0 >"$dir/io" 2>&1 &
	job=$!
	sleep 0.2
	guest 7 io xvda --rw randwrite --bs 4k --depth 16 --ios 16 --verify \
	    --zeroed --stall 20 --json >"$dir/json" 2>/dev/null
	went_well "three deaths" $job
	at_least "three deaths: I/Os answered with ERROR" \
	    "$(number failed_ios "$dir/json")" 1
	check "three deaths: the disk is closed" wait_until 10 is_closing
	detach "three deaths"
	check "three deaths: no fault" no_errors "$img" leaks
	daemon_options="--verbose --max-deaths 0"
	daemon_restart
	attach "three deaths: again"
	io "three deaths: what was acknowledged" --rw read --bs 256k --depth 4
	io "three deaths: all of it" --rw write --bs 256k --depth 4
	detach "three deaths: again"
	same "three deaths" leaks
}

qcow2_machine
if [ -n "${SOAK-}" ]; then
	end=$(($(date +%s) + ${SOAK_SECONDS:-600}))
	while [ "$(date +%s)" -lt $end ] && [ "$failed" -eq 0 ]; do
		kills 10
		kill_idle
		kill_closing
		as_xl 10
		both_die
		three_deaths
	done
else
	eval "${PARTS-kills 1; kill_idle; kill_closing; as_xl 1; both_die
	    three_deaths}"
fi
qcow2_end
