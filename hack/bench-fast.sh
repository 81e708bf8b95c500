#!/usr/bin/env bash
# Measures the store over every way to it, beside a ping on the same port: kernel TCP, the fast
# protocol over the kernel's UDP, over DPDK's net_memif (shared memory) and net_af_packet (veth
# between two network namespaces).
#
# usage: hack/bench-fast.sh [WAY...]     all unless some are named:
#   tcp udp memif af_packet  one server with one shard and one client, both polling: two cores
#   udp9000 memif9000        the same with an MTU of 9000
#   redis memcached          beside them, reads by a client that spins; if they are installed, and hack/bench.sh has built that client
#   durable                  writes to 4 servers without copies and with R=3, over TCP and over UDP, and
#                            where the time of those with copies goes; nobody polls
#   RCBOX_BENCH_SECONDS=2    how long each case is measured
#   RCBOX_BENCH_ROUNDS=5     of small reads beside large ones: the round with the median ratio is shown, and the range
#   RCBOX_BENCH_PORT=23100   of the coordinator
# Needs the programs (make store); af_packet needs root. Writes fast.txt, fast.json and plots (one for
# each way, durable-WAY.svg) to .build/bench. memif and af_packet are stand-ins for a NIC: they show
# what the store adds to a ping, not what a NIC takes.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SECONDS_EACH=${RCBOX_BENCH_SECONDS:-2}
ROUNDS=${RCBOX_BENCH_ROUNDS:-5}
PORT=${RCBOX_BENCH_PORT:-23100}
PROGRAMS=${CARGO_TARGET_DIR:-$ROOT/images/store/target}/release
PEERBENCH=$PROGRAMS/examples/peerbench
OUT=$BUILD/bench
WORK=$OUT/fast.work
COORDINATOR=tcp:host=127.0.0.1,port=$PORT
SPACE=rcbox-bench
PIDS=()

# shellcheck disable=SC2317 # called by trap
stop_all() {
	local code=$? pid
	trap - EXIT INT TERM
	for pid in "${PIDS[@]}"; do
		kill "$pid" 2>/dev/null || true # it may have ended by itself
	done
	wait
	ip netns delete "$SPACE" 2>/dev/null || true # there may be none
	exit "$code"
}

start() {
	local log=$1
	shift
	"$@" >"$WORK/$log.log" 2>&1 &
	PIDS+=($!)
}

end() {
	kill "${PIDS[@]}"
	wait "${PIDS[@]}" || true # ended by a signal
	PIDS=()
}

# shellcheck disable=SC2317 # called through wait_until
ready() (
	exec 3<>"/dev/tcp/127.0.0.1/$1"
	printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
	read -r _ status _ <&3
	[[ $status == 200 ]]
)

# The server's memory is committed by a thread of its own, which takes turns with the one that polls.
# shellcheck disable=SC2317 # called through wait_until
committed() { ! grep -qsx memory "/proc/$1/task/"*/comm; }

# Of both sides: DPDK's arguments, our addresses.
SERVER_IP=10.97.0.1 CLIENT_IP=10.97.0.2
dpdk_server() {
	case $1 in
	memif*) memif "$1" server ;;
	af_packet) echo "--vdev net_af_packet0,iface=rcb-s,qdisc_bypass=1" ;;
	esac
}
dpdk_client() {
	case $1 in
	memif*) memif "$1" client ;;
	af_packet) echo "--vdev net_af_packet0,iface=rcb-c,qdisc_bypass=1" ;;
	esac
}
# memif WAY ROLE: a frame is in one buffer, also a long one.
memif() {
	local buffers=
	[[ $1 != memif9000 ]] || buffers=,bsize=9216
	echo "--vdev net_memif0,role=$2,socket=$WORK/memif.sock,socket-abstract=no$buffers"
}
mtu_of() { [[ $1 == *9000 ]] && echo 9000 || echo 1500; }

# A client of memif whose server is not there yet never finds it.
await_memif() {
	[[ $1 != memif* ]] || wait_until 30 test -S "$WORK/memif.sock" || die "no memif; see $WORK"
}

# Two that poll have a processor each: the server's shard the first, the client the second. Left alone, the kernel has both take turns on one
# now and then, for it sees that each offers it all the time.
FIRST=() SECOND=()
(($(nproc) == 1)) || FIRST=(taskset --cpu-list 0) SECOND=(taskset --cpu-list 1)

