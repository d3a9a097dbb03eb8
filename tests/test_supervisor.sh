#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_supervisor: run test_supervisor.c and test_service.c, each on a loopxen
# of its own.
O=${O:-build}
if [ "$(id -u)" -ne 0 ]; then
	echo "skip the supervisor's tests: they need root"
	exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
status=0
for t in test_supervisor test_service; do
	RINGBACKD=$O/ringbackd_fake LOOPXEN_BUILD=$O \
	    "$(dirname "$0")/loopxen/loopxen" run "$dir" -- "$O/$t" || status=1
done
exit $status
