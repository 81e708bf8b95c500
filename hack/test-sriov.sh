#!/usr/bin/env bash
# Virtual functions (SR-IOV) of a NIC, without the hardware: in a virtual machine whose NICs, IOMMU and processors are
# emulated. See docs/sriov.md for what that proves, and what it does not.
#
# usage: hack/test-sriov.sh [processes | node]
#   processes   the store drives them, as plain processes (hack/sriov/processes.sh); the default
#   node        the machine joins a kind cluster, and a Store's pods have them (hack/sriov/node.sh). Not everything
#               there passes yet: docs/sriov.md says what
# Settings are in hack/sriov/machine.sh. Exit code 0: every check has passed.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

phase=${1:-processes}
case $phase in
processes | node) "$ROOT/hack/sriov/$phase.sh" ;;
*) die "usage: hack/test-sriov.sh [processes | node]" ;;
esac
