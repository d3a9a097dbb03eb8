#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_driver_domain: ringbackd in a domain of its own, 5, whose disks dom0's
# toolstack gives to guests.  It speaks to xenstored as that domain
# (tests/loopxen/xenbus.c), which lets it do what a driver domain may: its own
# subtree, and what a frontend lets it read.  What xl does in dom0 and what "xl
# devd" does in the driver domain is played here.
set -u
. tests/machine.sh
xenbus=''

BACK=5

# Its own domain, and the daemon in it; nodes as libxl makes them.
daemon_start() {
	"$O/loopxen-xenbus" $BACK "$dir/xenbus" 2>>"$dir/xenbus.log" &
	xenbus=$!
	wait_until 5 test -S "$dir/xenbus" || return 1
	xenstore-write /local/domain/$BACK/domid $BACK \
	    /local/domain/$BACK/name storage
	for n in "" /domid /name; do
		xenstore-chmod "/local/domain/$BACK$n" n0 r$BACK
	done
	start_in_domain
}

start_in_domain() {
	XENSTORED_PATH="$dir/xenbus" LOOPXEN_DOMID=$BACK "$O/ringbackd" \
	    --run-dir "$dir/run" --verbose >>"$dir/ringbackd.log" 2>&1 &
	daemon=$!
	wait_until 10 rb list && return
	tail -5 "$dir/ringbackd.log" >&2
	return 1
}

be() {
	echo "/local/domain/$BACK/backend/vbd/$1/$2"
}

# give N DEVID SPEC: dom0's side of xl block-attach ... backend=storage
give() {
	b=$(be "$1" "$2") f=$(fe "$1" "$2")
	xenstore-write "$f" "" "$b" ""
	xenstore-chmod "$f" n"$1" r$BACK
	xenstore-chmod "$b" n$BACK r"$1"
	xenstore-write \
	    "$f/backend" "$b" "$f/backend-id" $BACK "$f/state" 1 \
	    "$f/virtual-device" "$2" "$f/device-type" disk "$f/trusted" 1 \
	    "$b/frontend" "$f" "$b/params" "$3" \
	    "$b/script" "$dir/bin/block-ringback" "$b/frontend-id" "$1" \
	    "$b/online" 1 "$b/removable" 0 "$b/bootable" 1 \
	    "$b/dev" xvda "$b/type" phy "$b/mode" w "$b/device-type" disk \
	    "$b/discard-enable" 1 "$b/specification" xen "$b/state" 1
}

# xl devd, in the driver domain: the script at InitWait
devd_add() {
	wait_until 10 state_is "$(be "$1" "$2")" 2 && xl_script add "$1" "$2"
}

# ... and when the disk is Closed and offline, the script and the directory
devd_remove() {
	wait_until 10 state_is "$(be "$1" "$2")" 6 &&
	    xl_script remove "$1" "$2" && xenstore-rm "$(be "$1" "$2")"
}

# take N DEVID: dom0's side of xl block-detach, which waits for devd
take() {
	xenstore-write "$(be "$1" "$2")/online" 0 "$(be "$1" "$2")/state" 5
	devd_remove "$1" "$2" && xenstore-rm "$(fe "$1" "$2")"
}

# destroy N DEVID: the guest's directory goes first
destroy() {
	xenstore-rm "$(fe "$1" "$2")"
	xenstore-write "$(be "$1" "$2")/online" 0 "$(be "$1" "$2")/state" 5
	devd_remove "$1" "$2"
}

in_domain() {
	XENSTORED_PATH="$dir/xenbus" "$@"
}

# What is wrong with ringbackd's lines; a container may lack a capability.
complaints() {
	grep -E 'cannot|Permission' "$dir/ringbackd.log" |
	    grep -vE 'none.img|I/O flusher'
}

no_complaints() {
	! complaints
}

said() {
	grep -q "$1" "$dir/ringbackd.log"
}

verified() {
	guest 7 io xvda --rw randrw --bs 16k --ios 200 --depth 8 --verify \
	    --zeroed
}

# By hand: the guest's directory is not this domain's to write.
by_hand() {
	rb attach "$1" xvdb "raw:$dir/b.img" >"$dir/said" 2>&1 && return 1
	cat "$dir/said"
	grep -q "domain 5 may not .*dom0: xl block-attach .*backend=5" "$dir/said"
}

machine_start
xl_prepare
kill -0 "$xenbus" || exit 1
truncate -s 32m "$dir/a.img" "$dir/b.img"
guest_start 7 || exit 1
check "the daemon knows its domain" said "ready, version .*, domain $BACK"

give 7 51712 "raw:$dir/a.img"
check "the script says that it can be served" devd_add 7 51712
check "hotplug-status" [ "$(xenstore-read "$(be 7 51712)/hotplug-status")" = \
    connected ]
check "the guest connects" wait_until 10 state_is "$(be 7 51712)" 4
check "verified I/O" verified
check "reconnects" guest 7 reopen xvda
check "verified I/O again" verified
guest 7 image xvda "$dir/want"
check "the image, from outside" cmp "$dir/want" "$dir/a.img"

check "statistics, by number" rb stats 7 xvda
refuse "not by name, which only dom0 knows" rb stats guest-7 xvda
check "that is said" sh -c "'$O/ringback' --run-dir '$dir/run' stats \
    guest-7 xvda 2>&1 | grep 'give the number'"

kill "$daemon"
wait "$daemon"
start_in_domain || exit 1
check "it has found the disk" wait_until 5 said "found again"
check "verified I/O, and again" verified
check "by hand, by number, is refused and says why" by_hand 7
check "by hand, by name, is refused and says why" by_hand guest-7
check "a second guest's disk is not known" sh -c \
    "! '$O/ringback' --run-dir '$dir/run' list | grep xvdb"

check "detach" take 7 51712
check "nothing is left" sh -c "! find '$dir/run' -mindepth 1 \
    ! -name control ! -name lock | grep ."
guest 7 forget xvda

give 7 51712 "raw:$dir/none.img"
refuse "an image that is not there: the script fails" devd_add 7 51712
check "its reason is in dom0's sight" sh -c \
    "xenstore-read '$(be 7 51712)/hotplug-error' | grep 'No such file'"
check "it is taken back" take 7 51712

give 7 51712 "raw:$dir/a.img"
check "attach again" devd_add 7 51712
check "connected again" wait_until 10 state_is "$(be 7 51712)" 4
check "the guest is destroyed" destroy 7 51712
check "its disk is forgotten" sh -c "! find '$dir/run' -mindepth 1 \
    ! -name control ! -name lock | grep ."
check "the daemon could do all that it wanted" no_complaints
[ "$failed" -eq 0 ] || { say "the log:"; tail -60 "$dir/ringbackd.log"; }
kill "$daemon"
wait "$daemon"
daemon=''
# xenstored asks what is allowed, not we: or all of this would show nothing.
check "the domain is domain 5" [ "$(in_domain xenstore-read domid)" = $BACK ]
refuse "it may not read dom0's nodes" in_domain xenstore-read \
    /local/domain/0/name
refuse "it may not read the guest's" in_domain xenstore-read \
    /local/domain/7/name
refuse "it may not write there" in_domain xenstore-write \
    /local/domain/7/device/vbd/51728/state 1
check "the guest ends" guest 7 quit
kill "$xenbus"
wait "$xenbus"
check "its domain ends" [ $? -eq 0 ]
[ ! -s "$dir/xenbus.log" ] || bad "xenbus" "$(cat "$dir/xenbus.log")"
summary
