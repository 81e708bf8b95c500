#!/usr/bin/env bash
# The whole Box on one machine: a kind cluster of a control plane and two box hosts, an emulated rack whose BMCs are OpenIPMI's ipmi_sim, and
# three blades in two chassis that QEMU emulates, which have nothing on their disks. One `kubectl apply` brings them to a Store; the clock is
# printed.
#
# usage: hack/box-up.sh up        make it, or what is missing of it
#        hack/box-up.sh down      remove it
#        hack/box-up.sh prepare   all but the last step: cluster, box hosts, BMCs, and everything switched off
#   RCBOX_RECORDER=1   with the image of the tests' clients
#   RCBOX_BOX_SRIOV=1  with the NIC of one blade, atom045, divided into virtual functions, and the image of a device plugin for it
#   RCBOX_BLADE_SETTINGS, RCBOX_BLADE_IMAGES...   as for hack/blade-image.sh
# It needs root, 10 GiB of memory and 10 GB of disk.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CLUSTER=rcbox-box
# That of the servers in config/samples/box.yaml; the cluster's own nodes have its last addresses.
export RCBOX_CLUSTER_SUBNET=192.168.3.0/24 RCBOX_CLUSTER_RANGE=192.168.3.224/27 RCBOX_WORKERS=2
RACK_ADDRESS=192.168.3.223/24
SELECTOR="node-restriction.kubernetes.io/rcbox-boxhost"
WORKERS=("$CLUSTER-worker" "$CLUSTER-worker2")
PLACE=$BUILD/$CLUSTER
# Patience with emulated processors: ten times what it takes.
MINUTES=${RCBOX_BOX_MINUTES:-40}
BMCS=192.168.5.0/24
export RCBOX_RACK=rcbox-box RCBOX_RACK_MACHINES="2 1"

# shellcheck source=sriov/emulator.sh
source "$ROOT/hack/sriov/emulator.sh"

