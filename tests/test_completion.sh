#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_completion: what bash offers after parts of a command line, by
# tools/ringback.bash-completion alone; and that it knows every option.
set -u
O=${O:-build}
command -v bash >/dev/null || { echo "skip completion: no bash"; exit 77; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# The program, but for the disks that a daemon would tell it of.
cat >"$tmp/ringback" <<END
#!/bin/sh
case "\$*" in
list)			dir= ;;
"--run-dir /other list")	dir=other ;;
*)			exec "$(realpath "$O/ringback")" "\$@" ;;
esac
echo 'DOMAIN  NAME  VDEV  KIND      BACKEND'
echo "7       web1\$dir  xvda  ringback  Connected"
echo '        an error: 9 z xvdz'
echo '7       web1  xvdb  ringback  Connected'
echo '12      -     hda   vbd       Connected'
echo '13      \$(touch\${IFS}$tmp/ran)  hdb  vbd  Connected'
echo '14      *     hdc   vbd       Connected'
END
chmod +x "$tmp/ringback"
touch "$tmp/disk.img"

cat >"$tmp/test" <<'END'
source tools/ringback.bash-completion
rc=0
# offers WORDS WORD...: after them, the last one begun
offers() {
	local want=$1 got

	shift
	COMP_WORDS=("$tmp/ringback" "$@")
	COMP_CWORD=$#
	_ringback
	got=$(printf '%s\n' "${COMPREPLY[@]}" | sort -u | xargs)
	if [ "$got" = "$want" ]; then
		echo "ok after \"$*\": $want"
	else
		echo "FAIL after \"$*\": \"$got\", not \"$want\""
		rc=1
	fi
}
offers "attach bench check compare detach eject hotplug inflight info insert list resize resume stats top" ""
offers "detach" de
offers "12 13 14 7 web1" detach ""
offers "12 13 14 7 web1" --json --timeout 5 stats ""
offers "web1other" --run-dir /other stats web1o
offers "xvda xvdb" detach 7 ""
offers "xvda xvdb" detach web1 xv
offers "hda" resume 12 ""
offers "" stats 9 ""
offers "" detach "\$"
if [ -e "$tmp/ran" ]; then
	echo "FAIL a domain's name is run"
	rc=1
fi
offers "--all" detach --a
offers "add remove" hotplug ""
offers "randread randrw randwrite" bench --rw rand
offers "4k-flush 4k-qd1 4k-qd256 4k-qd32x8" bench --preset 4k
offers "" detach --timeout ""
offers "$tmp/disk.img" info raw : "$tmp/di"
offers "$tmp/disk.img" attach web1 xvdc raw : "$tmp/di"
offers "--guest-exec" compare --guest

# No option of the help is forgotten, and none made up.
for c in attach detach eject insert resume resize list stats top inflight info \
    check bench hotplug; do
	COMP_WORDS=("$tmp/ringback" $c --)
	COMP_CWORD=2
	_ringback
	printf '%s\n' "${COMPREPLY[@]}"
done | sort -u >"$tmp/offered"
"$tmp/ringback" --help | sed '/^Of compare/,$d' | grep -oE -- '--[a-z-]+' |
    sort -u >"$tmp/helped"
if diff "$tmp/helped" "$tmp/offered"; then
	echo "ok all options of the help"
else
	echo "FAIL all options of the help"
	rc=1
fi
exit $rc
END
export tmp
bash --norc "$tmp/test"
