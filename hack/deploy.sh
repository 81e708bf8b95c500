#!/usr/bin/env bash
# Installs the operator into a cluster of hack/cluster.sh, applies the sample
# Store if there is none, and waits until it is Available. An operator never
# restarts a store by itself, so one that runs an older build is made again.
#
# usage: hack/deploy.sh CLUSTER [--operator]     only the operator
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
	helm upgrade --install rcbox "$ROOT/charts/rcbox" --namespace rcbox-system --create-namespace \
		--set image.repository="${OPERATOR_IMAGE%:*}" --set image.tag="${OPERATOR_IMAGE##*:}" \
		--set storeImage.repository="${STORE_IMAGE%:*}" --set storeImage.tag="${STORE_IMAGE##*:}" \
		--wait --timeout 3m
}

image_of_store() { kubectl get store box --ignore-not-found -o jsonpath='{.status.image}'; }

# apply_sample: and on failure say why: conditions, pods and events.
apply_sample() {
	kubectl get store box || kubectl apply -f "$ROOT/config/samples/store.yaml"
	kubectl wait --for=condition=Available --timeout=180s store/box && return
	kubectl get store box -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
	kubectl get pods -o wide
	kubectl get events --sort-by=.lastTimestamp | tail -n 15
	return 1
}

step "install the operator with Helm" install_operator
[[ ${2:-} != --operator ]] || exit 0
image=$(image_of_store)
if [[ -n $image && $image != "$STORE_IMAGE" ]]; then
	info "  store box runs $image; it is made again with $STORE_IMAGE (what it held is lost)"
	step "delete the Store" kubectl delete store box --timeout=120s
fi
step "apply the sample Store, wait until Available" apply_sample
