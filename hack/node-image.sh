#!/usr/bin/env bash
# Makes the kind node image available to the Docker engine, and prints its name.
#
# usage: hack/node-image.sh
# Where a container registry answers, it is the stock image of the pinned kind
# release; elsewhere images/node builds one, which is kept in the cache.
#   RCBOX_REGISTRY=auto    try for a few seconds (default)
#   RCBOX_REGISTRY=always  pull, or fail
#   RCBOX_REGISTRY=never   build
# Progress goes to standard error.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NODE=$ROOT/images/node

# input_hash: over everything the built image is made from.
input_hash() {
	local sources
	mapfile -t sources < <(find "$NODE" -name '*.go' ! -name '*_test.go' | LC_ALL=C sort)
	hash_of "$KIND_VERSION" "$DEBIAN_SUITE" "$(go env GOVERSION GOARCH)" "${sources[@]}" \
		"$NODE"/{go.mod,go.sum,Dockerfile,build.sh,tools-hook.sh} "$NODE/manifests"
}

save() { docker save "$1" | zstd -q -T0 -3 -o "$2.part" -f && mv "$2.part" "$2"; }

load() { zstd -dc "$1" | docker load; }

# remove_other_tags TAG: older versions of the image that no container is made from.
remove_other_tags() {
	local other
	docker images --format '{{.Repository}}:{{.Tag}}' "${1%:*}" | while read -r other; do
		[[ $other == "$1" ]] || docker rmi "$other" >/dev/null 2>&1 || true # in use by another cluster
	done
}

# built: prints the name of the image that images/node makes; builds or loads it if it is not there.
built() {
	local hash tag archive
	hash=$(input_hash)
	tag=rcbox.dev/node:$(kubernetes_version)-$hash
	archive=$CACHE/node/$hash.tar.zst
	if ! image_exists "$tag"; then
		if [[ -f $archive ]]; then
			step "load the node image from the cache" load "$archive" >&2
		else
			"$ROOT/hack/setup.sh" node >&2
			as_root "building the node image"
			info "  no registry answers (or RCBOX_REGISTRY=never): building the node image, once per version, about 10 minutes" >&2
			"$NODE/build.sh" "$tag" "$CACHE/node/work-$hash" >&2
		fi
	fi
	if [[ ! -f $archive ]]; then
		step "keep the node image in the cache" save "$tag" "$archive" >&2
		# Only now is nothing left to do again: older versions and the work may go.
		find "$CACHE/node" -mindepth 1 -maxdepth 1 ! -name "$hash.tar.zst" -exec rm -rf {} +
		remove_other_tags "$tag"
	fi
	echo "$tag"
}

main() {
	if [[ ${RCBOX_REGISTRY:-auto} != never ]] && image_exists "$KIND_NODE_IMAGE"; then
		echo "$KIND_NODE_IMAGE"
	elif "$ROOT/hack/registry.sh" "$KIND_NODE_IMAGE"; then
		step "pull the node image" docker pull --quiet "$KIND_NODE_IMAGE" >&2
		echo "$KIND_NODE_IMAGE"
	else
		mkdir -p "$CACHE/node"
		with_lock node-image built
	fi
}

main
