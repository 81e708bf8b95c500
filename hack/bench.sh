#!/usr/bin/env bash
# Measures the store beside its peers, on this machine, in one run: the same client
# loop gets and sets objects of 100 B and 1 KB in Redis (and Valkey, where it is
# packaged), in memcached and in the store, over 1, 8 and 50 connections, with and
# without several requests under way, and several objects at once. Bytes bounced
# off a bare socket are the floor for all of them.
#
# usage: hack/bench.sh
#   RCBOX_BENCH_SECONDS=0.5   how long each case is measured, in each round
#   RCBOX_BENCH_ROUNDS=3      rounds over all targets; medians are shown
# Needs redis-server and memcached from Debian. Writes results.txt, results.json
# and plot.svg to .build/bench.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SECONDS_EACH=${RCBOX_BENCH_SECONDS:-0.5}
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
	for pid in $(pgrep -x coordinator || true) $(pgrep -x server || true); do
		program=$(readlink "/proc/$pid/exe" 2>/dev/null || true)
		[[ -z $program ]] || die "process $pid ($program) runs a store on this machine: end it first (make down, or Ctrl-C in make local)"
	done
}

install_peers() {
	local missing=()
	command -v redis-server >/dev/null || missing+=(redis-server)
	command -v memcached >/dev/null || missing+=(memcached)
	if command -v valkey-server >/dev/null; then
		TARGETS+=(valkey)
	elif apt-cache show valkey-server >/dev/null 2>&1; then
		missing+=(valkey-server)
		TARGETS+=(valkey)
	fi
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
	valkey) start valkey-server --bind 127.0.0.1 --port "$PORT" --save '' --appendonly no ;;
	redis) start redis-server --bind 127.0.0.1 --port "$PORT" --save '' --appendonly no ;;
	memcached) start memcached -l 127.0.0.1 -p "$PORT" -t 1 -m 512 -u nobody ;;
	rcbox*)
		start "$PROGRAMS/coordinator" -C "tcp:host=127.0.0.1,port=$PORT"
		start "$PROGRAMS/server" -C "tcp:host=127.0.0.1,port=$PORT" -L "tcp:host=127.0.0.1,port=$((PORT + 1000))"
		wait_until 30 ready $((PORT + 1300)) || die "the store did not get ready; see $OUT/server.log"
		;;
	esac
	wait_until 30 answers "$PORT" || die "$1 did not start; see $OUT"
	"$PEERBENCH" "$1" "$address" "$SECONDS_EACH" >>"$OUT/rounds.jsonl"
	kill "${PIDS[@]}"
	wait "${PIDS[@]}" || true # ended by a signal
	PIDS=()
}

versions() {
	printf '%s cores, %s, %s rounds of %s s for each case; redis %s, memcached %s, valkey %s.\n' "$(nproc)" \
		"$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$ROUNDS" "$SECONDS_EACH" \
		"$(redis-server --version | sed 's/.*v=\([0-9.]*\).*/\1/')" "$(memcached --version | cut -d' ' -f2)" \
		"$(command -v valkey-server >/dev/null && valkey-server --version | sed 's/.*v=\([0-9.]*\).*/\1/' || echo 'not packaged here')"
	printf 'Keys of 30 B, 50,000 objects, loopback TCP; one thread of one core for each side: memcached -t 1, Redis without I/O threads,\n'
	printf 'a server with one shard. rcbox: the same client loop as its peers; rcbox-library: through the client library.\n'
	printf 'Load average before: %s, after: %s\n' "$LOAD" "$(cut -d' ' -f1-3 /proc/loadavg)"
}

main() {
	local round target
	refuse_beside_a_cluster
	install_peers
	step "compile the benchmark" compile
	rm -rf "$OUT"
	mkdir -p "$OUT"
	LOAD=$(cut -d' ' -f1-3 /proc/loadavg)
	awk -v load="${LOAD%% *}" 'BEGIN { exit !(load > 1) }' &&
		info "the machine is busy (load average ${LOAD%% *}): with $(nproc) cores, what else runs takes a core from client or server"
	trap stop_all EXIT
	trap 'exit 130' INT TERM
	for ((round = 1; round <= ROUNDS; round++)); do
		for target in "${TARGETS[@]}"; do
			info "round $round of $ROUNDS: $target"
			measure "$target"
		done
	done
	{
		"$PEERBENCH" report "$OUT" <"$OUT/rounds.jsonl"
		echo
		versions
	} >"$OUT/results.txt"
	echo
	cat "$OUT/results.txt"
	info "plot: ${OUT#"$PWD"/}/plot.svg"
}
main
