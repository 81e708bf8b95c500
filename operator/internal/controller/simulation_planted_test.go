package controller

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// plantedBug is an operator that breaks one of its rules. Where the world is looked at once more before a step, the broken rule plans the
// step once more: what is tested is whether the simulation sees what comes of it.
type plantedBug struct {
	name string
	// plan is asked in place of planner.Make, if it is set.
	plan func(facts.Observed) planner.Plan
	// live is read in place of the API server, if it is set.
	live func(*simulatedOperator, client.Reader) client.Reader
	// faults are made likelier that it takes for the rule to matter; nil for those of the seed.
	faults func(*faults)
	// spec is changed, and these blows fall as well, for the rule to matter.
	spec  func(*v1alpha1.StoreSpec)
	blows []blow
	// takesSettings: so does the simulated build.
	takesSettings bool
	// writesLater: what is to be on record before something is done is not written before the Store's status.
	writesLater bool
	// overwrites: StoreMembers are written whatever their version is.
	overwrites bool
	// drops a part of a StoreMember that is made from the status of an earlier operator.
	drops func(*v1alpha1.StoreMember)
	// splits: tables are split by order.
	splits bool
	// quotas shrink while restarts are ordered.
	quotas bool
	// client asks the coordinator in place of the one that there is, if it is set.
	client func(admin.Client) admin.Client
	// decides: the spec says nothing of copies, where there are as many as by default.
	decides bool
	// reported is a part of the violation by which it is seen, within so many seeds from 0 on.
	reported string
	within   uint64
	// seenBy is a seed that has seen it before, and is tried first: the others take long.
	seenBy uint64
}

func (b *plantedBug) makePlan(observed facts.Observed) planner.Plan {
	if b == nil || b.plan == nil {
		return planner.Make(observed)
	}
	return b.plan(observed)
}

func (b *plantedBug) readsLive(o *simulatedOperator, live client.Reader) client.Reader {
	if b == nil || b.live == nil {
		return live
	}
	return b.live(o, live)
}

