package v1alpha1_test

import (
	"maps"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	chassisCRDFile = "../../config/crd/box/rcbox.dev_chassis.yaml"
	serverCRDFile  = "../../config/crd/box/rcbox.dev_servers.yaml"
)

// mercury is a chassis as its model's makers have set it up.
func mercury() map[string]any {
	return map[string]any{
		"model": "MicroModularServer", "slots": "1-44", "firstServer": int64(1),
		"position": map[string]any{"rack": "r1", "unit": int64(12)},
		"chain": map[string]any{"role": "Root", "uplinks": []any{
			map[string]any{"qsfp": int64(1), "mode": "1x40G", "peer": "mercury2"},
		}},
		"management": map[string]any{
			"credentialsSecret": "mercury1-bmc", "cipherSuite": int64(17), "mmc": "192.168.5.1+44",
			"cmm": []any{"192.168.5.201", "192.168.5.202"}, "ons": []any{"192.168.5.203", "192.168.5.204"},
		},
		"networks": []any{
			map[string]any{"nic": int64(1), "cidr": "192.168.3.0/24", "range": "192.168.3.1+44"},
			map[string]any{"nic": int64(2), "suffix": "a"},
		},
		"power":   map[string]any{"budgetWatts": int64(2000), "startsAtOnce": int64(8)},
		"fencing": map[string]any{"namespaces": []any{"default"}},
	}
}

