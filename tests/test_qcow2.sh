#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_qcow2: random operations on images of all shapes, checked against a
# model and by qemu-img (qcow2_model.h).
#
# SOAK=1: other seeds each time, longer ones too, for SOAK_SECONDS (600).
set -u
O=${O:-build}
SOAK=${SOAK:-}

TMPDIR=${TMPDIR:-/dev/shm}
export TMPDIR

rc=0
if [ -z "$SOAK" ]; then
	"$O/qcow2_model" --seeds 1..45 || rc=1
	"$O/qcow2_model" --seeds 46..57 --delay 200 || rc=1
	exit $rc
fi
part=$((${SOAK_SECONDS:-600} / 4))
for options in "" "--long --large" "--delay 300" "--delay 20 --long"; do
	# shellcheck disable=SC2086 # words
	"$O/qcow2_model" --seed "$(date +%s)" --seconds "$part" $options ||
	    rc=1
done
exit $rc
