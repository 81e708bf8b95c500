#!/usr/bin/env bash
# Removes what hack/up.sh made: the cluster, and the engine if that was started
# by us and nothing else runs in it. Caches stay.
#
# usage: hack/down.sh [CLUSTER]      (default: rcbox)
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$ROOT/hack/cluster.sh" down "${1:-rcbox}"
if timeout 10 docker info >/dev/null 2>&1 && [[ -z $(docker ps --quiet) ]]; then
	"$ROOT/hack/engine.sh" down
fi
