package plan_test

import (
	"testing"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// A node is labelled with the place of the server that it is proved to run on, and with nothing else.
func TestNodeLabels(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *scene)
		slot   string
	}{
		"it runs on the server in slot 3":          {func(*scene) {}, "3"},
		"its server's hardware names no slot":      {func(s *scene) { s.Servers[2].Identity.Slot = 0 }, "3"},
		"its server's hardware names another slot": {func(s *scene) { s.Servers[2].Identity.Slot = 4 }, ""},
		"no BMC has its system GUID":               {func(s *scene) { s.Nodes[2].SystemUUID = "99999999-1111-4222-8333-444444444444" }, ""},
		"another node has its system GUID, too":    {func(s *scene) { s.Nodes[1].SystemUUID = s.Nodes[2].SystemUUID }, ""},
		"another Chassis has a server with that GUID": {func(s *scene) {
			s.ElsewhereGUIDs = []plan.GUIDOf{{Server: "atom099", SystemGUID: s.Nodes[2].SystemUUID}}
		}, ""},
		"the Chassis is not accepted": {func(s *scene) { s.Layout.Problems = []layout.Problem{{Field: "spec.slots", Text: "wrong"}} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			test.change(s)
			labels := s.plan().NodeLabels[s.Nodes[2].Name]
			if labels[v1alpha1.LabelSlot] != test.slot || (test.slot != "") != (labels[v1alpha1.LabelChassis] == s.Chassis.Name) {
				t.Errorf("labels are %v", labels)
			}
		})
	}
}
