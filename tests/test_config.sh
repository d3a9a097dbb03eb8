#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_config: the real ringbackd as a host runs it, on a loopxen of its own:
# with a ringback.conf that changes under it, with no more than the unit file
# leaves it, with a service manager that watches it, and with all disks detached
# at the end.
set -u
. "$(dirname "$0")/on_loopxen.sh"
rc=0 daemon='' guest='' recorder=''
conf=$dir/ringback.conf

# Only what was started here: it has our run directory among its arguments.
# shellcheck disable=SC2317,SC2013 # the trap calls it; numbers, not lines
tidy() {
	[ -z "$guest" ] || kill -CONT "$guest" 2>/dev/null
	for p in $guest $daemon $recorder; do
		kill "$p" 2>/dev/null
	done
	for p in $(grep -ls -- "$run" /proc/[0-9]*/cmdline | cut -d/ -f3); do
		[ "$p" = $$ ] || kill "$p" 2>/dev/null
	done
}
trap tidy EXIT

say() {	# say STATUS NAME
	if [ "$1" -eq 0 ]; then
		echo "ok $2"
	else
		echo "FAIL $2"
		rc=1
	fi
}

ringback() {
	"$O/ringback" --run-dir "$run" "$@" >"$dir/text" 2>&1
}

# until COMMAND...: at most 5 s
until_true() {
	for _ in $(seq 100); do
		"$@" && return 0
		sleep 0.05
	done
	return 1
}

logged() {
	[ "$(grep -c -- "$2" "$dir/log")" -ge "$1" ]
}

# What the disk's process was told to open; its pid.
full() {
	"$O/ringback" --run-dir "$run" --json list | python3 -c '
import json, sys
for d in json.load(sys.stdin)["disks"]:
    if d["vdev"] == sys.argv[1]:
        print(d["full-spec"], d["pid"], d["state"])' "$1"
}

is_full() {	# is_full VDEV SPEC
	case $(full "$1") in
	"$2 "*" Connected") ;;
	*)	return 1 ;;
	esac
}

io() {
	"$O/loopfront" to "$dir/g.sock" io "$1" --rw randrw --ios 300 \
	    --depth 16 --verify >"$dir/io" 2>&1 || { cat "$dir/io"; false; }
}

# With what systemd leaves of root's capabilities, and all that can be had of
# the rest without it.
caps=$(sed -n 's/^CapabilityBoundingSet=//p' tools/ringbackd.service |
    tr 'A-Z ' 'a-z,' | sed 's/cap_/+/g')
grep -q '^NoNewPrivileges=yes' tools/ringbackd.service && [ -n "$caps" ]
say $? "the unit file says what it takes away"
start() {
	NOTIFY_SOCKET=$dir/notify WATCHDOG_USEC=400000 setpriv --no-new-privs \
	    --inh-caps=-all --bounding-set="-all,$caps" \
	    "$O/ringbackd" --run-dir "$run" --config "$conf" 2>>"$dir/log" &
	daemon=$!
	until_true ringback list
}

# ---- a file that is wrong ----
printf 'kinds = vbd,ringback\nfrob = 1\n' >"$conf"
for check in '' --check-config; do
	"$O/ringbackd" --config "$conf" --run-dir "$run" $check 2>"$dir/text"
	[ $? -eq 2 ] && grep -q "$conf:2: unknown key \"frob\"" "$dir/text"
	say $? "a bad file is refused ${check:-at the start}"
done
[ ! -e "$run/control" ]
say $? "... and nothing is started"

# ---- a service ----
# All datagrams of the daemon, one a line.
python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(s.recv(4096).decode().replace("\n", " "), flush=True)' \
    "$dir/notify" >"$dir/told" &
recorder=$!
until_true [ -S "$dir/notify" ]
printf '%s\n' 'uid-base = 70000' 'default-options = poll=off, merge=64K' \
    '[qcow2]' 'default-options = memory=16M' >"$conf"
"$O/ringbackd" --config "$conf" --check-config >"$dir/text"
say $? "a good file"
start
say $? "it starts with what the unit file leaves it"
guest=$("$O/loopfront" domain --domid 7 --name web1 --socket "$dir/g.sock" \
    --background)
truncate -s 16M "$dir/a.img" "$dir/b.img" "$dir/c.img" "$dir/x.img"
qemu-img create -q -f qcow2 "$dir/q.qcow2" 16M
# Somebody else's images.
chown 12345:12345 "$dir"/*.img
chmod 600 "$dir"/*.img

ringback attach web1 xvda "raw,merge=0:$dir/a.img" &&
    is_full xvda "raw,merge=0,poll=off:$dir/a.img" || { full xvda; false; }
say $? "a disk has the defaults that it does not say otherwise"
ringback attach web1 xvdb "qcow2:$dir/q.qcow2" &&
    is_full xvdb "qcow2,memory=16M,poll=off,merge=64K:$dir/q.qcow2"
say $? "... and first those of its format"
io xvda && io xvdb
say $? "the guest reads and writes"
# Unless this machine's root has none either: SYS_RESOURCE, number 24.
bound=$(sed -n 's/^CapBnd:[[:space:]]*/0x/p' /proc/self/status)
[ $((bound >> 24 & 1)) -eq 0 ] || ! grep 'going on' "$dir/log"
say $? "... and no capability is missed"
pid=$(full xvda | cut -d' ' -f2)
grep -qE '^Uid:\s+7000[0-9]' "/proc/$pid/status"
say $? "its process has a user of its own"
! tr '\0' '\n' <"/proc/$pid/environ" | grep -qE '^(NOTIFY_SOCKET|WATCHDOG)'
say $? "... and nothing to tell systemd"

