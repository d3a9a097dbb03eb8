#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_supervisor: run test_supervisor.c on a loopxen of its own.
O=${O:-build}
if [ "$(id -u)" -ne 0 ]; then
	echo "skip the supervisor's tests: they need root"
	exit 77
fi
dir=$(mktemp -d) || exit 1
RINGBACKD=$O/ringbackd_fake LOOPXEN_BUILD=$O \
    "$(dirname "$0")/loopxen/loopxen" run "$dir" -- "$O/test_supervisor"
status=$?
rm -rf "$dir"
exit $status
