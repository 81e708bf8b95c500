#!/usr/bin/env bash
# Runs the simulator on many seeds, on all cores, and then, if asked to, all fuzz
# targets. A line every minute says how far it is; the end says what was met.
#
# usage: [NAME=VALUE...] hack/soak.sh [OPTION OF hack/simulate.sh...]
#   SEEDS=A..B     the seeds from A to B - 1
#   SEEDS=COUNT    so many new ones; the first is printed (default: new ones, without end)
#   MINUTES=N      begin no more seeds after so many minutes (default: 60, no limit with SEEDS)
#   FUZZ_MINUTES=N then fuzz, so many minutes per target (default: 0, no fuzzing)
# examples:
#   make soak                              new seeds for an hour
#   make soak SEEDS=20000..30000           these, however long it takes
#   make soak SEEDS=5000 MINUTES=10        up to 5000 new ones
#   SEEDS=5000 hack/soak.sh --json         with the summary as JSON on standard output
#   make soak MINUTES=480 FUZZ_MINUTES=10  for a night
# Exit code: 0 all good, 1 a seed failed or a target found something (the command
# that shows it again is printed), 2 wrong usage.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
	sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}"
}

wrong() {
	printf 'error: %s\n\n' "$1" >&2
	usage >&2
	exit 2
}

case ${1:-} in -h | --help) usage && exit ;; esac

SEEDS=${SEEDS:-}
MINUTES=${MINUTES:-}
FUZZ_MINUTES=${FUZZ_MINUTES:-0}
[[ -z $SEEDS || $SEEDS =~ ^[0-9]+(\.\.[0-9]+)?$ ]] || wrong "SEEDS is '$SEEDS', neither a range such as 0..1000 nor a count"
[[ -z $MINUTES || $MINUTES =~ ^[1-9][0-9]{0,5}$ ]] || wrong "MINUTES is '$MINUTES', not a whole number of minutes"
[[ $FUZZ_MINUTES =~ ^[0-9]{1,5}$ ]] || wrong "FUZZ_MINUTES is '$FUZZ_MINUTES', not a whole number of minutes"

[[ -n $SEEDS$MINUTES ]] || MINUTES=60
OPTIONS=(--once)
[[ -z $SEEDS ]] || OPTIONS+=(--seeds "$SEEDS")
[[ -z $MINUTES ]] || OPTIONS+=(--seconds $((10#$MINUTES * 60)))

# Standard output is for the summary.
"$ROOT/hack/setup.sh" store >&2
failed=0
"$ROOT/hack/simulate.sh" "${OPTIONS[@]}" "$@" || failed=$?
if ((10#$FUZZ_MINUTES > 0 && failed < 2)); then
	"$ROOT/images/store/fuzz/run.sh" $((10#$FUZZ_MINUTES * 60)) >&2 || failed=1
fi
exit "$failed"
