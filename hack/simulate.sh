#!/usr/bin/env bash
# Runs the simulator: a whole cluster in one thread, from a seed.
#
# usage: hack/simulate.sh OPTION...
# examples:
#   hack/simulate.sh --seed 17 --trace          one seed, with a readable trace
#   hack/simulate.sh --seeds 0..900 --quick     many seeds, each twice
#   hack/simulate.sh --seeds 0..300 --fail-over coordinators take over from each other
#   hack/simulate.sh --seeds 0..300 --upgrade   builds with different formats
#   hack/simulate.sh --seeds 0..300 --rebuilding stores are made again from their disks
#   hack/simulate.sh --seeds 0..300 --quiet-life members restart, and clients do little
#   hack/simulate.sh --seeds 0..300 --fast      servers are reached by datagrams, too
#   hack/simulate.sh --seconds 600 --once       new seeds for ten minutes
#   hack/simulate.sh --help
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../images/store"
# The feature makes this the same build as that of hack/simulator-tests.sh. No bug is planted here.
exec cargo run --quiet --profile simulator --locked -p simulator --features planted-bugs --bin simulate -- "$@"
