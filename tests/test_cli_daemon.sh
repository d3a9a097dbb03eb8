#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_cli_daemon: ringback and block-ringback against the real ringbackd, on a
# loopxen of their own with a guest of loopfront's: what a user gets to see when
# it works, and each thing that can be wrong.
set -u
. "$(dirname "$0")/on_loopxen.sh"
rc=0 daemon='' guest=''

# Only what was started here: it has our run directory among its arguments.
# shellcheck disable=SC2317,SC2013 # the trap calls it; numbers, not lines
tidy() {
	[ -z "$guest" ] || kill -CONT "$guest" 2>/dev/null
	[ -z "$guest" ] || kill "$guest" 2>/dev/null
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null
	for p in $(grep -ls -- "$run" /proc/[0-9]*/cmdline | cut -d/ -f3); do
		[ "$p" = $$ ] || kill "$p" 2>/dev/null
	done
}
trap tidy EXIT

# ringback, with what it prints in $dir/text.
ringback() {
	"$O/ringback" --run-dir "$run" "$@" >"$dir/text" 2>&1
}

# expect NAME STATUS WORDS COMMAND...: the status, and a text with all WORDS
# (separated by '|') in this order on one line, or no text if there are none.
expect() {
	name=$1 status=$2 words=$3
	shift 3
	"$@"
	got=$?
	if [ $got -ne "$status" ]; then
		echo "FAIL $name: exit status $got, not $status:"
		cat "$dir/text"
		rc=1
	elif [ -z "$words" ] && [ -s "$dir/text" ]; then
		echo "FAIL $name: it says:"
		cat "$dir/text"
		rc=1
	elif [ -n "$words" ] &&
	    ! grep -qE "$(echo "$words" | sed 's/|/.*/g')" "$dir/text"; then
		echo "FAIL $name: no \"$words\" in:"
		cat "$dir/text"
		rc=1
	else
		echo "ok $name"
	fi
}

# shellcheck disable=SC2317 # expect calls it
add() {
	XENBUS_PATH=$1 ringback hotplug add
}

# shellcheck disable=SC2317
script() {
	XENBUS_PATH=$1 sh "$dir/block-ringback" add >"$dir/text" 2>&1
}

"$O/ringbackd" --run-dir "$run" 2>"$dir/log" &
daemon=$!
for _ in $(seq 100); do
	ringback list && break
	sleep 0.1
done
guest=$("$O/loopfront" domain --domid 7 --name web1 --socket "$dir/g.sock" \
    --background)
truncate -s 16M "$dir/a.img"
a=raw:$dir/a.img

expect "no disks" 0 'DOMAIN|SPEC' ringback list
expect "no such image" 1 "7/51712|open|$dir/none|No such file|check" \
    ringback attach web1 xvda "raw:$dir/none"
expect "a directory" 1 "7/51712|$dir|is a directory" \
    ringback attach web1 xvda "raw:$dir"
expect "a relative path" 1 "xvda|web1|a.img|whole path" \
    ringback attach web1 xvda raw:a.img
expect "a bad spec" 1 "xvda|web1|cache=writeback needs io=threads" \
    ringback attach web1 xvda "raw,cache=writeback,io=native:$dir/a.img"
expect "no format" 1 "xvda|web1|no ':'|format" \
    ringback attach web1 xvda "$dir/a.img"
expect "no such domain, by name" 1 "web9|no running domain|xl list" \
    ringback attach web9 xvda "$a"
expect "no such domain, by number" 1 "99|no running domain|xl list" \
    ringback attach 99 xvda "$a"
expect "no such device name" 1 "foo|no name of a disk|xvda" \
    ringback attach web1 foo "$a"
expect "nothing was left behind" 0 'DOMAIN' ringback list
[ "$(wc -l <"$dir/text")" -eq 1 ] || { echo "FAIL a disk is left"; rc=1; }

expect "attach" 0 'xvda is connected to web1' ringback attach web1 xvda "$a"
expect "list" 0 "^7|web1|xvda|ringback|Connected|Connected|16M|rw|$a\$" \
    ringback list
expect "the name is taken" 1 "7/51712|detach that first" \
    ringback attach web1 xvda "$a"
expect "the image is in use" 1 "7/51728|lock|$dir/a.img|uses this image" \
    ringback attach web1 xvdb "$a"
