package layout_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/layout"
)

var start = time.Date(2026, 5, 20, 9, 0, 0, 0, time.UTC)

// chassis is one of the three of the machines' own documents, each a minute older than the next.
func chassis(number int) v1alpha1.Chassis {
	first := 44*(number-1) + 1
	c := v1alpha1.Chassis{}
	c.Name, c.CreationTimestamp = fmt.Sprintf("mercury%d", number), metav1.NewTime(start.Add(time.Duration(number)*time.Minute))
	c.Spec = v1alpha1.ChassisSpec{
		Model: "MicroModularServer", NamePrefix: "atom", FirstServer: int32(first), Slots: "1-44",
		Management: v1alpha1.ChassisManagement{
			MMC: fmt.Sprintf("192.168.5.%d+44", first),
			CMM: []string{fmt.Sprintf("192.168.5.%d", 200+number), fmt.Sprintf("192.168.5.%d", 210+number)},
			ONS: []string{fmt.Sprintf("192.168.5.%d", 220+number), fmt.Sprintf("192.168.5.%d", 230+number)},
		},
		Networks: []v1alpha1.ChassisNetwork{
			{NIC: 1, CIDR: "192.168.3.0/24", Range: fmt.Sprintf("192.168.3.%d+44", first)},
			{NIC: 2, Suffix: "a"},
		},
	}
	return c
}

// Three Chassis give the servers of the machines' own documents.
func TestThreeChassis(t *testing.T) {
	layouts := layout.Of([]v1alpha1.Chassis{chassis(3), chassis(1), chassis(2)})
	total := 0
	for _, l := range layouts {
		if len(l.Problems)+len(l.Notes) > 0 {
			t.Errorf("%s: %v %v", l.Chassis, l.Problems, l.Notes)
		}
		total += len(l.Servers)
	}
	if total != 132 {
		t.Errorf("%d servers", total)
	}
	s := layouts["mercury3"].Servers[43]
	if s.Name != "atom132" || s.Slot != 44 || s.Number != 132 || s.MMC.String() != "192.168.5.132" || s.Ports[0].Name != "atom132" ||
		s.Ports[0].Address.String() != "192.168.3.132" || s.Ports[1].Name != "atom132a" || s.Ports[1].Address.IsValid() {
		t.Errorf("%+v", s)
	}
	if c := layouts["mercury2"].Controllers; len(c) != 4 || c[1].Name != "mercury2cms" {
		t.Errorf("%+v", c)
	}
}

// No server has an address that ends in .0 or .255.
func TestHolesAreSkipped(t *testing.T) {
	c := chassis(1)
	c.Spec.Networks[0].CIDR, c.Spec.Networks[0].Range = "192.168.2.0/23", "192.168.2.230+44"
	l := layout.Of([]v1alpha1.Chassis{c})["mercury1"]
	if len(l.Problems)+len(l.Notes) > 0 {
		t.Fatal(l.Problems, l.Notes)
	}
	a, b := l.Servers[24].Ports[0].Address.String(), l.Servers[25].Ports[0].Address.String()
	if a != "192.168.2.254" || b != "192.168.3.1" {
		t.Errorf("%s, then %s", a, b)
	}
}

