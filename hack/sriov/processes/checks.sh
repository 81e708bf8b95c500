#!/bin/bash
# The tests, in the guest: two ports of a NIC with two virtual functions each, all on one wire, no other network.
# Prints a line for each check, and at the end "N passed, M failed". A line "cable off" or "cable on" asks whoever reads
# this to pull or plug that of the first port.
set -uo pipefail

# shellcheck source=../check.sh
source /sriov/check.sh
# shellcheck source=../vfs.sh
source /sriov/vfs.sh

# The server has a virtual function of the first port, the client one of the second.
SERVER_IP=10.99.0.1 CLIENT_IP=10.99.0.2
COORDINATOR=tcp:host=127.0.0.1,port=11100
HTTP_PORT=12400
# How many reads show which way a client takes.
READS=300
# Who has nothing but a virtual function.
USER_ID=1000

PIDS=()

sets_addresses() {
	local pf number
	for pf in "${PFS[@]}"; do
		for ((number = 0; number < VFS_EACH; number++)); do
			ip link set "$(interface "$pf")" vf "$number" mac "02:00:00:00:0${pf:6:1}:0$number" spoofchk on || return 1
		done
		ip link show "$(interface "$pf")"
	done
}

# unprivileged COMMAND...: as a user without any right, who may keep memory where it is.
unprivileged() { prlimit --memlock=unlimited setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups --no-new-privs --bounding-set=-all "$@"; }

# One function is the user's, the others are not.
user_has_one_function() {
	local own other
	own=/dev/vfio/$(group "$(vf 1 0)") other=/dev/vfio/$(group "$(vf 1 1)")
	chown "$USER_ID" "$own"
	unprivileged bash -c "exec 3<>$own" || return 1
	! unprivileged bash -c "exec 3<>$other"
}

start() {
	local log=$1
	shift
	"$@" >"/tmp/$log.log" 2>&1 &
	PIDS+=($!)
}

end_all() {
	kill "${PIDS[@]}" 2>/dev/null
	wait "${PIDS[@]}" 2>/dev/null
	PIDS=()
}

pings() {
	local code=0
	start ping clusterperf ping --serve --local "$SERVER_IP:7000" --dpdkHugepages always --dpdk "-a $(vf "$1" "$2")"
	unprivileged clusterperf ping --local "$CLIENT_IP:7000" --count 2000 --warmup 100 --patience 60 --dpdk "-a $(vf 1 0)" "$SERVER_IP:7000" || code=1
	end_all
	cat /tmp/ping.log
	return $code
}

http() (
	exec 3<>"/dev/tcp/127.0.0.1/$HTTP_PORT"
	printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&3
	cat <&3
)
ready() { http /readyz | grep -q '^HTTP/1.. 200'; }
# metric NAME: of the server, all shards together.
metric() { http /metrics | mawk -v name="rcbox_$1" 'index($1, name "{") == 1 || $1 == name { sum += $2 } END { printf "%d\n", sum }'; }

starts_store() {
	start coordinator coordinator -C "$COORDINATOR"
	start server server -C "$COORDINATOR" -L tcp:host=127.0.0.1,port=12100 -L "fast+dpdk:host=$SERVER_IP,port=12247" \
		--httpListen "127.0.0.1:$HTTP_PORT" -t 300 --dpdkHugepages always --dpdk "-a $(vf 0 0)"
	await 120 ready && return
	tail -n 20 /tmp/coordinator.log /tmp/server.log
	return 1
}

# client OPTION... TEST: ClusterPerf on a function of its own, as a user without rights.
client() {
	unprivileged timeout 300 clusterperf -C "$COORDINATOR" -L "fast+dpdk:host=$CLIENT_IP,port=0" --dpdk "-a $(vf 1 0)" "$@" && return
	# Without traces.
	grep -v ' ns): ' /tmp/server.log | tail -n 10
	return 1
}

# packets COMMAND...: runs it, and prints how many packets the server got over its function meanwhile.
packets() {
	local before
	before=$(metric fast_packets_received_total)
	"$@" >&2 || return 1
	echo $(($(metric fast_packets_received_total) - before))
}

