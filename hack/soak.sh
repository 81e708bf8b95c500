#!/usr/bin/env bash
# Runs the simulator on new seeds, and all fuzz targets, for a long time.
#
# usage: hack/soak.sh
#   RCBOX_SOAK_SECONDS=3600   of simulation
#   RCBOX_FUZZ_SECONDS=600    per fuzz target
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$ROOT/hack/setup.sh" store
step "simulate for ${RCBOX_SOAK_SECONDS:-3600} s" "$ROOT/hack/simulate.sh" --seconds "${RCBOX_SOAK_SECONDS:-3600}"
tail -n 20 "$(log_of "simulate for ${RCBOX_SOAK_SECONDS:-3600} s")"
step "fuzz every target for ${RCBOX_FUZZ_SECONDS:-600} s" "$ROOT/images/store/fuzz/run.sh" "${RCBOX_FUZZ_SECONDS:-600}"
