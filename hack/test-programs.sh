#!/usr/bin/env bash
# Builds the store's programs as tests use them: with assertions, with bugs that can be planted,
# and able to behave as the next version. They are then in images/store/target/debug.
#
# usage: hack/test-programs.sh
# This is the build of `cargo test --workspace`: that has what development dependencies ask for, and
# so does any build that includes a test. Without one, all of our crates and a third of the
# libraries would be compiled once more, with other features.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$ROOT/hack/setup.sh" store
step "compile the store's programs for tests" cargo build --manifest-path "$ROOT/images/store/Cargo.toml" --locked \
	--workspace --bins --test no_allocation
