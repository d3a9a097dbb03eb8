#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_store: guests that write rubbish into xenstore as fast as they can, and
# one beside them that must not feel it.  tests/hostile/store.c has them, and
# says what must hold.
#
#   SEED=N              what they do (from the time)
#   SECONDS_LONG=N      for how long (4; with SOAK=1: 60)
set -u
. tests/machine.sh

# Without --verbose: what is written then is what a guest can make it write.
daemon_start() {
	LD_PRELOAD="$O/store_tap.so" STORE_TAP="$dir/states" \
	    ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" \
	    "${RINGBACKD:-$O/ringbackd}" --run-dir "$dir/run" \
	    >>"$dir/ringbackd.log" 2>&1 &
	daemon=$!
	wait_until 10 rb list && return
	tail -5 "$dir/ringbackd.log" >&2
	return 1
}

store() {
	"$O/hostile_store" --seed "${SEED:-$(date +%s)}" \
	    --seconds "${SECONDS_LONG:-$([ -z "${SOAK-}" ] && echo 4 || echo 60)}" \
	    --tap "$dir/states" --run-dir "$dir/run" \
	    --ringback "$O/ringback" --image "$dir/hostile.img" \
	    --log "$dir/ringbackd.log" --daemon "$daemon" --other guest-7 \
	    --other-page "$dir/run/7-51712.page" >"$dir/store" 2>&1 &
	wait $!
	rc=$?
	cat "$dir/store"
	n=$(grep -c '^ok ' "$dir/store")
	passed=$((passed + n))
	n=$(grep -c '^FAIL ' "$dir/store")
	failed=$((failed + n))
	[ "$rc" -eq 0 ] || [ "$n" -gt 0 ] || bad "store" "exit status $rc"
}

machine_start
for i in 0 1 2; do
	truncate -s 4M "$dir/hostile.img.$i"
done
beside_start
store
beside_stop
beside_leave
summary
