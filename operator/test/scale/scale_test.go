// Package scale_test runs the operator's real program against a real control plane with as many nodes as a room full of chassis has. No
// container runs: see package testbed for what is a stand-in.
package scale_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/testbed"
)

// The defaults are what `make test` runs; hack/scale.sh has the full size.
var (
	chassisCount    = flag.Int("chassis", 4, "chassis that the nodes are in")
	nodesPerChassis = flag.Int("nodes-per-chassis", 12, "nodes of each chassis")
	masterCount     = flag.Int("masters", 36, "members of the large Store; each needs a node of its own, also once a chassis is lost")
	smallStores     = flag.Int("small-stores", 3, "Stores of three masters without copies")
	concurrently    = flag.Int("replacements", 4, "recovery.maxConcurrentReplacements of the large Store")
	heartbeat       = flag.Duration("heartbeat", 5*time.Second, "how often a node renews its Lease; it is lost after four times that")
	steadyFor       = flag.Duration("steady", 20*time.Second, "how long nothing may be written while nothing happens")
	patience        = flag.Duration("patience", 4*time.Minute, "how long to wait for anything")
	output          = flag.String("output", "", "file for the results, as JSON")
	profiles        = flag.String("profiles", "", "folder for Go's profiles of the operator")
)

const (
	large = "large"
	// largestObject is what etcd takes in one request; the API server refuses what is larger.
	largestObject = 1_500_000
)

// results are those of one run. Units are in the names.
type results struct {
	Nodes       int `json:"nodes"`
	Chassis     int `json:"chassis"`
	Masters     int `json:"masters"`
	SmallStores int `json:"smallStores"`

	PodsMadeSeconds  float64 `json:"podsMadeSeconds"`
	AllServeSeconds  float64 `json:"allServeSeconds"`
	FormingCPUSecond float64 `json:"formingOperatorCpuSeconds"`
	FormingCalls     calls   `json:"formingCalls"`

	SteadySeconds        float64 `json:"steadySeconds"`
	SteadyReconciles     float64 `json:"steadyReconciles"`
	SteadyCPUMillisecond float64 `json:"steadyOperatorCpuMillisecondsPerSecond"`
	SteadyReconcileMs    float64 `json:"steadyMeanReconcileMilliseconds"`
	SteadyCalls          calls   `json:"steadyCalls"`

	LostNodes          int     `json:"lostNodes"`
	LostMembers        int     `json:"lostMembers"`
	ProvenSeconds      float64 `json:"allProvenSeconds"`
	MovedSeconds       float64 `json:"allMovedSeconds"`
	MostOnTheirWay     int     `json:"mostOnTheirWay"`
	AllowedOnTheirWay  int     `json:"allowedOnTheirWay"`
	LossCPUSeconds     float64 `json:"lossOperatorCpuSeconds"`
	LossCalls          calls   `json:"lossCalls"`
	LargestStoreBytes  int     `json:"largestStoreBytes"`
	OperatorPeakBytes  int64   `json:"operatorPeakResidentBytes"`
	OperatorSteadyByte int64   `json:"operatorSteadyResidentBytes"`

	// kwok runs beside the API server, on the same processors.
	KwokFormingCPUSeconds float64 `json:"kwokFormingCpuSeconds"`
	KwokCPUSeconds        float64 `json:"kwokCpuSeconds"`
	KwokPeakBytes         int64   `json:"kwokPeakResidentBytes"`
}

// calls are those of the operator to the API server.
type calls struct {
	Reconciles    float64        `json:"reconciles"`
	PerReconcile  float64        `json:"callsPerReconcile"`
	ByVerbAndKind map[string]int `json:"byVerbAndResource"`
}

type run struct {
	*testing.T
	*testbed.Cluster

	operator *testbed.Operator
	results  results
	view     view
}

func TestScale(t *testing.T) {
	room := make([]int, *chassisCount)
	for i := range room {
		room[i] = *nodesPerChassis
	}
	if (*chassisCount-1)**nodesPerChassis < *masterCount {
		t.Fatalf("%d chassis of %d nodes have no room for %d masters once a chassis is lost", *chassisCount, *nodesPerChassis, *masterCount)
	}
	r := &run{T: t, Cluster: testbed.Start(t, testbed.Options{NodesPerChassis: room, Heartbeat: *heartbeat})}
	r.results = results{
		Nodes: *chassisCount * *nodesPerChassis, Chassis: *chassisCount, Masters: *masterCount, SmallStores: *smallStores,
		AllowedOnTheirWay: *concurrently,
	}
	r.operator = r.StartOperator(testbed.BuildOperator(t))
	r.form()
	r.steady()
	r.loseChassis()
	r.results.OperatorPeakBytes = r.operator.Usage().PeakBytes
	kwok := r.Nodes.Usage()
	r.results.KwokCPUSeconds, r.results.KwokPeakBytes = kwok.CPU.Seconds(), kwok.PeakBytes
	r.report()
}

