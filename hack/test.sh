#!/usr/bin/env bash
# All tests: what `make test` does. A stage that fails does not keep the others
# from running; at the end comes a table, and one line "N passed, M failed".
#
# usage: hack/test.sh [STAGE...]     (default: all, in this order)
# stages: lint generate rust python go apiserver faults simulator fuzz e2e
#   RCBOX_FUZZ_SECONDS=10     per fuzz target
#   KEEP=1                    keep the cluster of the end-to-end tests
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

STORE=$ROOT/images/store
FUZZ_SECONDS=${RCBOX_FUZZ_SECONDS:-10}
STAGES=("$@")
((${#STAGES[@]})) || STAGES=(lint generate rust python go apiserver faults simulator fuzz e2e)

# The step of hack/python.sh that runs them.
PYTEST_LOG=$(log_of "Python: tests against real processes")

total_passed=0
total_failed=0
TABLE=()
PREPARING=
HUGE_PAGES=/proc/sys/vm/nr_hugepages
RESERVED=

# shellcheck disable=SC2317 # called by trap
on_exit() {
	[[ -z $PREPARING ]] || kill "$PREPARING" 2>/dev/null || true # it may have ended by itself
	[[ -z $RESERVED ]] || echo 0 >$HUGE_PAGES
}
trap on_exit EXIT

# stage NAME COUNTER TITLE COMMAND...: runs a program as a step, or with its own
# steps if TITLE is empty, and adds up what COUNTER says of it.
stage() {
	local name=$1 counter=$2 title=$3 log code=0 started=$SECONDS passed failed skipped
	shift 3
	info "$name"
	if [[ -n $title ]]; then
		step "$title" "$@" || code=$?
	else
		"$@" </dev/null || code=$?
	fi
	log=$(log_of "$title")
	[[ $counter != go ]] || log=$LOGS/$name.json
	[[ $counter != pytest ]] || log=$PYTEST_LOG
	read -r passed failed skipped < <("$ROOT/hack/count-tests.sh" "$counter" "$code" "$log")
	total_passed=$((total_passed + passed))
	total_failed=$((total_failed + failed))
	TABLE+=("$(printf '%-12s %-7s %8d %8d %8d %8d' "$name" "$( ((code == 0)) && echo ok || echo FAILED)" "$passed" "$failed" "$skipped" $((SECONDS - started)))")
}

# prepare_e2e: what the end-to-end tests take minutes to build, while stages run that wait more than they work: with what
# processors have left. If it fails, so will that stage, which says why: it does the same, and finds it done.
prepare_e2e() {
	"$ROOT/hack/engine.sh" up || return 0 # that stage says it again
	nice -n 19 "$ROOT/hack/e2e.sh" --prepare </dev/null >"$LOGS/prepare-e2e.log" 2>&1 &
	PREPARING=$!
}

prepared_e2e() {
	[[ -n $PREPARING ]] || return 0
	info "  wait for what is built beforehand"
	wait "$PREPARING" || warn "what the end-to-end tests need could not be built beforehand: $LOGS/prepare-e2e.log"
	PREPARING=
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
			./api/... ./operator/cmd/... ./operator/internal/... ./charts/... ./config/... ./hack/...
		stage node go "Go: node image programs" "$ROOT/hack/go-test.sh" node images/node ./...
		stage network go "Go: stand-ins for NICs" "$ROOT/hack/go-test.sh" network images/network ./...
		;;
	apiserver) stage apiserver go "" "$ROOT/hack/apiserver.sh" ;;
	faults) stage faults go "" "$ROOT/hack/faults.sh" ;;
	simulator) stage simulator none "simulator: quick set, every seed twice" "$ROOT/hack/simulate.sh" --seeds 0..900 --quick ;;
	fuzz) stage fuzz none "fuzz: $FUZZ_SECONDS s per target" "$STORE/fuzz/run.sh" "$FUZZ_SECONDS" ;;
	e2e)
		prepared_e2e
		stage e2e go "" "$ROOT/hack/e2e.sh"
		;;
	*) die "hack/test.sh: unknown stage '$1'; stages: lint generate rust python go apiserver faults simulator fuzz e2e" ;;
	esac
}

# From nothing, all stages fill about this much: programs three times (with assertions, for release, for the simulator),
# fuzz targets, images, a cluster. What fails for want of room fails anywhere, and says little of why.
NEEDED_GIB=30
free_gib=$(($(df --output=avail --block-size=1G "$ROOT" | tail -n 1)))
((free_gib >= NEEDED_GIB)) ||
	warn "only $free_gib GiB are free where this checkout is; from nothing, all tests need about $NEEDED_GIB"

"$ROOT/hack/setup.sh" store python cluster lint generate network faults
rm -f "$LOGS"/{*.json,failed.list} "$PYTEST_LOG"
for name in "${STAGES[@]}"; do
	if [[ $name =~ ^(rust|apiserver)$ && " ${STAGES[*]} " == *" e2e "* && -z $PREPARING ]]; then
		prepare_e2e
	fi
	run_stage "$name"
done

echo
printf '%-12s %-7s %8s %8s %8s %8s\n' stage result passed failed skipped seconds
printf '%s\n' "${TABLE[@]}"
mapfile -t json < <(find "$LOGS" -name '*.json')
# What failed said last; the logs may be on a machine that is gone.
[[ ! -e $LOGS/failed.list ]] || xargs -n 1 "$ROOT/hack/failures.sh" <"$LOGS/failed.list"
((${#json[@]} == 0)) || jq -rs '(map(select(.Action == "fail" and .Test) | .Package + " " + .Test)) as $failed
	| (map(select(.Action == "output" and .Test)) | group_by(.Package + " " + .Test))[]
	| (.[0].Package + " " + .[0].Test) as $name | select($name | IN($failed[]))
	| "FAILED \($name)", (map(.Output) | join("") | split("\n") | map(select(. != "")) | .[-15:][] | "    | \(.[:400])")' "${json[@]}"
# A skipped test is no passed test: each is named, with its reason.
((${#json[@]} == 0)) || jq -rs '(map(select(.Action == "skip" and .Test) | .Package + .Test)) as $skipped | .[]
	| select(.Action == "output" and .Test and (.Package + .Test | IN($skipped[])) and (.Output | startswith("=== ") | not))
	| .Output | rtrimstr("\n")' "${json[@]}"
[[ ! -e $PYTEST_LOG ]] || sed -n '/^SKIPPED/p' "$PYTEST_LOG"
printf 'in all: %s; logs: %s\n\n' "$(elapsed $SECONDS)" "${LOGS#"$PWD"/}"
echo "$total_passed passed, $total_failed failed"
((total_failed == 0))
