#!/usr/bin/env bash
# Runs ClusterPerf in a pod against a Store and prints its table. Without a Store
# it does so for both that hack/deploy.sh makes: box, with copies, and cache, without.
#
# usage: hack/clusterperf.sh [--once] CLUSTER [STORE [TEST]]
# STORE: a Store of namespace default; TEST: a ClusterPerf test (basic).
# --once: a Store that was measured with this image is not measured again; its table is printed.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

once=
if [[ ${1:-} == --once ]]; then
	once=1
	shift
fi
cluster=${1:?usage: hack/clusterperf.sh [--once] CLUSTER [STORE [TEST]]}
if (($# > 1)); then stores=("$2"); else stores=(box cache); fi
test=${3:-basic}
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

# run STORE
run() {
	local store=$1 locator
	POD=clusterperf-$store
	locator=$(kubectl get store "$store" -o jsonpath='{.status.locator}')
	[[ -n $locator ]] || die "store $store has no locator in its status; is it Available? (kubectl get store $store)"
	kubectl delete pod "$POD" --ignore-not-found
	manifest "$locator" | kubectl apply -f -
	if ! wait_until 180 ended; then
		kubectl describe pod "$POD"
		kubectl logs "$POD" || true # may not have started
		die "clusterperf has not ended in time"
	fi
	kubectl logs "$POD" | tee "$BUILD/$cluster/clusterperf-$store.txt"
	[[ $(kubectl get pod "$POD" -o jsonpath='{.status.phase}') == Succeeded ]]
	kubectl delete pod "$POD" --wait=false
}

# measured STORE: what a table in .build is about.
measured() { echo "$test $STORE_IMAGE $(kubectl get store "$1" -o jsonpath='{.metadata.uid}')"; }

# is_measured STORE
is_measured() {
	[[ -n $once && -e $BUILD/$cluster/clusterperf-$1.of && $(<"$BUILD/$cluster/clusterperf-$1.of") == "$(measured "$1")" ]]
}

# durability STORE: in words, from its status.
durability() {
	kubectl get store "$1" -o jsonpath='{.status.durability}, copies besides the one in memory: {.status.replication.factor}'
}

for store in "${stores[@]}"; do
	is_measured "$store" && continue
	rm -f "$BUILD/$cluster/clusterperf-$store.of"
	step "run clusterperf $test in a pod against $store" run "$store"
	measured "$store" >"$BUILD/$cluster/clusterperf-$store.of"
done
for store in "${stores[@]}"; do
	echo
	echo "Store $store ($(durability "$store")):"
	# Lines with # are its progress.
	grep -v '^#' "$BUILD/$cluster/clusterperf-$store.txt"
done
