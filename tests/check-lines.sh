#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# check-lines: what no compiler looks at.  Fail if a file lacks its licence
# line, has more than 1000 lines, a function of more than 60, an unfinished
# thought, or a path of somebody's machine.
set -u
cd "$(dirname "$0")/.." || exit 1

# Everything of ours that is text; COPYING is not ours.
files() {
	find blkback ring drivers tools tests .ci .clang-format .clang-tidy \
	    Makefile README.md -type f ! -path '*/cache/*' \
	    ! -path '*/corpus/*' \
	    ! -name '*.pyc' 2>/dev/null | sort
}

check_tree() {
	for f in $(files); do
		case $f in
		*.md | *.map) ;;
		# Their form leaves no room for it.
		tools/debian/changelog | tools/debian/copyright) ;;
		tools/debian/source/format) ;;
		*)	sed 2q "$f" |
			    grep -q 'SPDX-License-Identifier: GPL-2.0-or-later' ||
			    echo "$f: the licence line is missing" ;;
		esac
		[ "$(wc -l <"$f")" -le 1000 ] ||
			echo "$f: more than 1000 lines"
	done
	# The brackets keep this file from finding itself.
	files | xargs grep -nE '\<(T[O]DO|F[I]XME|X[X]X)\>' /dev/null |
	    sed 's/$/  <- finish it/'
	files | xargs grep -nE '(^|[^[:alnum:]_./])/(w[o]rk|h[o]me)/' /dev/null |
	    sed 's/$/  <- a path of one machine/'
	for f in $(files); do
		case $f in
		*.c)	awk -v f="$f" '
			/^{/ { start = FNR }
			/^}/ { if (start && FNR - start - 1 > 60)
				   print f ":" start ": a function of " \
				       FNR - start - 1 " lines, not 60"
			       start = 0 }' "$f" ;;
		esac
	done
}

bad=$(check_tree)
if [ -n "$bad" ]; then
	printf '%s\n' "$bad"
	exit 1
fi
echo "the lines of $(files | wc -l) files are right"
