#!/usr/bin/env bash
# Writes everything that is generated: deep copies, CustomResourceDefinitions and
# RBAC (into config and charts), the reference of the API, and the Go code of admin.proto.
#
# usage: hack/generate.sh          write into the source tree
#        hack/generate.sh --check  generate into a copy; fail where it differs
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

GENERATED=(api config/crd config/rbac/role.yaml config/box/role.yaml charts/rcbox/files docs/api.md)

# generate TREE: in the source tree at TREE.
generate() {
	cd "$1"
	local controller_gen crd_ref_docs protoc_gen_go protoc_gen_go_grpc
	controller_gen=$("$ROOT/hack/tool.sh" controller-gen)
	crd_ref_docs=$("$ROOT/hack/tool.sh" crd-ref-docs)
	protoc_gen_go=$("$ROOT/hack/tool.sh" protoc-gen-go)
	protoc_gen_go_grpc=$("$ROOT/hack/tool.sh" protoc-gen-go-grpc)

	"$controller_gen" object paths=./api/v1alpha1
	"$controller_gen" crd paths=./api/v1alpha1 output:crd:artifacts:config=config/crd/bases
	local kind
	for kind in chassis servers nodefences; do
		mv "config/crd/bases/rcbox.dev_$kind.yaml" config/crd/box/
	done
	# The rules isQuantity say it in words; what fails a pattern is told nothing but the pattern.
	sed -i '/^ *pattern: ^(\\+|-)?((\[0-9]+(/d' config/crd/*/rcbox.dev_*.yaml
	local definition
	for definition in config/crd/*/rcbox.dev_*.yaml; do
		without_foreign_descriptions "$definition" >"$definition.short"
		mv "$definition.short" "$definition"
	done
	# Each program has rights of its own.
	"$controller_gen" rbac:roleName=rcbox-operator paths=./operator/cmd/... paths=./operator/internal/controller/... \
		output:rbac:artifacts:config=config/rbac
	"$controller_gen" rbac:roleName=rcbox-box paths=./operator/internal/box/... output:rbac:artifacts:config=config/box

	"$crd_ref_docs" --source-path=api/v1alpha1 --config=config/crd/reference.yaml --renderer=markdown --output-path=docs/api.md \
		--log-level=ERROR

	# The chart makes Roles or a ClusterRole of these rules, as its values say.
	mkdir -p charts/rcbox/files
	for kind in stores storemembers clusterperfs storeoperations chassis servers nodefences; do
		cp config/crd/*/"rcbox.dev_$kind.yaml" "charts/rcbox/files/$kind-crd.yaml"
	done
	rules_of config/rbac/role.yaml ClusterRole >charts/rcbox/files/store-rules.yaml
	rules_of config/rbac/role.yaml Role >charts/rcbox/files/leader-election-rules.yaml
	rules_of config/box/role.yaml ClusterRole >charts/rcbox/files/box-rules.yaml
	rules_of config/box/role.yaml Role >charts/rcbox/files/box-namespace-rules.yaml
	cp config/rbac/operation_policy.yaml charts/rcbox/files/operation-policy.yaml
	sed -n '/^rules:/,$ p' config/rbac/store_operator_role.yaml >charts/rcbox/files/store-operator-rules.yaml
	cp config/box/power_policy.yaml charts/rcbox/files/box-power-policy.yaml
	cp config/box/join.yaml charts/rcbox/files/box-join.yaml
	cp config/box/user_roles.yaml charts/rcbox/files/box-user-roles.yaml
	cp config/grafana/dashboard.json charts/rcbox/files/dashboard.json
	sed -n '/^spec:/,$ { /^spec:/d; s/^  //; p }' config/prometheus/prometheus_rule.yaml >charts/rcbox/files/alerts.yaml

	protoc -I . \
		--plugin=protoc-gen-go="$protoc_gen_go" --go_out=. --go_opt=module=rcbox.dev/rcbox \
		--plugin=protoc-gen-go-grpc="$protoc_gen_go_grpc" --go-grpc_out=. --go-grpc_opt=module=rcbox.dev/rcbox \
		api/admin/v1/admin.proto
}

# without_foreign_descriptions FILE: without what Kubernetes says of the inside of its own types (kubectl explain pod.spec.affinity). All of
# that would make the definition of Stores too large to be applied from the client's side.
without_foreign_descriptions() {
	awk '
		{ match($0, /^ */); indent = RLENGTH }
		inside && indent <= outer { inside = 0 }
		skipping && (indent > skipped || $0 == "") { next }
		{ skipping = 0 }
		inside && indent > outer + 2 && /^ *description:/ { skipping = 1; skipped = indent; next }
		!inside && /^ *(affinity|topologySpreadConstraints|tolerations):$/ { inside = 1; outer = indent }
		{ print }
	' "$1"
}

# rules_of FILE KIND: the list under "rules:" of the document of that kind.
rules_of() {
	awk -v kind="kind: $2" '
		$0 == "---" { found = inside = 0 }
		$0 == kind { found = 1 }
		found && inside { print }
		found && $0 == "rules:" { inside = 1 }
	' "$1"
}

check() {
	local copy path
	copy=$(mktemp -d)
	# shellcheck disable=SC2064 # now, not later
	trap "rm -rf '$copy'" EXIT
	cp -r "$ROOT"/{go.mod,go.sum,api,operator,config,charts,docs} "$copy/"
	(generate "$copy")
	for path in "${GENERATED[@]}"; do
		diff -ru "$ROOT/$path" "$copy/$path" || die "$path is out of date; run hack/generate.sh and commit what it changes"
	done
	info "generated files are up to date"
}

"$ROOT/hack/setup.sh" generate
case ${1-} in
'') generate "$ROOT" ;;
--check) check ;;
*) die "usage: hack/generate.sh [--check]" ;;
esac
