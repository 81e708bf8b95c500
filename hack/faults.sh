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

STORE=$ROOT/images/store
PROGRAMS=${CARGO_TARGET_DIR:-$STORE/target}/debug

"$ROOT/hack/setup.sh" store faults network
# Tests of upgrades need another build of some programs. Both have the same dependencies, so that little is compiled twice.
step "compile servers of a version with another format" \
	cargo build --manifest-path "$STORE/Cargo.toml" --locked -p programs --features next-format --bin coordinator --bin server
mkdir -p "$PROGRAMS/next-format"
cp "$PROGRAMS"/{coordinator,server} "$PROGRAMS/next-format/"
step "compile the store with its assertions" \
	cargo build --manifest-path "$STORE/Cargo.toml" --locked -p programs -p recorder --bins
export RCBOX_PROGRAMS=$PROGRAMS
"$ROOT/hack/go-test.sh" faults . ./faults/... -timeout 5m "$@"
