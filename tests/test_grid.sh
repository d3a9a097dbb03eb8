#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_grid: does tests/bench_grid.sh still run?
#
# A grid of two cells with runs of a tenth of a second, on tmpfs, against QEMU
# if it is installed; and whether something is left behind: at the end, after a
# failure, after signals.  Says nothing about speed.
# shellcheck disable=SC2016,SC2317 # an inner shell expands; called by name
set -u
. tests/machine.sh
[ "$(stat -f -c %T /dev/shm)" = tmpfs ] || {
	say "skip grid: /dev/shm is no tmpfs"
	exit 77
}
mine=$(mktemp -d) && shm=$(mktemp -d /dev/shm/test_grid.XXXXXX) || exit 1
# What runs was started by a subshell: it cannot be waited for.
finish() {
	trap - EXIT
	[ ! -s "$mine/group" ] || ! kill "$(cat "$mine/group")" 2>/dev/null ||
	    wait_until 4 over_and_out
	rm -rf "$mine" "$shm"
}

over_and_out() {
	! kill -0 "$(cat "$mine/group")"
}

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
chmod 755 "$shm"
mkdir "$mine/tmp"
# The sockets and logs of the machine lie below the one, the images in the other.
export TMPDIR="$mine/tmp" TMPFS="$shm" O
export WHERE=tmpfs SIZE=80 REPEATS=1 TAPDISK=

# start [NAME=VALUE ...]: in a group of its own, as a terminal makes one
start() {
	env --default-signal=INT "$@" setsid sh -c \
	    'echo $$ >"$0/group"; exec sh tests/bench_grid.sh' "$mine" \
	    >"$mine/out" 2>&1 &
	waiter=$!
}

# Its status; it can be waited for once.
over() {
	wait "$waiter"
	status=$?
	rm -f "$mine/group.was"
	[ ! -e "$mine/group" ] || mv "$mine/group" "$mine/group.was"
	return $status
}

grid() {
	start "$@"
	over
}

table() {
	grid SECONDS=0.1 CELLS=read/4k/1,write/4m/32 || {
		cat "$mine/out"
		return 1
	}
}

# measured NAME: in both cells, and with data that is right
measured() {
	python3 - "$O/bench/grid-tmpfs.json" "$1" <<-'END'
		import json, sys
		result = json.load(open(sys.argv[1]))
		name = sys.argv[2]
		columns = {c['name']: c for c in result['columns']}
		print(columns[name])
		assert columns[name]['verified'] == 'passed'
		assert len(result['cells']) == 2
		for cell in result['cells']:
		    assert cell['columns'][name]['bw_bytes']['median'] > 0, cell
	END
}

# The first of these two is what the second is measured by.
notes() {
	grep 'ring order 4, 32 segments' "$mine/out" &&
	    grep '^ringback / limit: median of 2 cells' "$mine/out"
}

nothing_left() {
	for pid in $(pgrep -g "$(cat "$mine/group.was")") $(pgrep -f "$mine/tmp"); do
		tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null && return 1
	done
	left=$(find "$mine/tmp" "$shm" -mindepth 1)
	[ -z "$left" ] || {
		echo "$left"
		return 1
	}
}

all_gone() {
	wait_until 5 nothing_left || nothing_left
}

running() {
	grep 'does not count' "$mine/out"
}

# ended SIGNAL STATUS [-]: all of the group hears ^C, else only the script
ended() {
	rm -f "$mine/out"
	start SECONDS=5 CELLS=read/4k/1
	wait_until 40 running || {
		cat "$mine/out"
		return 1
	}
	sleep 0.3
	kill "-$1" "${3-}$(cat "$mine/group")" || return 1
	began=$(date +%s)
	over
	[ $status -ne "$2" ] || [ $(($(date +%s) - began)) -ge 20 ] || return 0
	echo "status $status"
	cat "$mine/out"
	return 1
}

. tests/peers.sh
qemu_find
check "a small grid" table
check "ringback is measured" measured ringback
if [ -n "$qemu" ]; then
	check "QEMU is measured" measured qemu
else
	say "skip QEMU is measured: it is not installed (qemu-system-xen)"
fi
check "fio is measured" measured limit
check "the notes say what was measured" notes
check "nothing is left" all_gone
refuse "options that are none" grid SPEC=nonsense=1
check "nothing is left after a failure" all_gone
refuse "an unknown place" grid WHERE=nowhere
check "^C" ended INT 130 -
check "nothing is left after ^C" all_gone
check "the end of the script" ended TERM 143
check "nothing is left after it" all_gone
summary
