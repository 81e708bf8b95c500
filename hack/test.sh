#!/usr/bin/env bash
# All tests: what `make test` does. A stage that fails does not keep the others
# from running; at the end comes a table, and one line "N passed, M failed".
#
# usage: hack/test.sh [STAGE...]     (default: all, in this order)
# stages: lint generate rust python go apiserver box faults simulator fuzz e2e
#   RCBOX_FUZZ_SECONDS=10     per fuzz target
#   KEEP=1                    keep the cluster of the end-to-end tests
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

STORE=$ROOT/images/store
FUZZ_SECONDS=${RCBOX_FUZZ_SECONDS:-10}
STAGES=("$@")
((${#STAGES[@]})) || STAGES=(lint generate rust python go apiserver box faults simulator fuzz e2e)

# The step of hack/python.sh that runs them.
PYTEST_LOG=$(log_of "Python: tests against real processes")

RESULTS=$LOGS/stages # of each stage a line of the table
BEHIND_LOG=$LOGS/behind.log
MEANWHILE_LOG=$LOGS/meanwhile.log
PREPARED=$LOGS/prepared # how the building of what the end-to-end tests need has ended
BEHIND=
MEANWHILE=
HUGE_PAGES=/proc/sys/vm/nr_hugepages
RESERVED=

# shellcheck disable=SC2317 # called by trap
on_exit() {
	local group
	for group in $BEHIND $MEANWHILE; do
		kill -TERM -- -"$group" 2>/dev/null || true # it may have ended by itself
	done
	[[ -z $RESERVED ]] || echo 0 >$HUGE_PAGES
}
trap on_exit EXIT

chosen() { [[ " ${STAGES[*]} " == *" $1 "* ]]; }

# cpu_seconds: what programs that this shell has waited for took of processors. Not those of containers.
cpu_seconds() {
	times >"$LOGS/times.$BASHPID"
	awk -F '[ms ]' 'NR == 2 { printf "%d\n", 60 * ($1 + $4) + $2 + $5 }' "$LOGS/times.$BASHPID"
}

# free_gib: how much room is left where this checkout is.
free_gib() { echo $(($(df --output=avail --block-size=1G "$ROOT" | tail -n 1))); }

# stage NAME COUNTER TITLE COMMAND...: runs a program as a step, or with its own
# steps if TITLE is empty, and notes what COUNTER says of it.
stage() {
	local name=$1 counter=$2 title=$3 log code=0 started=$SECONDS passed failed skipped before after
	shift 3
	info "$name"
	cpu_seconds >"$RESULTS/$name.cpu" # not in a shell of its own, which would have waited for nobody
	before=$(<"$RESULTS/$name.cpu")
	if [[ -n $title ]]; then
		step "$title" "$@" || code=$?
	else
		"$@" </dev/null || code=$?
	fi
	cpu_seconds >"$RESULTS/$name.cpu"
	after=$(<"$RESULTS/$name.cpu")
	log=$(log_of "$title")
	[[ $counter != go ]] || log=$LOGS/$name.json
	[[ $counter != pytest ]] || log=$PYTEST_LOG
	read -r passed failed skipped < <("$ROOT/hack/count-tests.sh" "$counter" "$code" "$log")
	printf '%-12s %-7s %8d %8d %8d %8d %8d %8d\n' "$name" "$( ((code == 0)) && echo ok || echo FAILED)" \
		"$passed" "$failed" "$skipped" $((SECONDS - started)) $((after - before)) "$(free_gib)" >"$RESULTS/$name"
}

# runs_behind STAGE: whether it only computes, and so may have what the other stages leave of processors.
runs_behind() { [[ $1 =~ ^(simulator|fuzz)$ ]]; }

# go_behind: with less of processors than the other stages: what the end-to-end tests and the blades' take long to build, for they wait
# for that; and with what is left, the stages that only compute. If a build fails, so will its stage, which says why: it does the same, and finds done what is.
go_behind() {
	set -m
	(
		set +m # one process group, which on_exit ends
		renice -n 5 $BASHPID >/dev/null
		if chosen e2e; then
			"$ROOT/hack/e2e.sh" --prepare && echo ok >"$PREPARED" || echo failed >"$PREPARED"
		fi
		! chosen box || "$ROOT/hack/box.sh" --prepare || true # that stage says it again
		renice -n 19 $BASHPID >/dev/null
		! chosen simulator || run_stage simulator
		! chosen fuzz || run_stage fuzz
	) </dev/null >"$BEHIND_LOG" 2>&1 &
	BEHIND=$!
	set +m
}

# runs_meanwhile STAGE: whether it runs while the end-to-end tests do. These mostly wait, for what an API server, an emulated
# management controller, or the silence of a dead process brings by and by.
runs_meanwhile() { [[ $1 =~ ^(apiserver|box|faults)$ ]] && chosen e2e; }

# start_meanwhile: those stages, one after the other.
start_meanwhile() {
	chosen apiserver || chosen box || chosen faults || return 0
	set -m
	(
		set +m # one process group, which on_exit ends
		! chosen apiserver || run_stage apiserver
		! chosen box || run_stage box
		! chosen faults || run_stage faults
	) </dev/null >"$MEANWHILE_LOG" 2>&1 &
	MEANWHILE=$!
	set +m
}

# prepared: waits until what the end-to-end tests need was built.
prepared() {
	[[ -n $BEHIND ]] || return 0
	info "  wait for what is built beforehand"
	until [[ -e $PREPARED ]]; do
		kill -0 "$BEHIND" 2>/dev/null || break
		sleep 0.3
	done
	[[ $(<"$PREPARED") == ok ]] || warn "what the end-to-end tests need could not be built beforehand: $BEHIND_LOG"
}

# with_huge_pages COMMAND...: where none are reserved, and this is root, some are while the command runs: tests that want them are skipped otherwise.
with_huge_pages() {
	if [[ ! -w $HUGE_PAGES || $(<$HUGE_PAGES) != 0 ]]; then
		"$@"
		return
	fi
	RESERVED=1
	echo 160 >$HUGE_PAGES
	"$@"
	echo 0 >$HUGE_PAGES
	RESERVED=
}

run_stage() {
	case $1 in
	lint) stage lint none "" "$ROOT/hack/lint.sh" ;;
	generate) stage generate none "generated files are up to date" "$ROOT/hack/generate.sh" --check ;;
	rust) with_huge_pages stage rust cargo "Rust: unit, property and process tests" \
		cargo test --manifest-path "$STORE/Cargo.toml" --workspace --locked --no-fail-fast ;;
	python) stage python pytest "" "$ROOT/hack/python.sh" ;;
	go)
		stage go go "Go: unit and property tests" "$ROOT/hack/go-test.sh" go . \
			./api/... ./operator/cmd/... ./operator/internal/... ./operator/proxy/... ./charts/... ./config/... ./docs/... ./hack/...
		stage node go "Go: node image programs" "$ROOT/hack/go-test.sh" node images/node ./...
		stage network go "Go: stand-ins for NICs" "$ROOT/hack/go-test.sh" network images/network ./...
		;;
	apiserver) stage apiserver go "" "$ROOT/hack/apiserver.sh" ;;
	box) stage box go "" "$ROOT/hack/box.sh" ;;
	faults) stage faults go "" "$ROOT/hack/faults.sh" ;;
	simulator) stage simulator cargo "simulator: planted bugs, and the quick set" "$ROOT/hack/simulator-tests.sh" ;;
	fuzz) stage fuzz none "fuzz: $FUZZ_SECONDS s per target" "$STORE/fuzz/run.sh" "$FUZZ_SECONDS" ;;
	e2e)
		start_meanwhile
		prepared
		stage e2e go "" "$ROOT/hack/e2e.sh"
		;;
	*) die "hack/test.sh: unknown stage '$1'; stages: lint generate rust python go apiserver box faults simulator fuzz e2e" ;;
	esac
}

