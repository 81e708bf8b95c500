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

# package NAME: its main package, and its version. Those that go.mod names are built with the libraries of the
# operator, which are compiled anyway.
package() {
	case $1 in
	kind) echo "sigs.k8s.io/kind@$KIND_VERSION" ;;
	kwok) echo "sigs.k8s.io/kwok/cmd/kwok@$KWOK_VERSION" ;;
	golangci-lint) echo "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$GOLANGCI_LINT_VERSION" ;;
	helm) of_operator helm.sh/helm/v3 /cmd/helm ;;
	controller-gen) of_operator sigs.k8s.io/controller-tools /cmd/controller-gen ;;
	crd-ref-docs) of_operator github.com/elastic/crd-ref-docs "" ;;
	protoc-gen-go) of_operator google.golang.org/protobuf /cmd/protoc-gen-go ;;
	protoc-gen-go-grpc) of_operator google.golang.org/grpc/cmd/protoc-gen-go-grpc "" ;;
	kubectl) echo "k8s.io/kubernetes/cmd/kubectl@$(kubernetes_version)" ;;
	*) die "hack/tool.sh: unknown tool '$1'" ;;
	esac
}

# of_operator MODULE PATH: a package of a module that go.mod pins.
of_operator() { echo "$1$2@$(pinned "$ROOT/go.mod" "$1")"; }

build() {
	local name=$1 directory=$2 package
	package=$(package "$name")
	case $name in
	# Not installable by version: its module replaces others, so ours builds it.
	kubectl) go build -C "$ROOT/images/node" -ldflags "$(kubernetes_ldflags)" -o "$directory/" "${package%@*}" ;;
	# Outside of any module, whose go.mod would count otherwise.
	kind | kwok | golangci-lint) GOBIN=$directory go -C / install -ldflags '-s -w' "$package" ;;
	*) go build -C "$ROOT" -ldflags '-s -w' -o "$directory/" "${package%@*}" ;;
	esac
}

ensure() {
	local name=$1 directory=$2
	[[ -x $directory/$name ]] && return
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
