package plan_test

import (
	"testing"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

func TestServicesReady(t *testing.T) {
	one := plan.BoxHost{Name: "boxhost1", Address: "192.168.3.253", Ready: true}
	silent := plan.BoxHost{Name: "boxhost2", Address: "192.168.3.254", Silent: true, Ready: true}
	unready := plan.BoxHost{Name: "boxhost2", Message: "configuration a is served, but: TFTP does not answer"}
	refuses := plan.BoxHost{Name: "boxhost2", Ready: true, Refused: true, Message: "a newer one is refused: sshd -t"}
	other := plan.BoxHost{Name: "boxhost2", Ready: true}
	both := func(second plan.BoxHost) *plan.BoxHosts {
		return &plan.BoxHosts{Read: true, Hosts: []plan.BoxHost{one, second}}
	}
	for _, of := range []struct {
		hosts *plan.BoxHosts
		want  string
	}{
		{nil, "Unknown NoBoxHosts: this cluster has no box hosts"},
		{&plan.BoxHosts{Read: true}, "Unknown NoNetworks"},
		{&plan.BoxHosts{Read: true, Without: []string{"10.0.0.0/8"}}, "False NoHost: no box host has an address in 10.0.0.0/8: add"},
		{both(silent), "False Silent: box hosts do not report: boxhost2 (192.168.3.254) (boxhost1 is ready); look at the pods"},
		{both(unready), "False NotReady: box host boxhost2 is not ready (boxhost1 is ready): configuration a is served, but: TFTP"},
		{both(refuses), "False Refused: box host boxhost2 serves an earlier configuration (boxhost1 is ready): a newer one"},
		{&plan.BoxHosts{Read: true, Hosts: []plan.BoxHost{unready}}, "False NotReady: box host boxhost2 is not ready: configuration"},
		{both(other), "True AllServe: every service of these box hosts answers: boxhost1, boxhost2"},
	} {
		s := newScene(bmc.PowerOn)
		s.BoxHosts = of.hosts
		s.plan()
		expect(t, s.chassisCondition(v1alpha1.ConditionServicesReady), of.want)
	}
}

// A box controller that has just started leaves what an earlier one has found out.
func TestServicesReadyIsKept(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.BoxHosts = &plan.BoxHosts{Read: true, Hosts: []plan.BoxHost{{Name: "boxhost1", Ready: true}}}
	s.plan()
	s.BoxHosts = &plan.BoxHosts{}
	s.plan()
	expect(t, s.chassisCondition(v1alpha1.ConditionServicesReady), "True AllServe")
}
