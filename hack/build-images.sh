#!/usr/bin/env bash
# Builds the images rcbox/store and rcbox/operator. A tag is a hash of what is in
# the image, so it changes when that does, and only then.
#
# usage: hack/build-images.sh [--recorder | --prepare]
# Writes their names, as STORE_IMAGE=... and OPERATOR_IMAGE=..., to .build/images.env.
# With --recorder also rcbox/recorder, clients for tests, as RECORDER_IMAGE=...
# With --prepare only what takes long beside the store's programs: operator and base image.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PROGRAMS=(coordinator server clusterperf rcbox)
CONTEXTS=$BUILD/images

compile_operator() {
	cd "$ROOT"
	go build -ldflags '-s -w' -o "$CONTEXTS/operator/manager" ./operator/cmd/manager
}

# collect FOLDER PROGRAM...: the programs, without the debug information that only
# a debugger reads (backtraces keep their function names).
collect() {
	local program folder=$1
	shift
	mkdir -p "$folder"
	for program in "$@"; do
		strip --strip-debug -o "$folder/$program" "${CARGO_TARGET_DIR:-$ROOT/images/store/target}/release/$program"
	done
}

collect_store() {
	collect "$CONTEXTS/store/target/release" "${PROGRAMS[@]}"
	cp "$ROOT/images/store/Dockerfile" "$CONTEXTS/store/"
	! ldd "$CONTEXTS"/store/target/release/{coordinator,rcbox} | grep librte_ ||
		die "coordinator and rcbox link DPDK, which they have no use for: a crate that they need depends on it"
	"$ROOT/hack/collect-dpdk.sh" "$CONTEXTS/store/dpdk" "${PROGRAMS[@]/#/$CONTEXTS/store/target/release/}"
}

collect_recorder() {
	collect "$CONTEXTS/recorder" recorder
	cp "$ROOT/images/store/crates/recorder/Dockerfile" "$CONTEXTS/recorder/"
}

# build_image NAME CONTEXT TAG OPTION...: unless it is there; and drops older ones.
build_image() {
	local name=$1 context=$2 tag=$3 other
	shift 3
	if ! image_exists "$name:$tag"; then
		docker build --quiet "$@" --tag "$name:$tag" "$context"
	fi
	docker images --format '{{.Repository}}:{{.Tag}}' "$name" | { grep -E ':[0-9a-f]{12}$' | grep -vxF "$name:$tag" || true; } | while read -r other; do
		docker rmi "$other" || true # in use by a container
	done
}

# runs: the programs run on the base image, whose C library may be older than
# the one they were linked with here.
runs() {
	local program output
	for program in "${PROGRAMS[@]}"; do
		docker run --rm --network none --read-only "$1" "$program" --version || {
			echo "$program, built on this machine, does not run on the base image (C library too old?)." >&2
			echo "Build on Debian $DEBIAN_SUITE or on a system with an older C library." >&2
			return 1
		}
	done
	# DPDK loads all of its drivers when it starts; with a port to nowhere it then waits for an answer in vain.
	output=$(docker run --rm --network none --read-only "$1" clusterperf ping --dpdk "--vdev net_null0" --local 10.0.0.1:7 --patience 0 10.0.0.2:7 2>&1 || true)
	grep -q "does not answer over net_null0" <<<"$output" || {
		echo "DPDK does not start in the image: $output" >&2
		return 1
	}
}

prepare() {
	step "compile the operator" compile_operator
	base=$("$ROOT/hack/base-image.sh")
}

main() {
	local base store_tag operator_tag recorder_tag packages=()
	[[ ${1:-} != --recorder ]] || packages=(-p recorder)
	"$ROOT/hack/setup.sh" cluster
	"$ROOT/hack/engine.sh" up
	if [[ ${1:-} == --prepare ]]; then
		prepare
		return
	fi
	"$ROOT/hack/store.sh" "${packages[@]}"
	prepare

	rm -rf "$CONTEXTS/store"
	mkdir -p "$CONTEXTS/operator"
	step "collect the store's programs" collect_store
	cp "$ROOT/images/operator/Dockerfile" "$CONTEXTS/operator/"
	store_tag=$(hash_of "$CONTEXTS/store" "$base")
	operator_tag=$(hash_of "$CONTEXTS/operator")
	step "build image rcbox/store" build_image rcbox/store "$CONTEXTS/store" "$store_tag" --build-arg "BASE=$base"
	step "build image rcbox/operator" build_image rcbox/operator "$CONTEXTS/operator" "$operator_tag"
	if [[ ! -e $CONTEXTS/runs-$store_tag ]]; then
		step "run the programs in their image" runs "rcbox/store:$store_tag"
		rm -f "$CONTEXTS"/runs-*
		touch "$CONTEXTS/runs-$store_tag"
	fi

	printf 'STORE_IMAGE=%s\nOPERATOR_IMAGE=%s\n' "rcbox/store:$store_tag" "rcbox/operator:$operator_tag" >"$BUILD/images.env"
	((${#packages[@]})) || return 0

	rm -rf "$CONTEXTS/recorder"
	step "collect the recorder" collect_recorder
	recorder_tag=$(hash_of "$CONTEXTS/recorder" "$base")
	step "build image rcbox/recorder" build_image rcbox/recorder "$CONTEXTS/recorder" "$recorder_tag" --build-arg "BASE=$base"
	printf 'RECORDER_IMAGE=%s\n' "rcbox/recorder:$recorder_tag" >>"$BUILD/images.env"
}

main "$@"
