#!/usr/bin/env bash
# Runs ClusterPerf in a pod against a Store and prints its table.
#
# usage: hack/clusterperf.sh CLUSTER [STORE [TEST]]
# STORE: a Store of namespace default (box); TEST: a ClusterPerf test (basic).
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cluster=${1:?usage: hack/clusterperf.sh CLUSTER [STORE [TEST]]}
store=${2:-box}
test=${3:-basic}
POD=clusterperf-$store
KUBECONFIG=$("$ROOT/hack/cluster.sh" kubeconfig "$cluster")
export KUBECONFIG
# shellcheck source=/dev/null
source "$BUILD/images.env"

manifest() {
	cat <<-YAML
		apiVersion: v1
		kind: Pod
		metadata:
		  name: $POD
		  namespace: default
		spec:
		  restartPolicy: Never
		  automountServiceAccountToken: false
		  securityContext:
		    runAsNonRoot: true
		    seccompProfile: {type: RuntimeDefault}
		  containers:
		    - name: clusterperf
		      image: $STORE_IMAGE
		      command: [clusterperf, -C, "$1", --numClients, "1", $test]
		      securityContext:
		        allowPrivilegeEscalation: false
		        capabilities: {drop: [ALL]}
	YAML
}

ended() { [[ $(kubectl get pod "$POD" -o jsonpath='{.status.phase}') =~ ^(Succeeded|Failed)$ ]]; }

run() {
	local locator
	locator=$(kubectl get store "$store" -o jsonpath='{.status.locator}')
	[[ -n $locator ]] || die "store $store has no locator in its status; is it Available? (kubectl get store $store)"
	kubectl delete pod "$POD" --ignore-not-found
	manifest "$locator" | kubectl apply -f -
	if ! wait_until 180 ended; then
		kubectl describe pod "$POD"
		kubectl logs "$POD" || true # may not have started
		die "clusterperf has not ended in time"
	fi
	kubectl logs "$POD" | tee "$BUILD/$cluster/clusterperf.txt"
	[[ $(kubectl get pod "$POD" -o jsonpath='{.status.phase}') == Succeeded ]]
	kubectl delete pod "$POD" --wait=false
}

step "run clusterperf $test in a pod" run
echo
# Lines with # are its progress.
grep -v '^#' "$BUILD/$cluster/clusterperf.txt"
