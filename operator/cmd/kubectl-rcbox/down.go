package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/members"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

// departure is what a Store has on servers that are to be shut down, and how it leaves.
type departure struct {
	store   *v1alpha1.Store
	members []*v1alpha1.MemberStatus
	// coordinators are the leader and the standbys there. They are evicted once no master is left there: drains need a coordinator.
	coordinators []coordinatorPod
	// sleeps: all of its masters are there, and it is hibernated. Otherwise its members are drained.
	sleeps bool
}

// coordinatorPod is a coordinator of a Store, and where it runs.
type coordinatorPod struct {
	// what says which it is, such as "coordinator box-coordinator-bcdfg".
	what, pod, node string
	isLeader        bool
}

func (d *departure) name() string { return d.store.Namespace + "/" + d.store.Name }

// makeRoom has Stores leave servers that are to be shut down: nothing is changed where one of them would lose anything.
func makeRoom(ctx context.Context, cluster *access.Cluster, out io.Writer, servers []*v1alpha1.Server, options powerOptions) error {
	nodes := nodesOf(servers)
	leaving, err := departures(ctx, cluster, nodes)
	if err != nil || len(leaving) == 0 {
		return err
	}
	var refusals []error
	for _, of := range leaving {
		refusals = append(refusals, of.refuse())
	}
	if err := errors.Join(refusals...); err != nil {
		return fmt.Errorf("nothing was shut down: %w", err)
	}
	if !options.wait {
		return fmt.Errorf("members of Stores run there, such as %s of %s: leave out --wait=false to have them drained first, or drain them",
			leaving[0].all()[0], leaving[0].name())
	}
	for _, of := range leaving {
		if err := of.begin(ctx, cluster, out); err != nil {
			return err
		}
	}
	return waitForDepartures(ctx, cluster, out, nodes, options.timeout)
}

// nodesOf are the nodes that run on servers which may be on.
func nodesOf(servers []*v1alpha1.Server) map[string]bool {
	nodes := map[string]bool{}
	for _, server := range servers {
		if server.Status.Node != "" && server.Status.Power.State != v1alpha1.PowerOff {
			nodes[server.Status.Node] = true
		}
	}
	return nodes
}

// departures are the Stores that have masters or coordinators on some nodes.
func departures(ctx context.Context, cluster *access.Cluster, nodes map[string]bool) ([]*departure, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	stores := &v1alpha1.StoreList{}
	if err := cluster.List(ctx, stores); err != nil {
		return nil, fmt.Errorf("list Stores of all namespaces (list on stores; --force leaves that out): %w", err)
	}
	if err := members.JoinAll(ctx, cluster, stores.Items); err != nil {
		return nil, err
	}
	var all []*departure
	for i := range stores.Items {
		of := &departure{store: &stores.Items[i], coordinators: coordinatorsOn(&stores.Items[i], nodes), sleeps: true}
		masters := of.store.Status.Masters.Members
		for j := range masters {
			switch {
			case masters[j].Pod == "":
			case nodes[masters[j].Node]:
				of.members = append(of.members, &masters[j])
			default:
				of.sleeps = false
			}
		}
		of.sleeps = of.sleeps && len(of.members) > 0
		if len(of.all()) > 0 {
			all = append(all, of)
		}
	}
	return all, nil
}

// coordinatorsOn are the leader and the standbys of a Store on some nodes.
func coordinatorsOn(store *v1alpha1.Store, nodes map[string]bool) []coordinatorPod {
	leader := &store.Status.Coordinator
	all := []coordinatorPod{{what: "coordinator " + leader.Pod, pod: leader.Pod, node: leader.Node, isLeader: true}}
	for i := range leader.Standbys {
		standby := &leader.Standbys[i]
		all = append(all, coordinatorPod{what: "standby " + standby.Name, pod: standby.Pod, node: standby.Node})
	}
	return slices.DeleteFunc(all, func(c coordinatorPod) bool { return c.pod == "" || !nodes[c.node] })
}

// refuse says what would be lost, or why the Store cannot leave; nil if it can.
func (d *departure) refuse() error {
	spec := &d.store.Spec
	switch {
	case d.losesTables():
		return fmt.Errorf("the coordinator of Store %s runs there with its state in memory, so every table would be lost: save the "+
			"Store first; --force loses every table", d.name())
	case len(d.members) == 0:
		return nil
	case d.store.Copies() == 0:
		return fmt.Errorf("the Store %s has no copies, so what %s holds would be lost: save it first; --force loses it",
			d.name(), d.masters())
	case d.keepsInMemory():
		return fmt.Errorf("all masters of Store %s run there, and it cannot be hibernated, for it keeps data in memory alone: have "+
			"masters elsewhere first; --force loses what %s hold", d.name(), d.masters())
	case !d.sleeps && spec.Recovery.DrainedNodes == v1alpha1.DrainedWait:
		return fmt.Errorf("the Store %s does not leave drained nodes (recovery.drainedNodes: Wait), and %s runs there: set Move; --force "+
			"leaves it to copies", d.name(), d.masters())
	}
	return nil
}

