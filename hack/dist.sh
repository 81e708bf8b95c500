#!/usr/bin/env bash
# Writes what a release has beside its images, all from the sources that the tests
# use: one file to install with kubectl, the Helm chart, and bills of materials.
#
# usage: hack/dist.sh [FOLDER]      (default: .build/dist)
# example: hack/dist.sh && kubectl apply --server-side -f .build/dist/install.yaml
#   install.yaml         CRDs, RBAC and operator: config/default
#   rcbox-VERSION.tgz    the chart
#   operator.cdx.json    what the operator is made of (CycloneDX)
#   store.cdx.json       what the store's programs are made of
#   SHA256SUMS           of all of them
# The images' names are those of config and chart; set them as docs/operator.md says.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

folder=$(mkdir -p "${1:-$BUILD/dist}" && cd "${1:-$BUILD/dist}" && pwd)
version=$(awk '$1 == "version:" {print $2}' "$ROOT/charts/rcbox/Chart.yaml")

install_yaml() {
	local kubectl
	kubectl=$("$ROOT/hack/tool.sh" kubectl)
	"$kubectl" kustomize "$ROOT/config/default" >"$folder/install.yaml"
}

chart() {
	local helm
	helm=$("$ROOT/hack/tool.sh" helm)
	"$helm" package "$ROOT/charts/rcbox" --destination "$folder"
}

bills() {
	cd "$ROOT"
	go build -ldflags '-s -w' -o "$BUILD/sbom/manager" ./operator/cmd/manager
	go build -o "$BUILD/sbom/sbom" ./hack/sbom
	"$BUILD/sbom/sbom" -name rcbox-operator -version "$version" -go "$BUILD/sbom/manager" >"$folder/operator.cdx.json"
	# Into a file: of a pipe nobody would see what cargo says when it fails.
	cargo metadata --manifest-path images/store/Cargo.toml --format-version 1 --locked \
		--filter-platform x86_64-unknown-linux-gnu >"$BUILD/sbom/cargo.json"
	"$BUILD/sbom/sbom" -name rcbox-store -version "$version" -cargo <"$BUILD/sbom/cargo.json" >"$folder/store.cdx.json"
}

rm -f "$folder"/*
step "install.yaml" install_yaml
step "package the chart" chart
step "bills of materials" bills
(cd "$folder" && sha256sum -- * >SHA256SUMS)
info "written to ${folder#"$PWD"/}: $(cd "$folder" && echo *)"
