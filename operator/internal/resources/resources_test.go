package resources_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

func newStore() *v1alpha1.Store {
	return &v1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "default", UID: "store-uid"},
		Spec: v1alpha1.StoreSpec{
			ImagePullPolicy: corev1.PullIfNotPresent,
			Coordinator: v1alpha1.CoordinatorSpec{Resources: v1alpha1.ComputeResources{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("256Mi")},
				Limits:   corev1.ResourceList{"memory": resource.MustParse("256Mi")},
			}},
			Masters:   v1alpha1.MastersSpec{Replicas: 3, Memory: resource.MustParse("1Gi"), Cores: 2},
			Placement: v1alpha1.PlacementSpec{FailureDomain: "kubernetes.io/hostname"},
		},
	}
}

// state is what Stores had that say nothing of it, before there was a choice.
func state(store *v1alpha1.Store) v1alpha1.StateType { return store.FormerState() }

func pod(t *testing.T, store *v1alpha1.Store, component string) *coreac.PodApplyConfiguration {
	t.Helper()
	member := v1alpha1.CoordinatorMember(store.Name)
	if component == v1alpha1.ComponentMaster {
		member = v1alpha1.MasterMember(store.Name, 0)
	}
	built, err := resources.Pod(store, resources.PodSpec{
		Component: component, Member: member, Number: 1, Inputs: resources.InputsFor(store, component, "store:1", state(store)),
		Claim: resources.ClaimName(member, component),
	})
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func TestPodsAreRestricted(t *testing.T) {
	for _, component := range []string{v1alpha1.ComponentCoordinator, v1alpha1.ComponentMaster} {
		spec := pod(t, newStore(), component).Spec
		security, container := spec.SecurityContext, spec.Containers[0].SecurityContext
		if !*security.RunAsNonRoot || *security.RunAsUser != 65532 || *security.SeccompProfile.Type != "RuntimeDefault" {
			t.Errorf("%s: the pod's security context is %+v", component, security)
		}
		if *container.AllowPrivilegeEscalation || !*container.ReadOnlyRootFilesystem || container.Capabilities.Drop[0] != "ALL" {
			t.Errorf("%s: the container's security context is %+v", component, container)
		}
		if *spec.AutomountServiceAccountToken {
			t.Errorf("%s gets a token of the API server", component)
		}
	}
}

func TestMasterContainer(t *testing.T) {
	container := pod(t, newStore(), v1alpha1.ComponentMaster).Spec.Containers[0]
	want := "-C tcp:host=box-coordinator.default.svc,port=11100 -L tcp:host=0.0.0.0,port=12100 " +
		"--advertise tcp:host=$(POD_IP),port=12100 --member box-master-0 " +
		"--cores 2 --totalMasterMemory 848 --logFormat json"
	if got := strings.Join(container.Args, " "); got != want {
		t.Errorf("arguments are\n%s, not\n%s", got, want)
	}
	for name, path := range map[string]string{
		"POD_IP": "status.podIP", "RCBOX_INSTANCE": "metadata.uid", "RCBOX_HOST_ID": "spec.nodeName",
	} {
		if !slices.ContainsFunc(container.Env, func(e coreac.EnvVarApplyConfiguration) bool {
			return *e.Name == name && *e.ValueFrom.FieldRef.FieldPath == path
		}) {
			t.Errorf("%s is not %s", name, path)
		}
	}
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[*port.Name] = *port.ContainerPort
	}
	wantPorts := map[string]int32{"shard-0": 12100, "shard-1": 12101, "peer-0": 12200, "peer-1": 12201, "http": 12400}
	if !maps.Equal(ports, wantPorts) {
		t.Errorf("ports are %v", ports)
	}
	requests, limits := *container.Resources.Requests, *container.Resources.Limits
	if requests.Memory().String() != "1Gi" || limits.Memory().String() != "1Gi" || requests.Cpu().String() != "2" ||
		!limits.Cpu().IsZero() {
		t.Errorf("resources are %v, %v", requests, limits)
	}
}

