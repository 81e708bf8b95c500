#!/usr/bin/env bash
# Installs the operator into a cluster of hack/cluster.sh, applies the sample
# Store and waits until it is Available.
#
# usage: hack/deploy.sh CLUSTER
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cluster=${1:?usage: hack/deploy.sh CLUSTER}
KUBECONFIG=$("$ROOT/hack/cluster.sh" kubeconfig "$cluster")
export KUBECONFIG
# shellcheck source=/dev/null
source "$BUILD/images.env"
"$ROOT/hack/tool.sh" helm >/dev/null

install_operator() {
	# Helm installs CRDs once and never updates them.
	if [[ -d $ROOT/charts/rcbox/crds ]]; then
		kubectl apply --server-side --force-conflicts -f "$ROOT/charts/rcbox/crds"
	fi
	helm upgrade --install rcbox "$ROOT/charts/rcbox" --namespace rcbox-system --create-namespace \
		--set image.repository="${OPERATOR_IMAGE%:*}" --set image.tag="${OPERATOR_IMAGE##*:}" \
		--set storeImage.repository="${STORE_IMAGE%:*}" --set storeImage.tag="${STORE_IMAGE##*:}" \
		--wait --timeout 3m
}

# wait_available: on failure, says why: conditions, pods and events.
wait_available() {
	kubectl apply -f "$ROOT/config/samples/store.yaml"
	kubectl wait --for=condition=Available --timeout=180s store/box && return
	kubectl get store box -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
	kubectl get pods -o wide
	kubectl get events --sort-by=.lastTimestamp | tail -n 15
	return 1
}

step "install the operator with Helm" install_operator
step "apply the sample Store, wait until Available" wait_available
