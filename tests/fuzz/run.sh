#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Each fuzz target on its corpus and on damaged copies of it.
O=${O:-build}
rc=0
cd "$(dirname "$0")/../.." || exit 1
for target in tests/fuzz/fuzz_*.c; do
	name=$(basename "$target" .c)
	if "$O/$name" 50000 tests/fuzz/corpus/"${name#fuzz_}"/*; then
		:
	else
		echo "FAIL $name"
		rc=1
	fi
done
exit $rc
