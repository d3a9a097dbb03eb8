#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# deps: install the Debian packages named, if one is missing.
#
# Asks dpkg first, so that it costs nothing when all is there.  Without
# recommended packages: nothing that is installed here starts a service or
# touches the boot.
command -v dpkg-query >/dev/null || {
	echo "deps: this is no Debian; needed are what Debian calls: $*" >&2
	exit 0
}

missing=
for p in "$@"; do
	case $(dpkg-query -W -f='${db:Status-Abbrev}' "$p" 2>/dev/null) in
	*ii*)	;;
	*)	missing="$missing $p" ;;
	esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "deps: not installed:$missing" >&2
	echo "deps: installing needs root; as root: apt-get install" \
	    "--no-install-recommends$missing" >&2
	exit 1
fi

install() {
	# shellcheck disable=SC2086 # a list
	DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
	    --no-install-recommends install $missing
}
echo "deps: installing:$missing"
first=$(install 2>&1) && exit 0

# The package lists may be missing or old: fetch them and try once more.
apt-get -qq update && install && exit 0
echo "$first" >&2
echo "deps: could not install:$missing" >&2
exit 1
