#!/usr/bin/env bash
# A node with virtual functions: the virtual machine joins a kind cluster that is made for it, and a Store's pods there get its
# functions from the SR-IOV device plugin and Multus, and drive them.
#
# usage: hack/sriov/node.sh     (settings: machine.sh; KEEP=1 keeps cluster and machine until Enter is pressed)
# Exit code 0: every check has passed. Needs root, 5 GiB of memory, and a Docker engine of this machine.
set -euo pipefail
# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=machine.sh
source "$ROOT/hack/sriov/machine.sh"

CLUSTER=rcbox-sriov
NODE=$CLUSTER-machine
TAP=rcsriov
# A poller each for the master and its client, and the node's own programs.
CPUS=${RCBOX_SRIOV_CPUS:-4}
MINUTES=${RCBOX_SRIOV_MINUTES:-40}
# With 2816 MiB or more, some of it lies above 4 GiB, and with it the functions' registers: has_low_registers in vfs.sh.
MEMORY_MB=2800
# For the master and its client.
HUGE_PAGES=320
# The machine is the cluster's only worker.
export RCBOX_WORKERS=0

use_folder node
export CHECK_LOG=$WORK/check.log AWAIT_INTERVAL_S=2
# shellcheck source=check.sh
source "$SRIOV/check.sh"
# shellcheck source=node/checks.sh
source "$SRIOV/node/checks.sh"

build() {
	"$ROOT/hack/setup.sh" cluster node sriov
	"$ROOT/hack/engine.sh" up
	"$ROOT/hack/tool.sh" kind kubectl helm >/dev/null
	find_emulator
	part guest ""
	GUEST=$FOLDER
	"$ROOT/hack/build-images.sh"
	"$ROOT/hack/kubectl-rcbox.sh"
	NETWORK_IMAGE=$("$ROOT/hack/second-network.sh" --image)
	# shellcheck source=/dev/null
	source "$BUILD/images.env"
	local node_image
	node_image=$("$ROOT/hack/node-image.sh")
	part disk "$node_image $GUEST" "$GUEST" "$node_image"
	DISK=$FOLDER/disk
}

start_cluster() {
	# One that an earlier run left may hold half a test.
	"$ROOT/hack/cluster.sh" down "$CLUSTER"
	"$ROOT/hack/cluster.sh" up "$CLUSTER"
	KUBECONFIG=$("$ROOT/hack/cluster.sh" kubeconfig "$CLUSTER")
	export KUBECONFIG
	"$ROOT/hack/load-images.sh" "$CLUSTER"
	"$ROOT/hack/deploy.sh" "$CLUSTER" --operator --set 'allow.networkProfiles={WholePort}' \
		--set 'allow.capabilities={IPC_LOCK,NET_RAW,NET_ADMIN,SYS_RAWIO,SYS_ADMIN}'
	"$ROOT/hack/second-network.sh" "$CLUSTER" --sriov
}

# on_network COMMAND: what `docker network inspect` says of the cluster's network, through jq.
on_network() { docker network inspect kind | jq -er "$1"; }

# plan_address: the machine's, at the end of the cluster's network: the engine gives addresses from its beginning.
plan_address() {
	local subnet a b c d prefix last
	subnet=$(on_network '[.[0].IPAM.Config[] | select(.Subnet | contains(":") | not)][0].Subnet')
	IFS='./' read -r a b c d prefix <<<"$subnet"
	last=$(((a << 24 | b << 16 | c << 8 | d) + (1 << (32 - prefix)) - 6))
	IP=$((last >> 24)).$((last >> 16 & 255)).$((last >> 8 & 255)).$((last & 255))
	ADDRESS=$IP/$prefix
	GATEWAY=$(on_network '[.[0].IPAM.Config[] | select(.Subnet | contains(":") | not)][0].Gateway')
}

# plug: a port of the bridge that the cluster's nodes are on.
plug() {
	local bridge
	bridge=$(on_network '.[0].Options["com.docker.network.bridge.name"] // "br-" + .[0].Id[:12]')
	ip link show "$bridge" >/dev/null || die "the Docker engine's bridge $bridge is not on this machine; is the engine somewhere else?"
	ip link delete "$TAP" 2>/dev/null || true # of a run that was ended
	ip tuntap add dev "$TAP" mode tap
	ip link set "$TAP" master "$bridge" mtu "$(<"/sys/class/net/$bridge/mtu")" up
}

