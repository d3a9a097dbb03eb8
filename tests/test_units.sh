#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_units: what systemd itself finds wrong in the unit files, and the order
# in which they start and stop.
set -u
rc=0
command -v systemd-analyze >/dev/null || { echo "skip units: no systemd"; exit 77; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
for unit in tools/*.service; do
	name=$(basename "$unit")
	# It looks whether the programs are there.
	sed -E 's#@S?BINDIR@/[a-z]+#/bin/true#' "$unit" >"$tmp/$name"
done
for unit in "$tmp"/*.service; do
	name=$(basename "$unit")
	out=$(SYSTEMD_UNIT_PATH=$tmp: timeout 20 systemd-analyze verify \
	    --man=no "$unit" 2>&1)
	status=$?
	if [ $status -eq 0 ] && [ -z "$out" ]; then
		echo "ok $name"
	else
		echo "FAIL $name: $status: $out"
		rc=1
	fi
done

# Stopped in this order: guests, disks, daemon, xenstored and file systems.
lists() { # lists UNIT KEY WORD
	if ! sed -n "s/^$2=//p" "tools/$1" | tr ' ' '\n' | grep -qx "$3"; then
		echo "FAIL $1: $2= does not name $3"
		rc=1
	fi
}
for unit in ringbackd ringback-shutdown; do
	lists $unit.service Before xendomains.service
	for u in xenstored.service xen.service local-fs.target \
	    remote-fs.target; do
		lists $unit.service After $u
	done
done
lists ringback-shutdown.service After ringbackd.service
lists ringbackd.service Wants ringback-shutdown.service
if grep -E '^(Requires|BindsTo|PartOf|Requisite)=' \
    tools/ringback-shutdown.service; then
	echo "FAIL a restart of ringbackd detaches all disks"
	rc=1
fi
[ $rc -ne 0 ] || echo "ok the order of the units"
exit $rc
