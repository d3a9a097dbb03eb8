#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_man: what the programs' help names stands in their man pages.
set -u
O=${O:-build}
rc=0

for p in ringback ringbackd; do
	help=$("$O/$p" --help)
	words=$(echo "$help" | grep -oE -- '^  [a-z]+|--[a-z-]+' | sort -u)
	for w in $words; do
		case $w in
		--*)	pattern="Fl .*-${w#--}( |\$)" ;;
		*)	pattern="Cm $w( |\$)" ;;
		esac
		if ! grep -qE -- "$pattern" "tools/$p.8"; then
			echo "FAIL tools/$p.8 says nothing of $w"
			rc=1
		fi
	done
	[ "$(echo "$words" | wc -l)" -ge 5 ] || { echo "FAIL help?"; rc=1; }
done

# The keys of the configuration file, and those of its example.
keys=$(sed -n 's/^	{ "\([a-z-]*\)", *[a-z]*_[a-z_]*, *\(true\|false\) },$/\1/p' \
    blkback/options.c)
[ "$(echo "$keys" | wc -l)" -ge 7 ] || { echo "FAIL keys?"; rc=1; }
for w in $keys; do
	for f in ringback.conf.5 ringback.conf; do
		if ! grep -qE "^(\.It Cm |#)$w( |\$)" "tools/$f"; then
			echo "FAIL tools/$f says nothing of $w"
			rc=1
		fi
	done
done

# What a formatter does not understand it says on stderr.
if command -v groff >/dev/null; then
	for f in tools/*.[58]; do
		out=$(groff -mandoc -Tascii -ww "$f" 2>&1 >/dev/null)
		[ -z "$out" ] || { echo "FAIL $f: $out"; rc=1; }
	done
fi

# The options of a disk spec.
# shellcheck disable=SC2013 # words
for w in $(sed -n 's/.*{ \.name = "\([a-z-]*\)".*/\1/p' blkback/spec.c); do
	if ! grep -q "Cm $w\( \|\$\)" tools/ringback.8; then
		echo "FAIL tools/ringback.8 says nothing of the option $w"
		rc=1
	fi
done
[ $rc -ne 0 ] || echo "ok the man pages name all that the help names"
exit $rc