runs_basic() {
	local count
	count=$(packets client --seconds 1 --fillMB 2 basic 2>/tmp/basic.txt) || {
		cat /tmp/basic.txt
		return 1
	}
	# A read or write of each of the five sizes, thousands of packets for the long ones.
	sed -n '/average.*median/,$p' /tmp/basic.txt
	echo "packets that the server got over its function: $count"
	((count > 2000)) && [[ $(grep -cE '^basic\.(read|write)(100|1K|10K|100K|1M) .*median$' /tmp/basic.txt) == 10 ]]
}

# What was written over functions, read over TCP: basic leaves objects of 100 bytes, "v" where it filled, "w" where it wrote.
values_are_right() {
	local all right written
	rcbox -C "$COORDINATOR" --timeout 120 scan test --json >/tmp/values.txt || return 1
	all=$(wc -l </tmp/values.txt)
	right=$(grep -cE '"value":"(v{100}|w{100})"' /tmp/values.txt)
	written=$(grep -cE '"value":"w{100}"' /tmp/values.txt)
	echo "$right of $all values are right, $written of them written one by one"
	((all > 10000 && right == all && written > 0))
}

# reads COUNT: without the distribution.
reads() { client --count "$1" readDist | sed '/^# Cumulative/,$d'; }

over_function() {
	local count
	count=$(packets reads "$READS") || return 1
	echo "$count packets"
	((count >= READS))
}

over_tcp() {
	local count
	count=$(packets reads "$READS") || return 1
	echo "$count packets"
	((count == 0))
}

# shellcheck disable=SC2317 # called through await
is_opened_anew() { (($(metric ports_opened_anew_total) > 0)); }

# The server finds out by itself that its function is dead, and that it is not any more.
heals_itself() {
	local server=${PIDS[1]}
	await 120 over_function || return 1
	echo "the port was opened anew $(metric ports_opened_anew_total) times"
	is_opened_anew && kill -0 "$server"
}

# shellcheck disable=SC2317 # called through await
got_packets() { (($(metric fast_packets_received_total) > $1)); }

# A client that is in the middle of it goes on over TCP.
survives_pulled_cable() {
	local client before count
	before=$(metric fast_packets_received_total)
	reads $((READS * 30)) &
	client=$!
	await 60 got_packets $((before + READS)) && cable off && wait "$client" || return 1
	count=$(($(metric fast_packets_received_total) - before))
	echo "of $((READS * 30)) reads not more than $count came over the function"
	((count < READS * 27))
}

# cable on|off: somebody outside does it.
cable() {
	echo "cable $1" >/dev/ttyS1
	await 30 carrier "$([[ $1 == on ]] && echo 1 || echo 0)"
}

pf() { ip link set "$(interface "${PFS[0]}")" "$1"; }
over_tcp_without_pf() { pf down && over_tcp; }
revives_pf() { pf up && await 30 carrier 1; }
starts_store_without_pf() { pf down && starts_store && over_tcp; }

main() {
	check "an IOMMU, and vfio" has_iommu
	check "virtual functions are made" makes_vfs
	check "they have addresses that nobody else may set" sets_addresses
	check "they are on vfio-pci, each in a group of its own" binds_vfs
	check "a user has the function that was given to it, and no other" user_has_one_function
	sysctl -qw vm.nr_hugepages=256
	check "from a function to one of another port" pings 0 0
	check "from a function to another one of the same port" pings 1 1
	check "a server drives a function" starts_store
	check "ClusterPerf basic over functions, as a user without rights" runs_basic
	cat "$CHECK_LOG"
	check "what was written over functions is right, read over TCP" values_are_right
	check "the cable is pulled: a client goes on over TCP" survives_pulled_cable
	check "without cable: a new client uses TCP" over_tcp
	check "the cable is plugged" cable on
	check "with the cable again: functions are used again" over_function
	check "the physical function is down: clients use TCP" over_tcp_without_pf
	check "the physical function is up again" revives_pf
	check "functions are used again, by the same server" heals_itself
	end_all
	check "a server that is started while the physical function is down: clients use TCP" starts_store_without_pf
	check "and when it is up" revives_pf
	check "its function is used" heals_itself
	cat "$CHECK_LOG"
	end_all
	summary
}

main
