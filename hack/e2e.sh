#!/usr/bin/env bash
# End-to-end tests on a kind cluster of their own, which is made for them and
# removed afterwards (KEEP=1 keeps it, for a look; the next run replaces it).
#
# usage: hack/e2e.sh [GO_TEST_OPTION...]
#        hack/e2e.sh --prepare     only build what takes long: programs, node image, second network
# One test: hack/e2e.sh -run '^TestReplicatedBox$'
# The tests' output, in the form of `go test -json`, goes to .build/logs/e2e.json.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cluster=rcbox-e2e

cleanup() {
	if [[ ${KEEP:-} == 1 ]]; then
		info "  KEEP=1: cluster $cluster stays; hack/cluster.sh down $cluster removes it"
	else
		"$ROOT/hack/cluster.sh" down "$cluster"
	fi
}

# containers_first: the kernel gives all containers together as much of the processors as one
# session of this machine, however many processes run in either. The other stages of `make test`
# are such a session, and beside them a cluster of four nodes starves. (With cgroup v2 each
# container counts by itself.)
containers_first() {
	local weight=/sys/fs/cgroup/cpu/docker/cpu.shares
	[[ ! -w $weight ]] || echo 4096 >"$weight"
}

# go_test: its own program for step, and reports in both forms.
go_test() {
	cd "$ROOT"
	RCBOX_KUBECTL=$("$ROOT/hack/tool.sh" kubectl)
	RCBOX_HELM=$("$ROOT/hack/tool.sh" helm)
	KUBECONFIG=$("$ROOT/hack/cluster.sh" kubeconfig "$cluster")
	export RCBOX_KUBECTL RCBOX_HELM KUBECONFIG RCBOX_PLUGIN=$BUILD/bin/kubectl-rcbox
	# For clients of this machine; the Python package is there once its own tests have run.
	export RCBOX_CLI=${CARGO_TARGET_DIR:-$ROOT/images/store/target}/release/rcbox RCBOX_PYTHON_PACKAGE=$BUILD/python-installed
	export RCBOX_STORE_IMAGE=$STORE_IMAGE RCBOX_OPERATOR_IMAGE=$OPERATOR_IMAGE RCBOX_RECORDER_IMAGE=$RECORDER_IMAGE
	# Each test finds the cluster as the one before has left it: after a failure, nothing that follows means anything.
	"$ROOT/hack/go-test.sh" e2e . -timeout 80m -failfast "$@" ./e2e/...
}

"$ROOT/hack/setup.sh" store cluster
"$ROOT/hack/engine.sh" up
"$ROOT/hack/tool.sh" kind kubectl helm >/dev/null
if [[ ${1:-} == --prepare ]]; then
	"$ROOT/hack/store.sh" -p recorder
	"$ROOT/hack/node-image.sh"
	"$ROOT/hack/second-network.sh" --compile
	exit
fi
"$ROOT/hack/build-images.sh" --recorder
"$ROOT/hack/kubectl-rcbox.sh"
# shellcheck source=/dev/null
source "$BUILD/images.env"
# A cluster that an earlier run left may hold half a test.
if kind get clusters 2>/dev/null | grep -x "$cluster" >/dev/null; then
	"$ROOT/hack/cluster.sh" down "$cluster"
fi
trap cleanup EXIT
RCBOX_ETCD_FSYNC=no "$ROOT/hack/cluster.sh" up "$cluster"
containers_first
"$ROOT/hack/load-images.sh" "$cluster"
"$ROOT/hack/second-network.sh" "$cluster"
step "end-to-end tests" go_test "$@"
