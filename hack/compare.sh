#!/usr/bin/env bash
# Compares two builds of the store's programs on this machine. For each pair both are started, and take turns at each measurement; the pair
# gives a ratio for each.
#
# usage: hack/compare.sh [--durable] OLD NEW [PAIRS]     folders with coordinator, server and clusterperf; 10 pairs unless told
#   --durable                compares writes with three copies instead, buffered and flushed: stores of four servers with files in .build/bench
#   RCBOX_BENCH_SECONDS=1    how long each throughput is measured
#   RCBOX_BENCH_ROUNDS=3     how often each measurement is made in a pair: the best counts, for others only make a measurement worse
#   RCBOX_BENCH_PORT=23100   of the first coordinator; up to 1,800 above it are used
# A ratio is time of NEW over time of OLD, or rate of OLD over rate of NEW: above 1, NEW is slower. Prints the median ratio of the
# pairs and the range, and writes them to .build/bench/compare.json.
# Example: hack/compare.sh ../before/images/store/target/release images/store/target/release
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

WHAT=undurable
if [[ ${1:-} == --durable ]]; then
	WHAT=durable
	shift
fi
(($# >= 2)) || {
	sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
	exit 2
}
OLD=$(realpath "$1") NEW=$(realpath "$2") PAIRS=${3:-10}
SECONDS_EACH=${RCBOX_BENCH_SECONDS:-1}
ROUNDS=${RCBOX_BENCH_ROUNDS:-3}
PORT=${RCBOX_BENCH_PORT:-23100}
OUT=$BUILD/bench
WORK=$OUT/compare.work
declare -A PROGRAMS=([old]=$OLD [new]=$NEW) PORTS=([old]=$PORT [new]=$((PORT + 500)))
PIDS=()

end() {
	((${#PIDS[@]} == 0)) || kill "${PIDS[@]}" 2>/dev/null || true # one may have ended by itself
	wait
	PIDS=()
}
trap end EXIT

start() {
	local log=$1
	shift
	"$@" >"$WORK/$log.log" 2>&1 &
	PIDS+=($!)
}

# shellcheck disable=SC2317 # called through wait_until
ready() (
	exec 3<>"/dev/tcp/127.0.0.1/$1"
	printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
	read -r _ status _ <&3
	[[ $status == 200 ]]
)
# shellcheck disable=SC2317 # called through wait_until
committed() { ! grep -qsx memory "/proc/$1/task/"*/comm; }

# serve NAME: a store of one server, which has the first processor; clients have the second.
serve() {
	local programs=${PROGRAMS[$1]} port=${PORTS[$1]}
	start "$1.coordinator" "$programs/coordinator" -C "tcp:host=127.0.0.1,port=$port" --httpListen "127.0.0.1:$((port + 300))"
	start "$1.server" taskset --cpu-list 0 "$programs/server" -C "tcp:host=127.0.0.1,port=$port" -L "tcp:host=127.0.0.1,port=$((port + 1000))" \
		-L "fast+udp:host=127.0.0.1,port=$((port + 1000))" -t 1000 --httpListen "127.0.0.1:$((port + 1300))"
	wait_until 60 ready $((port + 1300)) || die "the store did not get ready; see $WORK/$1.server.log"
	wait_until 60 committed "${PIDS[-1]}" || die "the server's memory is not committed yet"
}

# perf NAME FILE ARGUMENTS...: one run of clusterperf.
perf() {
	local name=$1 file=$2
	shift 2
	taskset --cpu-list "$(($(nproc) > 1 ? 1 : 0))" "${PROGRAMS[$name]}/clusterperf" -C "tcp:host=127.0.0.1,port=${PORTS[$name]}" \
		--seconds "$SECONDS_EACH" --json "$@" >"$WORK/$name.$file.json" 2>"$WORK/$name.$file.log"
}

# both NAME NAME: everything once, by turns.
both() {
	local way round name
	for name in "$@"; do
		serve "$name"
	done
	for way in tcp udp; do
		local own=()
		[[ $way != tcp ]] || own=(--tcp)
		for ((round = 1; round <= ROUNDS; round++)); do
			for name in "$@"; do
				perf "$name" "$way.read.$round" "${own[@]}" --size 100 --count 50000 readDist
			done
			for name in "$@"; do
				perf "$name" "$way.write.$round" "${own[@]}" --size 100 --count 30000 writeDistRandom
			done
			for name in "$@"; do
				perf "$name" "$way.rate8.$round" "${own[@]}" --size 100 --outstanding 8 readThroughput
			done
		done
	done
	end
}

# serve_durable NAME DURABILITY: a store of four servers that share all processors, so none of them polls.
serve_durable() {
	local programs=${PROGRAMS[$1]} port=${PORTS[$1]} number
	start "$1.coordinator" "$programs/coordinator" -C "tcp:host=127.0.0.1,port=$port" --httpListen "127.0.0.1:$((port + 300))"
	for number in 0 1 2 3; do
		start "$1.server.$number" "$programs/server" -C "tcp:host=127.0.0.1,port=$port" \
			-L "tcp:host=127.0.0.1,port=$((port + 1000 + number))" --member "m$number" --hostId "h$number" -r 3 -t 200 --segmentFrames 200 \
			-f "$WORK/$1.$number.frames" --durability "$2" --pollMicros 0 --httpListen "127.0.0.1:$((port + 1300 + number))"
	done
	for number in 0 1 2 3; do
		wait_until 60 ready $((port + 1300 + number)) || die "the store did not get ready; see $WORK/$1.server.$number.log"
	done
}

# both_durable NAME NAME
both_durable() {
	local durability round name
	for durability in buffered flushed; do
		for name in "$@"; do
			serve_durable "$name" "$durability"
		done
		for ((round = 1; round <= ROUNDS; round++)); do
			for name in "$@"; do
				perf "$name" "$durability.write.$round" --tcp --size 100 --count 3000 writeDistRandom
			done
		done
		end
		rm -f "$WORK"/*.frames
	done
}

# least NAME DURABILITY FIELD
least() { jq -s "[.[].tests[0].results[0].$3] | min" "$WORK/$1.$2.write."*.json; }

ratios_durable() {
	local durability
	for durability in buffered flushed; do
		jq -n --arg durability "$durability" \
			--argjson newmedian "$(least new "$durability" median_us)" --argjson oldmedian "$(least old "$durability" median_us)" \
			--argjson newslow "$(least new "$durability" p99_us)" --argjson oldslow "$(least old "$durability" p99_us)" '
			{ "\($durability): write, median": ($newmedian / $oldmedian), "\($durability): write, p99": ($newslow / $oldslow) }'
	done
}

# best NAME WAY WHAT: the least median, or the highest rate.
best() {
	local name=$1 way=$2 what=$3 pick
	case $what in
	rate8) pick='[.[].tests[0].rates[0].objects_per_second] | max' ;;
	*) pick='[.[].tests[0].results[0].median_us] | min' ;;
	esac
	jq -s "$pick" "$WORK/$name.$way.$what."*.json
}

ratios() {
	local way
	for way in tcp udp; do
		jq -n --arg way "$way" \
			--argjson newread "$(best new $way read)" --argjson oldread "$(best old $way read)" \
			--argjson newwrite "$(best new $way write)" --argjson oldwrite "$(best old $way write)" \
			--argjson newrate "$(best new $way rate8)" --argjson oldrate "$(best old $way rate8)" '
			{ "\($way): read, median": ($newread / $oldread),
			  "\($way): overwrite, median": ($newwrite / $oldwrite),
			  "\($way): reads, 8 outstanding": ($oldrate / $newrate) }'
	done
}

rm -rf "$WORK"
mkdir -p "$WORK"
for ((pair = 1; pair <= PAIRS; pair++)); do
	info "pair $pair of $PAIRS" >&2
	# Who comes first takes turns.
	order=(old new)
	((pair % 2)) || order=(new old)
	case $WHAT in
	durable)
		both_durable "${order[@]}"
		ratios_durable >>"$WORK/ratios.json"
		;;
	undurable)
		both "${order[@]}"
		ratios >>"$WORK/ratios.json"
		;;
	esac
done
# shellcheck disable=SC2016 # jq's variables
jq -s '[.[] | to_entries[]] | group_by(.key)
  | map({name: .[0].key, pairs: length, median: ([.[].value] | sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2),
         least: ([.[].value] | min), most: ([.[].value] | max)})' "$WORK/ratios.json" >"$OUT/compare.json"
jq -r '["new / old", "median", "least", "most"], (.[] | [.name, (.median, .least, .most | . * 1000 | round / 1000)]) | @tsv' "$OUT/compare.json" |
	column -t -s $'\t'
