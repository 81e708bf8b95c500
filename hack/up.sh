#!/usr/bin/env bash
# From a bare machine to a Store under load: what `make up` does. It can be run
# again at any time and does only what is not done yet.
#
# usage: hack/up.sh [CLUSTER]      (default: rcbox)
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cluster=${1:-rcbox}
# report: the last word, whatever happened.
report() {
	local code=$?
	((code == 0)) && return
	{
		echo
		echo "make up FAILED after $(elapsed $SECONDS); the logs of all steps are in ${LOGS#"$PWD"/}"
		echo "It can be run again as it is. To begin anew: make down"
	} >&2
}
trap report EXIT

info "machine"
"$ROOT/hack/setup.sh" store cluster
"$ROOT/hack/engine.sh" up
info "cluster"
"$ROOT/hack/cluster.sh" up "$cluster"
info "images"
"$ROOT/hack/build-images.sh"
"$ROOT/hack/load-images.sh" "$cluster"
info "store"
"$ROOT/hack/deploy.sh" "$cluster"
"$ROOT/hack/clusterperf.sh" "$cluster"

# shellcheck source=/dev/null
source "$BUILD/images.env"
kubeconfig=$("$ROOT/hack/cluster.sh" kubeconfig "$cluster")
cat <<TEXT

The Store "box" is up, after $(elapsed $SECONDS). To go on:

  export KUBECONFIG=$kubeconfig PATH=$CACHE/bin:\$PATH
  kubectl get stores                                 # the Store; its locator, members and conditions
  kubectl describe store box
  kubectl scale store box --replicas=4               # one more master
  hack/clusterperf.sh $cluster                         # the same measurement again
  kubectl run client --rm -it --restart=Never --image=$STORE_IMAGE --labels=rcbox.dev/admin-client=box -- \\
    rcbox -C tcp:host=box-coordinator.default.svc,port=11100 status
  kubectl run client --rm -it --restart=Never --image=$STORE_IMAGE -- \\
    rcbox -C tcp:host=box.default.svc,port=11100 put test hello world

  make down                                          # remove the cluster and all in it
TEXT