func TestContradictions(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *v1alpha1.Chassis)
		field  string
		says   string
	}{
		"overrides": {func(c *v1alpha1.Chassis) {
			c.Spec.ModelOverrides = &v1alpha1.ModelOverrides{Manager: v1alpha1.ModelManager{
				SlotWatts: &v1alpha1.ModelSlotWatts{Sensor: "Slot %02d Power", OffBelow: 9, OnFrom: 8},
			}}
		}, "spec.modelOverrides", "model MicroModularServer is wrong: manager.slotWatts needs 0 < offBelow <= onFrom"},
		"fewer slots": {func(c *v1alpha1.Chassis) {
			c.Spec.ModelOverrides = &v1alpha1.ModelOverrides{Slots: v1alpha1.ModelSlots{Count: 40, Rows: []int32{20, 20}}}
		}, "spec.slots", "model MicroModularServer has slots 1-40"},
		"model": {func(c *v1alpha1.Chassis) { c.Spec.Model = "Micro" }, "spec.model", "write one of EmulatedRack"},
		"beyond": {
			func(c *v1alpha1.Chassis) { c.Spec.Slots = "4-47" },
			"spec.slots", "slot 47: model MicroModularServer has slots 1-46",
		},
		"slot 0":     {func(c *v1alpha1.Chassis) { c.Spec.Slots = "0-43" }, "spec.slots", "slot 0:"},
		"slot twice": {func(c *v1alpha1.Chassis) { c.Spec.Slots = "1-44,07,8" }, "spec.slots", "slots 7 and 8 twice"},
		"no list":    {func(c *v1alpha1.Chassis) { c.Spec.Slots = "7-3" }, "spec.slots", "write 3-7"},
		"two kinds": {
			func(c *v1alpha1.Chassis) { c.Spec.StorageSlots = "44-46" },
			"spec.storageSlots", "slot 44, as does spec.slots",
		},
		"storage beyond": {
			func(c *v1alpha1.Chassis) { c.Spec.StorageSlots = "45-60" },
			"spec.storageSlots", "slots 47, 48, 49 and 11 more",
		},
		"too few": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.5.1+43" },
			"spec.management.mmc", "has 43 addresses for 44 servers: write 192.168.5.1+44",
		},
		"too few at end": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.6.240+3" },
			"spec.management.mmc", "write 41 more",
		},
		"no address": {func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "1-44" }, "spec.management.mmc", "is not an address"},
		"beyond network": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.6.250+44" },
			"spec.management.mmc", "192.168.6.250+5",
		},
		"long": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.5.1" + strings.Repeat(",,", 600) },
			"spec.management.mmc", "one comma",
		},
		"address twice": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.6.1+44,192.168.6.7" },
			"spec.management.mmc", "address 192.168.6.7 twice",
		},
		"address of two": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.CMM[0] = "192.168.5.7" },
			"spec.management.cmm", "192.168.5.7 is that of the BMC of atom007",
		},
		"loopback": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "127.0.0.1+44" },
			"spec.management.mmc", "addresses 127.0.0.1, 127.0.0.2, 127.0.0.3 and 41 more: loopback addresses are those of the box",
		},
		"one loopback": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.CMM[1] = "127.0.0.1" },
			"spec.management.cmm", "address 127.0.0.1: loopback",
		},
		"loopback of IPv6": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.ONS[0] = "::1" },
			"spec.management.ons", "address ::1: loopback",
		},
		"IPv4 in IPv6": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.ONS[0] = "::ffff:127.0.0.1" },
			"spec.management.ons", "address 127.0.0.1: loopback",
		},
		"multicast": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "224.0.0.1+44" },
			"spec.management.mmc", "a multicast address belongs to a group",
		},
		"multicast at the end": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.6.1+43,239.1.1.1" },
			"spec.management.mmc", "address 239.1.1.1: a multicast",
		},
		"unspecified": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "0.0.0.1+44" },
			"spec.management.mmc", "no machine has an address that begins with 0",
		},
		"link-local": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "169.254.169.210+44" },
			"spec.management.mmc", "link-local addresses do not lead",
		},
		"reserved": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "255.255.255.210+44" },
			"spec.management.mmc", "addresses from 240.0.0.0 on are reserved",
		},
		"a port's": {
			func(c *v1alpha1.Chassis) {
				c.Spec.Networks[0].CIDR, c.Spec.Networks[0].Range = "224.0.0.0/24", "224.0.0.1+44"
			},
			"spec.networks[nic=1].range", "a multicast address",
		},
		"port too few": {
			func(c *v1alpha1.Chassis) { c.Spec.Networks[0].Range = "192.168.3.1+4" },
			"spec.networks[nic=1].range", "has 4 addresses for 44",
		},
		"outside": {
			func(c *v1alpha1.Chassis) { c.Spec.Networks[0].CIDR = "192.168.3.0/27" },
			"spec.networks[nic=1].range", "goes beyond the end of the network",
		},
		"another network": {
			func(c *v1alpha1.Chassis) { c.Spec.Networks[0].Range = "192.168.4.1+44" },
			"spec.networks[nic=1].range", "41 more, which no host in 192.168.3.0/24",
		},
		"broadcast": {func(c *v1alpha1.Chassis) {
			c.Spec.Slots, c.Spec.Management.MMC = "1-2", "192.168.5.1+2"
			c.Spec.Networks[0].CIDR, c.Spec.Networks[0].Range = "192.168.3.0/25", "192.168.3.126+2"
		}, "spec.networks[nic=1].range", "address 192.168.3.127, which no host"},
		"IPv6":      {func(c *v1alpha1.Chassis) { c.Spec.Networks[0].CIDR = "fd00::/64" }, "spec.networks[nic=1].cidr", "no IPv4 network"},
		"two ports": {func(c *v1alpha1.Chassis) { c.Spec.Networks[1].Suffix = "" }, "spec.networks[nic=2].suffix", "is that of NIC 1"},
		"NIC":       {func(c *v1alpha1.Chassis) { c.Spec.Networks[1].NIC = 3 }, "spec.networks[nic=3]", "have NICs 1-2"},
		"port is BMC": {func(c *v1alpha1.Chassis) {
			c.Spec.Networks[0].CIDR, c.Spec.Networks[0].Range = "192.168.5.0/24", "192.168.5.40+44"
		}, "spec.management.mmc", "so are 4 more"},
		"own name": {func(c *v1alpha1.Chassis) { c.Name = "atom001" }, "spec.firstServer", "atom001 is that of Chassis atom001"},
	} {
		t.Run(name, func(t *testing.T) {
			c := chassis(1)
			test.change(&c)
			l := layout.Of([]v1alpha1.Chassis{c})[c.Name]
			for _, problem := range l.Problems {
				if problem.Field == test.field && strings.Contains(problem.Text, test.says) && problem.Other == "" {
					if message := l.Message(300); len(message) > 300 {
						t.Errorf("%d characters: %s", len(message), message)
					}
					return
				}
			}
			t.Errorf("%v: nothing says %q of %s", l.Problems, test.says, test.field)
		})
	}
}

