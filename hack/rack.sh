#!/usr/bin/env bash
# Three emulated chassis for the box controller of a kind cluster: the 132 BMCs and
# the chassis managers of config/samples/chassis.yaml are OpenIPMI's ipmi_sim, in a
# network namespace of this machine; blades are stand-ins.
#
# usage: hack/rack.sh up [CLUSTER]     (default: rcbox; after make up)
#        hack/rack.sh down [CLUSTER]
#   RCBOX_RACK=NAME            the namespace, and the folder in .build; default: rcbox-rack
#   RCBOX_RACK_MACHINES="2 1"  so many blades of each chassis are emulated by QEMU, from its first slot on; their disks are in .build/NAME/disks
#   RCBOX_RACK_OPTIONS         further options of the emulator of the rack (operator/test/box/emulate)
#        hack/rack.sh pull SERVER | plug SERVER     take a blade out of its slot, or put it back; by the number of its server
#        hack/rack.sh network up BRIDGE ADDRESS/BITS | network down | start | stop   the parts alone
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NAMESPACE=${RCBOX_RACK:-rcbox-rack}
# The bridge of the namespace, which emulated blades are plugged into.
BLADES=blades
BMCS=192.168.5.0/24
STATE=$BUILD/$NAMESPACE
PID_FILE=$STATE/pid
PASSWORD=$STATE/ipmi_password.txt

# network_up BRIDGE ADDRESS: a namespace whose only link is at that bridge, and in which each address of BMCS is its own. A bridge in it
# has blades at the same network.
network_up() {
	local bridge=$1 address=$2
	ip netns list | grep -qw "$NAMESPACE" || ip netns add "$NAMESPACE"
	if ! ip -n "$NAMESPACE" link show eth0 >/dev/null 2>&1; then
		ip link add "$NAMESPACE" type veth peer name eth0 netns "$NAMESPACE"
	fi
	ip link set "$NAMESPACE" master "$bridge" up
	ip -n "$NAMESPACE" link set lo up
	ip -n "$NAMESPACE" link show "$BLADES" >/dev/null 2>&1 || ip -n "$NAMESPACE" link add "$BLADES" type bridge forward_delay 0
	ip -n "$NAMESPACE" link set "$BLADES" up
	ip -n "$NAMESPACE" link set eth0 master "$BLADES" up
	ip -n "$NAMESPACE" address replace "$address" dev "$BLADES"
	ip -n "$NAMESPACE" route replace local "$BMCS" dev lo
}

network_down() {
	ip link delete "$NAMESPACE" 2>/dev/null || true # its other end goes with it
	ip netns delete "$NAMESPACE" 2>/dev/null || true
}

# our_pid: the emulator that we started, if that is still it.
our_pid() {
	local pid
	pid=$(cat "$PID_FILE" 2>/dev/null) || return 1
	[[ $(cat "/proc/$pid/comm" 2>/dev/null) == emulate ]] && echo "$pid"
}

# plug_machines: makes the network devices of blades that QEMU emulates.
plug_machines() {
	local chassis=0 count slot tap
	for count in ${RCBOX_RACK_MACHINES:-}; do
		for ((slot = 1; slot <= count; slot++)); do
			tap=blade$((chassis * 44 + slot))
			ip -n "$NAMESPACE" link show "$tap" >/dev/null 2>&1 || ip netns exec "$NAMESPACE" ip tuntap add "$tap" mode tap
			ip -n "$NAMESPACE" link set "$tap" master "$BLADES" up
		done
		chassis=$((chassis + 1))
	done
}

# start_rack: in the namespace, with a password that nobody else knows.
start_rack() {
	our_pid >/dev/null && return
	rm -rf "$STATE/chassis"
	mkdir -p "$STATE/chassis"
	if [[ ! -s $PASSWORD ]]; then
		(umask 077 && head -c 9 /dev/urandom | base64 >"$PASSWORD")
	fi
	(cd "$ROOT" && go build -o "$BUILD/bin/emulate" ./operator/test/box/emulate)
	plug_machines
	# shellcheck disable=SC2086 # a list of options
	setsid ip netns exec "$NAMESPACE" "$BUILD/bin/emulate" --dir "$STATE/chassis" --password-file "$PASSWORD" \
		${RCBOX_RACK_MACHINES:+--machines "${RCBOX_RACK_MACHINES// /,}" --disks "$STATE/disks"} ${RCBOX_RACK_OPTIONS:-} \
		</dev/null >"$STATE/log" 2>&1 9>&- &
	echo $! >"$PID_FILE"
	wait_until 30 grep -q "are there" "$STATE/log" || {
		tail -n 15 "$STATE/log"
		die "the emulated rack does not start; its log is $STATE/log"
	}
}

