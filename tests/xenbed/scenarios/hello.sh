# SPDX-License-Identifier: GPL-2.0-or-later
# Does the bed itself work?  Boots dom0 and a guest without a disk.
. /xenbed/lib.sh
guest_make g1
need "xl create" xl create /tmp/g1.cfg
need "the guest is up" wait_for 90 guest_booted g1 1
check "the guest answers" equal "$(guest g1 'echo $((6 * 7))')" 42
xl list
check "xl shutdown" xl shutdown -w g1
check "no domain is left" wait_for 20 guest_gone g1
verdict