func TestMasterResourceOverrides(t *testing.T) {
	store := newStore()
	store.Spec.Masters.Resources = &v1alpha1.ComputeResources{Requests: corev1.ResourceList{"cpu": resource.MustParse("250m")}}
	if got := (*pod(t, store, v1alpha1.ComponentMaster).Spec.Containers[0].Resources.Requests).Cpu().String(); got != "250m" {
		t.Errorf("the CPU request is %s", got)
	}
	// A limit below the number of cores pulls the default request down with it.
	store.Spec.Masters.Resources = &v1alpha1.ComputeResources{Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m")}}
	if got := (*pod(t, store, v1alpha1.ComponentMaster).Spec.Containers[0].Resources.Requests).Cpu().String(); got != "1500m" {
		t.Errorf("the CPU request is %s", got)
	}
}

// Whatever the API lets through leaves room for objects and for the process.
func TestStoreMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cores := rapid.Int32Range(1, resources.MaxShards).Draw(t, "cores")
		total := rapid.Int64Range(256*int64(cores), 1<<20).Draw(t, "MiB")
		memory := resource.NewQuantity(total<<20, resource.BinarySI)
		got := resources.StoreMemoryMiB(resources.Inputs{Memory: memory, Cores: cores})
		if got < 128*int64(cores) || got > total-64 {
			t.Fatalf("of %d MiB, %d cores get %d", total, cores, got)
		}
	})
}

// Every name that the API lets through gives valid names of pods, Services and labels.
func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := newStore()
		store.Name = rapid.StringMatching(`[a-z]([-a-z0-9]{0,38}[a-z0-9])?`).Draw(t, "name")
		ordinal := rapid.IntRange(0, 999).Draw(t, "ordinal")
		member := v1alpha1.MasterMember(store.Name, ordinal)
		for _, name := range []string{
			resources.PodName(store.UID, member, 1), resources.ClientService(store), resources.InternalService(store),
			*resources.DisruptionBudget(store, true).Name,
		} {
			if errs := validation.IsDNS1035Label(name); len(errs) > 0 {
				t.Fatalf("%s: %v", name, errs)
			}
		}
		if errs := validation.IsValidLabelValue(member); len(errs) > 0 {
			t.Fatalf("%s: %v", member, errs)
		}
		if got, ok := v1alpha1.MasterOrdinal(store.Name, member); !ok || got != ordinal {
			t.Fatalf("the ordinal of %s is %d, %v", member, got, ok)
		}
	})
	for _, other := range []string{"box-master-01", "box-master--1", "box-master-", "box-coordinator", "box-master-x", "other-master-0"} {
		if _, ok := v1alpha1.MasterOrdinal("box", other); ok {
			t.Errorf("%s is taken for a master of box", other)
		}
	}
}

func TestPodNamesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, uid := range []types.UID{"a", "b"} {
		for number := range int64(200) {
			seen[resources.PodName(uid, "box-master-0", number)] = true
		}
	}
	if len(seen) != 400 {
		t.Errorf("400 pods have %d names", len(seen))
	}
	if a, b := resources.PodName("a", "m", 1), resources.PodName("a", "m", 1); a != b {
		t.Errorf("one pod has the names %s and %s", a, b)
	}
}

// What a pod carries says exactly what it was made from.
func TestInputsSurviveTheAnnotation(t *testing.T) {
	store := newStore()
	seconds := int64(60)
	store.Spec.Placement.NodeSelector = map[string]string{"a": "b"}
	store.Spec.Placement.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}}
	for _, component := range []string{v1alpha1.ComponentCoordinator, v1alpha1.ComponentMaster} {
		inputs := resources.InputsFor(store, component, "store:1", state(store))
		text, err := inputs.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := resources.DecodeInputs(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := resources.Diff(back, inputs); diff != "" {
			t.Errorf("%s: %s", component, diff)
		}
	}
	for _, component := range []string{v1alpha1.ComponentCoordinator, v1alpha1.ComponentMaster} {
		inputs := resources.InputsFor(replicated(nil), component, "store:1", state(replicated(nil)))
		text, err := inputs.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := resources.DecodeInputs(text); err != nil || resources.Diff(back, inputs) != "" || !back.InVolume() {
			t.Errorf("%s becomes %+v, %v", text, back, err)
		}
	}
	if _, err := resources.DecodeInputs("{"); err == nil {
		t.Error("half an annotation is taken for a whole one")
	}
}

