package status_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/status"
)

// withPorts is a Store of two masters with a port each, between which everything goes by these.
func withPorts() *scene {
	s := newScene()
	s.observed.Store.Spec.Network = v1alpha1.NetworkSpec{
		Transport: v1alpha1.TransportFastUDP, Provider: v1alpha1.NetworkDevicePlugin,
		Attachments: []v1alpha1.NetworkAttachment{{NetworkAttachmentDefinition: "second"}},
	}
	for i := range s.plan.Masters {
		view := &s.plan.Masters[i]
		view.Reported.Ports = []facts.Port{{IP: fmt.Sprintf("10.0.0.%d", i+1)}}
	}
	return s
}

// Whether the network works is what the processes say that use it.
func TestNetworkReadyTellsWhatDoesNotGoByThePorts(t *testing.T) {
	port := func(s *scene, i int) *facts.Port { return &s.plan.Masters[i].Reported.Ports[0] }
	for _, test := range []struct {
		name   string
		change func(*scene)
		want   string
	}{
		{"all is well", func(*scene) {}, "True Attached: 2 masters have their ports"},
		{"processes of a version that does not tell", func(s *scene) { s.plan.Masters[0].Reported.Ports = nil }, "True Attached"},
		{
			"no link", func(s *scene) { port(s, 1).LinkDown = true },
			"False LinkDown: ports without a link: box-master-1 (10.0.0.2); their traffic takes another port",
		},
		{"no link comes before what follows from it", func(s *scene) {
			port(s, 1).LinkDown, port(s, 0).Unreached = true, []string{"box-master-1"}
		}, "False LinkDown"},
		{
			"a network that loses everything", func(s *scene) { port(s, 0).Unreached = []string{"box-master-1"} },
			"False PeersUnreached: masters that reach each other by the pod network only, though both have ports: box-master-0 " +
				"(10.0.0.1) to box-master-1; check",
		},
		{"a peer that is down", func(s *scene) {
			port(s, 0).Unreached = []string{"box-master-1"}
			s.down(1, 0)
		}, "True Attached"},
		{"what a process that is down told last", func(s *scene) {
			port(s, 1).LinkDown, port(s, 1).Unreached = true, []string{"box-master-0"}
			s.down(1, 0)
		}, "True Attached"},
		{"a peer without a port", func(s *scene) {
			port(s, 0).Unreached = []string{"box-master-1"}
			s.plan.Masters[1].Reported.Ports = nil
		}, "True Attached"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := withPorts()
			test.change(s)
			next := status.Compute(s.observed, s.plan, s.outcome)
			ready := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionNetworkReady)
			if got := fmt.Sprintf("%s %s: %s", ready.Status, ready.Reason, ready.Message); !strings.HasPrefix(got, test.want) {
				t.Errorf("%s, not %s", got, test.want)
			}
		})
	}
}

// A message names some of many.
func TestNetworkReadyNamesSomeOfMany(t *testing.T) {
	s := withPorts()
	for i := range 40 {
		port := facts.Port{IP: fmt.Sprintf("10.0.1.%d", i), LinkDown: true}
		s.plan.Masters[0].Reported.Ports = append(s.plan.Masters[0].Reported.Ports, port)
	}
	next := status.Compute(s.observed, s.plan, s.outcome)
	ready := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionNetworkReady)
	if !strings.Contains(ready.Message, " more; their") || strings.Contains(ready.Message, "10.0.1.39") {
		t.Error(ready.Message)
	}
}
