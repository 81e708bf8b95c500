#!/usr/bin/env bash
# The simulator's stage of hack/test.sh: bugs that are planted are found, and the
# quick set of seeds is good, every third seed twice with equal traces. Both have
# the same build, optimised and with assertions.
#
# usage: hack/simulator-tests.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../images/store"
failed=0
cargo test --quiet --profile simulator --locked -p simulator --features planted-bugs --test seeds || failed=1
../../hack/simulate.sh --seeds 0..900 --quick --repeat-every 3 || failed=1
exit $failed