printf '%s\n' 'default-options = poll=7' "backing-root = $dir/none" >"$conf"
kill -HUP "$daemon"
until_true logged 1 "configuration is read again" && ringback list
say $? "it reads its file again"
logged 1 "uid-base has changed: that needs a restart"
say $? "... and says what cannot change"
ringback attach web1 xvdc "raw:$dir/c.img" &&
    is_full xvdc "raw,poll=7:$dir/c.img" &&
    is_full xvda "raw,merge=0,poll=off:$dir/a.img"
say $? "that holds for disks attached from then on"
"$O/loopfront" to "$dir/g.sock" reopen xvda >"$dir/io" 2>&1 && io xvda &&
    is_full xvda "raw,merge=0,poll=off:$dir/a.img"
say $? "... and not for one whose guest connects again"
qemu-img create -q -f qcow2 -F raw -b "$dir/b.img" "$dir/o.qcow2"
! ringback attach web1 xvdd "qcow2:$dir/o.qcow2" &&
    grep -q "$dir/b.img" "$dir/text"
say $? "... as do the folders of backing files"

echo 'poll = 1' >"$conf"
kill -HUP "$daemon"
until_true logged 1 "what was read before that still holds" &&
    grep -q "$conf:1: unknown key" "$dir/log"
say $? "a bad file is refused when it is read again"
ringback attach web1 xvdd "raw:$dir/b.img" &&
    is_full xvdd "raw,poll=7:$dir/b.img"
say $? "... and the old one holds"
ringback detach web1 xvdd

# ---- another daemon, another file ----
before=$(full xvda; full xvdb; full xvdc)
kill "$daemon"
wait "$daemon"
echo 'default-options = poll=9, ring-order=0, iothreads=2' >"$conf"
start
until_true is_full xvdc "raw,poll=7:$dir/c.img"
after=$(full xvda; full xvdb; full xvdc)
[ "$before" = "$after" ] || { echo "$before"; echo "$after"; false; }
say $? "a new daemon finds all disks, whatever its file says"
io xvda
pid=$(full xvda | cut -d' ' -f2)
# 0 would be ourselves.
[ "${pid:-0}" -gt 1 ] && kill -KILL "$pid"
io xvda && is_full xvda "raw,merge=0,poll=off:$dir/a.img"
say $? "a successor has its predecessor's options"

# ---- being watched ----
pings() {
	[ "$(grep -c '^WATCHDOG=1' "$dir/told")" -ge "$1" ]
}
n=$(grep -c '^WATCHDOG=1' "$dir/told")
until_true pings $((n + 3))
say $? "the watchdog is told that the daemon lives"
told=$(grep -vc '^WATCHDOG=1' "$dir/told")
[ "$(grep -v '^WATCHDOG=1' "$dir/told" | tr '\n' ' ')" = \
    "READY=1 RELOADING=1 READY=1 RELOADING=1 READY=1 STOPPING=1 READY=1 " ]
say $? "systemd is told when it starts, reads again and stops ($told)"

# ---- the host goes down ----
# A disk of xl's, whose guest has not gone.
b=/local/domain/0/backend/vbd/7/51760
xenstore-write $b/frontend /local/domain/7/device/vbd/51760 \
    $b/frontend-id 7 $b/online 1 $b/mode w $b/dev xvdd \
    $b/params "raw:$dir/x.img" $b/script block-ringback $b/state 1
until_true sh -c "XENBUS_PATH=backend/vbd/7/51760 '$O/ringback' \
    --run-dir '$run' hotplug add"
kill -STOP "$guest"
from=$(date +%s%N)
ringback detach --all --timeout 1
got=$?
took=$((($(date +%s%N) - from) / 1000000))
kill -CONT "$guest"
[ $got -eq 1 ] && [ $took -lt 4000 ] &&
    [ "$(grep -c 'domain 7, xvd[abcd] is still attached' "$dir/text")" -eq 4 ] &&
    grep -q 'xvda .*still uses the disk' "$dir/text" &&
    grep -q "xvdd .*a toolstack's" "$dir/text" &&
    grep -q '^ringback: 4 disks are still attached' "$dir/text" ||
    { cat "$dir/text"; false; }
say $? "detach --all tells what remains, in time ($took ms)"
only_xl() {
	ringback list && [ "$(grep -c '^7 ' "$dir/text")" -eq 1 ]
}
until_true only_xl
for v in xvda xvdb xvdc; do
	case $v in
	xvdb)	s=qcow2:$dir/q.qcow2 ;;
	*)	s=raw:$dir/${v#xvd}.img ;;
	esac
	ringback attach web1 $v "$s" || cat "$dir/text"
done
(
	sleep 0.5
	xenstore-rm $b
) &
ringback detach --all --timeout 10
got=$?
[ $got -eq 0 ] && [ ! -s "$dir/text" ] || { cat "$dir/text"; false; }
say $? "detach --all detaches all, and waits for xl's"
"$O/ringback" --run-dir "$run" --json detach --all >"$dir/text"
[ "$(cat "$dir/text")" = '{"ok":true,"remaining":[]}' ]
say $? "... and is done where there is none"
[ -z "$(find "$run" -name '[0-9]*')" ]
say $? "nothing is left of them"

kill "$daemon"
wait "$daemon"
say $? "it stops"
daemon=
[ $rc -eq 0 ] || cat "$dir/log"
exit $rc
