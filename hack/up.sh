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
	end_beside
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
# All that is compiled keeps the processors busy together; the cluster starts while the rest is still compiled.
info "cluster; beside it, the programs"
beside store "$ROOT/hack/store.sh"
beside operator "$ROOT/hack/build-images.sh" --prepare
# shellcheck disable=SC2016 # for the inner shell
beside tools bash -c '"$0" helm >/dev/null' "$ROOT/hack/tool.sh" # which prints a path
"$ROOT/hack/cluster.sh" up "$cluster"
info "images"
for name in operator tools store; do
	joined "$name"
done
"$ROOT/hack/build-images.sh"
"$ROOT/hack/load-images.sh" "$cluster"
"$ROOT/hack/kubectl-rcbox.sh" "$BUILD/bin"
info "store"
"$ROOT/hack/deploy.sh" "$cluster"
"$ROOT/hack/clusterperf.sh" --once "$cluster"

# shellcheck source=/dev/null
source "$BUILD/images.env"
kubeconfig=$("$ROOT/hack/cluster.sh" kubeconfig "$cluster")
cat <<TEXT

The Stores "box" (with copies in volumes) and "cache" (without) are up, after $(elapsed $SECONDS). To go on:

  export KUBECONFIG=$kubeconfig PATH=$BUILD/bin:$CACHE/bin:\$PATH
  kubectl get stores                                 # the Stores; their locators, members and conditions
  kubectl describe store box
  kubectl scale store cache --replicas=2             # one more master
  hack/clusterperf.sh $cluster                          # the same measurements again
  kubectl rcbox status                               # members, what moves and what waits
  kubectl rcbox proxy box                            # clients on this machine: tcp:host=127.0.0.1,port=11100
  kubectl run client --rm -it --restart=Never --image=$STORE_IMAGE --labels=rcbox.dev/admin-client=box -- \\
    rcbox -C tcp:host=box-coordinator.default.svc,port=11100 status
  kubectl run client --rm -it --restart=Never --image=$STORE_IMAGE -- \\
    rcbox -C tcp:host=box.default.svc,port=11100 put test hello world

  make down                                          # remove the cluster and all in it
TEXT
