package plan_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// The report of atom003's system is compared with the BMC's.
func TestAsReported(t *testing.T) {
	const own = `{"serial":"S3","ports":[{"name":"eth0","mac":"02:00:00:00:00:99"},{"name":"eth1","mac":"02:00:00:00:00:02"}]}`
	reports := func(server int, text string) func(*scene) {
		return func(s *scene) { s.Nodes[server].Found = plan.FoundIn(text) }
	}
	both := func(one, other func(*scene)) func(*scene) { return func(s *scene) { one(s); other(s) } }
	for name, test := range map[string]struct {
		change func(*scene)
		says   string
	}{
		"like the BMC": {reports(2, own), "True AsTheBMC: the blade's system has found what its BMC reports"},
		"of another blade": {
			reports(2, strings.ReplaceAll(own, "S3", "S9")),
			"False Differs: the BMC reports the serial number S3, and the blade's firmware reports S9",
		},
		"a port is missing": {
			reports(2, strings.ReplaceAll(own, ":02\"", ":07\"")),
			"False Differs: the BMC reports port NIC 1 with the MAC address 02:00:00:00:00:02, and the blade's system found no such port",
		},
		"a MAC address of two blades": {
			both(reports(2, own), reports(4, `{"ports":[{"name":"eth0","mac":"02:00:00:00:00:02"}]}`)),
			"True AsTheBMC", // the BMC reports the address: the other blade's report is the wrong one
		},
		"a MAC address of two blades that no BMC reports": {
			both(reports(2, own), reports(4, `{"ports":[{"name":"eth0","mac":"02:00:00:00:00:99"}]}`)),
			"False MACInTwoBlades: the MAC address 02:00:00:00:00:99 of its port eth0 is one of atom005, too",
		},
		"not usable": {reports(2, `[`), "False NotUsable: annotation rcbox.dev/inventory: the inventory is not usable"},
		"too long": {
			reports(2, strings.Repeat(" ", 16<<10)+own),
			"False NotUsable: annotation rcbox.dev/inventory: the inventory is not usable: it has",
		},
		"no report":       {func(*scene) {}, ""},
		"of another node": {reports(4, own), ""},
		"a BMC that was not read": {
			both(reports(2, own), func(s *scene) { s.Servers[2].Identity, s.Servers[2].Object.Status = nil, v1alpha1.ServerStatus{} }), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			test.change(s)
			s.plan()
			condition := meta.FindStatusCondition(s.Servers[2].Object.Status.Conditions, v1alpha1.ConditionAsReported)
			if (condition != nil) != (test.says != "") {
				t.Fatalf("the condition is %+v", condition)
			}
			if test.says != "" {
				expect(t, s.condition(v1alpha1.ConditionAsReported), test.says)
			}
			// What a blade says of itself decides about nothing else.
			for _, other := range []string{v1alpha1.ConditionAsRecorded, v1alpha1.ConditionFenceable} {
				if of := s.condition(other); test.says != "" && !strings.HasPrefix(of, "True") {
					t.Errorf("%s: %s", other, of)
				}
			}
			// Another operator has yet to read what the hardware is: the condition stays.
			if read := s.Servers[2].Identity; read != nil && test.says != "" {
				s.Servers[2].Identity = nil
				s.plan()
				expect(t, s.condition(v1alpha1.ConditionAsReported), test.says)
				s.Servers[2].Identity = read
			}
			// The report goes, and the condition with it.
			s.Nodes[2].Found = nil
			s.plan()
			if meta.FindStatusCondition(s.Servers[2].Object.Status.Conditions, v1alpha1.ConditionAsReported) != nil {
				t.Error("there is no report, and a condition")
			}
		})
	}
}
