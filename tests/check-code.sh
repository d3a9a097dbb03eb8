#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# check-code: clang-tidy and cppcheck on the files named.  What is asked of
# clang-tidy stands in .clang-tidy.
set -u
FLAGS="-I. -DSYSCONFDIR=\"/etc\" -D_GNU_SOURCE -D__XEN_INTERFACE_VERSION__=0x00040e00"
export FLAGS

# cppcheck looks into no system header, but has to know the lists.
lists=$(find /usr/include -path '*/sys/queue.h' | head -n 1)

# One run for each file: clang-tidy 14 carries the state of its analysis of
# va_list over from one file to the next.
# shellcheck disable=SC2016 # the inner shell is to expand it
printf '%s\n' "$@" | xargs -n 1 -P "$(nproc)" sh -c '
	out=$(clang-tidy --quiet "$1" -- -std=gnu11 $FLAGS 2>&1) || {
		printf "%s\n" "$out"
		exit 1
	}' _ || exit 1
echo "clang-tidy has nothing to say about $# files"

# shellcheck disable=SC2086 # words
cppcheck --quiet --std=c11 --language=c -j "$(nproc)" --error-exitcode=1 \
    --enable=warning,portability,performance --inline-suppr \
    --include="$lists" --suppress='*:/usr/include/*' \
    --suppress=missingIncludeSystem --suppress=funcArgOrderDifferent \
    $FLAGS "$@" || exit 1
echo "cppcheck has nothing to say about $# files"
