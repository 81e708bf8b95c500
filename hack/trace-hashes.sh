#!/usr/bin/env bash
# Writes the trace hashes of 300 seeds of each kind of the simulator, and of 30 that overwrite disks, to a folder: about
# six minutes on two cores, and a build. Two builds that do the same have the same hashes: diff -r BEFORE AFTER.
#
# usage: hack/trace-hashes.sh FOLDER
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if (($# != 1)) || [[ $1 == -* ]]; then
	sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}" >&2
	[[ ${1:-} =~ ^(-h|--help)$ ]] && exit
	exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)

# hashes KIND SEEDS: a kind is an option of the simulator; "usual" is none.
hashes() {
	local options=()
	[[ $1 == usual ]] || options=("--$1")
	"$ROOT/hack/simulate.sh" --seeds "0..$2" --once "${options[@]}" --hashes "$folder/$1"
}

"$ROOT/hack/setup.sh" store
for kind in usual replicated migrating unreplicated draining fail-over rebuilding upgrade quiet-life fast; do
	step "300 seeds: $kind" hashes "$kind" 300
done
step "30 seeds: overwriting" hashes overwriting 30
