#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_resize: disks that become larger under a guest that uses them.
#
# PARTS="raw; qcow2": only those.
set -u
. tests/machine.sh
. tests/qcow2_guest.sh

# guest_sees NAME MIB: in xenstore, and as the guest has read it
sees() {
	guest 7 list | grep -q "sectors=$(($1 * 2048)) "
}

guest_sees() {
	check "$1: the guest sees $2 MiB" wait_until 5 sees "$2"
	check "$1: so does ringback list" sh -c "'$O/ringback' --run-dir \
	    '$dir/run' --json list | grep -q '\"size\":$(($2 * 1048576)),'"
}

# has_bytes FILE MIB
has_bytes() {
	[ "$(stat -c %s "$1")" -eq $(($2 * 1048576)) ]
}

has_virtual() {
	qemu-img info -f qcow2 "$img" | grep -q "($(($1 * 1048576)) bytes)"
}

nodes_of() {
	xenstore-ls -f "$(be 7 51712)" | grep -v '/sectors = '
}

raw() {
	nothing_known
	img=$dir/x.raw spec=raw,iothreads=2
	cp "$dir/have.raw" "$img"
	check "raw: two queues" guest 7 set --queues 2
	attach raw
	io "raw: writes" --rw randwrite --bs 16k --ios 50
	nodes_of >"$dir/nodes"
	check "raw: 24 MiB" rb resize guest-7 xvda 24M
	guest_sees raw 24
	check "raw: the file is as long" has_bytes "$img" 24
	io "raw: writes in what is new" --rw write --bs 64k --offset 12m
	io "raw: on the other queue" --rw randwrite --bs 4k --ios 50 \
	    --offset 12m --queue 1
	check "raw: 1 MiB more" rb resize guest-7 xvda +1M
	guest_sees "raw: more" 25
	check "raw: its file is made longer" truncate -s 32M "$img"
	check "raw: and the disk" rb --json resize guest-7 xvda
	case $out in
	'{"ok":true,"size":33554432,"told":true}')	ok "raw: JSON" ;;
	*)	bad "raw: JSON" "$out" ;;
	esac
	guest_sees "raw: as the file" 32
	io "raw: writes at the end" --rw write --bs 64k --offset 31m
	nodes_of >"$dir/nodes.now"
	check "raw: no other node has changed" \
	    cmp "$dir/nodes" "$dir/nodes.now"
	refused "raw: smaller" "made smaller" guest-7 xvda 16M
	refused "raw: not of sectors" "multiple of 512" guest-7 xvda 40000001
	truncate -s 48M "$img"
	refused "raw: less than its file" "without naming" guest-7 xvda 40M
	truncate -s 32M "$img"
	io "raw: all of it is there" --rw read --bs 256k
	detach raw
	check "raw: the guest knows the image" \
	    guest 7 image xvda "$dir/have.raw"
	check "raw: one queue" guest 7 set --queues 1
	check "raw: it is in the file" cmp "$dir/have.raw" "$img"
	img=$dir/x.qcow2 spec=qcow2
}

# Of the state, which is the same, the guest's watch makes it look again.
told() {
	nothing_known
	check "told: make it" new cluster_size=64k
	attach told
	(timeout 5 xenstore-watch -n 3 "$(be 7 51712)" >"$dir/watched") &
	watch=$!
	wait_until 3 test -s "$dir/watched"
	check "told: 20 MiB" rb resize guest-7 xvda 20M
	wait $watch
	check "told: both nodes are written" sh -c "sed 's|.*/||' \
	    '$dir/watched' | sort | tr '\n' ' ' |
	    grep -q '^51712 sectors state '"
	detach told
}

qcow2() {
	nothing_known
	check "qcow2: make it" new cluster_size=4k
	attach qcow2
	io "qcow2: writes" --rw randwrite --bs 4k --ios 200
	check "qcow2: its table grows" rb resize guest-7 xvda 60M
	guest_sees qcow2 60
	io "qcow2: writes in what is new" --rw randwrite --bs 16k --ios 200 \
	    --offset 12m
	io "qcow2: all of it is there" --rw read --bs 256k
	detach qcow2
	same qcow2
	attach "qcow2: again"
	guest_sees "qcow2: again" 60
	detach "qcow2: again"
}

load() {
	nothing_known
	check "load: make it" over cluster_size=512
	attach load
	guest 7 io xvda --verify --zeroed --rw randrw --bs 4k --depth 16 \
	    --time 1 --flush-every 50 --stall 20 --seed 99 >"$dir/io" 2>&1 &
	job=$!
	for mib in 13 14 15 16 20 24 28 32; do
		rb resize guest-7 xvda ${mib}M >/dev/null ||
		    bad "load: $mib MiB"
	done
	if wait $job; then
		ok "load: the guest sees no error"
	else
		bad "load: the guest sees no error" "$(cat "$dir/io")"
	fi
	guest_sees load 32
	io "load: writes in what is new" --rw write --bs 64k --offset 12m
	io "load: all of it is there" --rw read --bs 256k
	detach load
	same load
}