// newStore is as a user writes it: what is not said is the schema's.
func newStore(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Store",
		"metadata": map[string]any{"name": name, "namespace": metav1.NamespaceDefault}, "spec": spec,
	}}
}

// form makes all Stores at once.
func (r *run) form() {
	begun, kwok := time.Now(), r.Nodes.Usage().CPU
	stores := []*unstructured.Unstructured{newStore(large, map[string]any{
		"masters":     map[string]any{"replicas": int64(*masterCount), "memory": "4Gi"},
		"backups":     map[string]any{"storage": map[string]any{"size": "16Gi"}},
		"replication": map[string]any{"factor": int64(2)},
		"placement":   map[string]any{"failureDomain": testbed.LabelChassis},
		"recovery":    map[string]any{"rescheduleAfter": "10s", "maxConcurrentReplacements": int64(*concurrently)},
	})}
	for i := range *smallStores {
		stores = append(stores, newStore(smallName(i), map[string]any{"replication": map[string]any{"factor": int64(0)}}))
	}
	r.watchLarge()
	for _, store := range stores {
		r.must(r.Client.Create(r.Context(), store))
	}
	r.Eventually(*patience, func() string {
		if r.Watch.Counts().Made == 0 {
			return "there is no pod"
		}
		return ""
	})
	profiled := make(chan struct{})
	go func() {
		defer close(profiled)
		r.profile("forming-cpu", "profile?seconds=20")
	}()
	pods := *masterCount + 1 + *smallStores*4
	r.Eventually(*patience, func() string {
		if counts := r.Watch.Counts(); counts.Made < pods {
			return fmt.Sprintf("of %d pods there are %+v", pods, counts)
		}
		return ""
	})
	r.results.PodsMadeSeconds = time.Since(begun).Seconds()
	r.Eventually(*patience, func() string {
		if counts := r.Watch.Counts(); counts.Ready < pods {
			return fmt.Sprintf("of %d pods there are %+v", pods, counts)
		}
		return ""
	})
	for _, store := range stores {
		r.settled(store.GetName())
	}
	r.results.AllServeSeconds = time.Since(begun).Seconds()
	r.results.FormingCPUSecond = r.operator.Usage().CPU.Seconds() // its start with it
	r.results.FormingCalls = r.calls(begun, 0)
	r.results.KwokFormingCPUSeconds = (r.Nodes.Usage().CPU - kwok).Seconds()
	<-profiled
	r.profile("heap", "heap")
	r.noteSize()
	r.checkSpread()
	r.checkSmall()
}

// checkSmall: the small Stores are what the flag says, without copies and without volumes.
func (r *run) checkSmall() {
	claims := &corev1.PersistentVolumeClaimList{}
	r.must(r.Client.List(r.Context(), claims))
	for i := range claims.Items {
		if owner := claims.Items[i].Labels[v1alpha1.LabelStore]; owner != large {
			r.Errorf("claim %s belongs to Store %s, which should have no copies", claims.Items[i].Name, owner)
		}
	}
	for i := range *smallStores {
		name := smallName(i)
		if safe := meta.FindStatusCondition(r.Store(name).Status.Conditions, v1alpha1.ConditionDataSafe); safe == nil ||
			safe.Reason != v1alpha1.ReasonUnreplicated {
			r.Errorf("%s should have no copies, but DataSafe is %+v", name, safe)
		}
	}
}

func smallName(i int) string { return fmt.Sprintf("small-%02d", i) }

// checkSpread: no two masters on one node, and in no chassis more than its share and one.
func (r *run) checkSpread() {
	byNode, byChassis := map[string]int{}, map[string]int{}
	for _, pod := range r.Watch.Pods() {
		if pod.Labels[v1alpha1.LabelStore] == large && pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentMaster {
			byNode[pod.Spec.NodeName]++
			byChassis[pod.Annotations[v1alpha1.AnnotationDomain]]++
		}
	}
	if len(byNode) != *masterCount {
		r.Errorf("%d masters are on %d nodes", *masterCount, len(byNode))
	}
	for chassis, count := range byChassis {
		if share := (*masterCount + *chassisCount - 1) / *chassisCount; count > share+1 {
			r.Logf("%s has %d masters, its share is %d: the constraint is ScheduleAnyway", chassis, count, share)
		}
	}
}