stop_rack() {
	local pid
	pid=$(our_pid) || return 0
	kill -TERM "$pid"
	wait_until 10 is_gone "$pid" || kill -KILL "$pid"
}

# slot_of SERVER: the folder of its slot.
slot_of() { echo "$STATE/chassis/mercury$((($1 - 1) / 44 + 1))/slots/$((($1 - 1) % 44 + 1))"; }

# tell FILE TEXT: in one step, for the BMC reads it at any time.
tell() { echo "$2" >"$1.new" && mv "$1.new" "$1"; }

# pull SERVER: what a slot without a blade draws is nothing, and its blade has no power.
pull() {
	local slot
	slot=$(slot_of "$1")
	tell "$slot/power" 0
	tell "$slot/watts" 0
	echo "power 0" >>"$slot/events"
}

plug() { tell "$(slot_of "$1")/watts" 2; }

is_gone() { [[ ! -d /proc/$1 ]]; }

# manifest: the sample of hardware, as the emulated rack is: ipmi_sim has no cipher suite 17.
manifest() {
	sed -e 's/model: MicroModularServer/model: EmulatedRack/; s/cipherSuite: 17/cipherSuite: 3/; /storageSlots:/d' \
		"$ROOT/config/samples/chassis.yaml"
}

# kind_network: the bridge of kind's nodes, and an address there that no node has.
kind_network() {
	local id gateway bits
	id=$(docker network inspect kind -f '{{.Id}}')
	read -r gateway bits < <(docker network inspect kind -f '{{range .IPAM.Config}}{{.Gateway}} {{.Subnet}}{{"\n"}}{{end}}' |
		awk '$1 ~ /^[0-9.]+$/ { sub(/.*\//, "", $2); print $1, $2 }')
	[[ $bits == 16 ]] || die "kind's network has a prefix of ${bits:-no} bits, and 16 are expected: is this kind's own network?"
	echo "br-${id:0:12}" "${gateway%.*.*}.255.250/$bits"
}

# route_nodes ADDRESS: pods reach BMCS by the routes of their nodes.
route_nodes() {
	local node
	for node in $(kind get nodes --name "$cluster"); do
		docker exec "$node" ip route replace "$BMCS" via "${1%/*}"
	done
}

up() {
	local place bridge address
	[[ $EUID == 0 ]] || die "only root can make a network namespace"
	"$ROOT/hack/setup.sh" box
	place=$(kind_network)
	read -r bridge address <<<"$place"
	[[ -e /sys/class/net/$bridge ]] || die "there is no bridge $bridge here: the Docker engine is in another network namespace or machine"
	step "install the box controller" "$ROOT/hack/deploy.sh" "$cluster" --operator --reuse-values --set box.enabled=true
	step "connect the rack with kind's network" network_up "$bridge" "$address"
	step "lead the nodes there" route_nodes "$address"
	start_rack
	kubectl create secret generic chassis-bmc -n rcbox-system --type=rcbox.dev/bmc --from-literal=username=admin \
		--from-file=password="$PASSWORD" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
	manifest | kubectl apply -f -
	step "wait until all BMCs answer" kubectl wait chassis --all --for=condition=ManagementReady --timeout=3m
	cat <<-TEXT

		Three emulated chassis are in the cluster. To go on:

		  export KUBECONFIG=$KUBECONFIG PATH=$BUILD/bin:$CACHE/bin:\$PATH
		  kubectl get chassis,servers
		  kubectl rcbox up 1-8
		  kubectl rcbox inventory mercury1
		  ip netns exec $NAMESPACE ipmitool -I lanplus -C 3 -U admin -f $PASSWORD -H 192.168.5.7 power status
		  make rack-down
	TEXT
}

down() {
	if kubectl get crd chassis.rcbox.dev >/dev/null 2>&1; then
		manifest | kubectl delete --ignore-not-found -f -
		kubectl delete secret chassis-bmc -n rcbox-system --ignore-not-found
	fi
	local node
	for node in $(kind get nodes --name "$cluster" 2>/dev/null); do
		docker exec "$node" ip route delete "$BMCS" 2>/dev/null || true
	done
	stop_rack
	network_down
}

case ${1:-} in
up | down)
	cluster=${2:-rcbox}
	"$ROOT/hack/tool.sh" kubectl kind >/dev/null
	KUBECONFIG=$("$ROOT/hack/cluster.sh" kubeconfig "$cluster")
	export KUBECONFIG
	"$1"
	;;
network)
	shift
	"network_${1:?up or down}" "${@:2}"
	;;
start | stop) "$1_rack" ;;
pull | plug) "$1" "${2:?the number of a server}" ;;
*) die "usage: hack/rack.sh up|down [CLUSTER]" ;;
esac