if "$O/loopfront" to "$dir/g.sock" io xvda --rw write --ios 500 --depth 32 \
    --batch 32 >"$dir/text"; then
	echo "ok the guest writes"
else
	echo "FAIL the guest writes"
	rc=1
fi
expect "stats" 0 '  writes +500 ' ringback stats web1 xvda
expect "stats, merging" 0 'host I/Os|requests per host I/O' \
    ringback stats web1 xvda
expect "stats as JSON" 0 '"ok":true|"reqs-answered":500' \
    ringback --json stats 7 xvda
expect "stats of no disk" 1 "web1|no disk xvdb|list" ringback stats web1 xvdb
expect "stats of no domain" 1 "no running domain|web9" ringback stats web9 xvda

# A guest that does nothing: stopped, as one that is paused.
kill -STOP "$guest"
expect "detach, used" 1 "7/51712|still uses|after 1 s|unmount" \
    ringback detach web1 xvda --timeout 1
kill -CONT "$guest"
for _ in $(seq 50); do
	ringback list
	[ "$(wc -l <"$dir/text")" -gt 1 ] || break
	sleep 0.1
done
expect "detached when the guest let go" 1 "no disk xvda" \
    ringback stats web1 xvda
kill -STOP "$guest"
expect "attach, not answered" 1 "7/51712|not connected within 1 s|detach" \
    ringback attach web1 xvda "$a" --timeout 1
kill -CONT "$guest"
for _ in $(seq 50); do
	ringback list
	grep -q 'Connected *Connected' "$dir/text" && break
	sleep 0.1
done
expect "detach" 0 '' ringback detach web1 xvda
expect "detach twice" 1 "web1|no disk xvda|list" ringback detach web1 xvda
expect "attach, not waiting" 0 'xvdc is offered to 7' \
    ringback attach 7 xvdc "$a" --no-wait --readonly
expect "read-only" 0 "xvdc|ro" ringback list
expect "detach by number" 0 '' ringback detach 7 xvdc

# What xl gets to hear.
sed "s|@BINDIR@|$dir|" tools/block-ringback >"$dir/block-ringback"
printf '#!/bin/sh\nexec "%s" --run-dir "%s" "$@"\n' "$(realpath "$O/ringback")" \
    "$run" >"$dir/ringback"
chmod +x "$dir/ringback"
b=/local/domain/0/backend/vbd/7/51760
offer() {
	xenstore-write "$b/frontend" /local/domain/7/device/vbd/51760 \
	    "$b/frontend-id" 7 "$b/online" 1 "$b/mode" w "$b/dev" xvdd \
	    "$b/params" "$1" "$b/script" block-ringback "$b/state" 1
}
expect "hotplug, no directory" 1 "backend/vbd/7/51760|no such directory" \
    add backend/vbd/7/51760
expect "hotplug, another kind" 1 "backend/qdisk/7/1|does not serve|qdisk" \
    add backend/qdisk/7/1
expect "hotplug, no path" 1 "backend/vbd|not of the form" add backend/vbd
offer "raw:$dir/none"
expect "xl's script, bad image" 1 "7/51760|$dir/none|No such file" \
    script backend/vbd/7/51760
[ "$(xenstore-read $b/hotplug-status)" = error ] || {
	echo "FAIL hotplug-status is $(xenstore-read $b/hotplug-status)"
	rc=1
}
xenstore-rm "$b"
sleep 0.2
offer "$a"
expect "xl's script, good image" 0 '' script backend/vbd/7/51760
[ "$(xenstore-read $b/hotplug-status)" = connected ] || {
	echo "FAIL hotplug-status is $(xenstore-read $b/hotplug-status)"
	rc=1
}
expect "xl's disks are listed" 0 "xvdd|vbd|16M|rw" ringback list
expect "xl's disks are xl's" 1 "7/51760|xl" ringback detach 7 xvdd
xenstore-rm "$b"

kill "$daemon"
wait "$daemon"
status=$?
daemon=
[ $status -eq 0 ] || { echo "FAIL ringbackd: exit status $status"; rc=1; }
expect "no daemon" 1 "does not answer at $run/control|start it" ringback list
expect "no daemon, xl's script" 1 "does not answer|start it" \
    script backend/vbd/7/51760
[ $rc -eq 0 ] || cat "$dir/log"
exit $rc
