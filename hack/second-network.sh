#!/usr/bin/env bash
# A second network for a kind cluster: Multus, and either stand-ins for NICs and
# their device plugin, or the real SR-IOV device plugin (images/network).
#
# usage: hack/second-network.sh CLUSTER           one of hack/cluster.sh; it goes with the cluster
#        hack/second-network.sh CLUSTER --sriov   for nodes with virtual functions: does not wait for them
#        hack/second-network.sh --compile         only what takes long
#        hack/second-network.sh --image           only the image; prints its name
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

USAGE="usage: hack/second-network.sh CLUSTER [--sriov] | --compile | --image"
CLUSTER=${1:?$USAGE}
CONTEXT=$BUILD/images/network
HERE=$ROOT/images/network
RESOURCE=stand-in.rcbox.dev/port

compile() {
	local multus=gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd plugins=github.com/containernetworking/plugins/plugins
	local device_plugin=github.com/k8snetworkplumbingwg/sriov-network-device-plugin/cmd/sriovdp
	mkdir -p "$CONTEXT/cni"
	cd "$HERE"
	go build -ldflags '-s -w' -o "$CONTEXT/" "$multus/thin_entrypoint" "$device_plugin" ./standinplugin
	go build -ldflags '-s -w' -o "$CONTEXT/cni/" "$multus/multus" "$plugins/ipam/static" ./standinport
	# Under the name that definitions give.
	go build -ldflags '-s -w' -o "$CONTEXT/cni/sriov" ./standinsriov
	cp Dockerfile "$CONTEXT/"
}

# image: builds it if it is not there, and prints its name.
image() {
	local name
	step "compile Multus, device plugins and CNI plugins" compile >&2
	name=rcbox.dev/network:$(hash_of "$CONTEXT")
	image_exists "$name" || step "build image rcbox.dev/network" docker build --quiet --tag "$name" "$CONTEXT" >&2
	echo "$name"
}

apply() { sed "s|IMAGE|$1|; s|API_SERVER|::ffff:$API_SERVER|" "$HERE/$2" | kubectl apply -f -; }

start_multus() {
	apply "$1" multus.yaml
	kubectl -n second-network rollout status --timeout=180s daemonset/multus
	wait_until 60 configured
}

configured() {
	local node
	for node in $(kind get nodes --name "$CLUSTER"); do
		docker exec "$node" test -s /etc/cni/net.d/00-multus.conf || return 1
	done
}

start_stand_ins() {
	apply "$1" stand-in.yaml
	kubectl -n second-network rollout status --timeout=180s daemonset/stand-in-ports
	wait_until 60 offered
}

offered() {
	kubectl get nodes -o json | jq -e --arg resource "$RESOURCE" '[.items[].status.allocatable[$resource] // "0" | tonumber > 0] | all'
}

start_device_plugin() {
	kubectl apply -f "$ROOT/config/network/device-plugin.yaml"
	apply "$1" sriov.yaml
}

main() {
	local image
	image=$(image)
	KUBECONFIG=$("$ROOT/hack/cluster.sh" kubeconfig "$CLUSTER")
	export KUBECONFIG
	"$ROOT/hack/tool.sh" kind kubectl >/dev/null
	step "load image rcbox.dev/network" kind load docker-image --name "$CLUSTER" "$image"
	API_SERVER=$(kubectl get service kubernetes -o jsonpath='{.spec.clusterIP}')
	step "start Multus" start_multus "$image"
	if [[ ${1:-} == --sriov ]]; then
		step "start the SR-IOV device plugin" start_device_plugin "$image"
	else
		step "start stand-in ports" start_stand_ins "$image"
	fi
}

case $CLUSTER in
--compile) step "compile Multus, device plugins and CNI plugins" compile ;;
--image) image ;;
-*) die "$USAGE" ;;
*) main "${2:-}" ;;
esac
