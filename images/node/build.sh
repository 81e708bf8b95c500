#!/usr/bin/env bash
# Builds a kind node image from Debian packages and Go modules alone.
#
# usage: images/node/build.sh TAG WORK_FOLDER
# Needs root (mmdebstrap), a Docker engine and Go. What is built stays in the
# work folder, about 1.5 GB; nothing of it is needed afterwards.
set -euo pipefail
# shellcheck source=../../hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../hack/lib.sh"

TAG=$1
WORK=$2
HERE=$ROOT/images/node
BIN=$WORK/bin
ROOTFS_IMAGE=rcbox.dev/node-rootfs:$(basename "$TAG" | tr ':' '-')
STORE_IMAGE=rcbox.dev/node-store:${ROOTFS_IMAGE##*:}
TOOLS_IMAGE=rcbox.dev/node-tools:1

KUBERNETES=(kubelet kubeadm kubectl kube-proxy kube-scheduler kube-controller-manager kube-apiserver)
CNI_PLUGINS=(main/loopback main/ptp meta/portmap ipam/host-local)

build_programs() {
	cd "$HERE"
	export CGO_ENABLED=0
	local packages=("${KUBERNETES[@]/#/k8s.io/kubernetes/cmd/}" go.etcd.io/etcd/server/v3 ./coredns ./kindnetd ./crictl ./pause)
	go build -trimpath -ldflags "$(kubernetes_ldflags)" -o "$BIN/" "${packages[@]}"
	mv "$BIN/server" "$BIN/etcd"
	go build -trimpath -ldflags '-s -w' -o "$BIN/cni/" "${CNI_PLUGINS[@]/#/github.com/containernetworking/plugins/plugins/}"
	# By itself: it imports a package under a path that differs from another's by case only.
	go build -trimpath -ldflags '-s -w' -o "$BIN/" github.com/rancher/local-path-provisioner
}

# build_file_systems: the node's, and a small one for the programs that call iptables.
build_file_systems() {
	local common=(--quiet --aptopt='APT::Install-Recommends "false"'
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*'
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright')
	mmdebstrap "${common[@]}" --variant=minbase \
		--include=systemd,systemd-sysv,conntrack,iptables,nftables,iproute2,ethtool,kmod,libseccomp2,containerd,runc,ca-certificates,curl,jq,procps \
		"$DEBIAN_SUITE" "$WORK/rootfs.tar"
	mmdebstrap "${common[@]}" --variant=extract --dpkgopt='path-exclude=/usr/lib/*/gconv/*' \
		--include=busybox-static,conntrack,iptables,nftables \
		--extract-hook="$HERE/tools-hook.sh" \
		"$DEBIAN_SUITE" "$WORK/tools.tar"
}

# build_inputs: what takes long, side by side.
build_inputs() {
	local file_systems programs code=0
	build_file_systems &
	file_systems=$!
	build_programs &
	programs=$!
	wait $file_systems || code=$?
	wait $programs || code=$?
	return $code
}

import_file_systems() {
	docker import "$WORK/rootfs.tar" "$ROOTFS_IMAGE"
	docker import --change 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' "$WORK/tools.tar" "$TOOLS_IMAGE"
	# kube-proxy and kindnetd would only say so in a cluster.
	docker run --rm --network none "$TOOLS_IMAGE" sh -euc 'iptables --version; ip6tables-save --version; conntrack --version'
}

# program_image TAG BASE PROGRAM: an image of one program.
program_image() {
	local context=$WORK/context
	rm -rf "$context" && mkdir "$context"
	ln "$BIN/$3" "$context/$3"
	cat >"$context/Dockerfile" <<-DOCKERFILE
		FROM $2
		COPY $3 /usr/local/bin/$3
		ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
		ENTRYPOINT ["/usr/local/bin/$3"]
	DOCKERFILE
	docker build --quiet --network none --tag "$1" "$context"
	IMAGES+=("$1")
}

# build_images: what runs in the cluster from its first minute, under the names
# that kubeadm, containerd's configuration and our manifests give.
build_images() {
	local kubernetes_images pause
	IMAGES=("$TOOLS_IMAGE")
	kubernetes_images=$("$BIN/kubeadm" config images list --kubernetes-version "$(kubernetes_version)")
	program_image "$(grep /kube-apiserver: <<<"$kubernetes_images")" scratch kube-apiserver
	program_image "$(grep /kube-controller-manager: <<<"$kubernetes_images")" scratch kube-controller-manager
	program_image "$(grep /kube-scheduler: <<<"$kubernetes_images")" scratch kube-scheduler
	program_image "$(grep /kube-proxy: <<<"$kubernetes_images")" "$TOOLS_IMAGE" kube-proxy
	program_image "$(grep /etcd: <<<"$kubernetes_images")" scratch etcd
	# kubeadm would take its own version; hack/cluster.sh names this one.
	program_image "$(grep /coredns: <<<"$kubernetes_images" | cut -d: -f1):$(coredns_version)" scratch coredns
	pause=$(sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$WORK/node/files/etc/containerd/config.toml")
	program_image "$pause" scratch pause
	program_image rcbox.dev/kindnetd-stand-in:1 "$TOOLS_IMAGE" kindnetd
	program_image rcbox.dev/local-path-provisioner:1 scratch local-path-provisioner
	docker save --output "$WORK/node/images.tar" "${IMAGES[@]}"
	printf '%s\n' "${IMAGES[@]}" >"$WORK/images.list"
}

# collect_files: kind's files from its module, with the modes that its
# Dockerfile gives them; and what we add.
collect_files() {
	local kind files=$WORK/node/files add=$WORK/node/add
	kind=$(cd / && go mod download -json "sigs.k8s.io/kind@$KIND_VERSION" | jq -r .Dir)
	rm -rf "$WORK/node" && mkdir -p "$WORK/node"
	cp -r "$kind/images/base/files" "$files"
	chmod -R u=rwX,go=rX "$files"
	chmod 755 "$files"/usr/local/bin/* "$files"/kind/bin/*
	rm -rf "$files/LICENSES"

	install -D -t "$add/usr/bin" "$BIN/kubeadm" "$BIN/kubelet" "$BIN/kubectl"
	install -D -t "$add/usr/local/bin" "$BIN/crictl"
	install -D -t "$add/opt/cni/bin" "$BIN"/cni/*
	install -D -m 644 -t "$add/kind/manifests" "$HERE"/manifests/*.yaml
	printf '%s' "$(kubernetes_version)" >"$add/kind/version"
	cp "$HERE/Dockerfile" "$WORK/node/"
}

build_node() {
	local options=(--quiet --network none --build-arg "ROOTFS=$ROOTFS_IMAGE")
	docker build "${options[@]}" --target images --tag "$STORE_IMAGE" "$WORK/node"
	docker build "${options[@]}" --tag "$TAG" "$WORK/node"
	# All is in the node image now; 2 GB of names that nobody needs would stay.
	xargs docker rmi "$STORE_IMAGE" "$ROOTFS_IMAGE" <"$WORK/images.list"
}

mkdir -p "$BIN/cni"
step "build Kubernetes and root file systems" build_inputs
step "import root file systems" import_file_systems
step "collect the node's files" collect_files
step "build the cluster's images" build_images
step "build the node image" build_node
