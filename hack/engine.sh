#!/usr/bin/env bash
# Makes sure that a Docker engine answers: uses the one that runs, else starts
# Debian's dockerd, detached, so that it outlives this shell.
#
# usage: hack/engine.sh [up | down]
# `down` ends only an engine that this script started.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

STATE=$CACHE/engine
PID_FILE=$STATE/dockerd.pid # written by dockerd
LOG=$STATE/dockerd.log
RUNTIME=$ROOT/hack/runc-without-sys-resource
CAP_SYS_RESOURCE=24 # bit number, capability.h

answers() { timeout 10 docker info >/dev/null 2>&1; }

# our_pid: the process id of the dockerd that we started, if that is still it.
our_pid() {
	local pid
	pid=$(cat "$PID_FILE" 2>/dev/null) || return 1
	[[ $(cat "/proc/$pid/comm" 2>/dev/null) == dockerd ]] && echo "$pid"
}

has_sys_resource() {
	local bounding
	bounding=$(awk '/^CapBnd/ {print $2}' /proc/self/status)
	(((16#$bounding >> CAP_SYS_RESOURCE) & 1))
}

# Four nodes of systemd, kubelet and containerd use more than the default 128 instances.
raise_inotify_limit() {
	local limit=1024 file=/proc/sys/fs/inotify/max_user_instances
	(($(cat $file) >= limit)) && return
	if ! echo $limit 2>/dev/null >$file; then
		warn "$file is below $limit; nodes may fail to start. As root: sysctl fs.inotify.max_user_instances=$limit"
	fi
}

start() {
	local options=(--pidfile "$PID_FILE" --live-restore)
	as_root "starting a Docker engine"
	[[ -x /usr/sbin/dockerd ]] || die "no Docker engine answers and /usr/sbin/dockerd is not there"
	if ! has_sys_resource; then
		# A copy: the engine must not depend on where this checkout is.
		install -m 755 "$RUNTIME" "$STATE/runc-without-sys-resource"
		options+=(--add-runtime "rcbox=$STATE/runc-without-sys-resource" --default-runtime rcbox)
	fi
	# A file of an engine that was killed names a process that may be anyone's by now.
	rm -f "$PID_FILE"
	[[ -s $LOG ]] && mv "$LOG" "$LOG.1"
	setsid /usr/sbin/dockerd "${options[@]}" </dev/null >"$LOG" 2>&1 9>&- &
	if ! wait_until 60 answers; then
		tail -n 15 "$LOG"
		die "dockerd does not answer; its log is $LOG"
	fi
}

up() {
	mkdir -p "$STATE"
	raise_inotify_limit
	answers && return
	local pid
	if pid=$(our_pid); then
		warn "dockerd (process $pid) runs and does not answer; it is ended and started again"
		kill "$pid" && wait_until 30 not_running "$pid"
	fi
	# The client that belongs to the engine goes before any other of that name.
	[[ -x /usr/bin/docker ]] && ln -sfn /usr/bin/docker "$CACHE/bin/docker"
	start
}

not_running() { ! kill -0 "$1" 2>/dev/null; }

down() {
	local pid
	if pid=$(our_pid); then
		kill "$pid"
		wait_until 60 not_running "$pid" || die "dockerd (process $pid) does not end"
		info "the Docker engine is stopped"
	else
		info "no Docker engine of ours runs"
	fi
}

case ${1:-up} in
up) answers || with_lock engine step "start a Docker engine" up; raise_inotify_limit ;;
down) down ;;
*) die "usage: hack/engine.sh [up | down]" ;;
esac