# pin PID: the server's shard; its other threads are where there is room.
pin() {
	local task
	((${#FIRST[@]} > 0)) || return 0
	for task in "/proc/$1/task/"*; do
		! grep -qs '^shard-' "$task/comm" || taskset --cpu-list --pid 0 "${task##*/}" >"$WORK/pin.log"
	done
}

# What comes before a command of the client.
as_client() {
	# Ports of one machine: the kernel of neither side may answer for the other.
	[[ $1 != af_packet ]] || echo -n "ip netns exec $SPACE "
	echo "${SECOND[*]}"
}

veth() {
	ip netns add "$SPACE"
	ip link add rcb-s type veth peer name rcb-c
	ip link set rcb-c netns "$SPACE"
	ip link set rcb-s up
	ip -n "$SPACE" link set rcb-c up
	# The client's TCP, to the coordinator and the server.
	ip link add rcb-ts type veth peer name rcb-tc
	ip link set rcb-tc netns "$SPACE"
	ip address add 10.98.0.1/24 dev rcb-ts
	ip link set rcb-ts up
	ip -n "$SPACE" address add 10.98.0.2/24 dev rcb-tc
	ip -n "$SPACE" link set rcb-tc up
	ip -n "$SPACE" link set lo up
}

ping_of() {
	local way=$1 command
	case $way in
	tcp) return 0 ;;
	udp*)
		start ping "${FIRST[@]}" "$PROGRAMS/clusterperf" ping --serve --socket --local "127.0.0.1:$((PORT + 50))"
		"${SECOND[@]}" "$PROGRAMS/clusterperf" ping --socket --json "127.0.0.1:$((PORT + 50))" >"$WORK/ping.$way.json"
		;;
	*)
		rm -f "$WORK/memif.sock"
		start ping "${FIRST[@]}" "$PROGRAMS/clusterperf" ping --serve --local "$SERVER_IP:7000" --mtu "$(mtu_of "$way")" --dpdk "$(dpdk_server "$way")"
		await_memif "$way"
		read -ra command <<<"$(as_client "$way")"
		"${command[@]}" "$PROGRAMS/clusterperf" ping --local "$CLIENT_IP:7000" --mtu "$(mtu_of "$way")" --dpdk "$(dpdk_client "$way")" --json \
			"$SERVER_IP:7000" >"$WORK/ping.$way.json"
		;;
	esac
	end
}

# The store with a server that is reached in this way.
store() {
	local way=$1 host=127.0.0.1 more=()
	[[ $way != af_packet ]] || host=10.98.0.1
	COORDINATOR=tcp:host=$host,port=$PORT
	case $way in
	tcp) ;;
	udp*) more=(-L "fast+udp:host=127.0.0.1,port=$((PORT + 1000)),mtu=$(mtu_of "$way")") ;;
	*)
		rm -f "$WORK/memif.sock"
		more=(-L "fast+dpdk:host=$SERVER_IP,port=12247,mtu=$(mtu_of "$way")" --dpdk "$(dpdk_server "$way")")
		;;
	esac
	start coordinator "$PROGRAMS/coordinator" -C "$COORDINATOR" --httpListen "127.0.0.1:$((PORT + 300))"
	start server "$PROGRAMS/server" -C "$COORDINATOR" -L "tcp:host=$host,port=$((PORT + 1000))" "${more[@]}" -t 2000 \
		--httpListen "127.0.0.1:$((PORT + 1300))"
	wait_until 60 ready $((PORT + 1300)) || die "the store did not get ready; see $WORK/server.log"
	wait_until 60 committed "${PIDS[-1]}" || die "the server's memory is not committed yet"
	pin "${PIDS[-1]}"
}

# perf WAY NAME ARGUMENTS...: one run of clusterperf, its JSON to a file.
perf() {
	local way=$1 name=$2 command own=()
	shift 2
	case $way in
	tcp) own=(--tcp) ;;
	udp9000) own=(-L "fast+udp:host=127.0.0.1,port=0,mtu=9000") ;;
	memif* | af_packet) own=(-L "fast+dpdk:host=$CLIENT_IP,port=0,mtu=$(mtu_of "$way")" --dpdk "$(dpdk_client "$way")") ;;
	esac
	read -ra command <<<"$(as_client "$way")"
	info "$way: $name" >&2
	"${command[@]}" "$PROGRAMS/clusterperf" -C "$COORDINATOR" "${own[@]}" --seconds "$SECONDS_EACH" --json "$@" >"$WORK/$name.$way.json"
}

measure() {
	local way=$1
	ping_of "$way"
	store "$way"
	perf "$way" read --size 100 --count 300000 readDist
	perf "$way" rate8 --size 100 --outstanding 8 readThroughput
	perf "$way" rate64 --size 100 --outstanding 64 readThroughput
	perf "$way" large --size 1000000 basic
	perf "$way" write --size 100 --count 100000 writeDistRandom
	local round
	for ((round = 1; round <= ROUNDS; round++)); do
		perf "$way" "interference$round" readInterference
	done
	perf "$way" breakdown --size 100 --count 20000 --breakdown --plot "$OUT/breakdown-$way.svg" readDist
	end
}