// What one Chassis has, another one that is younger cannot have; it says whose it is.
func TestTwoChassis(t *testing.T) {
	for name, test := range map[string]struct {
		change func(older, younger *v1alpha1.Chassis)
		says   string
	}{
		"numbers": {
			func(_, y *v1alpha1.Chassis) { y.Spec.FirstServer = 30 },
			"spec.firstServer: names atom030, atom031, atom032 and 12 more belong to Chassis mercury1, which is " +
				"older: make this Chassis with firstServer: 45",
		},
		"one number": {func(_, y *v1alpha1.Chassis) { y.Spec.FirstServer = 44 }, "name atom044 belongs to Chassis mercury1"},
		"BMC": {
			func(_, y *v1alpha1.Chassis) { y.Spec.Management.MMC = "192.168.5.44+44" },
			"spec.management.mmc: 192.168.5.44, for the BMC of atom045, is that of the BMC of atom044 in " +
				"Chassis mercury1, which is older",
		},
		"BMC and CMM": {
			func(_, y *v1alpha1.Chassis) { y.Spec.Management.CMM[1] = "192.168.5.201" },
			"is that of controller mercury1cmm in Chassis mercury1",
		},
		"ports": {
			func(_, y *v1alpha1.Chassis) { y.Spec.Networks[0].Range = "192.168.3.40+44" },
			"192.168.3.40, for port atom045, is that of port atom040 in Chassis mercury1, which is older; so are 4 more",
		},
		"name": {
			func(_, y *v1alpha1.Chassis) { y.Name = "mercury1cmm" },
			"metadata.name: mercury1cmm, for Chassis mercury1cmm, is that of a controller of Chassis mercury1 in Chassis mercury1",
		},
		"server": {func(_, y *v1alpha1.Chassis) { y.Name = "atom007" }, "is that of the server in slot 7 in Chassis mercury1"},
		"one age": {
			func(o, y *v1alpha1.Chassis) { y.Spec.FirstServer, y.CreationTimestamp = 44, o.CreationTimestamp },
			"belongs to Chassis mercury1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			older, younger := chassis(1), chassis(2)
			test.change(&older, &younger)
			for _, all := range [][]v1alpha1.Chassis{{older, younger}, {younger, older}} {
				layouts := layout.Of(all)
				if l := layouts["mercury1"]; len(l.Problems) > 0 {
					t.Errorf("the older: %v", l.Problems)
				}
				l := layouts[younger.Name]
				message := l.Message(300)
				if !strings.Contains(message, test.says) || len(message) > 300 || l.Problems[0].Other != "mercury1" {
					t.Errorf("%q, of %q", message, l.Problems[0].Other)
				}
			}
		})
	}
}

