# shellcheck shell=bash
# The checks of a node with virtual functions: what Kubernetes, the operator and the store's programs make of them. Run outside of the guest.
# Deadlines are for emulated processors on a busy machine: they say that something is dead, not that it is slow.

BOOT_S=900
START_S=600
CHANGE_S=300
VFS=4
RESOURCE=intel.com/rcbox_vf
PLUGIN=$BUILD/bin/kubectl-rcbox

# follow_guest: shows what the guest says, and counts it among the checks.
follow_guest() {
	local line deadline=$((SECONDS + BOOT_S)) seen=0
	while ((SECONDS < deadline)); do
		while IFS= read -r line; do
			seen=$((seen + 1))
			[[ $line == "guest: that is all" ]] || printf '%s\n' "$line"
			case $line in
			ok*) passed=$((passed + 1)) ;;
			FAILED*) failed=$((failed + 1)) ;;
			"guest: that is all") return 0 ;;
			esac
		done < <(tail -n "+$((seen + 1))" "$RESULTS" | tr -d '\r')
		machine_runs || break
		sleep 1
	done
	die "the guest has not come so far as to join the cluster; see $(relative "$CONSOLE") and $(relative "$WORK")/emulator.log"
}

# what_is: the state of things, where a check has failed.
what_is() {
	{
		kubectl get nodes,pods -A -o wide
		kubectl get store box -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
		kubectl get events -A --sort-by=.metadata.creationTimestamp | tail -n 40
		kubectl -n kube-system logs daemonset/sriov-device-plugin --tail=60
		kubectl logs --selector rcbox.dev/store=box --all-containers --prefix --tail=30
	} >"$WORK/cluster.log" 2>&1
	kubectl get store box -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
	kubectl get pods -o wide
	kubectl get events --sort-by=.metadata.creationTimestamp | tail -n 8
}

# eventually SECONDS COMMAND...: and if not, what there is instead.
eventually() {
	await "$@" && return
	echo "not within $1 s: ${*:2}"
	what_is
	return 1
}

# condition TYPE STATUS [REASON]: of the Store.
condition() {
	kubectl get store box -o json | jq -e --arg type "$1" --arg status "$2" --arg reason "${3:-}" \
		'.status.conditions[] | select(.type == $type and .status == $status and ($reason == "" or .reason == $reason))'
}

# address FIELD: of the master's port (ip, mac, pod, interface), as the operator has it on record.
address() { kubectl get storemember box-master-0 -o json | jq -er --arg field "$1" '.record.addresses[0][$field]'; }

# attached POD: what Multus says of the port.
attached() {
	kubectl get pod "$1" -o json | jq -e '.metadata.annotations["k8s.v1.cni.cncf.io/network-status"] | fromjson | .[] | select(.interface == "net1")'
}

# packets: how many the master has got over its port.
packets() {
	local pod port
	pod=$(address pod) || return 1
	port=$(kubectl get pod "$pod" -o json | jq -er '[.spec.containers[].ports[]? | select(.name == "http")][0].containerPort') || return 1
	kubectl get --raw "/api/v1/namespaces/default/pods/$pod:$port/proxy/metrics" |
		awk 'index($1, "rcbox_fast_packets_received_total") == 1 { sum += $2 } END { printf "%d\n", sum }'
}

waits_for_ports() {
	kubectl apply -f "$ROOT/config/network/attachments.yaml" -f "$SRIOV/node/store.yaml" || return 1
	eventually "$CHANGE_S" condition NetworkReady False NoDevice
}

node_is_ready() { eventually "$START_S" kubectl wait --for=condition=Ready --timeout=1s "node/$NODE"; }

# Pods that are made before Multus is there get no ports; so the label, by which the device plugin comes, is last.
multus_runs() {
	eventually "$START_S" multus_has_configured || return 1
	kubectl label node "$NODE" rcbox.dev/node-class=igb
}
multus_has_configured() {
	local pod
	pod=$(kubectl -n second-network get pods --selector app=multus --field-selector "spec.nodeName=$NODE" -o name)
	[[ -n $pod ]] && kubectl -n second-network logs "$pod" --container multus | grep -F "multus config file is created"
}

functions_are_offered() {
	eventually "$START_S" offers && kubectl get node "$NODE" -o json | jq .status.allocatable
}
offers() {
	kubectl get node "$NODE" -o json | jq -e --arg resource "$RESOURCE" --arg vfs "$VFS" --arg pages "$((HUGE_PAGES * 2))Mi" \
		'.status.allocatable | (.[$resource] == $vfs) and ((.["hugepages-2Mi"] == $pages) or (.["hugepages-2Mi"] == "1Gi" and $pages == "1024Mi"))'
}

store_is_available() {
	eventually "$START_S" condition Available True && eventually "$CHANGE_S" condition NetworkReady True Attached
}

