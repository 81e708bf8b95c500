#!/usr/bin/env bash
# Measures the store beside its peers, on this machine, in one run: the same client
# loop gets and sets one 100-byte object in Redis, in memcached and in the store,
# and bounces 100 bytes off a bare socket, which is the floor for all of them.
#
# usage: hack/bench.sh
#   RCBOX_BENCH_SECONDS=3   how long each of get and set is measured, in each round
#   RCBOX_BENCH_ROUNDS=3    rounds over all targets; the median round is shown
# Needs redis-server and memcached from Debian. Writes .build/bench/{results.txt,plot.svg}.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SECONDS_EACH=${RCBOX_BENCH_SECONDS:-3}
ROUNDS=${RCBOX_BENCH_ROUNDS:-3}
PROGRAMS=${CARGO_TARGET_DIR:-$ROOT/images/store/target}/release
PEERBENCH=$PROGRAMS/examples/peerbench
OUT=$BUILD/bench
PORT=${RCBOX_BENCH_PORT:-23100}
TARGETS=(ping memcached redis rcbox rcbox-library)
PIDS=()

# A benchmark beside another store measures the scheduler.
refuse_beside_a_cluster() {
	local pid program
	for pid in $(pgrep -x 'coordinator|server' || true); do
		program=$(readlink "/proc/$pid/exe" 2>/dev/null || true)
		[[ -z $program ]] || die "process $pid ($program) runs a store on this machine: end it first (make down, or Ctrl-C in make local)"
	done
}

install_peers() {
	local missing=()
	command -v redis-server >/dev/null || missing+=(redis-server)
	command -v memcached >/dev/null || missing+=(memcached)
	((${#missing[@]})) || return 0
	((EUID == 0)) || die "to compare with, install: apt-get install ${missing[*]}"
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

compile() { cd "$ROOT/images/store" && cargo build --release --locked -p programs --example peerbench; }

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
# shellcheck disable=SC2317 # called through wait_until
ready() (
	exec 3<>"/dev/tcp/127.0.0.1/$1"
	printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
	read -r _ status _ <&3
	[[ $status == 200 ]]
)

start() {
	"$@" >"$OUT/$(basename "$1").log" 2>&1 &
	PIDS+=($!)
}

# shellcheck disable=SC2317 # called by trap
stop_all() {
	local code=$? pid
	trap - EXIT INT TERM
	for pid in "${PIDS[@]}"; do
		kill "$pid" 2>/dev/null || true # it may have ended by itself
	done
	wait
	exit "$code"
}

# measure TARGET: starts what it needs, measures, ends it. One at a time: with two
# cores, the client has one and the target the other.
measure() {
	local address=127.0.0.1:$PORT
	PIDS=()
	case $1 in
	ping) start "$PEERBENCH" echo "$address" ;;
	redis) start redis-server --bind 127.0.0.1 --port "$PORT" --save '' --appendonly no ;;
	memcached) start memcached -l 127.0.0.1 -p "$PORT" -t 1 -u nobody ;;
	rcbox*)
		start "$PROGRAMS/coordinator" -C "tcp:host=127.0.0.1,port=$PORT"
		start "$PROGRAMS/server" -C "tcp:host=127.0.0.1,port=$PORT" -L "tcp:host=127.0.0.1,port=$((PORT + 1000))"
		wait_until 30 ready $((PORT + 1300)) || die "the store did not get ready; see $OUT/server.log"
		;;
	esac
	wait_until 30 answers "$PORT" || die "$1 did not start; see $OUT"
	"$PEERBENCH" "$1" "$address" "$SECONDS_EACH" >>"$OUT/raw.txt"
	kill "${PIDS[@]}"
	wait "${PIDS[@]}" || true # ended by a signal
	PIDS=()
}

# median_rounds: of each target and operation the round with the median median.
median_rounds() {
	sort -k1,1 -k2,2 -k3,3n "$OUT/raw.txt" |
		awk '{ key = $1 " " $2; count[key]++; line[key, count[key]] = $0 }
			END { for (key in count) print line[key, int((count[key] + 1) / 2)] }'
}

# in_order: lines of median_rounds, targets as above, get before set.
in_order() {
	local target operation
	for target in "${TARGETS[@]}"; do
		for operation in get set; do
			awk -v t="$target" -v o="$operation" '$1 == t && $2 == o' "$OUT/medians.txt"
		done
	done
}

table() {
	printf '100 B objects, 30 B keys, one client, loopback TCP, %s cores, %s rounds of %s s\n\n' "$(nproc)" "$ROUNDS" "$SECONDS_EACH"
	printf '%-15s %-4s %10s %10s %10s %12s %12s %12s\n' target op 'median us' '99% us' '99.9% us' '/ping' '/redis' '/memcached'
	awk 'NR == FNR { median[$1, $2] = $3; next }
		{ printf "%-15s %-4s %10.2f %10.2f %10.2f %12.2f %12.2f %12.2f\n", $1, $2, $3, $4, $5,
			$3 / median["ping", $2], $3 / median["redis", $2], $3 / median["memcached", $2] }' "$OUT/results.txt" "$OUT/results.txt"
	printf '\nrcbox: the same loop as its peers; rcbox-library: through the client library. Load average before: %s\n' "$LOAD"
}

main() {
	local round target
	refuse_beside_a_cluster
	install_peers
	step "compile the benchmark" compile
	rm -rf "$OUT"
	mkdir -p "$OUT"
	LOAD=$(cut -d' ' -f1-3 /proc/loadavg)
	trap stop_all EXIT
	trap 'exit 130' INT TERM
	for ((round = 1; round <= ROUNDS; round++)); do
		for target in "${TARGETS[@]}"; do
			info "round $round of $ROUNDS: $target"
			measure "$target"
		done
	done
	median_rounds >"$OUT/medians.txt"
	in_order >"$OUT/results.txt"
	"$PEERBENCH" plot "$OUT/plot.svg" <"$OUT/results.txt"
	echo
	table | tee "$OUT/table.txt"
	info "plot: ${OUT#"$PWD"/}/plot.svg"
}
main
