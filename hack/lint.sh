#!/usr/bin/env bash
# All linters: shell, Rust, Go, Helm. Goes on after a finding and fails at the end.
#
# usage: hack/lint.sh
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$ROOT"
findings=0

# lint TITLE COMMAND...: a program, not a function (see step).
lint() { step "$@" || findings=$((findings + 1)); }

"$ROOT/hack/setup.sh" lint store
"$ROOT/hack/tool.sh" golangci-lint helm >/dev/null

# grep says that it found nothing if that is so of the last files that xargs gives it.
mapfile -t scripts < <(git ls-files --cached --others --exclude-standard | xargs -r grep -lE '^#!.*\b(ba)?sh\b' 2>/dev/null || true)
lint "shellcheck" shellcheck --external-sources "${scripts[@]}" hack/lib.sh
lint "cargo fmt" cargo fmt --manifest-path images/store/Cargo.toml --all --check
lint "cargo fmt of the fuzz targets" cargo fmt --manifest-path images/store/fuzz/Cargo.toml --check
lint "cargo fmt of the Python package" cargo fmt --manifest-path images/store/python/Cargo.toml --check
# Three workspaces name the store's crates; a dependency that is new in one of these is easily forgotten in the others' locks.
for workspace in images/store images/store/fuzz images/store/python; do
	lint "lock file of $workspace" cargo metadata --manifest-path "$workspace/Cargo.toml" --locked --format-version 1
done
lint "cargo clippy" cargo clippy --manifest-path images/store/Cargo.toml --workspace --all-targets --locked -- -D warnings
# A workspace of its own, which a change of the store's crates breaks unseen; it shares what is compiled.
lint "cargo clippy of the fuzz targets" cargo clippy --manifest-path images/store/fuzz/Cargo.toml --target-dir images/store/target --locked -- -D warnings
# Pure crates: a machine knows those below it, and nobody else (docs/architecture.md).
pure=(base wire log master coordinator backup replication server transport frames fast client-core simulator)
lint "circles of modules" cargo run --quiet --locked --manifest-path images/store/Cargo.toml -p structure -- \
	"${pure[@]/#/images/store/crates/}"
# The Kubernetes client is the coordinator's alone: a server that links it is larger, and has more to be attacked.
lint "crates that a server and its clients must not link" hack/check-links.sh
lint "go vet" go vet ./...
lint "go vet images/node" go -C images/node vet ./...
lint "go vet images/network" go -C images/network vet ./...
lint "golangci-lint" golangci-lint run ./...
lint "helm lint" helm lint --strict charts/rcbox
lint "what a release has" hack/dist.sh

((findings == 0)) || die "$findings linters have findings; see above and ${LOGS#"$PWD"/}"