// A prefix of its own makes numbers of its own.
func TestPrefixes(t *testing.T) {
	older, younger := chassis(1), chassis(2)
	younger.Spec.FirstServer, younger.Spec.NamePrefix = 1, "blade"
	if l := layout.Of([]v1alpha1.Chassis{older, younger})["mercury2"]; len(l.Problems) > 0 || l.Servers[0].Name != "blade001" {
		t.Error(l.Problems)
	}
}

// What somebody may not have meant is said, and refused by nobody.
func TestNotes(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *v1alpha1.Chassis)
		says   string
	}{
		"hole": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.5.1-10,192.168.5.12+34" },
			"spec.management.mmc goes from 192.168.5.10 to 192.168.5.12: slot 11 has the latter",
		},
		"back": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.5.11+34,192.168.5.1+10" },
			"goes from 192.168.5.44 to 192.168.5.1: slot 35",
		},
		"too many": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.5.1+46" },
			"has 2 addresses more than there are servers: those from 192.168.5.45 on are not used",
		},
	} {
		c := chassis(1)
		test.change(&c)
		l := layout.Of([]v1alpha1.Chassis{c})["mercury1"]
		if len(l.Problems) > 0 || !strings.Contains(l.Message(300), test.says) {
			t.Errorf("%s: %v %v", name, l.Problems, l.Notes)
		}
	}
	c := chassis(1)
	c.Spec.Slots, c.Spec.Management.MMC = "1-20,23-46", "192.168.5.1-254"
	c.Spec.Management.CMM, c.Spec.Management.ONS = nil, nil
	c.Spec.Management.MMC = "192.168.5.1-22,192.168.5.23-44"
	if l := layout.Of([]v1alpha1.Chassis{c})["mercury1"]; len(l.Problems)+len(l.Notes) > 0 || l.Servers[20].Slot != 23 {
		t.Errorf("slots with a gap: %v %v", l.Problems, l.Notes)
	}
}