address_of() { docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$1"; }

images() {
	"$ROOT/hack/build-images.sh" ${RCBOX_RECORDER:+--recorder}
	BOXHOST_IMAGE=$("$ROOT/hack/boxhost-image.sh")
	"$ROOT/hack/kubectl-rcbox.sh"
	# shellcheck source=/dev/null
	source "$BUILD/images.env"
	[[ -z ${RCBOX_BOX_SRIOV:-} ]] || virtual_functions
}

# virtual_functions: one blade has a NIC that can be divided, all have the settings for that; the image of the device plugin is carried.
virtual_functions() {
	local image
	"$ROOT/hack/setup.sh" sriov
	find_emulator
	RCBOX_RACK_OPTIONS="--virtual-functions=45 $(printf -- '--emulator=%s ' "${EMULATOR[@]}")"
	image=$("$ROOT/hack/second-network.sh" --image)
	echo "$image" >"$PLACE/network-image"
	RCBOX_BLADE_IMAGES="${RCBOX_BLADE_IMAGES:-} $image"
	RCBOX_BLADE_SETTINGS=$PLACE/blade-settings.json
	echo '{"virtualFunctions": [{"driver": "igb", "count": 2}]}' >"$RCBOX_BLADE_SETTINGS"
	export RCBOX_RACK_OPTIONS RCBOX_BLADE_SETTINGS
}

# reach_by_address: what runs on each node finds the API server by its address: blades do not know the names of containers.
reach_by_address() {
	local name=$CLUSTER-control-plane:6443 address
	address=$(address_of "$CLUSTER-control-plane"):6443
	kubectl -n kube-system get configmap kube-proxy -o yaml | sed "s/$name/$address/" | kubectl replace -f -
	kubectl -n kube-system set env daemonset/kindnet "CONTROL_PLANE_ENDPOINT=$address"
	kubectl -n kube-system rollout restart daemonset/kube-proxy
	kubectl -n kube-system rollout status --timeout=120s daemonset/kube-proxy
	kubectl -n kube-system rollout status --timeout=120s daemonset/kindnet
}

# network_images: of the cluster's own network, which blades carry, as everything else.
network_images() {
	local names
	names=$(kubectl -n kube-system get daemonset kube-proxy kindnet -o jsonpath='{.items[*].spec.template.spec.containers[*].image}')
	# shellcheck disable=SC2086 # a list
	docker exec "$CLUSTER-control-plane" ctr --namespace k8s.io images export /kind/network-images.tar $names
	docker cp "$CLUSTER-control-plane:/kind/network-images.tar" "$PLACE/network-images.tar"
	docker exec "$CLUSTER-control-plane" rm /kind/network-images.tar
}

blade_image() {
	RCBOX_BLADE_ARGUMENTS="no_timer_check mitigations=off" RCBOX_BLADE_ARCHIVES=$PLACE/network-images.tar \
		RCBOX_BLADE_IMAGES="$STORE_IMAGE ${RCBOX_BLADE_IMAGES:-}" "$ROOT/hack/blade-image.sh" >"$PLACE/blade-image"
}

# give_image: the boot image to both box hosts.
give_image() {
	local worker folder
	folder=$(<"$PLACE/blade-image")
	for worker in "${WORKERS[@]}"; do
		docker exec "$worker" sh -c "test -e /var/lib/rcbox-image/${folder##*/}" && continue
		docker exec "$worker" sh -c 'rm -rf /var/lib/rcbox-image && mkdir -p /var/lib/rcbox-image'
		docker cp "$folder/." "$worker:/var/lib/rcbox-image"
		docker exec "$worker" touch "/var/lib/rcbox-image/${folder##*/}"
	done
}

values() {
	cat <<-YAML
		nodeSelector: {$SELECTOR: "true"}
		box:
		  enabled: true
		  nodeSelector: {$SELECTOR: "true"}
		  join: {apiServer: "https://$(address_of "$CLUSTER-control-plane"):6443"}
		  host:
		    enabled: true
		    image: {repository: ${BOXHOST_IMAGE%:*}, tag: ${BOXHOST_IMAGE##*:}}
		    interface: eth0
		    hosts:
		    - {name: boxhost1, address: $(address_of "${WORKERS[0]}")}
		    - {name: boxhost2, address: $(address_of "${WORKERS[1]}")}
		    # The interface is the cluster's, too: kubelets are reached there, and pods.
		    tcpPorts: [10250]
		    forwardTo: [10.244.0.0/16]
		    bootArguments: [net.ifnames=0, console=ttyS0, no_timer_check, mitigations=off, edd=off, rcbox.system=6144]
	YAML
}

install() {
	values >"$PLACE/values.yaml"
	kubectl label node "${WORKERS[@]}" "$SELECTOR=true" --overwrite
	"$ROOT/hack/deploy.sh" "$CLUSTER" --operator --values "$PLACE/values.yaml"
}

# connect: the rack and its blades with the cluster's network; pods reach BMCs by the routes of their nodes.
connect() {
	local id node
	id=$(docker network inspect "$CLUSTER" -f '{{.Id}}')
	[[ -e /sys/class/net/br-${id:0:12} ]] || die "there is no bridge of Docker here: the Docker engine is in another network namespace or machine"
	"$ROOT/hack/rack.sh" network up "br-${id:0:12}" "$RACK_ADDRESS"
	for node in "$CLUSTER-control-plane" "${WORKERS[@]}"; do
		docker exec "$node" ip route replace "$BMCS" via "${RACK_ADDRESS%/*}"
	done
}

# give_password: of the BMCs, to the box controller.
give_password() {
	kubectl create secret generic chassis-bmc -n rcbox-system --type=rcbox.dev/bmc --from-literal=username=admin \
		--from-file=password="$BUILD/$RCBOX_RACK/ipmi_password.txt" --dry-run=client -o yaml | kubectl apply -f -
}

# manifest: the sample, as it fits the emulated rack, with the version of the image that was built.
manifest() {
	local folder
	folder=$(<"$PLACE/blade-image")
	kubectl kustomize --load-restrictor LoadRestrictionsNone "$ROOT/config/emulated" |
		sed "s|^    install: New|&\n    image: ${folder##*/}|"
}

load() { kind load docker-image --name "$CLUSTER" "$BOXHOST_IMAGE"; }

prepare() {
	as_root "emulating a rack"
	mkdir -p "$PLACE"
	"$ROOT/hack/setup.sh" store cluster box blade
	"$ROOT/hack/engine.sh" up
	"$ROOT/hack/tool.sh" kind kubectl helm >/dev/null
	info "images"
	images
	info "cluster"
	"$ROOT/hack/cluster.sh" up "$CLUSTER"
	KUBECONFIG=$("$ROOT/hack/cluster.sh" kubeconfig "$CLUSTER")
	export KUBECONFIG
	step "have all nodes find the API server by address" reach_by_address
	"$ROOT/hack/load-images.sh" "$CLUSTER"
	step "load the image of box hosts" load
	info "blades"
	step "take the images of the cluster's network" network_images
	step "build the boot image" blade_image
	step "give the boot image to box hosts" give_image
	info "box hosts"
	step "install operator, box controller and box hosts" install
	info "rack"
	step "connect the rack with the cluster's network" connect
	step "start the rack's BMCs" "$ROOT/hack/rack.sh" start
	step "give the BMCs' password to the box controller" give_password
	manifest >"$PLACE/box.yaml"
}

# since SECONDS: prints the clock.
since() { info "  $(printf '%-44s' "$2") $(elapsed $((SECONDS - $1))) after kubectl apply"; }

# say_why: the state of things, where something has not come in time.
say_why() {
	kubectl get chassis,servers,nodes,store,pods -A -o wide
	kubectl get chassis -o jsonpath='{range .items[*]}{.metadata.name}{range .status.conditions[*]}{"\n  "}{.type}={.status} {.reason}: {.message}{end}{"\n"}{end}'
	return 1
} >&2

up() {
	local applied
	prepare
	info "from bare chassis to a store"
	applied=$SECONDS
	kubectl apply -f "$PLACE/box.yaml"
	kubectl wait chassis --all --for=condition=ServicesReady --timeout="${MINUTES}m" >/dev/null || say_why
	since "$applied" "box hosts serve"
	kubectl wait chassis --all --for=condition=Installed --timeout="${MINUTES}m" >/dev/null || say_why
	since "$applied" "all blades are nodes"
	kubectl wait store/box --for=condition=Ready --timeout="${MINUTES}m" >/dev/null || say_why
	since "$applied" "the Store serves, with its copies"
	say_what_next
}

say_what_next() {
	cat <<-TEXT

		Three blades in two chassis carry the Store "box". Their processors are emulated and slow: figures mean nothing. To go on:

		  export KUBECONFIG=$KUBECONFIG PATH=$BUILD/bin:$CACHE/bin:\$PATH
		  kubectl get chassis,servers,nodes,store
		  kubectl rcbox panel                       # the front panel, in your browser
		  kubectl rcbox console atom001             # the console of a blade, by its BMC; ~. ends it
		  kubectl rcbox inventory mercury1
		  kubectl rcbox isolate-server atom002 --reason "to see it"
		  kubectl run client --rm -it --restart=Never --image=$STORE_IMAGE -- \\
		    rcbox -C tcp:host=box.default.svc,port=11100 status
		  make box-down
	TEXT
}

down() {
	"$ROOT/hack/rack.sh" stop
	"$ROOT/hack/cluster.sh" down "$CLUSTER"
	"$ROOT/hack/rack.sh" network down
	rm -rf "${BUILD:?}/$RCBOX_RACK"
}

case ${1:-} in
up | down | prepare) "$1" ;;
*) die "usage: hack/box-up.sh up|down|prepare" ;;
esac
