#!/usr/bin/env bash
# Builds a tool of a pinned version with the Go toolchain, once per machine, and
# prints where it is.
#
# usage: hack/tool.sh NAME...
# names: kind kubectl kwok helm controller-gen crd-ref-docs golangci-lint protoc-gen-go protoc-gen-go-grpc
#
# example: "$(hack/tool.sh kubectl)" version --client
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# package NAME: what `go install` takes.
package() {
	case $1 in
	kind) echo "sigs.k8s.io/kind@$KIND_VERSION" ;;
	kwok) echo "sigs.k8s.io/kwok/cmd/kwok@$KWOK_VERSION" ;;
	helm) echo "helm.sh/helm/v3/cmd/helm@$HELM_VERSION" ;;
	controller-gen) echo "sigs.k8s.io/controller-tools/cmd/controller-gen@$CONTROLLER_GEN_VERSION" ;;
	crd-ref-docs) echo "github.com/elastic/crd-ref-docs@$CRD_REF_DOCS_VERSION" ;;
	golangci-lint) echo "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$GOLANGCI_LINT_VERSION" ;;
	protoc-gen-go) echo "google.golang.org/protobuf/cmd/protoc-gen-go@$PROTOC_GEN_GO_VERSION" ;;
	protoc-gen-go-grpc) echo "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$PROTOC_GEN_GO_GRPC_VERSION" ;;
	kubectl) echo "k8s.io/kubernetes/cmd/kubectl@$(kubernetes_version)" ;;
	*) die "hack/tool.sh: unknown tool '$1'" ;;
	esac
}

build() {
	local name=$1 directory=$2
	if [[ $name == kubectl ]]; then
		# Not installable by version: its module replaces others, so ours builds it.
		(cd "$ROOT/images/node" && go build -trimpath -ldflags "$(kubernetes_ldflags)" -o "$directory/" k8s.io/kubernetes/cmd/kubectl)
	else
		# Outside of any module, whose go.mod would count otherwise.
		(cd / && GOBIN=$directory GOFLAGS=-trimpath go install -ldflags '-s -w' "$(package "$name")")
	fi
}

ensure() {
	local name=$1 directory=$2
	[[ -x $directory/$name ]] && return
	export CGO_ENABLED=0
	step "build $name ${directory##*-v}" build "$name" "$directory" >&2
}

for name in "$@"; do
	version=$(package "$name")
	version=${version##*@}
	directory=$CACHE/tools/$name-$version
	mkdir -p "$directory"
	with_lock "tool-$name" ensure "$name" "$directory"
	ln -sfn "$directory/$name" "$CACHE/bin/$name"
	echo "$directory/$name"
done
