#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_supervisor: run test_supervisor.c, test_service.c, test_redo.c,
# test_medium.c and test_toolstack.c, each on a loopxen of its own, and see what
# happens when xenstored dies.
O=${O:-build}
if [ "$(id -u)" -ne 0 ]; then
	echo "skip the supervisor's tests: they need root"
	exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
status=0
export O LOOPXEN_BUILD="$O" RINGBACKD="$O/ringbackd_fake"

on_loopxen() {
	"$(dirname "$0")/loopxen/loopxen" run "$dir" -- "$@"
}

on_loopxen "$O/test_supervisor" || status=1
on_loopxen "$O/test_service" || status=1
on_loopxen "$O/test_redo" || status=1
on_loopxen "$O/test_medium" || status=1
on_loopxen "$O/test_toolstack" || status=1

# The next question shows it; the daemon ends, so that it can be started again.
# shellcheck disable=SC2016 # the inner shell is to expand it
if on_loopxen timeout 20 sh -c '
	$RINGBACKD --run-dir "$0/run" 2>"$0/log" & daemon=$!
	until [ -S "$0/run/control" ]; do sleep 0.1; done
	kill -KILL "$(cat "$0/xenstored.pid")"
	$O/ringback --run-dir "$0/run" attach 7 xvda null:x 2>/dev/null
	wait $daemon
	[ $? -eq 1 ] && grep -q "connection to xenstored is lost" "$0/log"
    ' "$dir" 2>/dev/null; then
	echo "ok the loss of xenstored is noticed"
else
	echo "FAIL the loss of xenstored is noticed"
	status=1
fi
exit $status
