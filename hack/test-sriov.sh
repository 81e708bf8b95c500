#!/usr/bin/env bash
# Virtual functions (SR-IOV) of a NIC, without the hardware: in a virtual machine whose NICs, IOMMU and processors are
# emulated. See docs/sriov.md for what that proves, and what it does not.
#
# usage: hack/test-sriov.sh [processes | node]     both, one after the other, if none is named
#   processes   the store drives them, as plain processes (hack/sriov/processes.sh)
#   node        the machine joins a kind cluster, and a Store's pods have them (hack/sriov/node.sh)
# Settings are in hack/sriov/machine.sh. Exit code 0: every check has passed.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case ${1:-} in
"") phases=(processes node) ;;
processes | node) phases=("$1") ;;
*) die "usage: hack/test-sriov.sh [processes | node]" ;;
esac
for phase in "${phases[@]}"; do
	"$ROOT/hack/sriov/$phase.sh"
done
