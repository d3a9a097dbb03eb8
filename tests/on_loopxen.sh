# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
#
# on_loopxen: sourced first by a script that is to run on a loopxen of its own,
# as root.  It is started again there, as "SCRIPT inside FOLDER"; only then does
# the rest of it run, with the private folder in $dir, its run directory in
# $run, and the build's output folder in O.
O=${O:-build}
if [ "${1-}" != inside ]; then
	if [ "$(id -u)" -ne 0 ]; then
		echo "skip $(basename "$0"): it needs root"
		exit 77
	fi
	dir=$(mktemp -d) || exit 1
	chmod 755 "$dir"
	LOOPXEN_BUILD=$O "$(dirname "$0")/loopxen/loopxen" run "$dir" -- \
	    sh "$0" inside "$dir"
	rc=$?
	rm -rf "$dir"
	exit $rc
fi
# shellcheck disable=SC2034 # for the script
dir=$2 run=$2/run
mkdir -m 700 "$run" || exit 1
