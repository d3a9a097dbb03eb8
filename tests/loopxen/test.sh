#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Tests of loopxen: its libraries and broker (test_loopxen and
# test_loopxen_events), and the command.
# O is the build's output folder.

O=${O:-build}
LOOPXEN_BUILD=$O
export LOOPXEN_BUILD
loopxen=$(dirname "$0")/loopxen
status=0

dir=$(mktemp -d)
tidy() {
	"$loopxen" stop "$dir/a"
	"$loopxen" stop "$dir/b"
	rm -rf "$dir"
}
trap tidy EXIT

# ok NAME CMD...: one case
ok() {
	name=$1
	shift
	if "$@"; then
		echo "ok $name"
	else
		echo "FAIL $name"
		status=1
	fi
}

# pids named in DIR/*.pid that live
alive() {
	for f in "$1"/*.pid; do
		[ -e "$f" ] && kill -0 "$(cat "$f")" 2>/dev/null && return 0
	done
	return 1
}

# Nothing lives that belongs to DIR, and no socket is left.
clean() {
	! alive "$1" && [ ! -e "$1/socket" ] && [ ! -e "$1/broker.sock" ]
}

symbols() {
	objdump -T "$1" | awk '/ g /{ print $(NF-1), $NF }' | sort
}

# The drop-ins export what the real ones export, in the same versions.
same_symbols() {
	for f in "$O"/loopxen/lib*.so.1; do
		real=$(ldconfig -p | awk -v n="${f##*/}" \
		    '$1 == n { print $NF; exit }')
		if [ -z "$real" ]; then
			echo "no ${f##*/} is installed" >&2
			return 1
		fi
		symbols "$real" >"$dir/real"
		symbols "$f" >"$dir/ours"
		[ -s "$dir/real" ] && diff "$dir/real" "$dir/ours" || return 1
	done
}

exit_status() {
	"$loopxen" run "$dir/a" -- sh -c 'exit 7'
	[ $? -eq 7 ] && clean "$dir/a"
}

# Two machines: each has a store of its own, and its own domain 7.
side_by_side() {
	"$loopxen" start "$dir/a" && "$loopxen" start "$dir/b" || return 1
	(eval "$("$loopxen" env "$dir/a")" && xenstore-write /who a)
	(eval "$("$loopxen" env "$dir/b")" && xenstore-write /who b)
	a=$(eval "$("$loopxen" env "$dir/a")" && xenstore-read /who)
	"$loopxen" stop "$dir/a"
	b=$(eval "$("$loopxen" env "$dir/b")" && xenstore-read /who)
	alive "$dir/b" || return 1
	"$loopxen" stop "$dir/b"
	[ "$a" = a ] && [ "$b" = b ] && clean "$dir/a" && clean "$dir/b"
}

refused_twice() {
	"$loopxen" start "$dir/a" || return 1
	"$loopxen" start "$dir/a" 2>/dev/null && return 1
	alive "$dir/a" || return 1
	"$loopxen" stop "$dir/a" && clean "$dir/a"
}

# Ctrl-C goes to the whole group: CMD ends, the machine is taken down.
interrupted() {
	env --default-signal=INT setsid --wait "$loopxen" run "$dir/a" -- \
	    sh -c "echo \$PPID >'$dir/group'; exec sleep 30" &
	runner=$!
	for _ in $(seq 200); do
		[ -s "$dir/group" ] && break
		sleep 0.05
	done
	kill -INT "-$(cat "$dir/group")" || return 1
	began=$(date +%s)
	wait "$runner"
	[ $? -eq 130 ] && [ $(($(date +%s) - began)) -lt 20 ] && clean "$dir/a"
}

# A pid file left over from a crash may name somebody else by now.
strangers_live() {
	mkdir -p "$dir/a"
	sleep 30 &
	stranger=$!
	echo "$stranger" >"$dir/a/broker.pid"
	echo "$stranger" >"$dir/a/xenstored.pid"
	"$loopxen" stop "$dir/a"
	kill -0 "$stranger" || return 1
	kill "$stranger"
}

"$loopxen" run "$dir/a" -- "$O/test_loopxen" || status=1
"$loopxen" run "$dir/a" -- "$O/test_loopxen_events" || status=1
"$loopxen" run "$dir/a" -- "$O/test_gntdev" || status=1
ok same_symbols same_symbols
ok exit_status exit_status
ok side_by_side side_by_side
ok refused_twice refused_twice
ok interrupted interrupted
ok strangers_live strangers_live
exit $status
