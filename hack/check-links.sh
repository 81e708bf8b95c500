#!/usr/bin/env bash
# Checks what the store's programs are linked with: only the coordinator has a client for Kubernetes, and no test double is in any.
#
# usage: hack/check-links.sh
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

KUBERNETES='kube|kube-client|kube-core|k8s-openapi'
FOR_TESTS='test-[a-z-]+|simulator'

# links PACKAGE: the names of the crates that a program is linked with.
links() {
	cargo tree --manifest-path "$ROOT/images/store/Cargo.toml" --locked -p "$1" -e normal --prefix none --format '{p}' | cut -d ' ' -f 1
}

# refuse PACKAGE PATTERN: none of its crates has such a name.
refuse() {
	local found
	found=$(links "$1" | grep -xE "$2" | sort -u || true)
	[[ -z $found ]] || die "$1 is linked with ${found//$'\n'/ }"
}

# What is looked for is found where it is: else nothing would ever be refused.
links coordinatord | grep -xE "$KUBERNETES" >/dev/null || die "coordinatord is not linked with a client for Kubernetes: has that another name now?"
for package in serverd clusterperf rcbox-cli; do
	refuse "$package" "$KUBERNETES"
done
for package in coordinatord serverd clusterperf rcbox-cli; do
	refuse "$package" "$FOR_TESTS"
done
