#!/usr/bin/env bash
# Makes the base image of our programs available to the Docker engine, and prints
# its name: distroless where a container registry answers, else images/base
# (RCBOX_REGISTRY as in hack/node-image.sh). Progress goes to standard error.
#
# usage: hack/base-image.sh
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

built() {
	local tag work
	tag=rcbox/base:$(hash_of "$DEBIAN_SUITE" "$ROOT/images/base")
	if ! image_exists "$tag"; then
		"$ROOT/hack/setup.sh" node >&2
		as_root "building the base image"
		work=$(mktemp -d "$CACHE/base.XXXXXX")
		step "build the base image" "$ROOT/images/base/build.sh" "$tag" "$work" >&2
		rm -rf "$work"
	fi
	echo "$tag"
}

if [[ ${RCBOX_REGISTRY:-auto} != never ]] && image_exists "$DISTROLESS_IMAGE"; then
	echo "$DISTROLESS_IMAGE"
elif "$ROOT/hack/registry.sh" "$DISTROLESS_IMAGE"; then
	step "pull the base image" docker pull --quiet "$DISTROLESS_IMAGE" >&2
	echo "$DISTROLESS_IMAGE"
else
	with_lock base-image built
fi
