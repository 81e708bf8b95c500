#!/usr/bin/env bash
# Makes the programs of a Kubernetes control plane available to tests, and
# prints their folder: etcd, kube-apiserver, kube-scheduler and
# kube-controller-manager, from the Go modules that images/node pins and with
# the flags that its node image is built with. Kept in the cache; the first time
# takes about 6 minutes of one processor.
#
# usage: hack/control-plane.sh
#   RCBOX_CONTROL_PLANE=FOLDER   take the programs in this folder
# Progress goes to standard error.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NODE=$ROOT/images/node
PROGRAMS=(kube-apiserver kube-scheduler kube-controller-manager)

build() {
	local folder=$1
	cd "$NODE"
	rm -rf "$folder.part" && mkdir -p "$folder.part"
	go build -ldflags "$(kubernetes_ldflags)" -o "$folder.part/" \
		"${PROGRAMS[@]/#/k8s.io/kubernetes/cmd/}" go.etcd.io/etcd/server/v3
	mv "$folder.part/server" "$folder.part/etcd"
	rm -rf "$folder" && mv "$folder.part" "$folder"
}

# built: prints the folder; builds what is in it if it is not there.
built() {
	local folder
	folder=$CACHE/control-plane/$(hash_of "$(go env GOVERSION GOARCH)" "$NODE"/{go.mod,go.sum})
	if [[ ! -d $folder ]]; then
		step "build a Kubernetes control plane" build "$folder" >&2
		# Of older versions nothing is needed any more.
		find "$CACHE/control-plane" -mindepth 1 -maxdepth 1 ! -name "$(basename "$folder")" -exec rm -rf {} +
	fi
	echo "$folder"
}

if [[ -n ${RCBOX_CONTROL_PLANE:-} ]]; then
	echo "$RCBOX_CONTROL_PLANE"
else
	with_lock control-plane built
fi
