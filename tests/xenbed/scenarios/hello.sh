# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Does the bed itself work?  Boots dom0 and a guest without a disk.
. /xenbed/lib.sh
guest_make g1
guest_boot g1
check "the guest answers" equal "$(guest g1 "echo \$((6 * 7))")" 42
check "an order's failure is seen" fails guest g1 false
check "xl shutdown" xl shutdown -w g1
check "no domain is left" wait_for 20 guest_gone g1
verdict
