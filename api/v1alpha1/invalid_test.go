package v1alpha1_test

import (
	"strings"
	"testing"
)

// The texts are what a user reads, so they are compared whole.
func TestInvalidSpecs(t *testing.T) {
	server := newAPIServer(t)
	for _, test := range []struct{ name, manifest, want string }{
		{
			"no masters", manifest("box", "{masters: {replicas: 0}}"),
			"spec.masters.replicas: Invalid value: 0: spec.masters.replicas in body should be greater than or equal to 1",
		},
		{
			"too many masters", manifest("box", "{masters: {replicas: 1001}}"),
			"spec.masters.replicas: Invalid value: 1001: spec.masters.replicas in body should be less than or equal to 1000",
		},
		{
			"little memory", manifest("box", "{masters: {memory: 255Mi}}"),
			"spec.masters: Invalid value: masters.memory must be at least 256Mi for each of masters.cores: below that the " +
				"process itself leaves no room for objects",
		},
		{
			"little memory for the cores", manifest("box", "{masters: {memory: 1Gi, cores: 5}}"),
			"spec.masters: Invalid value: masters.memory must be at least 256Mi for each of masters.cores: below that the " +
				"process itself leaves no room for objects",
		},
		{
			"memory in no unit that there is", manifest("box", "{masters: {memory: 1GB}}"),
			`spec.masters.memory: Invalid value: "1GB": masters.memory must be an amount of bytes such as 1Gi (2^30) or 1G (10^9)`,
		},
		{
			"room for copies in no unit that there is", manifest("box", "{backups: {storage: {size: 4 GiB}}}"),
			`spec.backups.storage.size: Invalid value: "4 GiB": backups.storage.size must be an amount of bytes such as 1Gi (2^30) or ` +
				"1G (10^9)",
		},
		{
			"room for state in no unit that there is", manifest("box", "{coordinator: {state: {size: 1GB}}}"),
			`spec.coordinator.state.size: Invalid value: "1GB": coordinator.state.size must be an amount of bytes such as 1Gi (2^30) or ` +
				"1G (10^9)",
		},
		{
			"CPUs in no unit that there is", manifest("box", "{masters: {resources: {requests: {cpu: 2 cores}}}}"),
			"spec.masters.resources.requests: Invalid value: resources.requests must be amounts such as 500m of cpu, or 1Gi (2^30) or " +
				"1G (10^9) of memory",
		},
		{
			"limits in no unit that there is", manifest("box", "{coordinator: {resources: {limits: {memory: 1GB}}}}"),
			"spec.coordinator.resources.limits: Invalid value: resources.limits must be amounts such as 500m of cpu, or 1Gi (2^30) or " +
				"1G (10^9) of memory",
		},
		{
			"drills in a zone of another planet", manifest("box", "{recovery: {drill: {schedule: '@daily', timeZone: Mars/Phobos}}}"),
			`spec.recovery.drill.timeZone: Invalid value: "string": unknown time zone Mars/Phobos evaluating rule: ` +
				"recovery.drill.timeZone must be the name of a time zone, such as Etc/UTC or Europe/Berlin",
		},
		{
			"no cores", manifest("box", "{masters: {cores: 0}}"),
			"spec.masters.cores: Invalid value: 0: spec.masters.cores in body should be greater than or equal to 1",
		},
		{
			"many cores", manifest("box", "{masters: {cores: 65, memory: 100Gi}}"),
			"spec.masters.cores: Invalid value: 65: spec.masters.cores in body should be less than or equal to 64",
		},
		{
			"memory as a resource", manifest("box", "{masters: {resources: {limits: {memory: 1Gi}}}}"),
			"spec.masters.resources: Invalid value: masters.resources must not name memory: set masters.memory, from which the " +
				"size of the log is derived",
		},
		{
			"requests above limits", manifest("box", "{masters: {resources: {requests: {cpu: 2}, limits: {cpu: 1500m}}}}"),
			"spec.masters.resources: Invalid value: resources.requests must not be greater than resources.limits",
		},
		{
			"coordinator without memory", manifest("box", "{coordinator: {resources: {limits: {memory: 32Mi}}}}"),
			"spec.coordinator.resources: Invalid value: coordinator.resources.limits.memory must be at least 64Mi: a coordinator " +
				"that is killed for lack of memory is of no use",
		},
		{
			"many coordinators", manifest("box", "{coordinator: {replicas: 4}}"),
			"spec.coordinator.replicas: Invalid value: 4: spec.coordinator.replicas in body should be less than or equal to 3",
		},
		{
			"standbys with a volume", manifest("box", "{coordinator: {replicas: 2, state: {type: Volume}}}"),
			"spec.coordinator: Invalid value: coordinator.replicas above 1 needs coordinator.state.type: Kubernetes: memory and a " +
				"volume are one process's only",
		},
		{
			"too many copies", manifest("box", "{masters: {replicas: 20}, replication: {factor: 9}, backups: {storage: {size: 9Gi}}}"),
			"spec.replication.factor: Invalid value: 9: spec.replication.factor in body should be less than or equal to 8",
		},
		{
			"moving nothing at all", manifest("box", "{rebalancing: {maxMBps: 0}}"),
			"spec.rebalancing.maxMBps: Invalid value: 0: spec.rebalancing.maxMBps in body should be greater than or equal to 1",
		},
		{
			"sleep without copies", manifest("box", "{hibernated: true, replication: {factor: 0}}"),
			"spec.hibernated: Invalid value: hibernated needs replication.factor above 0, backups.storage.type: Volume, " +
				"and a coordinator.state " +
				"that is not Memory: what is in memory alone would be lost",
		},
		{
			"sleep with copies in memory",
			manifest("box", "{hibernated: true, masters: {replicas: 4}, replication: {factor: 2}, backups: {storage: {type: Memory}}}"),
			"spec.hibernated: Invalid value: hibernated needs replication.factor above 0, backups.storage.type: Volume, " +
				"and a coordinator.state " +
				"that is not Memory: what is in memory alone would be lost",
		},
		{
			"a target that nothing meets", manifest("box", "{recovery: {target: 100ms}}"),
			`spec.recovery.target: Invalid value: "100ms": recovery.target must be from 500ms to 24h, such as 2s: 250 ms go by before ` +
				"anything is replayed",
		},
		{
			"drills without a minute", manifest("box", "{recovery: {drill: {schedule: '2 * * *'}}}"),
			`spec.recovery.drill.schedule: Invalid value: "2 * * *": recovery.drill.schedule must have the five fields of cron, such as ` +
				"'0 3 * * 6', or be @hourly, @daily, @weekly, @monthly or @yearly",
		},
		{
			"drills in a zone of their own", manifest("box", "{recovery: {drill: {schedule: '@daily', timeZone: 'a b'}}}"),
			`spec.recovery.drill.timeZone: Invalid value: "a b": recovery.drill.timeZone must be the name of a time zone, such as ` +
				"Etc/UTC or Europe/Berlin",
		},
		{
			"drills at once or never", manifest("box", "{recovery: {drill: {schedule: '@daily', window: 1s}}}"),
			`spec.recovery.drill.window: Invalid value: "1s": recovery.drill.window must be from 1m to 168h, such as 1h`,
		},
		{
			"own CPUs, and others", manifest("box", "{masters: {cpuPolicy: Exclusive, resources: {limits: {cpu: 2}}}}"),
			"spec.masters: Invalid value: masters.resources must not name cpu with masters.cpuPolicy: Exclusive: it is masters.cores, " +
				"request and limit alike",
		},
		{
			"pages of another kind", manifest("box", "{masters: {hugePages: Reserved1G}}"),
			`spec.masters.hugePages: Unsupported value: "Reserved1G": supported values: "Transparent", "Reserved"`,
		},
		{
			"moving at once", manifest("box", "{recovery: {rescheduleAfter: 5s}}"),
			`spec.recovery.rescheduleAfter: Invalid value: "5s": recovery.rescheduleAfter must be 0s (never), or from 10s to 168h, ` +
				"such as 90s or 5m",
		},
		{
			"moving when it is due", manifest("box", "{recovery: {rescheduleAfter: soon}}"),
			`spec.recovery.rescheduleAfter: Invalid value: "soon": recovery.rescheduleAfter must be 0s (never), or from 10s to 168h, ` +
				"such as 90s or 5m",
		},
		{
			"isolation after one failure", manifest("box", "{recovery: {isolation: {crashes: 1}}}"),
			"spec.recovery.isolation.crashes: Invalid value: 1: recovery.isolation.crashes must be 0 (never), or 2 or more: once is " +
				"not again and again",
		},
		{
			"isolation within a second", manifest("box", "{recovery: {isolation: {window: 1s}}}"),
			`spec.recovery.isolation.window: Invalid value: "1s": recovery.isolation.window must be from 1m to 168h, such as 10m`,
		},
		{
			"a remediation without a template", manifest("box", "{recovery: {fencing: {type: Remediation}}}"),
			"spec.recovery.fencing: Invalid value: recovery.fencing.remediationTemplate is for type: Remediation, which needs it",
		},
		{
			"fencing at once", manifest("box", "{recovery: {fencing: {type: OutOfServiceTaint, after: 1s}}}"),
			`spec.recovery.fencing: Invalid value: recovery.fencing.after must be from 30s to 168h, such as 3m; ` +
				"only with type: BMC may it be shorter",
		},
		{
			"a remediation that is no template", manifest("box", "{recovery: {fencing: {type: Remediation, remediationTemplate: "+
				"{apiVersion: a.example/v1, kind: Reboot, name: a, namespace: b}}}}"),
			`spec.recovery.fencing.remediationTemplate.kind: Invalid value: "Reboot": recovery.fencing.remediationTemplate.kind must ` +
				"end with Template, such as SelfNodeRemediationTemplate",
		},
		{
			"another policy for drained nodes", manifest("box", "{recovery: {drainedNodes: Evict}}"),
			`spec.recovery.drainedNodes: Unsupported value: "Evict": supported values: "Move", "Wait"`,
		},
		{
			"moving none at a time", manifest("box", "{recovery: {maxConcurrentReplacements: 0}}"),
			"spec.recovery.maxConcurrentReplacements: Invalid value: 0: spec.recovery.maxConcurrentReplacements in body should be " +
				"greater than or equal to 1",
		},
		{
			"more copies than other members", manifest("box", "{masters: {replicas: 2}, replication: {factor: 2}}"),
			"spec.masters.replicas: Invalid value: masters.replicas must be greater than the number of copies, which is " +
				"replication.factor or, where that is not set, status.replication.decided.factor: each copy is on another member than " +
				"its master, and no two are on one",
		},
		{
			"min above the factor", manifest("box", "{replication: {factor: 2, min: 3}}"),
			"spec.replication.min: Invalid value: replication.min must be from 1 to replication.factor: writes wait while there are " +
				"fewer copies than that",
		},
		{
			"min above the default", manifest("box", "{replication: {min: 3}}"),
			"spec.replication.min: Invalid value: replication.min must be from 1 to replication.factor: writes wait while there are " +
				"fewer copies than that",
		},
		{
			"min without copies", manifest("box", "{replication: {factor: 0, min: 1}}"),
			"spec.replication.min: Invalid value: replication.min must be from 1 to replication.factor: writes wait while there are " +
				"fewer copies than that",
		},
		{
			"flushed to memory", manifest("box", "{replication: {factor: 2, durability: Flushed}, backups: {storage: {type: Memory}}}"),
			"spec: Invalid value: replication.durability: Flushed needs backups.storage.type: Volume: what is in memory does not " +
				"survive a loss of power",
		},
		{
			"little room for copies",
			manifest("box", "{masters: {memory: 2500Mi}, replication: {factor: 2}, backups: {storage: {size: 4Gi}}}"),
			"spec.backups.storage.size: Invalid value: backups.storage.size must be at least replication.factor times masters.memory: " +
				"each member keeps that many copies of what a master holds",
		},
		{
			"little room for the copies that are the default",
			manifest("box", "{masters: {memory: 2500Mi}, backups: {storage: {size: 4Gi}}}"),
			"spec.backups.storage.size: Invalid value: backups.storage.size must be at least replication.factor times masters.memory: " +
				"each member keeps that many copies of what a master holds",
		},
		{
			"a class for memory", manifest("box", "{backups: {storage: {type: Memory, storageClassName: fast}}}"),
			"spec.backups.storage: Invalid value: backups.storage.storageClassName is for type: Volume",
		},
		{
			"a class for state in memory", manifest("box", "{coordinator: {state: {type: Memory, storageClassName: fast}}}"),
			"spec.coordinator.state: Invalid value: coordinator.state.storageClassName is for type: Volume",
		},
		{
			"little room for state", manifest("box", "{coordinator: {state: {size: 1Mi}}}"),
			`spec.coordinator.state.size: Invalid value: "1Mi": coordinator.state.size must be at least 64Mi`,
		},
		{
			"another transport", manifest("box", "{network: {transport: RDMA}}"),
			`spec.network.transport: Unsupported value: "RDMA": supported values: "TCP", "FastUDP", "DPDK"`,
		},
		{
			"no label", manifest("box", "{placement: {failureDomain: 'my rack'}}"),
			`spec.placement.failureDomain: Invalid value: "my rack": placement.failureDomain must be the name of a node label, ` +
				"such as kubernetes.io/hostname or topology.kubernetes.io/zone",
		},
		{
			"image with a space", manifest("box", "{image: 'a b'}"),
			`spec.image: Invalid value: "a b": image must not contain spaces`,
		},
		{
			"long name", manifest(strings.Repeat("a", 41), "{}"),
			"<nil>: Invalid value: metadata.name must be at most 40 characters long: the names of the Store's pods and " +
				"Services are made from it",
		},
		{
			"name that starts with a digit", manifest("1box", "{}"),
			"<nil>: Invalid value: metadata.name must start with a letter and consist of lower case letters, digits and '-': " +
				"clients connect to a Service of that name",
		},
		{
			"name with a dot", manifest("my.box", "{}"),
			"<nil>: Invalid value: metadata.name must start with a letter and consist of lower case letters, digits and '-': " +
				"clients connect to a Service of that name",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, errs := server.create(t, test.manifest)
			if len(errs) != 1 || errs[0] != test.want {
				t.Errorf("refused with\n  %q\nnot with\n  %q", errs, test.want)
			}
		})
	}
}
