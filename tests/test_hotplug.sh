#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_hotplug: the script block-ringback as xl runs it: next to no
# environment, and a ringback that says no, says yes, or is not there.
set -u
rc=0
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
sed "s|@BINDIR@|$dir|" tools/block-ringback >"$dir/block-ringback"

# A ringback that notes how it was called and says $1.
ringback_says() {
	cat >"$dir/ringback" <<-END
		#!/bin/sh
		echo "\$* \$XENBUS_PATH" >$dir/called
		echo "ringback: the reason" >&2
		exit $1
	END
	chmod +x "$dir/ringback"
}

# run NAME EXPECTED-STATUS EXPECTED-CALL ACTION...
run() {
	name=$1 status=$2 called=$3
	shift 3
	rm -f "$dir/called"
	env -i XENBUS_PATH=backend/vbd/7/51712 /bin/sh "$dir/block-ringback" \
	    "$@" >"$dir/out" 2>"$dir/err"
	got=$?
	if [ "$got" -ne "$status" ]; then
		echo "FAIL $name: exit status $got, not $status"
		rc=1
	elif [ "$(cat "$dir/called" 2>/dev/null)" != "$called" ]; then
		echo "FAIL $name: ringback was called with:" \
		    "$(cat "$dir/called" 2>&1)"
		rc=1
	elif [ -s "$dir/out" ]; then
		echo "FAIL $name: something on stdout"
		rc=1
	elif ! [ -s "$dir/err" ]; then
		echo "FAIL $name: no reason on stderr"
		rc=1
	else
		echo "ok $name"
	fi
}

ringback_says 0
run "add, served" 0 "hotplug add backend/vbd/7/51712" add
run "remove" 0 "hotplug remove backend/vbd/7/51712" remove
run "neither" 1 "" online
run "nothing" 1 ""
ringback_says 1
run "add, refused" 1 "hotplug add backend/vbd/7/51712" add
run "remove that fails" 0 "hotplug remove backend/vbd/7/51712" remove
rm "$dir/ringback"
if command -v ringback >/dev/null; then
	echo "skip add without ringback: one is installed"
else
	run "add without ringback" 127 "" add
	run "remove without ringback" 0 "" remove
fi
exit $rc