// losesTables: the coordinator is there, and its end is the end of every table.
func (d *departure) losesTables() bool {
	return d.store.LosesTables() && slices.ContainsFunc(d.coordinators, func(c coordinatorPod) bool { return c.isLeader })
}

// keepsInMemory: all masters are there, and what they hold, or the list of it, is in memory alone.
func (d *departure) keepsInMemory() bool {
	return d.sleeps && (d.store.Spec.Backups.Storage.Type != v1alpha1.StorageVolume || d.store.LosesTables())
}

// masters are the names of the masters there, and all has the coordinators, too.
func (d *departure) masters() string {
	var names []string
	for _, member := range d.members {
		names = append(names, member.Name)
	}
	return strings.Join(names, ", ")
}

func (d *departure) all() []string {
	var names []string
	for _, member := range d.members {
		names = append(names, member.Name)
	}
	for _, coordinator := range d.coordinators {
		names = append(names, coordinator.what)
	}
	return names
}

// begin hibernates the Store, or cordons its nodes there: the operator drains members on nodes that are cordoned.
func (d *departure) begin(ctx context.Context, cluster *access.Cluster, out io.Writer) error {
	if d.sleeps {
		before := d.store.DeepCopy()
		d.store.Spec.Hibernated = true
		if err := cluster.Patch(ctx, d.store, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("hibernate Store %s (patch on stores): %w", d.name(), err)
		}
		return writeText(out, fmt.Sprintf("Store %s is hibernated, for all of its masters run there; spec.hibernated: false wakes it up\n",
			d.name()))
	}
	for _, member := range d.members {
		if err := cordon(ctx, cluster, out, member.Node, member.Name+" of Store "+d.name()); err != nil {
			return err
		}
	}
	for _, coordinator := range d.coordinators {
		if err := cordon(ctx, cluster, out, coordinator.node, coordinator.what+" of Store "+d.name()); err != nil {
			return err
		}
	}
	return nil
}

// cordon keeps new pods from a node that a member is to leave.
func cordon(ctx context.Context, cluster *access.Cluster, out io.Writer, name, member string) error {
	node := &corev1.Node{}
	if err := cluster.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return fmt.Errorf("read node %s (get on nodes): %w", name, err)
	}
	if node.Spec.Unschedulable {
		return nil
	}
	before := node.DeepCopy()
	node.Spec.Unschedulable = true
	if err := cluster.Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("cordon node %s (patch on nodes): %w", name, err)
	}
	return writeText(out, fmt.Sprintf("node %s is cordoned, so that %s leaves it; kubectl uncordon takes that back\n", name, member))
}

// evict has coordinators leave once no master is left there, as kubectl drain does. One that may not be evicted yet is waited for.
func (d *departure) evict(ctx context.Context, cluster *access.Cluster) error {
	if d.store.Spec.Hibernated || len(d.members) > 0 {
		return nil
	}
	for _, coordinator := range d.coordinators {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.store.Namespace, Name: coordinator.pod}}
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		err := cluster.SubResource("eviction").Create(ctx, pod, eviction)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("evict pod %s/%s (create on pods/eviction): %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// waitForDepartures waits until no member runs on the nodes any more, and says what is waited for whenever that has changed.
func waitForDepartures(
	ctx context.Context, cluster *access.Cluster, out io.Writer, nodes map[string]bool, timeout time.Duration,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	shown := &screen{out: out}
	for {
		leaving, err := departures(ctx, cluster, nodes)
		if err != nil || len(leaving) == 0 {
			return err
		}
		var waits []string
		for _, of := range leaving {
			if err := of.evict(ctx, cluster); err != nil {
				return err
			}
			waits = append(waits, of.name()+": "+strings.Join(of.all(), ", "))
		}
		slices.Sort(waits)
		text := "waiting for members to leave: " + strings.Join(waits, "; ")
		if err := shown.line(text + "\n"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing was shut down; still %s; kubectl rcbox why says what a Store waits for: %w", text, ctx.Err())
		case <-time.After(orderPause):
		}
	}
}
