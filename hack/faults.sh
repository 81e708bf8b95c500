#!/usr/bin/env bash
# Fault tests: a store of real processes, real sockets and files on this machine, to
# which harm is done while clients work with it; what they saw is checked.
#
# usage: hack/faults.sh [GO_TEST_ARGUMENT...]
# examples:
#   hack/faults.sh                                 all of them
#   hack/faults.sh -run TestKilledMaster -v        one
#   hack/faults.sh -run Killed -count 20 -failfast some, again and again
# Tests that cut networks or fill disks need root, and say so when they are skipped.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$ROOT/hack/setup.sh" faults network
"$ROOT/hack/test-programs.sh"
export RCBOX_PROGRAMS=${CARGO_TARGET_DIR:-$ROOT/images/store/target}/debug
"$ROOT/hack/go-test.sh" faults . ./faults/... -timeout 15m "$@"
