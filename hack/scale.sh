#!/usr/bin/env bash
# The operator at the size of a room full of chassis: real operator, real
# kube-apiserver, etcd, scheduler and controller manager; kwok's nodes. Prints
# what it took, as a table on standard error and as JSON on standard output.
#
# usage: hack/scale.sh [OPTION...]
#   --chassis=N            chassis (default: 17, one of them spare)
#   --nodes-per-chassis=N  nodes of each (46)
#   --masters=N            members of the large Store (736)
#   --small-stores=N       Stores of 3 members besides (50)
#   --replacements=N       members on their way elsewhere at a time (8)
#   --heartbeat=DURATION   how often a node renews its Lease; it counts as lost after four times that (15s)
#   --steady=DURATION      how long nothing may be written while nothing happens (60s)
#   --patience=DURATION    the longest to wait for anything (20m)
#   --profiles=FOLDER      Go's profiles of the operator go there
# examples:
#   hack/scale.sh > scale.json
#   hack/scale.sh --chassis=5 --nodes-per-chassis=46 --masters=184 --small-stores=0
# Exit code: 0 all held, 1 something did not (the log is named), 2 wrong usage.
# See docs/scale.md.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
	sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}"
}

OPTIONS=(-chassis=17 -nodes-per-chassis=46 -masters=736 -small-stores=50 -replacements=8
	-heartbeat=15s -steady=60s -patience=20m)
for option in "$@"; do
	case $option in
	-h | --help) usage && exit ;;
	--chassis=* | --nodes-per-chassis=* | --masters=* | --small-stores=* | --replacements=*)
		[[ ${option#*=} =~ ^[0-9]{1,4}$ ]] || { echo "error: $option: a whole number up to 9999 is needed" >&2 && usage >&2 && exit 2; }
		OPTIONS+=("${option#-}")
		;;
	--heartbeat=* | --steady=* | --patience=*)
		[[ ${option#*=} =~ ^([0-9]+(ms|s|m|h))+$ ]] || { echo "error: $option: a duration such as 90s is needed" >&2 && usage >&2 && exit 2; }
		OPTIONS+=("${option#-}")
		;;
	--profiles=?*)
		mkdir -p "${option#*=}"
		OPTIONS+=("-profiles=$(realpath "${option#*=}")")
		;;
	*)
		printf 'error: unknown option %s\n\n' "$option" >&2
		usage >&2
		exit 2
		;;
	esac
done

results=$BUILD/scale.json
rm -f "$results"

# scale: its own program for step.
# shellcheck disable=SC2317 # step calls it
scale() {
	cd "$ROOT"
	RCBOX_CONTROL_PLANE=$("$ROOT/hack/control-plane.sh")
	RCBOX_KWOK=$("$ROOT/hack/tool.sh" kwok)
	export RCBOX_CONTROL_PLANE RCBOX_KWOK
	go test -count=1 -v -timeout 3h ./operator/test/scale -args "-output=$results" "${OPTIONS[@]}"
}

code=0
step "the operator at scale" scale >&2 || code=1
if [[ -f $results ]]; then
	jq -r 'paths(scalars) as $p | "\($p | map(tostring) | join(" "))\t\(getpath($p) | if type == "number" and . != floor then . * 100 | round / 100 else . end)"' \
		"$results" | column -t -s $'\t' >&2
	cat "$results"
fi
exit "$code"
