#!/usr/bin/env bash
# Runs `go test`, prints its usual output, and keeps the machine-readable form
# for hack/count-tests.sh.
#
# usage: hack/go-test.sh NAME MODULE_FOLDER GO_TEST_ARGUMENT...
# writes .build/logs/NAME.json
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

name=$1
cd "$ROOT/$2"
shift 2
# -count=1: what runs against clusters and processes must run, not be remembered.
go test -json -count=1 "$@" | tee "$LOGS/$name.json" | jq --unbuffered -rj 'select(.Action == "output" or .Action == "build-output") | .Output'