func manifestOf(t *testing.T, kind, name string, spec map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func chassis(t *testing.T, name string, spec map[string]any) string {
	t.Helper()
	return manifestOf(t, "Chassis", name, spec)
}

// set gives a spec with one field, at a path such as management.mmc, that is another.
func set(spec map[string]any, path string, value any) map[string]any {
	spec = maps.Clone(spec)
	name, rest, isDeeper := strings.Cut(path, ".")
	switch {
	case isDeeper:
		below, _ := spec[name].(map[string]any)
		spec[name] = set(below, rest, value)
	case value == nil:
		delete(spec, name)
	default:
		spec[name] = value
	}
	return spec
}

func switchPorts(name, address string) map[string]any {
	return map[string]any{"nic": int64(1), "name": name, "address": address, "credentialsSecret": "mercury1-switch"}
}

func TestChassisAdmission(t *testing.T) {
	server := newAPIServerOf(t, chassisCRDFile)
	if errs := server.createInto(t, chassis(t, "mercury1", mercury()), &v1alpha1.Chassis{}); len(errs) > 0 {
		t.Fatalf("a chassis as it should be is refused: %v", errs)
	}
	wired := set(mercury(), "switchPorts", []any{switchPorts("Gi0/%d", "192.168.5.211")})
	if errs := server.createInto(t, chassis(t, "mercury1", wired), &v1alpha1.Chassis{}); len(errs) > 0 {
		t.Errorf("a switch is refused: %v", errs)
	}
	for _, test := range []struct {
		path  string
		value any
		says  string
	}{
		{"slots", "1-", "slots must be a list of numbers such as 1-44"},
		{"slots", "1, 2", "slots must be"},
		{"slots", "atom001", "slots must be"},
		{"storageSlots", "45-46x", "storageSlots must be"},
		{"firstServer", int64(0), "firstServer in body should be greater than or equal to 1"},
		{"namePrefix", "atom1", "namePrefix must consist of lower case letters"},
		{"model", "micro blade", "model must be the name of a model"},
		{"management.cipherSuite", int64(1), "management.cipherSuite must be 17 or 3"},
		{"management.cipherSuite", int64(0), "management.cipherSuite must be 17 or 3"},
		{"management.mmc", "192.168.5.1 +44", "management.mmc must be a list of addresses"},
		{"management.cmm", []any{"mercury1cmm"}, "management.cmm must be addresses"},
		{"management.ons", []any{"192.168.5.256"}, "management.ons must be addresses"},
		{"management.cmm", []any{"0.0.0.0"}, "management.cmm names an address that no BMC can have"},
		{"management.cmm", []any{"192.168.5.201", "224.0.0.1"}, "management.cmm names an address that no BMC can have"},
		{"management.cmm", []any{"255.255.255.255"}, "management.cmm names an address that no BMC can have"},
		{"management.ons", []any{"169.254.169.254"}, "management.ons names an address that no BMC can have"},
		{"management.ons", []any{"fe80::1"}, "management.ons names an address that no BMC can have"},
		{"management.ons", []any{"::"}, "management.ons names an address that no BMC can have"},
		{"management.cmm", []any{"2001:DB8:0::1"}, "management.cmm must be addresses in their shortest form"},
		{"management.cmm", []any{"::ffff:192.168.5.201"}, "management.cmm must be addresses"},
		{"management.insecureSkipVerify", true, "management.insecureSkipVerify is for protocol: Redfish"},
		{"management.protocol", "Redfish", "management.cipherSuite is for protocol: IPMI"},
		{"management.credentialsSecret", "", "credentialsSecret"},
		{"networks", []any{map[string]any{"nic": int64(1), "cidr": "192.168.3.0"}}, "networks[].cidr must be a network"},
		{"networks", []any{map[string]any{"nic": int64(1), "range": "192.168.3.1+44"}}, "networks[].range needs networks[].cidr"},
		{"networks", []any{map[string]any{"nic": int64(1), "suffix": "m"}}, "suffix"},
		{"power.startsAtOnce", int64(0), "power.startsAtOnce in body should be greater than or equal to 1"},
		{"chain.role", "Middle", "Root"},
		{"switchPorts", []any{switchPorts("slot%d%d", "192.168.5.211")}, "switchPorts[].name must have %d once"},
		{"switchPorts", []any{switchPorts("slot3", "192.168.5.211")}, "switchPorts[].name must have %d once"},
		{"switchPorts", []any{switchPorts("Gi0/%d", "169.254.169.254")}, "switchPorts[].address must be an address that a switch can have"},
		{"switchPorts", []any{switchPorts("Gi0/%d", "switch1")}, "switchPorts[].address must be an address that a switch can have"},
		{"isolation", map[string]any{"atMost": int64(0)}, "isolation.atMost in body should be greater than or equal to 1"},
		{"isolation", map[string]any{"automatic": []any{"Noise"}}, "Unsupported value"},
	} {
		errs := server.createInto(t, chassis(t, "mercury1", set(mercury(), test.path, test.value)), &v1alpha1.Chassis{})
		if text := strings.Join(errs, "; "); !strings.Contains(text, test.says) {
			t.Errorf("%s: %v: %q, which does not say %q", test.path, test.value, text, test.says)
		}
	}
	for _, name := range []string{"1mercury", strings.Repeat("m", 33)} {
		if errs := server.createInto(t, chassis(t, name, mercury()), &v1alpha1.Chassis{}); len(errs) == 0 {
			t.Errorf("the name %s is taken", name)
		}
	}
}

func TestChassisSamplesAreValid(t *testing.T) {
	server := newAPIServerOf(t, chassisCRDFile)
	text, err := os.ReadFile("../../config/samples/chassis.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	for _, document := range documents {
		if err := yaml.UnmarshalStrict([]byte(document), &v1alpha1.Chassis{}); err != nil {
			t.Error(err)
		}
		if errs := server.createInto(t, document, &v1alpha1.Chassis{}); len(errs) > 0 {
			t.Errorf("refused: %v", errs)
		}
	}
	if len(documents) != 3 {
		t.Errorf("%d Chassis", len(documents))
	}
}

// What names are made from does not change.
func TestChassisUpdates(t *testing.T) {
	server := newAPIServerOf(t, chassisCRDFile)
	for path, value := range map[string]any{"firstServer": int64(45), "namePrefix": "blade"} {
		errs := server.update(t, chassis(t, "mercury1", mercury()), chassis(t, "mercury1", set(mercury(), path, value)))
		if text := strings.Join(errs, "; "); !strings.Contains(text, "cannot be changed") {
			t.Errorf("%s: %q", path, text)
		}
	}
	if errs := server.update(t, chassis(t, "mercury1", mercury()), chassis(t, "mercury1", set(mercury(), "slots", "1-42"))); len(errs) > 0 {
		t.Errorf("slots: %v", errs)
	}
}

func TestServerAdmission(t *testing.T) {
	server := newAPIServerOf(t, serverCRDFile)
	admitted := &v1alpha1.Server{}
	if errs := server.createInto(t, manifestOf(t, "Server", "atom001", map[string]any{}), admitted); len(errs) > 0 {
		t.Fatal(errs)
	}
	if admitted.Spec.Power != v1alpha1.WantUnmanaged {
		t.Errorf("defaults: %+v", admitted.Spec)
	}
	good := map[string]any{
		"boot": map[string]any{"id": "x7.b", "device": "Network"}, "locateUntil": "2026-11-24T16:00:00Z", "acceptedSerial": "MMS0001",
		"isolated": map[string]any{"reason": "ECC errors in channel 2"},
	}
	if errs := server.createInto(t, manifestOf(t, "Server", "atom002", good), &v1alpha1.Server{}); len(errs) > 0 {
		t.Error(errs)
	}
	for _, spec := range []map[string]any{
		{"power": "Soft"},
		{"order": map[string]any{"id": "", "action": "On"}},
		{"order": map[string]any{"id": "1", "action": "Unplug"}},
		{"order": map[string]any{"action": "On"}},
		{"boot": map[string]any{"id": "1", "device": "Tape"}},
		{"boot": map[string]any{"id": "a b", "device": "Disk"}},
		{"boot": map[string]any{"device": "Disk"}},
		{"boot": map[string]any{"id": "1", "device": "Disk", "wipe": true}},
		{"locateUntil": "soon"},
		{"isolated": map[string]any{}},
		{"isolated": map[string]any{"reason": ""}},
		{"isolated": map[string]any{"reason": "  "}},
		{"isolated": map[string]any{"reason": strings.Repeat("x", 121)}},
	} {
		if errs := server.createInto(t, manifestOf(t, "Server", "atom001", spec), &v1alpha1.Server{}); len(errs) == 0 {
			t.Errorf("%v is taken", spec)
		}
	}
}

// An order that is being carried out does not become one that wipes disks.
func TestServerUpdates(t *testing.T) {
	server := newAPIServerOf(t, serverCRDFile)
	boot := func(id string, wipe any) string {
		order := map[string]any{"id": id, "device": "Network"}
		if wipe != nil {
			order["wipe"] = wipe
		}
		return manifestOf(t, "Server", "atom001", map[string]any{"boot": order})
	}
	for _, of := range []struct {
		before, after, says string
	}{
		{boot("1", nil), boot("1", true), "boot.wipe of an order cannot change"},
		{boot("1", true), boot("1", false), "boot.wipe of an order cannot change"},
		{boot("1", nil), boot("1", false), ""},
		{boot("1", nil), boot("2", true), ""},
	} {
		text := strings.Join(server.update(t, of.before, of.after), "; ")
		if (text == "") != (of.says == "") || !strings.Contains(text, of.says) {
			t.Errorf("%s to %s: %q", of.before, of.after, text)
		}
	}
}
