#!/usr/bin/env bash
# Builds the kubectl plugin.
#
# usage: hack/kubectl-rcbox.sh [FOLDER]     (default: .build/bin)
# kubectl finds it as `kubectl rcbox` if FOLDER is in PATH.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

folder=${1:-$BUILD/bin}
mkdir -p "$folder"
step "build kubectl-rcbox" go build -C "$ROOT" -o "$(cd "$folder" && pwd)/kubectl-rcbox" ./operator/cmd/kubectl-rcbox
info "  $folder/kubectl-rcbox: put it into your PATH, and kubectl has it as \`kubectl rcbox\`"