// The annotation of a default Store, as this version writes it. A version that reads it differently would find every pod outdated.
func TestInputsAreStable(t *testing.T) {
	for component, text := range map[string]string{
		v1alpha1.ComponentMaster: `{"image":"store:1","memory":"1Gi","cores":2,"failureDomain":"kubernetes.io/hostname"}`,
		v1alpha1.ComponentCoordinator: `{"image":"store:1","requests":{"cpu":"100m","memory":"256Mi"},` +
			`"limits":{"memory":"256Mi"}}`,
	} {
		inputs := resources.InputsFor(newStore(), component, "store:1", state(newStore()))
		if got, err := inputs.Encode(); err != nil || got != text {
			t.Errorf("%s is written as %s (%v), not %s", component, got, err, text)
		}
	}
}

func TestDiff(t *testing.T) {
	for _, test := range []struct {
		change func(*v1alpha1.Store)
		want   string
	}{
		{func(*v1alpha1.Store) {}, ""},
		{func(s *v1alpha1.Store) { s.Spec.Masters.Memory = resource.MustParse("1024Mi") }, ""},
		{func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 7 }, ""},
		{func(s *v1alpha1.Store) { s.Spec.ImagePullPolicy = corev1.PullAlways }, ""},
		{func(s *v1alpha1.Store) { s.Spec.Masters.Memory = resource.MustParse("2Gi") }, "memory: 1Gi -> 2Gi"},
		{
			func(s *v1alpha1.Store) { s.Spec.Masters.Cores, s.Spec.Placement.PriorityClassName = 4, "high" },
			"cores: 2 -> 4, priorityClassName: none -> high",
		},
		{func(s *v1alpha1.Store) { s.Spec.Placement.NodeSelector = map[string]string{"a": "b"} }, "nodeSelector"},
		{
			func(s *v1alpha1.Store) {
				s.Spec.Masters.Resources = &v1alpha1.ComputeResources{Limits: corev1.ResourceList{"cpu": resource.MustParse("2")}}
			},
			"resources.limits: none -> cpu=2",
		},
		{func(s *v1alpha1.Store) { s.Spec.Backups.Storage.Size = new(resource.MustParse("9Gi")) }, ""},
		{func(s *v1alpha1.Store) { s.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete }, ""},
		{
			func(s *v1alpha1.Store) {
				s.Spec.Replication = v1alpha1.ReplicationSpec{Factor: new(int32(2)), Durability: v1alpha1.Buffered}
				s.Spec.Backups.Storage = v1alpha1.BackupStorage{Type: v1alpha1.StorageVolume, Size: new(resource.MustParse("4Gi"))}
			},
			"replication: none -> 2 copies (min 1) Buffered in a Volume of 4Gi",
		},
	} {
		changed := newStore()
		test.change(changed)
		have := resources.InputsFor(newStore(), v1alpha1.ComponentMaster, "store:1", state(newStore()))
		want := resources.InputsFor(changed, v1alpha1.ComponentMaster, "store:1", state(changed))
		if got := resources.Diff(have, want); got != test.want {
			t.Errorf("the difference is %q, not %q", got, test.want)
		}
	}
}

