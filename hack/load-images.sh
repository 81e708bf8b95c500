#!/usr/bin/env bash
# Loads the images that hack/build-images.sh built into the nodes of a kind cluster.
#
# usage: hack/load-images.sh CLUSTER
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cluster=${1:?usage: hack/load-images.sh CLUSTER}
[[ -s $BUILD/images.env ]] || die "no images are built; run: make images"
# shellcheck source=/dev/null
source "$BUILD/images.env"

# kind leaves out the nodes that have an image already.
step "load images into cluster $cluster" kind load docker-image --name "$cluster" "$STORE_IMAGE" "$OPERATOR_IMAGE" ${RECORDER_IMAGE:+"$RECORDER_IMAGE"}
