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

if [ -z "$SOAK" ]; then
	exec "$O/qcow2_model" --seeds 1..80
fi
half=$((${SOAK_SECONDS:-600} / 2))
rc=0
"$O/qcow2_model" --seed "$(date +%s)" --seconds "$half" || rc=1
"$O/qcow2_model" --seed "$(date +%s)" --seconds "$half" --long --large || rc=1
exit $rc