// Only clients' and HTTP ports are open to everybody.
func TestNetworkPolicies(t *testing.T) {
	open := map[int32]bool{}
	for _, policy := range resources.NetworkPolicies(newStore(), "rcbox-system") {
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				last := port.Port.IntVal
				if port.EndPort != nil {
					last = *port.EndPort
				}
				for number := port.Port.IntVal; number <= last; number++ {
					open[number] = len(rule.From) == 0
				}
			}
		}
	}
	for number, want := range map[int32]bool{
		11100: true, 11200: false, 11300: false, 11400: true, 12100: true, 12163: true, 12200: false, 12263: false, 12400: true,
	} {
		if got, named := open[number]; !named || got != want {
			t.Errorf("port %d: named %v, open to everybody %v", number, named, got)
		}
	}
	if len(open) != 3+1+64+64+1 {
		t.Errorf("%d ports are named", len(open))
	}
}

// With spec.network.clients.from, the ports for clients are for those pods, the Store's own, and those that measure it.
func TestClientsAreNarrowed(t *testing.T) {
	store := newStore()
	store.Spec.Network.Transport = v1alpha1.TransportFastUDP
	store.Spec.Network.Clients.From = []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cart"}}, NamespaceSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"shop"}},
			},
		}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}},
	}
	narrowed := 0
	for _, policy := range resources.NetworkPolicies(store, "rcbox-system") {
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				switch port.Port.IntVal {
				case 11100, 12100, 12300:
					narrowed++
				case 11400, 12400: // health and metrics: no data
					if len(rule.From) > 0 {
						t.Errorf("port %d is narrowed", port.Port.IntVal)
					}
					continue
				default:
					continue
				}
				if len(rule.From) != 5 {
					t.Fatalf("port %d is for %d peers", port.Port.IntVal, len(rule.From))
				}
				pods, network := rule.From[3], rule.From[4]
				if pods.PodSelector.MatchLabels["app"] != "cart" || pods.NamespaceSelector.MatchExpressions[0].Values[0] != "shop" ||
					*network.IPBlock.CIDR != "10.0.0.0/8" || network.IPBlock.Except[0] != "10.1.0.0/16" {
					t.Errorf("port %d is for %+v", port.Port.IntVal, rule.From)
				}
			}
		}
	}
	if narrowed != 3 {
		t.Errorf("%d ports are narrowed", narrowed)
	}
}

// New pods keep away from isolated nodes; what a pod was made from is the same with and without them.
func TestIsolatedNodes(t *testing.T) {
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "default", UID: "u"}}
	inputs := resources.InputsFor(store, v1alpha1.ComponentMaster, "store:1", v1alpha1.StateMemory)
	var isolated []string
	build := func(returnsTo string) *coreac.AffinityApplyConfiguration {
		pod, err := resources.Pod(store, resources.PodSpec{
			Component: v1alpha1.ComponentMaster, Member: "box-master-0", Number: 1, Inputs: inputs,
			ReturnsTo: returnsTo, Isolated: isolated,
		})
		if err != nil {
			t.Fatal(err)
		}
		return pod.Spec.Affinity
	}
	if affinity := build(""); affinity != nil {
		t.Errorf("affinity %+v", affinity)
	}
	isolated = []string{"a", "b"}
	terms := build("").NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || len(terms[0].MatchFields) != 2 {
		t.Fatalf("terms %+v", terms)
	}
	for i, node := range []string{"a", "b"} {
		if field := terms[0].MatchFields[i]; *field.Key != "metadata.name" || *field.Operator != corev1.NodeSelectorOpNotIn ||
			!reflect.DeepEqual(field.Values, []string{node}) {
			t.Errorf("field %+v", field)
		}
	}
	terms = build("a").NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || len(terms[0].MatchFields) != 1 || terms[0].MatchFields[0].Values[0] != "b" {
		t.Errorf("a member returns to a, and its terms are %+v", terms)
	}
	again := resources.InputsFor(store, v1alpha1.ComponentMaster, "store:1", v1alpha1.StateMemory)
	if diff := resources.Diff(inputs, again); diff != "" {
		t.Errorf("outdated by it: %s", diff)
	}
}
