#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_deb: the package that make deb has built is installed, upgraded, removed
# and purged, on a copy of this machine that is thrown away: an overlay, of which
# the machine itself sees nothing.  No service manager and no Xen run there.
set -u
O=${O:-build}
say() {	# say STATUS NAME
	if [ "$1" -eq 0 ]; then
		echo "ok $2"
	else
		echo "FAIL $2"
		rc=1
	fi
}

case ${1-} in
'')
	[ "$(id -u)" -eq 0 ] || { echo "skip the package: it needs root"; exit 77; }
	tmp=$(mktemp -d) || exit 1
	trap 'rm -rf "$tmp"' EXIT
	unshare --mount --pid --fork --propagation private sh "$0" inside "$tmp" \
	    "$(realpath "$O"/deb/ringback_*.deb)"
	exit $?
	;;
inside)
	# The upper layer may not lie on an overlay, which / may be.
	tmp=$2
	mount -t tmpfs -o size=512m tmpfs "$tmp" &&
	    mkdir "$tmp/upper" "$tmp/work" "$tmp/root" &&
	    mount -t overlay -o "lowerdir=/,upperdir=$tmp/upper,workdir=$tmp/work" \
		overlay "$tmp/root" 2>/dev/null || {
		echo "skip the package: no overlay can be mounted"
		exit 77
	}
	cp "$3" "$tmp/root/root/new.deb" && cp "$0" "$tmp/root/root/test.sh" &&
	    mount -t proc proc "$tmp/root/proc" || exit 1
	chroot "$tmp/root" sh /root/test.sh chroot </dev/null
	exit $?
	;;
esac

# ---- on the copy ----
cd /root || exit 1
rc=0
export LC_ALL=C
# An earlier version of it, which differs in nothing else.
dpkg-deb -R new.deb old && sed -i 's/^Version: .*/Version: 0.0.1-1/' \
    old/DEBIAN/control && dpkg-deb -Znone -b old old.deb >log 2>&1 || cat log
[ ! -e /run/systemd/system ] || rm -rf /run/systemd/system
[ ! -e /etc/ringback.conf ] && [ ! -e /usr/sbin/ringbackd ]
say $? "it is not installed yet"

run() {	# run NAME DPKG'S ARGUMENTS
	name=$1
	shift
	if dpkg "$@" >log 2>&1; then
		echo "ok $name"
	else
		cat log
		echo "FAIL $name"
		rc=1
	fi
}
run "installs, without a service manager and Xen" -i old.deb
for f in /usr/sbin/ringbackd /usr/bin/ringback /etc/ringback.conf \
    /etc/modprobe.d/ringback.conf /etc/xen/scripts/block-ringback \
    /lib/systemd/system/ringbackd.service \
    /lib/systemd/system/ringback-shutdown.service \
    /usr/share/man/man5/ringback.conf.5.gz \
    /usr/share/man/man8/block-ringback.8.gz \
    /usr/share/bash-completion/completions/ringback \
    /usr/share/doc/ringback/copyright; do
	[ -s $f ] || { echo "FAIL there is no $f"; rc=1; }
done
ringbackd --check-config >log && ringback --version >>log &&
    grep -q '^/etc/ringback.conf and' log
say $? "the programs run, with the file where it belongs"
grep -qx 'blacklist xen-blkback' /etc/modprobe.d/ringback.conf
say $? "the kernel's backend is kept out"
grep -q '^PATH=/usr/bin:' /etc/xen/scripts/block-ringback &&
    grep -qx 'ExecStart=/usr/sbin/ringbackd' \
    /lib/systemd/system/ringbackd.service
say $? "the programs are found"
[ -L /etc/systemd/system/multi-user.target.wants/ringbackd.service ]
say $? "the service is enabled"
! pgrep -x ringbackd
say $? "... and not started"
[ "$(dpkg-query -W -f '${Conffiles}\n' ringback | grep -c ' /etc/')" -eq 3 ]
say $? "what an operator may change are conffiles"

echo 'max-deaths = 5' >/etc/ringback.conf
echo '# none' >/etc/modprobe.d/ringback.conf
run "is upgraded" -i new.deb
[ "$(cat /etc/ringback.conf)" = 'max-deaths = 5' ] &&
    [ "$(cat /etc/modprobe.d/ringback.conf)" = '# none' ]
say $? "an upgrade keeps what was changed"
run "is removed" -r ringback
[ -e /etc/ringback.conf ] && [ ! -e /usr/sbin/ringbackd ]
say $? "... which leaves the configuration"
mkdir -p /run/ringback && touch /run/ringback/lock
run "is purged" -P ringback
left=$(find /etc /usr /lib/systemd /var/lib/systemd /run \
    -name '*ringback*' 2>/dev/null)
[ -z "$left" ] || { echo "$left"; false; }
say $? "a purge leaves nothing"
exit $rc