// plantedBugs: a rule each, and how soon it is seen that it does not hold.
var plantedBugs = []plantedBug{
	{
		name: "a member moves before its proof is on record", plan: movesUnrecorded,
		blows: []blow{{4, onPod((*simulation).killNodeOf)}},
		// At once, when the proof is seen: else it is on record by then.
		spec:     func(spec *v1alpha1.StoreSpec) { spec.Recovery.RescheduleAfter = "1ms" },
		reported: "why is not on record", within: 40, seenBy: 28,
	},
	{
		name: "a member moves though more is lost than copies make up for", plan: movesWhereTooMuchIsLost,
		reported: "nodes are lost", within: 100, seenBy: 1,
	},
	{
		name: "all outdated masters are restarted at once", plan: withoutSecondLook(restartsAll),
		reported: "is away", within: 40, seenBy: 3,
	},
	{
		name: "a process is restarted that is not on record as the next one", plan: restartsWithoutLock,
		faults:   func(f *faults) { f.lull = 0.9 },
		reported: "was by an operator and is not back", within: 40, seenBy: 13,
	},
	{
		name: "a process is restarted without a second look", plan: withoutSecondLook(planner.Make),
		faults:   func(f *faults) { f.worst = 1 },
		reported: "is ended while", within: 40, seenBy: 12,
	},
	{
		name: "a claim is deleted without a second look", plan: withoutSecondLook(planner.Make),
		faults:   func(f *faults) { f.worst = 1 },
		reported: "is deleted, and may be needed", within: 40, seenBy: 17,
	},
	{
		name: "a former claim is deleted while copies are missing", plan: dropsEarly,
		reported: "is deleted, and may be needed", within: 40, seenBy: 7,
	},
	{
		name: "a node is fenced before that is on record", plan: fencesUnrecorded,
		spec: func(spec *v1alpha1.StoreSpec) {
			spec.Recovery.Fencing = v1alpha1.FencingSpec{Type: v1alpha1.FencingOutOfServiceTaint, After: "2s"}
		},
		blows:    []blow{{4, onPod((*simulation).killNodeOf)}},
		reported: "that is not on record", within: 40,
	},
	{
		name: "power that was asked for counts as taken away", plan: trustsTheRequest, spec: byPower,
		blows:    []blow{{4, onPod((*simulation).killNodeOf)}},
		reported: "was not proved to be off", within: 40,
	},
	{
		name: "a silent kubelet counts as a machine that is off", plan: trustsSilence, spec: byPower,
		blows:    []blow{{4, onPod((*simulation).killNodeOf)}},
		reported: "was not proved to be off", within: 40, seenBy: 47,
	},
	{
		name: "a node is fenced by the coordinator's verdict, whatever its kubelet says", plan: fencesByVerdict, spec: byPower,
		reported: "is fenced, and answers", within: 40,
	},
	{
		name: "power is given back before the member has moved", plan: releasesAtOnce, spec: byPower,
		blows:    []blow{{4, onPod((*simulation).killNodeOf)}},
		reported: "may be switched on", within: 40,
	},
	{
		name: "a node is isolated by itself while others have failed, too", plan: isolatesAtOnce,
		blows:    []blow{{4, onPod((*simulation).breakNodeOf)}},
		reported: "elsewhere is not up either", within: 40,
	},
	{
		name: "coordinators are put to sleep with the masters", plan: sleepsAtOnce,
		blows:    []blow{{8, (*simulation).hibernate}},
		reported: "is ended before the masters have", within: 40,
	},
	{
		name: "a pod is put to sleep in whatever version it is", plan: sleepsInAnyVersion,
		blows: []blow{{8, (*simulation).hibernate}}, faults: func(f *faults) { f.lull = 0.5 },
		reported: "the Store was woken up", within: 40,
	},
	{
		name: "that a Store has slept is forgotten by what the cache has of its pods", live: seesCachedPods,
		blows: []blow{{8, (*simulation).hibernate}}, faults: func(f *faults) { f.deaf, f.lull = 1, 0.5 },
		reported: "the Store was woken up", within: 40, seenBy: 42,
	},
	{
		name: "the number of copies follows the number of masters", plan: decidesAnew, decides: true,
		reported: "copies, and on record is", within: 40,
	},
	{
		name: "a pod is made before the number of copies is on record", plan: decidesUnrecorded, decides: true,
		reported: "copies, and on record is", within: 40,
	},
	{
		name: "settings are not changed", plan: without[steps.SetSettings], takesSettings: true,
		blows:    []blow{{4, (*simulation).changeSettings}},
		reported: "said to be as specified: pollMicros", within: 40,
	},
	{
		name: "the number of copies is left out while a member is away", plan: forgetsCopies, takesSettings: true,
		blows:    []blow{{8, (*simulation).moreCopies}},
		reported: "lower the number of copies", within: 40, seenBy: 6,
	},
	{
		name: "volumes do not grow", plan: without[steps.GrowClaim],
		blows:    []blow{{4, (*simulation).growStorage}},
		reported: "said to be as specified: sim-master", within: 40,
	},
	{
		name: "an address is given twice", plan: sharesAddresses,
		reported: "may send under one of them", within: 10, seenBy: 2,
	},
	{
		name: "a pod is started whose addresses are not on record", plan: ungatesAtOnce,
		faults:   func(f *faults) { f.latePod = 0.5 },
		reported: "may send under one of them", within: 40,
	},
	{
		name: "names of pods begin anew", plan: namesAnew,
		reported: "which has had", within: 10,
	},
	{
		name: "a pod stays where it cannot use its volume", plan: leavesMisplaced,
		faults:   func(f *faults) { f.misplaced = 0.5 },
		reported: "does not come to what its spec says", within: 10,
	},
	{
		name: "nobody asks whether the next pod is admitted", plan: triesNothing,
		faults:   func(f *faults) { f.refusal = 1 },
		reported: "from which the next one is to be made, are refused", within: 10, seenBy: 16,
	},
	{
		name: "a member is restarted by order without a dry run", plan: restartsUntried, quotas: true,
		reported: "refuses its member's next one", within: 10, seenBy: 4,
	},
	{
		name: "nobody looks for a live pod of the member", live: seesNoPods,
		reported: "gets a second pod", within: 10,
	},
	{
		name: "a pod is made before its number is on record", writesLater: true,
		reported: "before its number is on record", within: 10,
	},
	{
		name: "the number of a pod is not carried over", drops: func(member *v1alpha1.StoreMember) { member.Record.PodNumber = 0 },
		reported: "which has had", within: 40, seenBy: 1,
	},
	{
		name: "the cache of StoreMembers is believed", live: seesCachedMembers, overwrites: true,
		faults:   func(f *faults) { f.stale = 0.7 },
		reported: "which has had", within: 40,
	},
	{
		name: "no answer to a split counts as a good one", splits: true,
		client:   func(c admin.Client) admin.Client { return credulous{c} },
		reported: "says that it is done", within: 40,
	},
	{
		name: "no answer to a split counts as a refusal for good", splits: true,
		client:   func(c admin.Client) admin.Client { return impatient{c} },
		reported: "says that it has failed", within: 40,
	},
	{
		name: "a split is ordered that was withdrawn", splits: true, live: seesCachedOrders,
		faults:   func(f *faults) { f.stale = 0.7 },
		reported: "has withdrawn it", within: 40,
	},
	{
		name: "tables are not split", splits: true, plan: without[steps.SplitTable],
		reported: "has not ended", within: 10,
	},
}

