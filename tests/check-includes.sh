#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# check-includes: fail if a folder includes what it may not.
#
#   tests  ->  everything
#   tools  ->  drivers/driver.h, blkback/control.h; what a disk process does
#              before it looks at an image: blkback/spec.h, sandbox.h; and what
#              page files say, whoever wrote them: blkback/look.h
#   blkback -> drivers/driver.h, ring/ring.h, Xen's libraries
#   drivers -> nothing of ours          ring -> Xen's public headers
#
# Then the rules are shown a tree that breaks each of them.
set -u
rc=0
cases=0

# allow FOLDER QUOTED XEN: the "..." and the <xen...> that its files may name.
allow() {
	for f in "$1"/*.[ch]; do
		[ -e "$f" ] || continue
		grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$f" |
		    grep -vE "include[[:space:]]*\"($2)\"" |
		    sed "s|^|$f:|; s|\$|  <- $1/ may not see that|"
		grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<xen' "$f" |
		    grep -vE "include[[:space:]]*<($3)>" |
		    sed "s|^|$f:|; s|\$|  <- $1/ knows no such part of Xen|"
	done
}

check_tree() {
	allow ring    'ring/[a-z_0-9]+\.h'     'xen/[a-z_0-9/]+\.h'
	allow drivers 'drivers/[a-z_0-9]+\.h'  'none'
	allow blkback 'blkback/[a-z_0-9]+\.h|drivers/driver\.h|ring/ring\.h' \
	    'xen/[a-z_0-9/]+\.h|xenstore(_lib)?\.h|xengnttab\.h|xenevtchn\.h|xenctrl\.h'
	allow tools \
	    'tools/[a-z_0-9]+\.h|drivers/driver\.h|blkback/(control|look|spec|sandbox)\.h' \
	    'none'

	# Its ABI changes with each release of Xen: one file knows it.
	n=$(grep -lE '^#[[:space:]]*include[[:space:]]*<xenctrl' blkback/*.c \
	    2>/dev/null | wc -l)
	[ "$n" -le 1 ] || echo "blkback: $n files include xenctrl.h, not one"
}

# refused FOLDER INCLUDE: a file there with that line must be found.
refused() {
	cases=$((cases + 1))
	printf '#include %s\n' "$2" >"$1/probe.c"
	if [ -z "$(check_tree)" ]; then
		echo "FAIL $1/ may include $2"
		rc=1
	fi
	rm "$1/probe.c"
}

self_test() {
	top=$(mktemp -d) && cd "$top" || exit 1
	trap 'rm -rf "$top"' EXIT
	mkdir ring drivers blkback tools
	refused ring    '"drivers/driver.h"'
	refused ring    '"blkback/log.h"'
	refused ring    '<xengnttab.h>'
	refused drivers '"ring/ring.h"'
	refused drivers '"blkback/spec.h"'
	refused drivers '<xen/io/blkif.h>'
	refused blkback '"drivers/lock.h"'
	refused blkback '"tools/ringback.h"'
	refused blkback '"tests/loopxen/guest.h"'
	refused blkback '<xencall.h>'
	refused tools   '"blkback/page.h"'
	refused tools   '"drivers/qcow2_layer.h"'
	refused tools   '"ring/ring.h"'
	refused tools   '<xenstore.h>'
	printf '#include <xenctrl.h>\n' >blkback/one.c
	if [ -n "$(check_tree)" ]; then
		echo "FAIL one file with xenctrl.h"
		rc=1
	fi
	refused blkback '<xenctrl.h>'
	[ $rc -ne 0 ] || echo "ok each of $cases wrong includes is found"
}

cd "$(dirname "$0")/.." || exit 1
bad=$(check_tree)
if [ -n "$bad" ]; then
	printf '%s\n' "$bad"
	echo "FAIL the folders include only what they may"
	rc=1
else
	echo "ok the folders include only what they may"
fi
self_test
exit $rc
