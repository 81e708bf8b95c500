#!/usr/bin/env bash
# Installs the operator into a cluster of hack/cluster.sh, applies two sample
# Stores if they are not there, one with copies and one without, and waits until
# they are Ready. An operator keeps the image that a Store has, so one that runs an
# older build is made again.
#
# usage: hack/deploy.sh CLUSTER
#        hack/deploy.sh CLUSTER --operator [HELM_OPTION...]     only the operator
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
		--wait --timeout 3m "$@"
}

image_of_store() { kubectl get store "$1" --ignore-not-found -o jsonpath='{.status.image}'; }

# apply_sample NAME FILE
apply_sample() { kubectl get store "$1" 2>/dev/null || kubectl apply -f "$ROOT/config/samples/$2"; }

# wait_until_ready NAME: and on failure say why: conditions, pods and events.
wait_until_ready() {
	kubectl wait --for=condition=Ready --timeout=180s "store/$1" && return
	kubectl get store "$1" -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
	kubectl get pods -o wide
	kubectl get events --sort-by=.lastTimestamp | tail -n 15
	return 1
}

step "install the operator with Helm" install_operator "${@:3}"
[[ ${2:-} != --operator ]] || exit 0
for store in box cache; do
	image=$(image_of_store "$store")
	if [[ -n $image && $image != "$STORE_IMAGE" ]]; then
		info "  store $store runs $image; it is made again with $STORE_IMAGE (volumes stay, what was in memory alone is lost)"
		step "delete the Store $store" kubectl delete store "$store" --timeout=120s
	fi
done
step "apply the sample Store with copies" apply_sample box store.yaml
step "apply the sample Store without copies" apply_sample cache store-unreplicated.yaml
step "wait until box is Ready" wait_until_ready box
step "wait until cache is Ready" wait_until_ready cache
