#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Each fuzz target on its corpus and on damaged copies of it.
O=${O:-build}
rc=0
cd "$(dirname "$0")/../.." || exit 1
for target in tests/fuzz/fuzz_*.c; do
	name=$(basename "$target" .c)
	rounds=50000
	# An image is opened, used and closed each time.
	[ "$name" != fuzz_qcow2 ] || rounds=500
	if "$O/$name" "$rounds" tests/fuzz/corpus/"${name#fuzz_}"/*; then
		:
	else
		echo "FAIL $name"
		rc=1
	fi
done
exit $rc