# From nothing, all stages fill about this much: programs three times (with assertions, for release, for the simulator),
# fuzz targets, images, a cluster. What fails for want of room fails anywhere, and says little of why.
NEEDED_GIB=30
(($(free_gib) >= NEEDED_GIB)) ||
	warn "only $(free_gib) GiB are free where this checkout is; from nothing, all tests need about $NEEDED_GIB"

"$ROOT/hack/setup.sh" store python cluster lint generate network faults box
rm -rf "$LOGS"/{*.json,failed.list} "$PYTEST_LOG" "$RESULTS" "$PREPARED"
mkdir "$RESULTS"
for name in "${STAGES[@]}"; do
	# Linters and what is generated come first, alone: whoever waits for a finding has it soon.
	if [[ -z $BEHIND && ! $name =~ ^(lint|generate)$ && ${#STAGES[@]} -gt 1 ]]; then
		! chosen e2e || "$ROOT/hack/engine.sh" up || true # that stage says it again
		go_behind
	fi
	{ [[ -n $BEHIND ]] && runs_behind "$name"; } || runs_meanwhile "$name" || run_stage "$name"
done
# waited_for PID TITLE LOG: what ran in the background has ended; whether it failed is in the table.
waited_for() {
	wait "$1" || true
	info "$2"
	grep -v ' \.\.\.' "$3" || true # no stage that was chosen has anything to do there
}
if [[ -n $MEANWHILE ]]; then
	waited_for "$MEANWHILE" "beside the end-to-end tests" "$MEANWHILE_LOG"
	MEANWHILE=
fi
if [[ -n $BEHIND ]]; then
	waited_for "$BEHIND" "behind these stages" "$BEHIND_LOG"
	BEHIND=
fi

echo
read -r total_passed total_failed < <(find "$RESULTS" -type f ! -name '*.cpu' -exec cat {} + | awk '{ passed += $3; failed += $4 } END { print passed + 0, failed + 0 }')
mapfile -t json < <(find "$LOGS" -name '*.json')
# The last words of each test that failed; the logs may be on a machine that is gone.
((${#json[@]} == 0)) || jq -rs '(map(select(.Action == "fail" and .Test) | .Package + " " + .Test)) as $failed
	| (map(select(.Action == "output" and .Test)) | group_by(.Package + " " + .Test))[]
	| (.[0].Package + " " + .[0].Test) as $name | select($name | IN($failed[]))
	| "FAILED \($name)", (map(.Output) | join("") | split("\n") | map(select(. != "")) | .[-15:][] | "    | \(.[:400])")' "${json[@]}"
[[ ! -e $LOGS/failed.list ]] || xargs -n 1 "$ROOT/hack/failures.sh" <"$LOGS/failed.list"
# A skipped test is no passed test: each is named, with its reason.
((${#json[@]} == 0)) || jq -rs '(map(select(.Action == "skip" and .Test) | .Package + .Test)) as $skipped | .[]
	| select(.Action == "output" and .Test and (.Package + .Test | IN($skipped[])) and (.Output | startswith("=== ") | not))
	| .Output | rtrimstr("\n")' "${json[@]}"
[[ ! -e $PYTEST_LOG ]] || sed -n '/^SKIPPED/p' "$PYTEST_LOG"
# Last, so that it is there where only the end of the output is kept.
printf '%-12s %-7s %8s %8s %8s %8s %8s %8s\n' stage result passed failed skipped seconds cpu 'free GiB'
for name in lint generate rust python go node network apiserver box faults simulator fuzz e2e; do
	[[ ! -e $RESULTS/$name ]] || cat "$RESULTS/$name"
done
printf 'in all: %s; logs: %s\n\n' "$(elapsed $SECONDS)" "${LOGS#"$PWD"/}"
echo "$total_passed passed, $total_failed failed"
((total_failed == 0))