// TestPlantedBugs shows that the simulation would see what it is there for.
func TestPlantedBugs(t *testing.T) {
	for i := range plantedBugs {
		bug := &plantedBugs[i]
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			for i := range bug.within + 1 {
				seed := bug.seenBy
				if i > 0 {
					seed = i - 1
				}
				s := simulate(t, seed, bug)
				isIt := func(violation string) bool { return strings.Contains(violation, bug.reported) }
				if slices.ContainsFunc(s.violations, isIt) {
					t.Logf("seen by seed %d: %s", seed, s.violations[0])
					return
				}
			}
			t.Errorf("not seen by %d seeds", bug.within)
		})
	}
}

// withStepsOf adds the steps of a kind that somebody would plan who sees something else.
func withStepsOf[Step steps.Step](o facts.Observed, lie func(*v1alpha1.Store)) planner.Plan {
	plan := planner.Make(o)
	o.Store = o.Store.DeepCopy()
	lie(o.Store)
	for _, step := range planner.Make(o).Steps {
		isThere := func(other steps.Step) bool { return reflect.DeepEqual(other, step) }
		if _, ofKind := step.(Step); ofKind && !slices.ContainsFunc(plan.Steps, isThere) {
			plan.Steps = append(plan.Steps, step)
		}
	}
	return plan
}

func movesUnrecorded(o facts.Observed) planner.Plan {
	return withStepsOf[steps.MoveMember](o, func(store *v1alpha1.Store) {
		for _, view := range planner.Make(o).Masters {
			if view.Lost == nil || view.Lost.ProvenAt.IsZero() {
				continue
			}
			for i := range store.Status.Masters.Members {
				if member := &store.Status.Masters.Members[i]; member.Name == view.Name {
					provenAt := metav1.NewTime(view.Lost.ProvenAt)
					member.Lost = &v1alpha1.LostStatus{
						Node: view.Lost.Node, Cause: view.Lost.Cause, Since: metav1.NewTime(view.Lost.Since), ProvenAt: &provenAt,
					}
				}
			}
		}
	})
}

func movesWhereTooMuchIsLost(o facts.Observed) planner.Plan {
	return withStepsOf[steps.MoveMember](o, func(store *v1alpha1.Store) { store.Spec.Replication.Factor = new(int32(9)) })
}

func restartsAll(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	isRestart := func(step steps.Step) bool { _, ofKind := step.(steps.RestartMember); return ofKind }
	if !slices.ContainsFunc(plan.Steps, isRestart) {
		return plan
	}
	plan.Steps = slices.DeleteFunc(plan.Steps, isRestart)
	for i := range plan.Masters {
		if view := &plan.Masters[i]; view.Rolls {
			pod := facts.PodRef{Name: view.Pod.Name, UID: view.Pod.UID}
			plan.Steps = append(plan.Steps, steps.RestartMember{Member: view.Name, Pod: pod})
		}
	}
	return plan
}

