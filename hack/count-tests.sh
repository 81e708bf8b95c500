#!/usr/bin/env bash
# Prints how many tests passed, failed and were skipped in one stage of
# hack/test.sh, as three numbers.
#
# usage: hack/count-tests.sh cargo|go|pytest|none EXIT_CODE LOG
#   cargo  from cargo test's summaries in LOG
#   go     from the JSON beside LOG that hack/go-test.sh wrote
#   pytest from pytest's summary in LOG
#   none   the stage is one test
# A stage that failed counts at least one failure, whatever its log says, and a
# stage that has no test is a failure as well; one whose tests were all skipped is
# none, for hack/test.sh names each of them.
set -euo pipefail

kind=$1
code=$2
log=$3
passed=0 failed=0 skipped=0

case $kind in
cargo)
	read -r passed failed skipped < <(awk '/^test result:/ {
		for (i = 2; i <= NF; i++) {
			if ($i ~ /^passed/) passed += $(i - 1)
			if ($i ~ /^failed/) failed += $(i - 1)
			if ($i ~ /^ignored/) skipped += $(i - 1)
		}
	} END {print passed + 0, failed + 0, skipped + 0}' "$log")
	;;
go)
	if [[ -s $log ]]; then
		read -r passed failed skipped < <(jq -rs '
			[.[] | select(.Test) | .Action] |
			[map(select(. == "pass")), map(select(. == "fail")), map(select(. == "skip"))] | map(length) | map(tostring) | join(" ")' "$log")
	fi
	;;
pytest)
	# Such as "1 failed, 57 passed, 2 skipped, 1 error in 2.25s".
	[[ ! -s $log ]] || read -r passed failed skipped < <(awk '/^=+ .* in [0-9.]+s/ {
		passed = failed = skipped = 0
		for (i = 2; i <= NF; i++) {
			if ($i ~ /^(passed|xpassed)/) passed += $(i - 1)
			if ($i ~ /^(failed|error)/) failed += $(i - 1)
			if ($i ~ /^(skipped|deselected|xfailed)/) skipped += $(i - 1)
		}
	} END {print passed + 0, failed + 0, skipped + 0}' "$log")
	;;
none) ((code)) || passed=1 ;;
*)
	echo "hack/count-tests.sh: unknown kind '$kind'" >&2
	exit 2
	;;
esac

if ((code != 0 && failed == 0)) || ((code == 0 && passed == 0 && skipped == 0)); then
	failed=$((failed + 1))
fi
echo "$passed $failed $skipped"