// steady: what a user pays for a cluster in which nothing happens.
func (r *run) steady() {
	const quiet = 10 * time.Second
	r.Eventually(*patience, func() string {
		to := time.Now()
		if writes := r.Calls.WritesBut(to.Add(-quiet), to, "leases"); len(writes) > 0 {
			return fmt.Sprintf("in %s it wrote %v", quiet, writes)
		}
		return ""
	})
	begun, before, reconciles := time.Now(), r.operator.Usage(), r.reconciles()
	seconds := r.reconcileSeconds()
	r.profile("steady-cpu", fmt.Sprintf("profile?seconds=%.0f", steadyFor.Seconds()))
	r.Eventually(*patience, func() string {
		if time.Since(begun) < *steadyFor {
			return "the time is not over"
		}
		return ""
	})
	elapsed := time.Since(begun)
	if writes := r.Calls.WritesBut(begun, begun.Add(elapsed), "leases"); len(writes) > 0 {
		r.Errorf("while nothing happened it wrote %v", writes)
	}
	after := r.operator.Usage()
	r.results.SteadySeconds = elapsed.Seconds()
	r.results.SteadyCPUMillisecond = float64((after.CPU - before.CPU).Milliseconds()) / elapsed.Seconds()
	r.results.OperatorSteadyByte = after.Bytes
	r.results.SteadyCalls = r.calls(begun, reconciles)
	r.results.SteadyReconciles = r.results.SteadyCalls.Reconciles
	if r.results.SteadyReconciles == 0 {
		r.Fatal("no Store was reconciled")
	}
	r.results.SteadyReconcileMs = (r.reconcileSeconds() - seconds) / r.results.SteadyReconciles * 1000
}

// chassisOfMasters is one that the large Store's coordinator is not on. It is alone here: with its node it is away until
// Kubernetes gives its pod up after five minutes, and until then nobody can be proven dead.
func (r *run) chassisOfMasters(pods map[string]*corev1.Pod) int {
	taken := map[string]bool{} // nodes
	for _, pod := range pods {
		if pod.Labels[v1alpha1.LabelStore] == large && pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentCoordinator {
			taken[pod.Spec.NodeName] = true
		}
	}
	for chassis := range *chassisCount {
		free := true
		for slot := range *nodesPerChassis {
			free = free && !taken[testbed.NodeName(chassis, slot)]
		}
		if free {
			return chassis
		}
	}
	r.Fatal("the coordinator is on every chassis")
	return 0
}

// loseChassis: all of its nodes say nothing any more.
func (r *run) loseChassis() {
	before := r.Watch.Pods()
	chassis := r.chassisOfMasters(before)
	var nodes []string
	for slot := range *nodesPerChassis {
		nodes = append(nodes, testbed.NodeName(chassis, slot))
	}
	lost := map[string]bool{} // members
	for _, pod := range before {
		if pod.Labels[v1alpha1.LabelStore] == large && pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentMaster &&
			pod.Annotations[v1alpha1.AnnotationDomain] == testbed.ChassisName(chassis) {
			lost[pod.Labels[v1alpha1.LabelMember]] = true
		}
	}
	r.Stores.Get(large).Tablets(2)
	begun, usage, reconciles := time.Now(), r.operator.Usage(), r.reconciles()
	r.Nodes.Kill(nodes...)
	r.results.LostNodes, r.results.LostMembers = len(nodes), len(lost)
	r.Eventually(*patience, func() string {
		r.noteOnTheirWay(before, lost)
		if len(r.view.provenSoFar()) == len(lost) && r.results.ProvenSeconds == 0 {
			r.results.ProvenSeconds = time.Since(begun).Seconds()
		}
		return r.whatIsToMove(lost, chassis)
	})
	r.results.MovedSeconds = time.Since(begun).Seconds()
	r.settled(large)
	r.results.LossCPUSeconds = (r.operator.Usage().CPU - usage.CPU).Seconds()
	r.results.LossCalls = r.calls(begun, reconciles)
	r.noteSize()
	if last := r.Nodes.LastRenewal(nodes...); last.After(begun.Add(*heartbeat)) {
		r.Errorf("a Lease of a dead node was renewed %s after its death", last.Sub(begun))
	}
	if proven := r.view.provenSoFar(); !maps.Equal(proven, lost) {
		r.Errorf("the members %v were lost, and %v were seen to be proven so",
			slices.Sorted(maps.Keys(lost)), slices.Sorted(maps.Keys(proven)))
	}
	if r.results.MostOnTheirWay > *concurrently {
		r.Errorf("%d members were on their way at a time, and %d may be", r.results.MostOnTheirWay, *concurrently)
	}
	r.checkUntouched(before, lost)
}

