#!/usr/bin/env bash
# Builds every fuzz target with coverage feedback, on stable Rust, and runs each one.
#
# usage: images/store/fuzz/run.sh [SECONDS_PER_TARGET [TARGET...]]
#        images/store/fuzz/run.sh --build     only build them
# Starts from seeds/ and from what former runs found (target/corpus). Prints how
# many inputs each target tried. Exit code 1 on a finding; its input is kept in
# target/findings, and is tried again with: target/.../TARGET INPUT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

SECONDS_EACH=${1:-10}
[[ $SECONDS_EACH != --build ]] || SECONDS_EACH=0
shift || true
TRIPLE=$(rustc -vV | sed -n 's/^host: //p')
TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
CORPUS=$PWD/target/corpus
FINDINGS=$PWD/target/findings

[[ $SECONDS_EACH =~ ^[0-9]+$ ]] || { echo "usage: run.sh [SECONDS_PER_TARGET [TARGET...]]" >&2; exit 2; }

# The longest frame that anybody takes: of the member protocol. libFuzzer begins with short inputs and lets them grow. Seeds that are
# longer than this are tried once, and not changed: each takes as long as thousands of short ones.
MAX_INPUT_BYTES=$((16 << 20))
LONG_BYTES=8192

# What cargo-fuzz passes, without the sanitizers that need a nightly compiler.
# With --target the flags reach our code and its libraries, not build scripts.
FLAGS=(
	-C passes=sancov-module
	-C llvm-args=-sanitizer-coverage-level=4
	-C llvm-args=-sanitizer-coverage-inline-8bit-counters
	-C llvm-args=-sanitizer-coverage-pc-table
	-C llvm-args=-sanitizer-coverage-trace-compares
	-C link-dead-code
	-C target-cpu=x86-64-v2
	--cfg fuzzing
)

build() {
	RUSTFLAGS="${FLAGS[*]}" cargo build --quiet --release --locked --target "$TRIPLE" --target-dir "$TARGET_DIR"
}

# bytes HEX[*TIMES]: these bytes, as often as that.
bytes() {
	local hex=${1%%\**} times=1 unit total
	[[ $1 != *\** ]] || times=${1#*\*}
	total=$((${#hex} * times / 2))
	unit=$(mktemp)
	# shellcheck disable=SC2001,SC2059 # the format is the bytes; each pair gets its own escape
	printf "$(sed 's/../\\x&/g' <<<"$hex")" >"$unit"
	while (($(stat -c %s "$unit") < total)); do
		cat "$unit" "$unit" >"$unit.twice"
		mv "$unit.twice" "$unit"
	done
	head -c "$total" "$unit"
	rm -f "$unit"
}

# seed TARGET: its seeds are lines of hex digits, in groups where some are repeated; each line becomes a file. Long ones lie apart.
seed() {
	local line group file number=0
	mkdir -p "$CORPUS/$1" "$CORPUS/long/$1" "$FINDINGS"
	while read -r line; do
		[[ -n $line && $line != \#* ]] || continue
		number=$((number + 1))
		file=$CORPUS/$1/seed-$number
		for group in $line; do
			bytes "$group"
		done >"$file"
		(($(stat -c %s "$file") <= LONG_BYTES)) || mv "$file" "$CORPUS/long/$1/"
	done <"seeds/$1.hex"
	((number > 0)) || { echo "error: seeds/$1.hex has no seeds" >&2; return 1; }
}

# run TARGET: counts the inputs it tried; without coverage feedback it would learn nothing, which is an error.
run() {
	local log=$FINDINGS/$1.log binary=$TARGET_DIR/$TRIPLE/release/$1 tried edges
	local long=("$CORPUS/long/$1"/*)
	if ! { [[ ! -e ${long[0]} ]] || "$binary" -timeout=100 -rss_limit_mb=1024 -artifact_prefix="$FINDINGS/$1-" "${long[@]}"; } >"$log" 2>&1 ||
		! "$binary" -max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=1024 -max_len=$MAX_INPUT_BYTES -print_final_stats=1 \
			-artifact_prefix="$FINDINGS/$1-" "$CORPUS/$1" >>"$log" 2>&1; then
		# What it was, where, and the input itself: the file may be on a machine that is gone.
		echo "FINDING in $1: the input is in $FINDINGS; try it again with: $binary INPUT"
		grep -E -A 1 'panicked at|ERROR: libFuzzer|^SUMMARY|^Base64' "$log" | grep -v '^--$' || tail -n 20 "$log"
		return 1
	fi
	tried=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	edges=$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
	((${edges:-0} > 10)) || { tail -n 20 "$log"; echo "error: $1 reports no coverage: the build flags do not work with this compiler"; return 1; }
	printf '%-19s %9d inputs, %5d edges covered, %4d inputs kept\n' "$1" "$tried" "$edges" "$(find "$CORPUS/$1" -type f | wc -l)"
}

# find_planted: a fuzzer that does not find a bug that was put there for it finds nothing else either.
find_planted() {
	local log=$FINDINGS/planted.log
	mkdir -p "$FINDINGS"
	if "$TARGET_DIR/$TRIPLE/release/planted" -seed=1 -max_total_time=60 -artifact_prefix="$FINDINGS/planted-" >"$log" 2>&1 ||
		! grep -q "planted$" "$log"; then
		tail -n 20 "$log"
		echo "error: the planted bug was not found: the build flags do not work with this compiler"
		return 1
	fi
	rm -f "$FINDINGS"/planted-crash-*
	echo "planted bug found: the fuzzer has feedback"
}

build
((SECONDS_EACH)) || exit 0
find_planted
TARGETS=("$@")
((${#TARGETS[@]})) || mapfile -t TARGETS < <(for file in seeds/*.hex; do basename "$file" .hex; done)
# As many at a time as there are processors: each takes one. Those that fail write themselves down: what `wait -n` says is of any one of them.
failed=$FINDINGS/failed.list
: >"$failed"
for target in "${TARGETS[@]}"; do
	seed "$target"
	while (($(jobs -rp | wc -l) >= $(nproc))); do
		wait -n || true
	done
	{ run "$target" >"$FINDINGS/$target.said" || echo "$target" >>"$failed"; cat "$FINDINGS/$target.said"; } &
done
wait
if [[ -s $failed ]]; then
	echo "what was found, once more:"
	while read -r target; do
		cat "$FINDINGS/$target.said"
	done <"$failed"
	exit 1
fi
