# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# What the scenarios with ringbackd share; sourced after lib.sh.
BACKEND=${BACKEND:-ringback} BACKENDTYPE=${BACKENDTYPE:-phy}
DAEMON='' RUN_FILES='' SUM=''

ours() { [ "$BACKEND" = ringback ]; }

nodes() { backend_nodes vbd; backend_nodes vbd3; backend_nodes ringback; }
nodes_of() { nodes | grep "/$(devid "$1")/"; }
listed() { ringback list | grep xvd; }
domains() { xl list | awk 'NR > 1 && $1 != "Domain-0"'; }
disk_processes() { pgrep -f ringback | grep -v -x "$DAEMON"; }
run_files() { ls /run/ringback; }
# number NAME VDEV KEY: one of the disk's statistics
number() {
	ringback stats "$1" "$2" --json | grep -o "\"$3\": *[0-9]*" | tr -dc 0-9
}
grant_errors() { xl dmesg | grep grant_table; }

daemon_start() {
	ringbackd --verbose >> $LOG 2>&1 &
	DAEMON=$!
	need "ringbackd answers" wait_for 20 ringback list
}

first_start() {
	LOG=/out/ringbackd.log
	daemon_start
	check "a fresh ringbackd lists no disk" is_empty "$(listed)"
	RUN_FILES=$(run_files)
}

disk_pid() { ringback list --json | grep -o '"pid": *[0-9]*' | tr -dc 0-9; }
has_other_pid() { [ -n "$(disk_pid)" ] && [ "$(disk_pid)" != "$1" ]; }

sum() { sha256sum < "$1" | cut -d' ' -f1; }

# whole_disk NAME VDEV: writes and compares all of it; its checksum in $SUM
whole_disk() {
	local out rc
	out=$(guest "$1" "pattern $2")
	rc=$?
	SUM=$(echo "$out" | tail -1)
	check "$1: all of $2 written, flushed and read back" \
	    succeeded $rc "$out" && echo "# sha256 $SUM"
}

# image_holds IMAGE: what the guest wrote last
image_holds() {
	check "dom0 finds in $1 what the guest wrote" \
	    equal "$(sum "$1")" "$SUM"
}

nothing_left() {
	check "no backend node is left" wait_for 20 prints_nothing nodes
	check "no domain is left" wait_for 20 prints_nothing domains
	check "Xen had no grant error to tell" is_empty "$(grant_errors)"
	ours || return 0
	check "no disk process is left" \
	    wait_for 20 prints_nothing disk_processes
	check "no socket or page file is left" equal "$(run_files)" "$RUN_FILES"
	check "ringback lists no disk" is_empty "$(listed)"
	check "xen-blkback was never loaded" \
	    fails grep -q '^xen_blkback' /proc/modules
	kill "$DAEMON"
	wait "$DAEMON"
	check "ringbackd ends well when told to" equal $? 0
}