# others NAME: another store, whose client spins as ours does.
others() {
	local address=127.0.0.1:$PORT
	case $1 in
	redis) start redis "${FIRST[@]}" redis-server --bind 127.0.0.1 --port "$PORT" --save '' --appendonly no ;;
	memcached) start memcached "${FIRST[@]}" memcached -l 127.0.0.1 -p "$PORT" -t 1 -m 512 -u nobody ;;
	esac
	wait_until 30 answers "$PORT" || die "$1 did not start; see $WORK/$1.log"
	info "$1: read" >&2
	"${SECOND[@]}" "$PEERBENCH" "$1" "$address" "$SECONDS_EACH" get-100x1x1 >"$WORK/read.$1.json"
	end
}
# shellcheck disable=SC2317 # called through wait_until
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# durable_store WAY COPIES: four servers, each on a machine of its own, as far as the store knows. More of them than cores: nobody polls.
durable_store() {
	local way=$1 copies=$2 number more words
	COORDINATOR=tcp:host=127.0.0.1,port=$PORT
	start coordinator "$PROGRAMS/coordinator" -C "$COORDINATOR" --httpListen "127.0.0.1:$((PORT + 300))"
	for number in 0 1 2 3; do
		more=$((PORT + 1000 + 10 * number))
		words=(-L "tcp:host=127.0.0.1,port=$more" --httpListen "127.0.0.1:$((more + 300))" --hostId "host$number" --member "m$number")
		[[ $way != udp ]] || words+=(-L "fast+udp:host=127.0.0.1,port=$more")
		rm -f "$WORK/file$number"
		start "server$number" "$PROGRAMS/server" -C "$COORDINATOR" "${words[@]}" -t 500 -r "$copies" --pollMicros 0 \
			-f "$WORK/file$number" --segmentFrames 100
	done
	for number in 0 1 2 3; do
		wait_until 60 ready $((PORT + 1300 + 10 * number)) || die "the store did not get ready; see $WORK/server$number.log"
	done
}

durable() {
	# More processes than processors: the kernel places them.
	local way copies SECOND=()
	for way in tcp udp; do
		for copies in 0 3; do
			durable_store "$way" "$copies"
			perf "$way" "durable$copies" --pollMicros 0 --size 100 --count 20000 writeDistRandom
			((copies == 0)) || {
				perf "$way" steps --pollMicros 0 --size 100 --count 5000 --breakdown=server --plot "$OUT/durable-$way.svg" writeDistRandom
				"$PROGRAMS/rcbox" -C "$COORDINATOR" trace --last 5000 --json >"$WORK/backups.$way.json"
			}
			end
			rm -f "$WORK"/file?
		done
	done
}

# shellcheck disable=SC2016 # jq's variables
DURABLE='def p50: .[0].tests[0].results[0].median_us; def p99: .[0].tests[0].results[0].p99_us; def us: . * 10 | round / 10;
[ $way, ($none | p50 | us), ($none | p99 | us), ($three | p50 | us), ($three | p99 | us), (($three | p50) / ($none | p50) * 100 | round / 100) ] | @tsv'

table_of_durable() {
	local way
	{
		printf 'durable writes\tno copies p50\tp99 us\tR=3 p50\tp99 us\tratio of p50\n'
		for way in tcp udp; do
			jq -rn --arg way "$way" --slurpfile none "$WORK/durable0.$way.json" --slurpfile three "$WORK/durable3.$way.json" "$DURABLE"
		done
	} | column -t -s $'\t'
	for way in tcp udp; do
		printf '\nsteps at the server of a write with R=3 over %s, median us:\n' "$way"
		jq -r '[.. | objects | select(has("segments"))][0].segments[] | "  \(.name): \(.median_us * 10 | round / 10)"' "$WORK/steps.$way.json"
	done
}