# Whatever the process was at, the guest is told what the disk has.
deaths() {
	nothing_known
	check "deaths: make it" new cluster_size=4k
	attach deaths
	mib=12
	for n in 1 2 3; do
		mib=$((mib + 8))
		check "deaths: $mib MiB" rb resize guest-7 xvda ${mib}M
		kill -KILL "$(pid_of)"
		guest_sees "deaths: $n" $mib
		io "deaths: writes at the end" --rw write --bs 16k \
		    --offset $((mib - 1))m
	done
	# It may come before, in the middle or after.
	for n in 1 2 3; do
		mib=$((mib + 8))
		rb resize guest-7 xvda ${mib}M >"$dir/answer" 2>&1 &
		job=$!
		sleep 0.0$((n * 2 - 1))
		kill -KILL "$(pid_of)"
		wait $job || grep -q "ended meanwhile" "$dir/answer" ||
		    bad "deaths: the answer" "$(cat "$dir/answer")"
		wait_until 5 rb resize guest-7 xvda ${mib}M
		guest_sees "deaths: in between, $n" $mib
		io "deaths: writes at the end" --rw write --bs 16k \
		    --offset $((mib - 1))m
	done
	detach deaths
	same deaths leaks

	nothing_known
	img=$dir/x.raw spec=raw
	cp "$dir/have.raw" "$img"
	attach "deaths: raw"
	truncate -s 16M "$img"
	kill -KILL "$(pid_of)"
	guest_sees "deaths: the successor finds more" 16
	io "deaths: writes there" --rw write --bs 64k --offset 12m
	detach "deaths: raw"
	img=$dir/x.qcow2 spec=qcow2
}

# The guest has closed the disk, but it is still attached: by hand its image is
# still locked, by xl it is not.
idle() {
	nothing_known
	check "idle: make it" new cluster_size=4k
	attach idle
	io "idle: writes" --rw write --bs 64k
	check "idle: the guest closes it" guest 7 close xvda
	resized_idle 20
	check "idle: the guest opens it" guest 7 reopen xvda
	guest_sees idle 20
	io "idle: writes in what is new" --rw write --bs 64k --offset 12m
	detach idle
	same idle

	xl_prepare
	check "idle: xl attaches it" xl_attach 7 51712 "qcow2:$img"
	check "idle: it connects" guest 7 wait xvda
	check "idle: the guest closes that" guest 7 close xvda
	resized_idle 30
	check "idle: no fault" no_errors "$img"
	check "idle: QEMU sees the size" has_virtual 30
	qemu-io -f qcow2 -c 'sleep 1000' "$img" >/dev/null &
	other=$!
	sleep 0.5
	refused "idle: while QEMU has it" "lock" guest-7 xvda 40M
	wait $other
	check "idle: the guest opens that" guest 7 reopen xvda
	guest_sees idle 30
	io "idle: all of it is there" --rw read --bs 64k
	check "idle: xl detaches it" xl_detach 7 51712
	check "idle: the guest let go" guest 7 released xvda
}

# resized_idle MIB
resized_idle() {
	check "idle: $1 MiB" rb --json resize guest-7 xvda "$1M"
	case $out in
	*'"told":false'*)	ok "idle: nobody was told" ;;
	*)			bad "idle: nobody was told" "$out" ;;
	esac
}

# A daemon that has found the disk connected.
restart() {
	nothing_known
	check "restart: make it" new cluster_size=64k
	attach restart
	daemon_restart
	check "restart: 20 MiB" rb resize guest-7 xvda 20M
	guest_sees restart 20
	io "restart: writes in what is new" --rw write --bs 64k --offset 12m
	# One that dies with its daemon gone has its successor tell.
	daemon_restart
	kill -KILL "$(pid_of)"
	guest_sees "restart: and a death" 20
	detach restart
	same restart
}

refused() {
	wanted=$2 name=$1
	shift 2
	if out=$(rb resize "$@" 2>&1); then
		bad "$name" "it succeeded: $out"
	elif say "$out" | grep -q "$wanted"; then
		ok "$name is refused"
	else
		bad "$name is refused with '$wanted'" "$out"
	fi
}

refused_all() {
	nothing_known
	refused "an unknown disk" "has no disk xvdq" guest-7 xvdq 1G
	refused "an unknown domain" "guest-9" guest-9 xvda 1G
	img=$dir/ro.qcow2
	check "refused: make it" new cluster_size=64k
	check "refused: attach it" \
	    rb attach guest-7 xvda "qcow2,readonly=on:$img"
	refused "a read-only image" "read-only" guest-7 xvda 1G
	check "refused: detach it" rb detach guest-7 xvda
	check "refused: one that has no size" rb attach guest-7 xvda null:1M
	refused "a format that cannot" "nothing of that kind" guest-7 xvda 2M
	check "refused: detach that" rb detach guest-7 xvda
	check "refused: with faults" \
	    rb attach guest-7 xvda "fault:op=flush,nth=99:qcow2:$img"
	refused "a qcow2 image without a size" "name the new one" guest-7 xvda
	check "faults: 16 MiB" rb resize guest-7 xvda 16M
	guest_sees faults 16
	check "refused: detach it again" rb detach guest-7 xvda
	img=$dir/x.qcow2
}

qcow2_machine
eval "${PARTS-raw; told; qcow2; load; deaths; idle; restart; refused_all}"
qcow2_end
