#!/usr/bin/env bash
# Builds the store's programs, optimised.
#
# usage: hack/store.sh [CARGO_OPTION...]
# They are then in images/store/target/release: coordinator, server, clusterperf, rcbox.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

compile() {
	cd "$ROOT/images/store"
	cargo build --release --locked -p coordinatord -p serverd -p clusterperf -p rcbox-cli "$@"
}

"$ROOT/hack/setup.sh" store
step "compile the store" compile "$@"