# What the operator allots, the CNI plugin sets, and the function's driver reads from the NIC is the same.
has_its_address() {
	local pod ip mac shown
	pod=$(address pod) ip=$(address ip) mac=$(address mac)
	[[ $(kubectl get pod "$pod" -o jsonpath='{.spec.nodeName}') == "$NODE" ]] || return 1
	attached "$pod" | jq -e --arg ip "$ip" --arg mac "$mac" '.mac == $mac and (.ips | index($ip) != null)' || return 1
	eventually "$CHANGE_S" everything_is_told "$ip" "$mac" || {
		"$PLUGIN" net box
		return 1
	}
	"$PLUGIN" net box
}
everything_is_told() {
	local shown
	shown=$("$PLUGIN" net box) || return 1
	grep -F "$1" <<<"$shown" | grep -F "$2" | grep -F net_e1000_igb_vf | grep -F " up"
}

plugin_finds_nothing() { "$PLUGIN" net check box; }

# By the pod's specification; and the group's file is all that the device plugin has added.
has_few_rights() {
	kubectl get pod "$(address pod)" -o json | jq -e '
		([.spec.containers[], .spec.initContainers[]?] | all(.securityContext |
			(.privileged // false | not) and .readOnlyRootFilesystem and .capabilities.drop == ["ALL"] and (.capabilities.add // [] | . - ["IPC_LOCK"] == [])))
		and (.spec.volumes | all(has("hostPath") | not)) and (.spec.hostNetwork // false | not)'
}

# run_over_functions NAME TESTS OPTIONS LEAST: a ClusterPerf, during which the master gets so many packets.
run_over_functions() {
	local before after
	before=$(packets) || return 1
	sed "s|NAME|$1|; s|TESTS|$2|; s|OPTIONS|$3|" "$SRIOV/node/run.yaml" | kubectl apply -f - || return 1
	eventually "$START_S" client_has_function "$1" || return 1
	eventually "$((START_S * 2))" kubectl wait --for=condition=Complete --timeout=1s "rcperf/$1" || {
		kubectl get rcperf "$1" -o yaml
		return 1
	}
	after=$(packets) || return 1
	kubectl get rcperf "$1" -o json | jq -r '.status.results[] | "\(.name) \(.value) \(.unit)"'
	echo "packets that the master got over its function: $((after - before))"
	kubectl delete rcperf "$1" --timeout=120s
	((after - before >= $4))
}
# client_has_function RUN: one that is not the master's.
client_has_function() {
	local pod own other
	pod=$(kubectl get pods --field-selector "spec.nodeName=$NODE" -o json | jq -er --arg run "$1" '[.items[].metadata.name | select(startswith($run))][0]') || return 1
	own=$(attached "$pod" | jq -er '."device-info".pci."pci-address"') || return 1
	other=$(attached "$(address pod)" | jq -er '."device-info".pci."pci-address"') || return 1
	echo "the client has $own, the master $other"
	[[ $own != "$other" ]]
}

keeps_its_address() {
	local pod ip mac
	pod=$(address pod) ip=$(address ip) mac=$(address mac)
	kubectl delete pod "$pod" --wait=false || return 1
	eventually "$START_S" is_another_pod "$pod" && store_is_available || return 1
	echo "$ip $mac: now $(address ip) $(address mac)"
	[[ $(address ip) == "$ip" && $(address mac) == "$mac" ]] && has_its_address
}
is_another_pod() { [[ $(address pod) != "$1" ]]; }

# The NIC's port that the master's function belongs to: 0000:01 is the first.
port_of_master() { attached "$(address pod)" | jq -er '."device-info".pci."pci-address"[6:7]'; }

pulled_cable_is_told() {
	local port
	port=$(port_of_master) || return 1
	cable off "$port"
	eventually "$CHANGE_S" condition NetworkReady False LinkDown && condition Available True
	local code=$?
	cable on "$port"
	return "$code"
}
plugged_cable_is_told() { eventually "$CHANGE_S" condition NetworkReady True Attached; }

run_checks() {
	check "a Store without ports: it says what it waits for" waits_for_ports
	follow_guest
	check "the machine is a node, and Ready" node_is_ready
	check "Multus runs on it" multus_runs
	check "the SR-IOV device plugin offers its functions, the kubelet huge pages" functions_are_offered
	check "the Store is Available, its ports are attached" store_is_available
	check "the master's function has the address that the operator has allotted" has_its_address
	cat "$CHECK_LOG"
	check "kubectl rcbox net check finds nothing wrong" plugin_finds_nothing
	cat "$CHECK_LOG"
	check "the master has no right but to keep memory where it is" has_few_rights
	check "ClusterPerf basic, by a client with a function of its own" run_over_functions basic basic "{seconds: 1, fillMb: 2}" 2000
	cat "$CHECK_LOG"
	check "the master's pod is deleted: the next one has a function with the same address" keeps_its_address
	check "and is used over it" run_over_functions again readDist "{count: 300, numObjects: 300}" 300
	check "the cable is pulled: the Store's status says so, and is available" pulled_cable_is_told
	check "the cable is plugged: the status says so" plugged_cable_is_told
}
