#!/usr/bin/env bash
# Tests of the operator against a real Kubernetes control plane, and at the size
# of a chassis. Nothing is run in containers; no Docker engine is needed.
#
# usage: hack/apiserver.sh [GO_TEST_OPTION...]
# One test: hack/apiserver.sh -run '^TestOperator$'
# The tests' output, in the form of `go test -json`, goes to .build/logs/apiserver.json.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if folder=$("$ROOT/hack/control-plane.sh") && kwok=$("$ROOT/hack/tool.sh" kwok); then
	export RCBOX_CONTROL_PLANE=$folder RCBOX_KWOK=$kwok
else
	warn "there is no Kubernetes control plane to test against, or no kwok (see above): these tests are SKIPPED"
fi
# One package after the other: each has a control plane of its own.
exec "$ROOT/hack/go-test.sh" apiserver . -timeout 40m -p 1 "$@" ./operator/test/apiserver/... ./operator/test/scale/... ./operator/test/testbed/...
