# shellcheck shell=bash
# Helpers that every script in this folder sources: places, messages, steps.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$ROOT/.build                # of this checkout; `make clean` deletes it
LOGS=$BUILD/logs
CACHE=${RCBOX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rcbox} # outlives checkouts
mkdir -p "$LOGS" "$CACHE/bin"
export PATH=$CACHE/bin:$PATH

# shellcheck source=versions.env
source "$(dirname "${BASH_SOURCE[0]}")/versions.env"

# Docker's classic builder serves every Dockerfile here. Debian's client has no other.
if ! docker buildx version >/dev/null 2>&1; then
	export DOCKER_BUILDKIT=0
fi

# The same sources make the same image at every commit and in every folder: neither the state of
# the git tree nor paths go into programs. Nor does what only a debugger reads, which is a fifth of
# the time that Go takes to compile; stack traces and profiles do not need it. All that Go compiles
# here, tests and tools as well, has the same flags: a library that was compiled with others is
# compiled again.
export GOFLAGS="${GOFLAGS:-} -trimpath -buildvcs=false -gcflags=all=-dwarf=false" CGO_ENABLED=0

# A command that fails where nobody looks at its exit code ends the script: say which.
set -o errtrace
trap '[[ $BASH_COMMAND == return* ]] || printf "error: %s, line %d: %s\n" "${BASH_SOURCE[0]##*/}" "$LINENO" "$BASH_COMMAND" >&2' ERR

info() { printf '%s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }

die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# elapsed SECONDS: "42 s" or "3 min 07 s".
elapsed() {
	if (($1 < 60)); then
		printf '%d s' "$1"
	else
		printf '%d min %02d s' $(($1 / 60)) $(($1 % 60))
	fi
}

# log_of TITLE: the log file of a step. File names have at most 255 bytes.
log_of() { echo "$LOGS/$(tr -cs '[:alnum:]' - <<<"${1,,}" | sed 's/^-*//; s/-*$//' | cut -c1-200).log"; }

# step TITLE COMMAND...: runs the command (or function) with its output in a log
# file, shows how long it has been running, and on failure shows the end of the
# log and returns the command's exit code. Where the caller catches that code
# (if, ||), bash ignores `set -e` inside functions: pass a program there.
step() {
	local title=$1 log rc=0 started=$SECONDS pid
	shift
	log=$(log_of "$title")
	[[ -t 1 ]] || printf '  %-44s ...\n' "$title"
	# A process group of its own, so that Ctrl-C here ends all of it.
	set -m
	("$@") </dev/null >"$log" 2>&1 &
	pid=$!
	set +m
	# shellcheck disable=SC2064 # this pid
	trap "kill -TERM -- -$pid 2>/dev/null; exit 130" INT TERM
	_show_progress "$pid" "$title" "$started"
	wait "$pid" || rc=$?
	trap - INT TERM
	[[ -t 1 ]] && printf '\r\033[K'
	if ((rc == 0)); then
		printf '  %-44s %s\n' "$title" "$(elapsed $((SECONDS - started)))"
		return 0
	fi
	echo "$log" >>"$LOGS/failed.list"
	{
		printf '  %-44s FAILED (exit code %d) after %s\n' "$title" "$rc" "$(elapsed $((SECONDS - started)))"
		printf '    the last lines of %s:\n' "${log#"$PWD"/}"
		tail -n 25 "$log" | sed 's/^/    | /'
	} >&2
	return "$rc"
}

# beside NAME COMMAND...: starts a program that goes on beside the script, behind it in the queue for processors;
# its output goes to a log file. Scripts that use it call end_beside when they end.
declare -A BESIDE=()
beside() {
	local name=$1
	shift
	set -m
	nice -n 10 "$@" </dev/null >"$(log_of "beside $name")" 2>&1 &
	BESIDE[$name]=$!
	set +m
}

# joined NAME: waits for it, and shows what it said. Its exit code is that of the program.
joined() {
	local name=$1 rc=0 pid
	pid=${BESIDE[$name]}
	wait "$pid" || rc=$?
	unset "BESIDE[$name]"
	grep -v ' \.\.\.' "$(log_of "beside $name")" || true # it may have had nothing to do
	return "$rc"
}

end_beside() {
	local pid
	for pid in "${BESIDE[@]}"; do
		kill -TERM -- -"$pid" 2>/dev/null || true # it may have ended by itself
	done
}

# _show_progress PID TITLE STARTED: until the process ends, on a terminal one
# line that counts seconds, elsewhere a line every minute.
_show_progress() {
	local pid=$1 title=$2 started=$3 shown=0 now
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.2
		now=$((SECONDS - started))
		if [[ -t 1 ]]; then
			((now == shown)) || printf '\r  %-44s %s ' "$title" "$(elapsed "$now")"
			shown=$now
		elif ((now >= shown + 60)); then
			printf '  %-44s ... %s\n' "$title" "$(elapsed "$now")"
			shown=$now
		fi
	done
}

# wait_until SECONDS COMMAND...: polls until the command succeeds; 1 when time is up.
wait_until() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < deadline)) || return 1
		sleep 0.3
	done
}

image_exists() { docker image inspect "$1" >/dev/null 2>&1; }

# hash_of FILE_OR_TEXT...: 12 hex digits over the contents of files, of all files
# below folders, and of arguments that are neither.
hash_of() {
	local input
	for input in "$@"; do
		if [[ -d $input ]]; then
			(cd "$input" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum)
		elif [[ -f $input ]]; then
			sha256sum <"$input"
		else
			printf 'text:%s\n' "$input"
		fi
	done | sha256sum | cut -c1-12
}

# as_root WHAT: ends the script unless it runs as root.
as_root() {
	((EUID == 0)) || die "$1 needs root; run the same command with sudo -E, or do it once by hand"
}

# with_lock NAME COMMAND...: one at a time over all checkouts of this machine.
with_lock() {
	local name=$1
	shift
	(
		flock 9
		"$@"
	) 9>"$CACHE/$name.lock"
}

# Versions that images/node/go.mod pins.
kubernetes_version() { pinned "$ROOT/images/node/go.mod" k8s.io/kubernetes; }
coredns_version() { pinned "$ROOT/images/node/go.mod" github.com/coredns/coredns; }

# pinned FILE MODULE: the version that a go.mod requires.
pinned() { awk -v module="$2" '$1 == module && $2 ~ /^v/ {print $2; exit}' "$1"; }

# kubernetes_ldflags: linker flags that stamp Kubernetes programs with their
# version, as its own build does.
kubernetes_ldflags() {
	local version package flags='-s -w'
	version=$(kubernetes_version)
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $package.gitVersion=$version -X $package.gitTreeState=clean"
		flags+=" -X $package.gitMajor=$(cut -d. -f1 <<<"${version#v}") -X $package.gitMinor=$(cut -d. -f2 <<<"$version")"
	done
	printf '%s' "$flags"
}