// Whatever Chassis there are: among those that are not refused no name and no address is there twice, none ends in .0 or .255, the order in
// which they are listed does not matter, and each message fits into a condition.
func TestNothingIsThereTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []v1alpha1.Chassis
		for number := range rapid.IntRange(1, 4).Draw(t, "chassis") {
			c := chassis(number + 1)
			c.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "age")) * time.Minute))
			count := rapid.IntRange(1, 46).Draw(t, "servers")
			c.Spec.Slots = fmt.Sprintf("%d+%d", rapid.IntRange(1, 3).Draw(t, "slot"), count)
			c.Spec.FirstServer = rapid.Int32Range(1, 200).Draw(t, "first")
			c.Spec.Management.MMC = fmt.Sprintf("192.168.5.%d+%d",
				rapid.IntRange(1, 200).Draw(t, "mmc"), rapid.IntRange(1, 46).Draw(t, "mmcs"))
			c.Spec.Networks[0].CIDR = rapid.SampledFrom([]string{"192.168.3.0/24", "192.168.2.0/23"}).Draw(t, "cidr")
			c.Spec.Networks[0].Range = fmt.Sprintf("192.168.%d.%d+%d",
				rapid.IntRange(2, 3).Draw(t, "net"), rapid.IntRange(1, 240).Draw(t, "port"), count)
			all = append(all, c)
		}
		layouts := layout.Of(all)
		seen := map[string]string{}
		once := func(text, by string) {
			if seen[text] != "" {
				t.Fatalf("%s is that of %s and of %s", text, seen[text], by)
			}
			seen[text] = by
		}
		address := func(a netip.Addr, by string) {
			if !a.IsValid() {
				return
			}
			if last := a.As4()[3]; last == 0 || last == 255 {
				t.Fatalf("%s has %s", by, a)
			}
			once(a.String(), by)
		}
		for _, l := range layouts {
			if message := l.Message(300); len(message) > 300 {
				t.Fatalf("%d characters: %s", len(message), message)
			}
			if len(l.Problems) > 0 {
				continue
			}
			for _, s := range l.Servers {
				once(s.Name, l.Chassis)
				address(s.MMC, s.Name)
				address(s.Ports[0].Address, s.Ports[0].Name)
			}
			for _, c := range l.Controllers {
				address(c.Address, c.Name)
			}
		}
		shuffled := layout.Of(rapid.Permutation(all).Draw(t, "shuffled"))
		for name, l := range layouts {
			if got, want := shuffled[name].Message(10000), l.Message(10000); got != want {
				t.Fatalf("%s: %s, and in another order %s", name, want, got)
			}
		}
	})
}

// The samples contradict neither their model nor each other, and have the names and as many addresses as their comments say.
func TestSamples(t *testing.T) {
	text, err := os.ReadFile("../../../../config/samples/chassis.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []v1alpha1.Chassis
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		one := v1alpha1.Chassis{}
		if err := yaml.UnmarshalStrict([]byte(document), &one); err != nil {
			t.Fatal(err)
		}
		one.Spec.NamePrefix = "atom" // the default of the schema
		all = append(all, one)
	}
	names, addresses := map[string]bool{}, map[string]int{}
	count := func(address netip.Addr) {
		if address.IsValid() {
			addresses[netip.PrefixFrom(address, 24).Masked().String()]++
		}
	}
	for name, laid := range layout.Of(all) {
		if len(laid.Problems)+len(laid.Notes) > 0 || !laid.Chain.IsSound {
			t.Errorf("%s: %v %v %+v", name, laid.Problems, laid.Notes, laid.Chain)
		}
		for i := range laid.Servers {
			count(laid.Servers[i].MMC)
			for _, port := range laid.Servers[i].Ports {
				names[port.Name] = true
				count(port.Address)
			}
		}
		for _, controller := range laid.Controllers {
			names[controller.Name] = true
			count(controller.Address)
		}
	}
	if want := map[string]int{"192.168.3.0/24": 132, "192.168.5.0/24": 132 + 12}; !maps.Equal(addresses, want) {
		t.Errorf("addresses: %v, not %v", addresses, want)
	}
	for _, name := range []string{
		"atom001", "atom132", "atom001a", "atom132a", "mercury1cmm", "mercury2cms", "mercury3onm", "mercury3ons",
	} {
		if !names[name] {
			t.Errorf("nobody is called %s", name)
		}
	}
	if len(names) != 2*132+12 {
		t.Errorf("%d names", len(names))
	}
}
