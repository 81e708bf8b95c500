#!/usr/bin/env bash
# Runs a program in a network namespace of its own, in which all addresses of
# RCBOX_BOX_NETWORK are this machine's; without that variable, as it is.
#
# usage: hack/in-network.sh PROGRAM ARGUMENT...
set -euo pipefail

[[ -n ${RCBOX_BOX_NETWORK:-} ]] || exec "$@"
# shellcheck disable=SC2016 # for the inner shell
exec unshare --net -- bash -euc '
	ip link set lo up
	ip route add local "$RCBOX_BOX_NETWORK" dev lo
	# An API server wants to know at which address of its own it is found, by the default route.
	ip link add own type veth peer name other
	ip address add 192.0.2.1/30 dev own
	ip link set own up
	ip link set other up
	ip route add default via 192.0.2.2 dev own
	exec "$@"
' in-network "$@"
