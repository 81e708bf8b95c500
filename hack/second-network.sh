#!/usr/bin/env bash
# A second network for a kind cluster: Multus, and stand-ins for NICs and their
# device plugin (images/network).
#
# usage: hack/second-network.sh CLUSTER     one of hack/cluster.sh; it goes with the cluster
#        hack/second-network.sh --compile   only what takes long
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CLUSTER=${1:?usage: hack/second-network.sh CLUSTER | --compile}
CONTEXT=$BUILD/images/network
RESOURCE=stand-in.rcbox.dev/port

compile() {
	local multus=gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd plugins=github.com/containernetworking/plugins/plugins
	export CGO_ENABLED=0
	mkdir -p "$CONTEXT/cni"
	cd "$ROOT/images/network"
	go build -trimpath -ldflags '-s -w' -o "$CONTEXT/" "$multus/thin_entrypoint" ./standinplugin
	go build -trimpath -ldflags '-s -w' -o "$CONTEXT/cni/" "$multus/multus" "$plugins/ipam/static" ./standinport
	cp Dockerfile "$CONTEXT/"
}

build_image() {
	image_exists "$1" || docker build --quiet --tag "$1" "$CONTEXT"
	kind load docker-image --name "$CLUSTER" "$1"
}

# start IMAGE: and wait until each node offers its ports and pods can be attached.
start() {
	local api_server
	api_server=$(kubectl get service kubernetes -o jsonpath='{.spec.clusterIP}')
	sed "s|IMAGE|$1|; s|API_SERVER|::ffff:$api_server|" "$ROOT/images/network/stand-in.yaml" | kubectl apply -f -
	kubectl -n second-network rollout status --timeout=180s daemonset/multus daemonset/stand-in-ports
	wait_until 60 offered
	wait_until 60 configured
}

offered() {
	kubectl get nodes -o json | jq -e --arg resource "$RESOURCE" '[.items[].status.allocatable[$resource] // "0" | tonumber > 0] | all'
}

configured() {
	local node
	for node in $(kind get nodes --name "$CLUSTER"); do
		docker exec "$node" test -s /etc/cni/net.d/00-multus.conf || return 1
	done
}

main() {
	local image
	step "compile Multus and the stand-ins" compile
	[[ $CLUSTER != --compile ]] || return 0
	KUBECONFIG=$("$ROOT/hack/cluster.sh" kubeconfig "$CLUSTER")
	export KUBECONFIG
	"$ROOT/hack/tool.sh" kind kubectl >/dev/null
	image=rcbox.dev/network:$(hash_of "$CONTEXT")
	step "build and load image rcbox.dev/network" build_image "$image"
	step "start Multus and stand-in ports" start "$image"
}

main