# What a backup takes for a piece of a log, from having its bytes until the answer goes to the driver: median, us.
# shellcheck disable=SC2016 # jq's variables
BACKUP='
def own: foreach .events[] as $event ({};
  if $event.name == "Received" and (.is_taken | not) then {received: $event.timeNs}
  elif $event.name == "AppendTaken" and .received then {received, is_taken: true}
  elif $event.name == "Flushed" and .is_taken then {ns: ($event.timeNs - .received)}
  else del(.ns) end; .ns // empty);
[.shards[] | own] | sort | .[length / 2 | floor] / 1000'

# What a durable write would take over a port if each process had a core for itself: the steps that follow each other, of which those
# between processes are a ping. Computed from what was measured of each.
# shellcheck disable=SC2016 # jq's variables
CRITICAL='
def us: . * 100 | round / 100;
def step(name): [$steps[] | .. | objects | select(has("segments"))][0].segments[] | select(.name == name).median_us;
$write[0].tests[0].results[0].median_us as $none
| ($ping[0].ping // $ping[0]).median_us as $ping
| ($none + step("sent to backups") + $ping + $backup + step("released")) as $three
| "critical path of a write with R=3 over \($way), computed: \($none | us) without copies + \(step("sent to backups") | us) sent to backups" +
  " + \($ping | us) ping + \($backup | us) at a backup + \(step("released") | us) released = \($three | us) us: \($three / $none | us) times"'

critical_path() {
	local way backup
	backup=$(jq "$BACKUP" "$WORK/backups.udp.json")
	printf '\na backup takes %.2f us for a piece of a log, in the median\n' "$backup"
	for way in "$@"; do
		[[ $way == tcp || $way == udp9000 ]] || jq -rn --arg way "$way" --argjson backup "$backup" --slurpfile write "$WORK/write.$way.json" \
			--slurpfile ping "$WORK/ping.$way.json" --slurpfile steps "$WORK/steps.udp.json" "$CRITICAL"
	done
}

# One line of the table, from the files of one way.
# shellcheck disable=SC2016 # jq's variables
SHOW='
def entry(file; name): file[0].tests[0].results[]? | select(.name == name);
def us: . * 100 | round / 100;
def pair: if . == null then "-" else "\(.median_us | us) / \(.p99_us | us)" end;
def rate(file): file[0].tests[0].rates[0].objects_per_second / 1000 | round;
def mb(name): entry($large; name).bytes_per_second / 1000000 | round;
def p99(name): .[0].tests[0].results[] | select(.name == "readInterference." + name).p99_us;
def ratio: . * 10 | round / 10;
def interference: [$small[] | [.] | {alone: p99("alone"), beside: p99("loaded")} | .ratio = .beside / .alone] | sort_by(.ratio)
  | .[length / 2 | floor] as $middle
  | "\($middle.alone | us) / \($middle.beside | us), \($middle.ratio | ratio) (\(.[0].ratio | ratio) to \(.[-1].ratio | ratio))";
[ $way, ($ping[0].ping // $ping[0] | if .median_us then pair else "-" end),
  ($read[0].tests[0].results[0] | pair), rate($r8), rate($r64),
  mb("basic.read1M"), mb("basic.write1M"), interference ]
| @tsv'

# table WAY...: what was measured, a line for each way.
table() {
	local way
	printf 'way\tping p50/p99 us\tread p50/p99 us\tk/s, 8\tk/s, 64\tread MB/s\twrite MB/s\tsmall p99 alone/beside us, ratio\n'
	for way in "$@"; do
		[[ -e $WORK/ping.$way.json ]] || echo '{}' >"$WORK/ping.$way.json"
		jq -rn --arg way "$way" --slurpfile ping "$WORK/ping.$way.json" --slurpfile read "$WORK/read.$way.json" \
			--slurpfile r8 "$WORK/rate8.$way.json" --slurpfile r64 "$WORK/rate64.$way.json" \
			--slurpfile large "$WORK/large.$way.json" --slurpfile small <(cat "$WORK"/interference*."$way.json") "$SHOW"
	done
}

main() {
	local ways=("$@") way measured=()
	if ((${#ways[@]} == 0)); then
		ways=(tcp udp udp9000 memif memif9000 af_packet durable)
		for way in redis memcached; do
			[[ ! -x $PEERBENCH ]] || ! command -v "${way/redis/redis-server}" >/dev/null || ways+=("$way")
		done
	fi
	[[ -x $PROGRAMS/server ]] || die "no programs in $PROGRAMS: make store"
	[[ ! " ${ways[*]} " =~ \ (redis|memcached)\  || -x $PEERBENCH ]] || die "no $PEERBENCH: cargo build --release --example peerbench"
	mkdir -p "$WORK"
	rm -f "$WORK"/*
	trap stop_all EXIT INT TERM
	for way in "${ways[@]}"; do
		case $way in
		durable) durable ;;
		redis | memcached) others "$way" ;;
		*)
			[[ $way != af_packet ]] || {
				((EUID == 0)) || die "af_packet needs root"
				veth
			}
			measure "$way"
			measured+=("$way")
			;;
		esac
	done
	((${#measured[@]} == 0)) || table "${measured[@]}" | column -t -s $'\t'
	for way in redis memcached; do
		[[ ! -e $WORK/read.$way.json ]] || jq -r --arg way "$way" 'select(.depth == 1 and .batch == 1 and (.sleeps | not)) | "\($way): read p50/p99 us \(.p50_us * 100 | round / 100) / \(.p99_us * 100 | round / 100)"' "$WORK/read.$way.json"
	done
	[[ ! -e $WORK/steps.udp.json ]] || {
		table_of_durable
		critical_path "${measured[@]}"
	}
	jq -n '[inputs | {(input_filename | split("/") | last): .}] | add' "$WORK"/*.json >"$OUT/fast.json"
}

main "$@"
