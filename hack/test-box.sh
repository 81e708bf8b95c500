#!/usr/bin/env bash
# The long tests of the Box, on a rack of its own: from bare chassis to a Store by one command, on three blades in two chassis that QEMU
# emulates; one blade has virtual functions of an emulated NIC; blades are pulled out while clients use the Store, also while no box host runs, and all that clients saw is checked. On two cores
# it takes about half an hour.
#
# usage: hack/test-box.sh [GO_TEST_OPTION...]     KEEP=1 keeps cluster and rack: make box-down removes them
# The tests' output, in the form of `go test -json`, goes to .build/logs/test-box.json.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CLUSTER=rcbox-box
export RCBOX_RACK=rcbox-box

# shellcheck disable=SC2317 # called by trap
cleanup() {
	if [[ ${KEEP:-} == 1 ]]; then
		info "  KEEP=1: cluster $CLUSTER and its rack stay; make box-down removes them"
	else
		"$ROOT/hack/box-up.sh" down
	fi
}

go_test() {
	cd "$ROOT"
	RCBOX_KUBECTL=$("$ROOT/hack/tool.sh" kubectl)
	RCBOX_HELM=$("$ROOT/hack/tool.sh" helm)
	KUBECONFIG=$("$ROOT/hack/cluster.sh" kubeconfig "$CLUSTER")
	export RCBOX_KUBECTL RCBOX_HELM KUBECONFIG RCBOX_PLUGIN=$BUILD/bin/kubectl-rcbox RCBOX_BOX_MANIFEST=$BUILD/$CLUSTER/box.yaml
	RCBOX_NETWORK_IMAGE=$(<"$BUILD/$CLUSTER/network-image")
	export RCBOX_NETWORK_IMAGE RCBOX_STORE_IMAGE=$STORE_IMAGE RCBOX_OPERATOR_IMAGE=$OPERATOR_IMAGE RCBOX_RECORDER_IMAGE=$RECORDER_IMAGE
	"$ROOT/hack/go-test.sh" test-box . -timeout 90m -failfast -run '^TestOnBlades$' "$@" ./e2e/...
}

as_root "emulating a rack"
# One that an earlier run left may hold half a test.
"$ROOT/hack/box-up.sh" down
trap cleanup EXIT
RCBOX_ETCD_FSYNC=no RCBOX_RECORDER=1 RCBOX_BOX_SRIOV=1 "$ROOT/hack/box-up.sh" prepare
# shellcheck source=/dev/null
source "$BUILD/images.env"
step "tests on emulated blades" go_test "$@"