// noteOnTheirWay counts the lost members that have a new pod which is not ready yet.
func (r *run) noteOnTheirWay(before map[string]*corev1.Pod, lost map[string]bool) {
	count := 0
	for name, pod := range r.Watch.Pods() {
		isStarting := pod.Status.Phase != corev1.PodRunning && pod.DeletionTimestamp == nil
		if before[name] == nil && isStarting && lost[pod.Labels[v1alpha1.LabelMember]] {
			count++
		}
	}
	r.results.MostOnTheirWay = max(r.results.MostOnTheirWay, count)
}

// whatIsToMove says which lost members are not up elsewhere; empty when all are.
func (r *run) whatIsToMove(lost map[string]bool, chassis int) string {
	left, example := 0, ""
	for _, member := range r.view.latest().Status.Masters.Members {
		isThere := strings.HasPrefix(member.Node, testbed.NodePrefix(chassis))
		if lost[member.Name] && (isThere || member.State != v1alpha1.MemberUp || member.Lost != nil) {
			left++
			example = fmt.Sprintf("%s is %s %+v %s", member.Name, member.State, member.Lost, member.Message)
		}
	}
	if left == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d are to move; %s", left, len(lost), example)
}

// checkUntouched: whoever was not lost has the pod that he had.
func (r *run) checkUntouched(before map[string]*corev1.Pod, lost map[string]bool) {
	now := r.Watch.Pods()
	for name, pod := range before {
		isLarge := pod.Labels[v1alpha1.LabelStore] == large && pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentMaster
		if !isLarge || lost[pod.Labels[v1alpha1.LabelMember]] {
			continue
		}
		if after := now[name]; after == nil || after.UID != pod.UID || after.DeletionTimestamp != nil {
			r.Errorf("%s was not lost, and its pod %s was ended", pod.Labels[v1alpha1.LabelMember], name)
		}
	}
	claims := &corev1.PersistentVolumeClaimList{}
	r.Eventually(*patience, func() string {
		r.must(r.Client.List(r.Context(), claims, client.MatchingLabels{v1alpha1.LabelStore: large}))
		left := 0
		for i := range claims.Items {
			if claims.Items[i].DeletionTimestamp == nil {
				left++
			}
		}
		if left != *masterCount {
			return fmt.Sprintf("%d masters have %d volume claims", *masterCount, left)
		}
		return ""
	})
}

func (r *run) settled(name string) {
	r.Eventually(*patience, func() string {
		store := r.store(name)
		if store == nil {
			return name + " was not seen yet"
		}
		for condition, status := range map[string]metav1.ConditionStatus{
			v1alpha1.ConditionAvailable: metav1.ConditionTrue, v1alpha1.ConditionProgressing: metav1.ConditionFalse,
		} {
			if got := meta.FindStatusCondition(store.Status.Conditions, condition); got == nil || got.Status != status {
				return fmt.Sprintf("%s: %s is %+v", name, condition, got)
			}
		}
		return ""
	})
}

// store is as last seen; nil if it was not.
func (r *run) store(name string) *v1alpha1.Store {
	if name == large {
		return r.view.latest()
	}
	return r.Store(name)
}

// noteSize is about what etcd has to take: the object with who owns which of its fields.
func (r *run) noteSize() {
	text, err := json.Marshal(r.BareStore(large))
	r.must(err)
	r.results.LargestStoreBytes = max(r.results.LargestStoreBytes, len(text))
	if len(text) > largestObject {
		r.Errorf("the Store of %d masters takes %d bytes", *masterCount, len(text))
	}
}

func (r *run) reconciles() float64 {
	return r.operator.Metric("controller_runtime_reconcile_total", `controller="store"`)
}

func (r *run) reconcileSeconds() float64 {
	return r.operator.Metric("controller_runtime_reconcile_time_seconds_sum", `controller="store"`)
}

func (r *run) calls(from time.Time, reconcilesBefore float64) calls {
	c := calls{Reconciles: r.reconciles() - reconcilesBefore, ByVerbAndKind: map[string]int{}}
	all := 0
	for call, count := range r.Calls.Count(from, time.Now()) {
		c.ByVerbAndKind[call.Verb+" "+call.Resource] = count
		all += count
	}
	c.PerReconcile = float64(all) / max(c.Reconciles, 1)
	return c
}

func (r *run) profile(file, name string) {
	if *profiles == "" {
		return
	}
	r.must(os.WriteFile(filepath.Join(*profiles, file+".pprof"), r.operator.Profile(name), 0o600))
}

func (r *run) report() {
	text, err := json.MarshalIndent(r.results, "", "  ")
	r.must(err)
	r.Logf("nodes are kwok's; stand-ins for volumes and the stores' processes:\n%s", text)
	if *output != "" {
		r.must(os.WriteFile(*output, append(text, '\n'), 0o600))
	}
}

func (r *run) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}
