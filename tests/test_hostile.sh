#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_hostile: guests that mean harm, and one beside them that must not feel
# it.  tests/hostile has the attacks and says what must hold after each.
#
#   SOAK=1              longer, as the issue has it: 30 s where a copy blocks
#   HOSTILE='WORD ...'  only the attacks whose names contain one of the words
set -u
. tests/machine.sh

# Without --verbose: what is written then is what a guest can make it write.
daemon_start() {
	"$O/ringbackd" --run-dir "$dir/run" >>"$dir/ringbackd.log" 2>&1 &
	daemon=$!
	wait_until 10 rb list && return
	tail -5 "$dir/ringbackd.log" >&2
	return 1
}

hostile() {
	set -- ${HOSTILE-}
	[ -z "${SOAK-}" ] || set -- --soak "$@"
	"$O/hostile" --run-dir "$dir/run" --ringback "$O/ringback" \
	    --image "$dir/hostile.img" --log "$dir/ringbackd.log" \
	    --daemon "$daemon" --other guest-7 \
	    --other-page "$dir/run/7-51712.page" "$@" >"$dir/hostile" 2>&1 &
	wait $!
	hostile_rc=$?
	grep -v '^daemon ' "$dir/hostile"
	# One attack has started another one.
	new=$(sed -n 's/^daemon //p' "$dir/hostile" | tail -1)
	daemon=${new:-$daemon}
	n=$(grep -c '^ok ' "$dir/hostile")
	passed=$((passed + n))
	n=$(grep -c '^FAIL ' "$dir/hostile")
	failed=$((failed + n))
	[ "$hostile_rc" -eq 0 ] || [ "$n" -gt 0 ] ||
	    bad "hostile" "exit status $hostile_rc"
}

machine_start
head -c 4M /dev/urandom >"$dir/hostile.img"
head -c 1000448 /dev/urandom >"$dir/hostile.img.odd"
beside_start
hostile
beside_stop
check "what the guest beside has written is there" \
    guest 7 io xvda --rw read --bs 64k --verify
guest 7 image xvda "$dir/want"
check "its image, from outside" cmp "$dir/want" "$dir/good.img"
beside_leave
summary
