#!/usr/bin/env bash
# A kind cluster of one control plane and three workers (RCBOX_WORKERS).
# RCBOX_ETCD_FSYNC=no: its etcd does not wait for the disk, for clusters that
# live no longer than a test.
# RCBOX_CLUSTER_SUBNET=SUBNET RCBOX_CLUSTER_RANGE=RANGE: a network of its own, whose
# nodes have addresses of that range, in place of the one that kind's clusters share.
#
# usage: hack/cluster.sh up NAME          make it, or make sure that it is healthy
#        hack/cluster.sh down NAME        delete it
#        hack/cluster.sh kubeconfig NAME  print the path of its kubeconfig
#
# The kubeconfig is a file of this checkout; ~/.kube/config is never touched.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

USAGE="usage: hack/cluster.sh up|down|kubeconfig NAME"
COMMAND=${1:?$USAGE}
NAME=${2:?$USAGE}
WORKERS=${RCBOX_WORKERS:-3}
KUBECONFIG=$BUILD/$NAME/kubeconfig
export KUBECONFIG

nodes() { kind get nodes --name "$NAME" 2>/dev/null; }

# config IMAGE: kind's configuration. An image that we built holds a CoreDNS of
# another version than the one that kubeadm would ask for.
config() {
	cat <<-YAML
		kind: Cluster
		apiVersion: kind.x-k8s.io/v1alpha4
		networking:
		  ipFamily: ipv4
		nodes:
		  - role: control-plane
	YAML
	local worker
	for ((worker = 1; worker <= WORKERS; worker++)); do
		echo "  - role: worker"
	done
	cat <<-YAML
		kubeadmConfigPatches:
		  - |
		    kind: ClusterConfiguration
	YAML
	if [[ $1 == rcbox.dev/* ]]; then
		cat <<-YAML
			    dns:
			      imageTag: $(coredns_version)
		YAML
	fi
	if [[ ${RCBOX_ETCD_FSYNC:-} == no ]]; then
		cat <<-YAML
			    etcd:
			      local:
			        extraArgs:
			          unsafe-no-fsync: "true"
		YAML
	fi
}

# network: makes the cluster's own, and has kind use it. Nothing in it reaches other networks: while a Service has no rules on a node yet,
# packets to its address leave by the default route, and where somebody answers there, the API server keeps that connection.
network() {
	[[ -n ${RCBOX_CLUSTER_SUBNET:-} ]] || return 0
	export KIND_EXPERIMENTAL_DOCKER_NETWORK=$NAME
	docker network inspect "$NAME" >/dev/null 2>&1 ||
		docker network create --driver bridge --opt com.docker.network.bridge.enable_ip_masquerade=false --subnet "$RCBOX_CLUSTER_SUBNET" --ip-range "${RCBOX_CLUSTER_RANGE:?}" "$NAME"
}

create() {
	local image=$1
	network
	config "$image" | kind create cluster --name "$NAME" --image "$image" --config - --kubeconfig "$KUBECONFIG" --wait 5m
}

# ready SECONDS: all nodes are Ready and DNS is up, within that time.
ready() {
	kubectl wait --for=condition=Ready --timeout="${1}s" node --all &&
		kubectl -n kube-system rollout status --timeout="${1}s" deployment/coredns daemonset/kindnet
}

# healthy: the same, now; and no node is missing.
healthy() {
	(($(nodes | wc -l) == WORKERS + 1)) || return 1
	kind get kubeconfig --name "$NAME" >"$KUBECONFIG" 2>/dev/null || return 1
	timeout 20 kubectl get --raw /readyz >/dev/null 2>&1 && ready 5 >/dev/null 2>&1
}

# revive: starts nodes that stopped with their engine or machine.
revive() {
	local stopped
	mapfile -t stopped < <(docker ps --quiet --filter "label=io.x-k8s.kind.cluster=$NAME" --all --filter status=exited)
	((${#stopped[@]} == 0)) || docker start "${stopped[@]}"
	kind get kubeconfig --name "$NAME" >"$KUBECONFIG"
	wait_until 60 kubectl get --raw /readyz
	# What the nodes reported before they stopped must not count.
	wait_until 90 heartbeats_after "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
	ready 60
}

# heartbeats_after TIME: every node's lease has been renewed since.
heartbeats_after() {
	kubectl -n kube-node-lease get leases -o json |
		jq -e --arg time "$1" '[.items[].spec.renewTime > $time] | length == '"$((WORKERS + 1))"' and all' >/dev/null
}

delete() {
	kind delete cluster --name "$NAME" --kubeconfig "$KUBECONFIG"
	# Only a cluster with a network of its own has one of its name.
	docker network rm "$NAME" >/dev/null 2>&1 || true
}

up() {
	local image
	"$ROOT/hack/setup.sh" cluster
	"$ROOT/hack/engine.sh" up
	"$ROOT/hack/tool.sh" kind kubectl >/dev/null
	mkdir -p "$BUILD/$NAME"
	if healthy; then
		info "  cluster $NAME is up"
		return
	fi
	if [[ -n $(nodes) ]]; then
		info "  cluster $NAME exists and is not healthy: trying to revive it"
		# Run by its own bash: see step about functions whose failure is caught.
		if step "revive cluster $NAME" "$0" revive "$NAME"; then
			return
		fi
		info "  cluster $NAME could not be revived: it is deleted and made again"
		step "delete cluster $NAME" delete
	fi
	image=$("$ROOT/hack/node-image.sh")
	step "create cluster $NAME (1 + $WORKERS nodes)" create "$image"
	step "wait for all nodes and DNS" ready 180
}

down() {
	if command -v kind >/dev/null && timeout 10 docker info >/dev/null 2>&1 && [[ -n $(nodes) ]]; then
		step "delete cluster $NAME" delete
	else
		info "  there is no cluster $NAME"
	fi
	rm -rf "${BUILD:?}/$NAME"
}

case $COMMAND in
up | revive | down) "$COMMAND" ;;
kubeconfig)
	[[ -s $KUBECONFIG ]] || die "there is no cluster $NAME; make it: hack/cluster.sh up $NAME"
	echo "$KUBECONFIG"
	;;
*) die "$USAGE" ;;
esac
