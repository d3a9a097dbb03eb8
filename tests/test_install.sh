#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_install: what make install puts where, and that uninstall leaves nothing.
set -u
rc=0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
dir=$tmp/root
: "${O:=build}"

say() {	# say STATUS NAME
	if [ "$1" -eq 0 ]; then
		echo "ok $2"
	else
		echo "FAIL $2"
		rc=1
	fi
}

run() {
	make "O=$O" "DESTDIR=$dir" PREFIX=/opt/rb "$1" >"$tmp/log" 2>&1 ||
	    { cat "$tmp/log"; false; }
}

run install
say $? "make install"
(cd "$dir" && find . -type f -perm -444 | sort) >"$tmp/got"
cat >"$tmp/want" <<-END
	./etc/modprobe.d/ringback.conf
	./etc/ringback.conf
	./etc/xen/scripts/block-ringback
	./opt/rb/bin/ringback
	./opt/rb/lib/systemd/system/ringback-shutdown.service
	./opt/rb/lib/systemd/system/ringbackd.service
	./opt/rb/sbin/ringbackd
	./opt/rb/share/bash-completion/completions/ringback
	./opt/rb/share/man/man5/ringback.conf.5
	./opt/rb/share/man/man8/block-ringback.8
	./opt/rb/share/man/man8/ringback.8
	./opt/rb/share/man/man8/ringbackd.8
END
diff "$tmp/want" "$tmp/got"
say $? "the files are where they belong"

! grep -r '@[A-Z]*@' "$dir/etc" "$dir/opt/rb/lib"
say $? "every path is filled in"
grep -q '^PATH=/opt/rb/bin:' "$dir/etc/xen/scripts/block-ringback" &&
    [ -x "$dir/etc/xen/scripts/block-ringback" ]
say $? "xl's script finds ringback"
grep -qx 'ExecStart=/opt/rb/sbin/ringbackd' \
    "$dir/opt/rb/lib/systemd/system/ringbackd.service"
say $? "systemd finds ringbackd"
grep -q '^ExecStop=/opt/rb/bin/ringback detach --all' \
    "$dir/opt/rb/lib/systemd/system/ringback-shutdown.service"
say $? "... and ringback"
! grep -vE '^($|#)' "$dir/etc/ringback.conf"
say $? "ringback.conf says nothing by itself"
# All that it shows is right, too.
grep -E '^#[[a-z]' "$dir/etc/ringback.conf" | sed 's/^#//' >"$tmp/conf" &&
    [ "$(wc -l <"$tmp/conf")" -ge 8 ] &&
    "$dir/opt/rb/sbin/ringbackd" --config "$tmp/conf" --check-config >"$tmp/log" ||
    { cat "$tmp/log"; false; }
say $? "... and its examples are right"
"$dir/opt/rb/bin/ringback" --version >/dev/null &&
    "$dir/opt/rb/sbin/ringbackd" --version >/dev/null
say $? "the programs run"

echo 'verbose = on' >"$dir/etc/ringback.conf"
run install && [ "$(cat "$dir/etc/ringback.conf")" = "verbose = on" ]
say $? "a ringback.conf that is there stays"
run uninstall && [ "$(cat "$dir/etc/ringback.conf")" = "verbose = on" ]
say $? "... also when all else goes"
rm "$dir/etc/ringback.conf"
run install && run uninstall
say $? "make uninstall"
[ -z "$(find "$dir" ! -type d)" ]
say $? "nothing is left"
exit $rc