// restartsWithoutLock has what it is about to do on record at once, and minds no state of the pod.
func restartsWithoutLock(o facts.Observed) planner.Plan {
	o.Store = o.Store.DeepCopy()
	o.Store.Status.DisruptionLock = nil
	o.Store.Status.DisruptionLock, o.LockState = planner.Make(o).Lock, facts.LockStands
	plan := planner.Make(o)
	plan.Lock = nil
	for i, step := range plan.Steps {
		if restart, ofKind := step.(steps.RestartMember); ofKind {
			restart.Pod.ResourceVersion = ""
			plan.Steps[i] = restart
		}
	}
	return plan
}

// withoutSecondLook plans what it has planned before, if it is asked twice at a time.
func withoutSecondLook(do func(facts.Observed) planner.Plan) func(facts.Observed) planner.Plan {
	var last planner.Plan
	var store *v1alpha1.Store
	return func(o facts.Observed) planner.Plan {
		if o.Store != store { // another reconcile
			store, last = o.Store, do(o)
		}
		return last
	}
}

func dropsEarly(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	newest := map[string]int{}
	for name := range o.Claims {
		if member, number, ok := resources.ParseMasterClaim(name); ok {
			newest[member] = max(newest[member], number)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Claims)) {
		if member, number, ok := resources.ParseMasterClaim(name); ok && number < newest[member] && !o.Claims[name].Terminating {
			plan.Steps = append(plan.Steps, steps.DropVolume{Member: member, Claim: name})
		}
	}
	return plan
}

// without a kind of step.
func without[Step steps.Step](o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	plan.Steps = slices.DeleteFunc(plan.Steps, func(step steps.Step) bool { _, ofKind := step.(Step); return ofKind })
	return plan
}

func forgetsCopies(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	isAway := func(m facts.MemberReport) bool { return !m.Connected }
	if o.Cluster == nil || o.Cluster.Settings == nil || !slices.ContainsFunc(o.Cluster.Members, isAway) {
		return plan
	}
	plan.Steps = slices.DeleteFunc(plan.Steps, func(step steps.Step) bool { _, ofKind := step.(steps.SetSettings); return ofKind })
	if settings := *o.Cluster.Settings; settings.Replicas != nil {
		settings.Replicas, settings.Min = nil, nil
		plan.Steps = append(plan.Steps, steps.SetSettings{Settings: settings})
	}
	return plan
}

func fencesUnrecorded(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	for _, fence := range plan.Fences {
		isIt := func(other v1alpha1.FenceStatus) bool { return other.Node == fence.Node }
		if !slices.ContainsFunc(o.Store.Status.Fences, isIt) {
			plan.Steps = append(plan.Steps, steps.FenceNode{Fence: fence})
		}
	}
	return plan
}

func isolatesAtOnce(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	for i := range plan.Masters {
		if failures := plan.Masters[i].Failures; failures != nil && !slices.Contains(o.IsolatedNodes(), failures.Node) {
			plan.Steps = append(plan.Steps, steps.IsolateNode{Node: failures.Node, Member: plan.Masters[i].Name})
			break
		}
	}
	return plan
}

func sleepsAtOnce(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	if plan.Hibernation == nil || o.Store.Status.HibernatedSince == nil {
		return plan
	}
	for i := range o.Pods {
		if pod := &o.Pods[i]; pod.Component == v1alpha1.ComponentCoordinator && !pod.Terminating() {
			ref := facts.PodRef{Name: pod.Name, UID: pod.UID}
			plan.Steps = slices.Insert(plan.Steps, 0, steps.Step(steps.DeletePod{Member: pod.Member, Pod: ref, Ordered: true}))
		}
	}
	return plan
}

func sleepsInAnyVersion(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	for i, step := range plan.Steps {
		if end, isEnd := step.(steps.DeletePod); isEnd && end.Ordered {
			end.Pod.ResourceVersion = ""
			plan.Steps[i] = end
		}
	}
	return plan
}

// ungatesAtOnce minds neither the record nor other pods.
func ungatesAtOnce(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	plan.Steps = slices.DeleteFunc(plan.Steps, func(step steps.Step) bool {
		end, isEnd := step.(steps.DeletePod)
		_, isUngate := step.(steps.UngatePod)
		return isUngate || isEnd && strings.HasPrefix(end.Why, "it was made too late")
	})
	for i := range o.Pods {
		if pod := &o.Pods[i]; pod.Gated && !pod.Terminating() {
			plan.Steps = slices.Insert(plan.Steps, 0, steps.Step(steps.UngatePod{Member: pod.Member, Pod: pod.Ref()}))
		}
	}
	return plan
}