# join_configuration: for kubeadm in the guest, with time for a slow machine.
join_configuration() {
	local words
	read -ra words < <(docker exec "$CLUSTER-control-plane" kubeadm token create --print-join-command) # kubeadm join HOST --token T --discovery-token-ca-cert-hash H
	cat <<-YAML
		apiVersion: kubeadm.k8s.io/v1beta4
		kind: JoinConfiguration
		discovery:
		  bootstrapToken: {apiServerEndpoint: "${words[2]}", token: "${words[4]}", caCertHashes: ["${words[6]}"]}
		nodeRegistration:
		  criSocket: unix:///run/containerd/containerd.sock
		  name: $NODE
		  kubeletExtraArgs:
		  - {name: node-ip, value: $IP}
		timeouts: {discovery: 10m, tlsBootstrap: 10m, kubeletHealthCheck: 10m, kubernetesAPICall: 5m}
	YAML
}

hosts() {
	echo "127.0.0.1 localhost"
	echo "$IP $NODE"
	# Names of nodes are the engine's, which the guest does not ask.
	docker inspect --format '{{.NetworkSettings.Networks.kind.IPAddress}} {{.Name}}' "$CLUSTER-control-plane" | tr -d /
}

# pack_payload: what is of this run, as an archive of files of the node.
pack_payload() {
	local payload=$WORK/payload units=etc/systemd/system
	rm -rf "$payload" "$WORK/payload.tar"
	mkdir -p "$payload"/{rcbox/images,"$units"/{multi-user.target.wants,kubelet.service.d}}
	cp "$SRIOV"/{check,vfs}.sh "$SRIOV"/node/{start,join,cgroups} "$payload/rcbox/"
	cp "$SRIOV/node/rcbox-join.service" "$payload/$units/"
	cp "$SRIOV/node/kubelet.conf" "$payload/$units/kubelet.service.d/20-machine.conf"
	ln -s ../rcbox-join.service "$payload/$units/multi-user.target.wants/"
	hosts >"$payload/etc/hosts"
	join_configuration >"$payload/rcbox/join.yaml"
	printf '%s\n' "NAME=$NODE" "ADDRESS=$ADDRESS" "GATEWAY=$GATEWAY" "HUGE_PAGES=$HUGE_PAGES" >"$payload/rcbox/settings"
	docker save --output "$payload/rcbox/images/store.tar" "$STORE_IMAGE"
	docker save --output "$payload/rcbox/images/network.tar" "$NETWORK_IMAGE"
	# Folders are the disk's own: among them are links.
	(cd "$payload" && find . ! -type d -print0 | tar --create --file "$WORK/payload.tar" --owner 0 --group 0 --null --files-from -)
	rm -rf "$payload"
}

pack_initrd() {
	local more=$WORK/more
	mkdir -p "$more"
	cp "$SRIOV/node/init" "$more/init"
	{
		cat "$GUEST/root.cpio"
		cd "$more"
		find . | cpio --create --format newc --owner 0:0 --quiet
	} >"$WORK/initrd"
}

start_node() {
	start_machine "$GUEST" "$MEMORY_MB" \
		-drive "file=$DISK,format=raw,if=none,id=disk,snapshot=on" -device "virtio-blk-pci,drive=disk" \
		-drive "file=$WORK/payload.tar,format=raw,if=none,id=payload,readonly=on" -device "virtio-blk-pci,drive=payload" \
		-netdev "tap,id=uplink,ifname=$TAP,script=no,downscript=no" -device "virtio-net-pci,netdev=uplink,romfile=,mac=52:54:00:00:01:01"
}

# shellcheck disable=SC2317 # called by trap
on_exit() {
	local code=$?
	trap - EXIT INT TERM
	if [[ ${KEEP:-} == 1 && -t 0 ]]; then
		read -rp "KUBECONFIG=${KUBECONFIG:-}; Enter removes cluster and machine " || true
	fi
	end_machine
	ip link delete "$TAP" 2>/dev/null || true # not made yet
	"$ROOT/hack/cluster.sh" down "$CLUSTER"
	exit "$code"
}

main() {
	as_root "plugging a virtual machine into the cluster's network"
	build
	trap on_exit EXIT INT TERM
	start_cluster
	plan_address
	plug
	step "sriov: pack what the node runs" pack_payload
	pack_initrd
	info "sriov: the node starts; it is emulated, and slow"
	start_node
	run_checks
	summary
	((failed == 0)) || die "not everything has passed; see $(relative "$WORK")/{console,results,cluster}.log"
}

main
