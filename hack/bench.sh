#!/usr/bin/env bash
# Measures the store on this machine.
#
# usage: hack/bench.sh [PART...]     all parts unless some are named
#   peers      beside Redis, memcached (and Valkey, where it is packaged): the same client
#              loop gets and sets objects of 100 B and 1 KB over 1, 8 and 50 connections,
#              with and without several requests under way, and several objects at once.
#              Bytes bounced off a bare socket are the floor for all of them.
#   durable    what copies cost: writes of 100 B to a store of 4 server processes with files
#              on the disk, without copies, with R=1, and with R=3 buffered and flushed
#   recovery   kill -9 of a server whose log has 480 MB and 1 GB of 1 KB objects, and 480 MB
#              of 64 B objects; stores of 4 servers with R=2 and of 5 with R=3: when it is
#              found dead, when the last tablet is served, when all has its copies again,
#              and reads on the other servers meanwhile
#   migration  a table of 240 MB of 1 KB and of 64 B objects moves to another of 3 servers
#              (R=2): how fast, how long its reads and writes wait, and other tables' reads
#   fast       every way to the store: TCP, the fast protocol over UDP, over DPDK's memif and
#              af_packet, each beside a ping on the same port (hack/bench-fast.sh)
#   replay     bringing a table back from 20 segments in memory, one core
#
#   RCBOX_BENCH_SECONDS=0.5       how long each case of peers and durable is measured, in each round
#   RCBOX_BENCH_ROUNDS=3          rounds over all targets or variants; medians are shown
#   RCBOX_BENCH_MB="480 1000"     sizes of recovery, in MB of keys and values; the first also with 64 B objects
#   RCBOX_BENCH_MIGRATION_MB=240  sizes of migration
# peers needs redis-server and memcached from Debian; recovery up to 16 GB of memory and
# 20 GB of disk (for 1000 MB). Each part writes PART.txt and PART.json to .build/bench, peers
# a plot.svg as well. Processes that were started end, and their files go, also on failure.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SECONDS_EACH=${RCBOX_BENCH_SECONDS:-0.5}
ROUNDS=${RCBOX_BENCH_ROUNDS:-3}
PROGRAMS=${CARGO_TARGET_DIR:-$ROOT/images/store/target}/release
PEERBENCH=$PROGRAMS/examples/peerbench
STOREBENCH=$PROGRAMS/examples/storebench
OUT=$BUILD/bench
PORT=${RCBOX_BENCH_PORT:-23100}
TARGETS=(ping memcached redis rcbox rcbox-library)
PARTS=(peers durable recovery migration fast replay)
read -ra SIZES_MB <<<"${RCBOX_BENCH_MB:-480 1000}"
read -ra MIGRATION_MB <<<"${RCBOX_BENCH_MIGRATION_MB:-240}"
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

compile() {
	cd "$ROOT/images/store"
	cargo build --release --locked -p coordinatord -p serverd -p clusterperf -p rcbox-cli --bins --example peerbench --example storebench
	cargo bench --locked -p master --bench replay --no-run
}

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
	rm -rf "$OUT/store"
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
	printf 'redis %s, memcached %s, valkey %s; %s rounds of %s s for each case.\n' \
		"$(redis-server --version | sed 's/.*v=\([0-9.]*\).*/\1/')" "$(memcached --version | cut -d' ' -f2)" \
		"$(command -v valkey-server >/dev/null && valkey-server --version | sed 's/.*v=\([0-9.]*\).*/\1/' || echo 'not packaged here')" \
		"$ROUNDS" "$SECONDS_EACH"
	printf 'Keys of 30 B, 50,000 objects, loopback TCP; one thread of one core for each side: memcached -t 1, Redis without I/O threads,\n'
	printf 'a server with one shard. rcbox: the same client loop as its peers; rcbox-library: through the client library.\n'
}

peers() {
	local round target
	rm -f "$OUT/rounds.jsonl"
	for ((round = 1; round <= ROUNDS; round++)); do
		for target in "${TARGETS[@]}"; do
			info "round $round of $ROUNDS: $target" >&2
			measure "$target"
		done
	done
	"$PEERBENCH" report "$OUT" <"$OUT/rounds.jsonl"
	echo
	versions
}

durable() { "$STOREBENCH" durable "$OUT" "$SECONDS_EACH" "$ROUNDS"; }

recovery() { "$STOREBENCH" recovery "$OUT" "${SIZES_MB[@]}"; }

migration() { "$STOREBENCH" migration "$OUT" "${MIGRATION_MB[@]}"; }

fast() { "$ROOT/hack/bench-fast.sh"; }

replay() {
	(cd "$ROOT/images/store" && cargo bench --locked -q -p master --bench replay) >"$LOGS/replay.log" 2>&1 ||
		die "the benchmark failed; see $LOGS/replay.log"
	"$STOREBENCH" replay "$OUT" "$(dirname "$PROGRAMS")/criterion"
}

load_average() { cut -d' ' -f1-3 /proc/loadavg; }

# show PART: runs it; its results come with how they were made.
show() {
	local before
	before=$(load_average)
	info "$1 ..."
	"$1" >"$OUT/$1.txt"
	printf '\nhack/bench.sh %s; %s cores, %s; load average before: %s, after: %s\n' "$1" "$(nproc)" \
		"$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$before" "$(load_average)" >>"$OUT/$1.txt"
	echo
	cat "$OUT/$1.txt"
}

main() {
	local part load
	if [[ ${1:-} == --help ]]; then
		sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
		exit
	fi
	(($# > 0)) || set -- "${PARTS[@]}"
	for part in "$@"; do
		[[ " ${PARTS[*]} " == *" $part "* ]] || die "there is no part $part; parts: ${PARTS[*]}"
	done
	refuse_beside_a_cluster
	[[ " $* " != *" peers "* ]] || install_peers
	step "compile the benchmarks" compile
	rm -rf "$OUT/store"
	mkdir -p "$OUT"
	load=$(load_average)
	awk -v load="${load%% *}" 'BEGIN { exit !(load > 1) }' &&
		info "the machine is busy (load average ${load%% *}): with $(nproc) cores, what else runs takes a core from client or server"
	trap stop_all EXIT
	trap 'exit 130' INT TERM
	for part in "$@"; do
		show "$part"
	done
	info "results: ${OUT#"$PWD"/}"
}
main "$@"
