#!/usr/bin/env bash
# A store on loopback for application developers: one coordinator and servers as
# plain processes. No root, no Kubernetes; Ctrl-C ends them all.
#
# usage: hack/local.sh
#   RCBOX_LOCAL_PORT=11100   the coordinator's client port; server i takes port + 1000 i
#   RCBOX_LOCAL_SERVERS=3    how many servers (1 to 9)
#   RCBOX_LOCAL_MEMORY=500   megabytes each
#   RCBOX_LOCAL_TLS=1        servers, coordinator and administrators show each other certificates, which are made anew
# Build the programs first: make store
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PORT=${RCBOX_LOCAL_PORT:-11100}
SERVERS=${RCBOX_LOCAL_SERVERS:-3}
MEMORY=${RCBOX_LOCAL_MEMORY:-500}
PROGRAMS=$ROOT/images/store/target/release
LOCAL=$LOGS/local
LOCATOR=tcp:host=127.0.0.1,port=$PORT
PIDS=()
TLS=${RCBOX_LOCAL_TLS:-}
CERTIFICATES=$LOCAL/certificates

# The programs' other ports are at fixed distances from their client port.
COORDINATOR_PORTS=(0 100 200 300)
SERVER_PORTS=(0 300)

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
# shellcheck disable=SC2317 # called through wait_until
ready() (
	exec 3<>"/dev/tcp/127.0.0.1/$(($1 + 300))"
	printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
	read -r _ status _ <&3
	[[ $status == 200 ]]
)

check_ports() {
	local port offset i
	for offset in "${COORDINATOR_PORTS[@]}"; do
		port=$((PORT + offset))
		! answers $port || die "port $port is taken; choose others: RCBOX_LOCAL_PORT=21100 make local"
	done
	for ((i = 1; i <= SERVERS; i++)); do
		for offset in "${SERVER_PORTS[@]}"; do
			port=$((PORT + 1000 * i + offset))
			! answers $port || die "port $port is taken; choose others: RCBOX_LOCAL_PORT=21100 make local"
		done
	done
}

# start NAME PORT COMMAND...: and wait until it is ready.
start() {
	local name=$1 port=$2
	shift 2
	"$@" >"$LOCAL/$name.log" 2>&1 &
	PIDS+=($!)
	if ! wait_until 30 ready "$port"; then
		tail -n 15 "$LOCAL/$name.log" >&2
		die "$name did not get ready; its log is ${LOCAL#"$PWD"/}/$name.log"
	fi
}

# shellcheck disable=SC2317 # called by trap
stop_all() {
	local code=$? pid
	trap - EXIT INT TERM
	for pid in "${PIDS[@]}"; do
		kill "$pid" 2>/dev/null || true # it may have ended by itself
	done
	wait
	exit "$code"
}

((SERVERS >= 1 && SERVERS <= 9)) || die "RCBOX_LOCAL_SERVERS=$SERVERS is not between 1 and 9"
[[ -x $PROGRAMS/coordinator ]] || die "the programs are not built; run: make store"
check_ports
mkdir -p "$LOCAL"
trap stop_all EXIT
trap 'echo; exit 0' INT TERM

# tls ROLE: the options of whoever has this role.
tls() { [[ -z $TLS ]] || printf '%s\n' --tls "$CERTIFICATES/$1"; }

make_certificates() {
	local i roles=(coordinator operator)
	for ((i = 1; i <= SERVERS; i++)); do
		roles+=("member/server-$i")
	done
	rm -rf "$CERTIFICATES"
	"$PROGRAMS/rcbox" certificates "$CERTIFICATES" --days 7 "${roles[@]}" >"$LOCAL/certificates.log"
}

protection="nothing is encrypted, and whoever reaches a port is let in (RCBOX_LOCAL_TLS=1 make local)"
if [[ -n $TLS ]]; then
	make_certificates
	protection="servers, coordinator and administration speak TLS; clients' ports are open to whoever reaches them"
	export RCBOX_TLS=$CERTIFICATES/operator
fi
mapfile -t more < <(tls coordinator)
start coordinator "$PORT" "$PROGRAMS/coordinator" -C "$LOCATOR" "${more[@]}"
for ((i = 1; i <= SERVERS; i++)); do
	server_port=$((PORT + 1000 * i))
	mapfile -t more < <(tls "member/server-$i")
	start "server-$i" $server_port "$PROGRAMS/server" -C "$LOCATOR" -L "tcp:host=127.0.0.1,port=$server_port" -t "$MEMORY" --member "server-$i" "${more[@]}"
done

cat <<TEXT
A store with $SERVERS servers runs here; objects live in memory only and are gone when it ends.

  locator   $LOCATOR
  try       ${RCBOX_TLS:+RCBOX_TLS=${RCBOX_TLS#"$PWD"/} }${PROGRAMS#"$PWD"/}/rcbox -C $LOCATOR status
            ${PROGRAMS#"$PWD"/}/rcbox -C $LOCATOR              (a prompt: help, create-table, put, get ...)
            ${PROGRAMS#"$PWD"/}/clusterperf -C $LOCATOR --numClients 1 basic
  ports     $protection
  logs      ${LOCAL#"$PWD"/}/

Ctrl-C ends it.
TEXT

# Any of them ending by itself is a failure that must be seen.
wait -n -p ended "${PIDS[@]}" && code=0 || code=$?
die "process $ended has ended by itself with exit code $code; see ${LOCAL#"$PWD"/}/"
