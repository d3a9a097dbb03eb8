#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# one.sh SCENARIO SUITE OUTPUT: run one scenario with the programs in OUTPUT, each
# line of its output preceded by its name, since others may run beside it.
set -u
here=$(dirname "$0") out=$3/check-xen/$1
script=$here/../../tools/block-ringback
rm -f "$out/status"
mkdir -p "$out" || exit 1
{
	"$here/xenbed" run "$here/scenarios/$1.sh" --suite "$2" --timeout 900 --out "$out" \
	    --file "$3/ringbackd:/usr/sbin/ringbackd" \
	    --file "$3/ringback:/usr/bin/ringback" \
	    --file "$script:/etc/xen/scripts/block-ringback"
	echo $? > "$out/status"
} 2>&1 | sed -u "s/^/$1: /"
exit "$(cat "$out/status")"
