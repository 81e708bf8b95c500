# shellcheck shell=bash
# Checks one by one, a line for each, as hack/test-sriov.sh shows them.

CHECK_LOG=${CHECK_LOG:-/tmp/check.log}
passed=0
failed=0

# check TITLE COMMAND...: a test of its own; what it says is shown if it fails.
check() {
	local title=$1 started=$SECONDS
	shift
	if "$@" >"$CHECK_LOG" 2>&1; then
		passed=$((passed + 1))
		printf 'ok      %s (%d s)\n' "$title" $((SECONDS - started))
	else
		failed=$((failed + 1))
		printf 'FAILED  %s (%d s)\n' "$title" $((SECONDS - started))
		tail -n 25 "$CHECK_LOG" | sed 's/^/    | /'
	fi
}

summary() { echo "$passed passed, $failed failed"; }

# await SECONDS COMMAND...: polls until the command succeeds; 1 when time is up.
await() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < deadline)) || return 1
		sleep "${AWAIT_INTERVAL_S:-0.2}"
	done
}
