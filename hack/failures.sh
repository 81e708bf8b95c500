#!/usr/bin/env bash
# Prints what a step that failed said last: of cargo's tests those that failed, and
# else the end of the log.
#
# usage: hack/failures.sh LOG
set -euo pipefail

log=$1
lines=15 # of each test, or of the log

echo "FAILED ${log##*/}"
if ! grep -qE '^test .* FAILED$' "$log"; then
	tail -n "$lines" "$log" | cut -c-2000 | sed 's/^/    | /'
	exit
fi
# A test's own output is between "---- NAME stdout ----" and the next of these, or an empty line and "failures:".
awk -v lines="$lines" '
	function flush(first, i) {
		if (name == "") return
		print "    " name
		first = count > lines ? count - lines : 0
		for (i = first; i < count; i++) print "    | " substr(said[i], 1, 400)
		name = ""
	}
	/^---- .* stdout ----$/ { flush(); name = $2; count = 0; is_trace = 0; next }
	/^failures:$/ { flush(); next }
	/^stack backtrace:$/ { is_trace = 1 }
	/^note: / { is_trace = 0; next }
	name != "" && NF && !is_trace { said[count++] = $0 }
	END { flush() }' "$log"
