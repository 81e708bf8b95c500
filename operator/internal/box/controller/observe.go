package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
	"rcbox.dev/rcbox/operator/internal/members"
)

// observe collects the state of a Chassis: from the cache, or from the API server itself.
func (r *Reconciler) observe(ctx context.Context, from client.Reader, look *round, chassis *v1alpha1.Chassis, laid *layout.Layout,
	servers []*v1alpha1.Server,
) (*plan.Observed, error) {
	observed := &plan.Observed{Times: r.Times, Chassis: chassis, Layout: laid, JumpedAt: r.Clock.Look().JumpedAt}
	r.reports.keep(look.nodes)
	for i := range look.nodes {
		node := &look.nodes[i]
		observed.Nodes = append(observed.Nodes, plan.Node{
			Name: node.Name, SystemUUID: node.Status.NodeInfo.SystemUUID, BootID: node.Status.NodeInfo.BootID, Ready: isReady(node),
			Cordoned: node.Spec.Unschedulable, CordonedFor: node.Annotations[v1alpha1.AnnotationCordonedFor],
			SilentFrom: r.heard.silentFrom(node.Name, r.Clock.Look().Jumps),
			Found:      r.reports.found(node),
		})
	}
	stores := &v1alpha1.StoreList{}
	if err := from.List(ctx, stores); err != nil {
		return nil, fmt.Errorf("list Stores: %w", err)
	}
	if err := members.JoinAll(ctx, from, stores.Items); err != nil {
		return nil, err
	}
	observed.Members = plan.MembersByNode(stores.Items)
	alive, serving := aliveByNode(stores.Items), servingByNode(stores.Items)
	for i := range observed.Nodes {
		node := &observed.Nodes[i]
		node.Alive, node.Serving = alive[node.Name], serving[node.Name]
	}
	seen := r.Poller.Seen(chassis.Name)
	for _, object := range servers {
		of := seen[object.Name]
		observed.Servers = append(observed.Servers, plan.Server{
			Object: object, MMC: of.Contact, Power: of.Power, Identity: of.Identity, IdentityAt: of.IdentityAt,
			Sensors: of.Sensors, Log: of.Log,
			Answer:      answerAbout(object, seen, chassis.Spec.Management.CMM),
			LightAnswer: of.Answers[plan.KindLight], BootAnswer: of.Answers[plan.KindBoot],
		})
	}
	for _, address := range chassis.Spec.Management.CMM {
		of := seen[address]
		observed.Managers = append(observed.Managers, plan.Manager{
			Contact: of.Contact, Address: address, Sensors: of.Sensors, SensorsAt: of.SensorsAt, NotGiven: startsOf(of.NotGiven),
		})
	}
	for _, board := range switchBoards(laid) {
		of := seen[board.Address.String()]
		observed.SwitchBoards = append(observed.SwitchBoards, plan.Manager{
			Contact: of.Contact, Name: board.Name, Address: board.Address.String(), Sensors: of.Sensors, SensorsAt: of.SensorsAt,
		})
	}
	observed.Switches = r.seenSwitches(chassis)
	if r.Hosts != nil {
		observed.Strangers, observed.BoxHosts = r.Hosts.strangersOf(chassis), r.Hosts.hostsOf(chassis)
	}
	r.observeElsewhere(look, observed)
	return observed, nil
}

// answerAbout is the answer to the last command about the power of a server: from the server's own BMC, or from the chassis manager that
// got the command.
func answerAbout(server *v1alpha1.Server, seen map[string]poll.Seen, managers []string) *plan.Answer {
	change := server.Status.Change
	if change == nil || change.By != v1alpha1.WitnessCMM || change.TriedAt == nil {
		return seen[server.Name].Answers[plan.KindPower]
	}
	for _, address := range managers {
		for _, answer := range append(slices.Clone(seen[address].NotGiven), seen[address].Answers[plan.KindPower]) {
			if answer != nil && answer.TriedAt.Equal(change.TriedAt.Time) {
				return answer
			}
		}
	}
	return nil
}

// startsOf are the times of those commands that alone could have started servers.
func startsOf(notGiven []*plan.Answer) []time.Time {
	var times []time.Time
	for _, answer := range notGiven {
		if answer.IsOnlyStart {
			times = append(times, answer.TriedAt)
		}
	}
	return times
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// observeElsewhere finds what servers of other Chassis say of themselves, or have said last: hardware addresses and system GUIDs.
func (r *Reconciler) observeElsewhere(look *round, observed *plan.Observed) {
	observed.ElsewhereMACs = map[string]string{}
	heard := map[string]map[string]poll.Seen{}
	for i := range look.servers {
		server := &look.servers[i]
		chassis := chassisOf(server)
		if chassis == observed.Chassis.Name {
			continue
		}
		for _, port := range server.Status.Ports {
			if port.MAC != "" {
				observed.ElsewhereMACs[port.MAC] = server.Name
			}
		}
		if heard[chassis] == nil {
			heard[chassis] = r.Poller.Seen(chassis)
		}
		for _, guid := range guidsOf(server, heard[chassis][server.Name]) {
			observed.ElsewhereGUIDs = append(observed.ElsewhereGUIDs, plan.GUIDOf{Server: server.Name, SystemGUID: guid})
		}
	}
}

// guidsOf are what a server's BMC says and what is on record of it, which may be written in a moment. A slot that was emptied has none.
func guidsOf(server *v1alpha1.Server, seen poll.Seen) []string {
	var all []string
	if recorded := server.Status.MMC.SystemGUID; recorded != "" && !isEmptied(server) {
		all = append(all, recorded)
	}
	if seen.Identity != nil && seen.Contact.Err == nil && seen.Identity.SystemGUID != "" {
		all = append(all, seen.Identity.SystemGUID)
	}
	return all
}

func isEmptied(server *v1alpha1.Server) bool {
	condition := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionAsRecorded)
	return condition != nil && condition.Status == metav1.ConditionFalse && condition.Reason == plan.ReasonSlotEmpty
}