func sharesAddresses(o facts.Observed) planner.Plan {
	plan := ungatesAtOnce(o)
	for i, step := range plan.Steps {
		create, ofKind := step.(steps.CreatePod)
		if !ofKind || len(create.Addresses) == 0 {
			continue
		}
		for j := range o.Pods {
			if other := &o.Pods[j]; other.Member != create.Member && len(other.Addresses) == len(create.Addresses) {
				create.Addresses = other.Addresses
				plan.Steps[i] = create
			}
		}
	}
	return plan
}

func namesAnew(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	for i, step := range plan.Steps {
		if create, ofKind := step.(steps.CreatePod); ofKind {
			create.Number = 1
			plan.Steps[i] = create
		}
	}
	return plan
}

// lyingReader is the API server to an operator that does not look.
type lyingReader struct {
	client.Reader

	get  func(ctx context.Context, key client.ObjectKey, into client.Object) (isRead bool, err error)
	list func(ctx context.Context, list client.ObjectList, options []client.ListOption) (isRead bool, err error)
}

func (l lyingReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if l.get != nil {
		if isRead, err := l.get(ctx, key, into); isRead {
			return err
		}
	}
	return l.Reader.Get(ctx, key, into, options...)
}

func (l lyingReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if l.list != nil {
		if isRead, err := l.list(ctx, list, options); isRead {
			return err
		}
	}
	return l.Reader.List(ctx, list, options...)
}

func seesNoPods(_ *simulatedOperator, live client.Reader) client.Reader {
	return lyingReader{Reader: live, list: func(_ context.Context, list client.ObjectList, _ []client.ListOption) (bool, error) {
		_, ofPods := list.(*corev1.PodList)
		return ofPods, nil
	}}
}

// seesCachedPods of the Store; those of one member it reads from the API server.
func seesCachedPods(o *simulatedOperator, live client.Reader) client.Reader {
	return lyingReader{Reader: live, list: func(ctx context.Context, list client.ObjectList, options []client.ListOption) (bool, error) {
		wanted := client.ListOptions{}
		wanted.ApplyOptions(options)
		isOfMember := wanted.LabelSelector != nil && strings.Contains(wanted.LabelSelector.String(), v1alpha1.LabelMember)
		if _, ofPods := list.(*corev1.PodList); !ofPods || isOfMember {
			return false, nil
		}
		return true, o.cache.List(ctx, list, options...)
	}}
}

func leavesMisplaced(o facts.Observed) planner.Plan {
	o.Pods = slices.Clone(o.Pods)
	for i := range o.Pods {
		o.Pods[i].Misplaced = ""
	}
	return planner.Make(o)
}

// seesCachedMembers believes the cache of StoreMembers.
func seesCachedMembers(o *simulatedOperator, live client.Reader) client.Reader {
	cached := func(_ context.Context, list client.ObjectList, _ []client.ListOption) (bool, error) {
		heads, ofHeads := list.(*metav1.PartialObjectMetadataList)
		if !ofHeads || heads.Kind != "StoreMemberList" {
			return false, nil
		}
		for key, object := range o.cache.cache {
			if key.kind == kindOf[*v1alpha1.StoreMember]() {
				head := *object.(*v1alpha1.StoreMember).ObjectMeta.DeepCopy()
				heads.Items = append(heads.Items, metav1.PartialObjectMetadata{ObjectMeta: head})
			}
		}
		return true, nil
	}
	return lyingReader{Reader: live, list: cached}
}

// decidesAnew has as many copies as a new Store would.
func decidesAnew(o facts.Observed) planner.Plan {
	if o.Store.Spec.Replication.Factor != nil || o.Store.Status.Replication.Decided == nil {
		return planner.Make(o)
	}
	o.Store = o.Store.DeepCopy()
	o.Store.Status.Replication.Decided.Factor = max(o.Store.Spec.Masters.Replicas-2, 1)
	return planner.Make(o)
}

// decidesUnrecorded does not wait for the record.
func decidesUnrecorded(o facts.Observed) planner.Plan {
	o.CopiesUnrecorded = false
	return planner.Make(o)
}
