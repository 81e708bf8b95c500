package names_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/box/ranges"
)

// chassis is one of the three of the machines' own documents: 44 servers each.
func chassis(number int) v1alpha1.Chassis {
	c := v1alpha1.Chassis{}
	c.Name = fmt.Sprintf("mercury%d", number)
	c.Spec = v1alpha1.ChassisSpec{
		Model: "MicroModularServer", NamePrefix: "atom", FirstServer: int32(44*(number-1) + 1), Slots: "1-44",
		Management: v1alpha1.ChassisManagement{
			MMC: fmt.Sprintf("192.168.5.%d+44", 44*(number-1)+1),
			CMM: []string{fmt.Sprintf("192.168.5.%d", 200+number), fmt.Sprintf("192.168.5.%d", 210+number)},
			ONS: []string{fmt.Sprintf("192.168.5.%d", 220+number), fmt.Sprintf("192.168.5.%d", 230+number)},
		},
	}
	return c
}

func three() []v1alpha1.Chassis {
	return []v1alpha1.Chassis{chassis(1), chassis(2), chassis(3)}
}

func placesOf(s names.Selection) string {
	var all []string
	for _, place := range s.Places {
		all = append(all, place.Name)
	}
	for _, controller := range s.Controllers {
		all = append(all, controller.Name+"="+controller.Address.String())
	}
	return strings.Join(all, " ")
}

// The names of the machines' own documents.
func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		names.Server("atom", 1):                   "atom001",
		names.Server("atom", 132):                 "atom132",
		names.Server("atom", 1000):                "atom1000",
		names.MMC(names.Server("atom", 44)):       "atom044m",
		names.Port(names.Server("atom", 89), "a"): "atom089a",
		names.Port(names.Server("atom", 7), ""):   "atom007",
		names.Controller("mercury1", names.CMM):   "mercury1cmm",
		names.Controller("mercury2", names.CMS):   "mercury2cms",
		names.Controller("mercury3", names.ONM):   "mercury3onm",
		names.Controller("mercury3", names.ONS):   "mercury3ons",
	} {
		if got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	for _, text := range []string{
		"", "atom", "001", "atom01", "atom0001", "atom000", "atom001f", "atom001mm", "atom001cmm", "atom-001",
		"Atom001",
	} {
		if name, isOne := names.Parse(text); isOne {
			t.Errorf("%q is taken for %+v", text, name)
		}
	}
	if chassis, role, isOne := names.ParseController("mercury1cms"); !isOne || chassis != "mercury1" || role != names.CMS {
		t.Errorf("mercury1cms is taken for %s of %s", role, chassis)
	}
	for _, text := range []string{"cmm", "mercury1", "atom001m"} {
		if _, _, isOne := names.ParseController(text); isOne {
			t.Errorf("%q is taken for a controller", text)
		}
	}
}

// Names are unique, and are read back.
func TestNamesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := names.Name{
			Prefix: rapid.StringMatching(`[a-z]([-a-z]{0,5}[a-z])?`).Draw(t, "prefix"),
			Number: rapid.Int32Range(1, 99999).Draw(t, "number"),
			Suffix: rapid.SampledFrom([]string{"", "m", "a", "b", "c", "d", "e"}).Draw(t, "suffix"),
		}
		if back, isOne := names.Parse(name.String()); !isOne || back != name {
			t.Fatalf("%+v is %s, which is read as %+v", name, name, back)
		}
		if name.IsMMC() == name.IsPort() && name.Suffix != "" {
			t.Fatalf("%s is both or neither", name)
		}
	})
}

func TestPlaces(t *testing.T) {
	c := chassis(2)
	c.Spec.Slots, c.Spec.Management.MMC = "1-20,23+4,020", "192.168.5.45+22"
	places := names.Places(&c)
	if len(places) != 24 {
		t.Fatalf("%d places", len(places))
	}
	p := places[20]
	if p.Name != "atom065" || p.Slot != 23 || p.Number != 65 || p.MMC.String() != "192.168.5.65" || p.Chassis != "mercury2" {
		t.Errorf("%+v", p)
	}
	if places[21].MMC.String() != "192.168.5.66" || places[22].MMC.IsValid() {
		t.Errorf("%+v", places[21:])
	}
	c.Spec.Slots = "1-"
	if places := names.Places(&c); places != nil {
		t.Errorf("%+v", places)
	}
	c = chassis(1)
	if got := placesOf(names.Selection{Controllers: names.Controllers(&c)}); got !=
		"mercury1cmm=192.168.5.201 mercury1cms=192.168.5.211 mercury1onm=192.168.5.221 mercury1ons=192.168.5.231" {
		t.Error(got)
	}
	c.Status.Manager.Master = "192.168.5.211"
	if got := placesOf(names.Selection{Controllers: names.Controllers(&c)[:2]}); got !=
		"mercury1cmm=192.168.5.211 mercury1cms=192.168.5.201" {
		t.Error(got)
	}
}

func TestFind(t *testing.T) {
	fleet := names.NewFleet(three())
	for text, want := range map[string]string{
		"1,5-7,10+3":              "atom001 atom005 atom006 atom007 atom010 atom011 atom012",
		"atom002-005":             "atom002 atom003 atom004 atom005",
		"atom044m+2":              "atom044 atom045",
		".1,5-6":                  "atom001 atom005 atom006",
		"192.168.5.131+2":         "atom131 atom132",
		"7,atom007,atom007m,.7,7": "atom007",
		"mercury1cmm":             "mercury1cmm=192.168.5.201",
		"mercury1cmm-3cmm":        "mercury1cmm=192.168.5.201 mercury2cmm=192.168.5.202 mercury3cmm=192.168.5.203",
		"mercury2ons,3":           "atom003 mercury2ons=192.168.5.232",
	} {
		found, err := fleet.Find(text)
		if got := placesOf(found); err != nil || got != want {
			t.Errorf("%s: %q, not %q (%v)", text, got, want, err)
		}
	}
	found, err := fleet.Find("mercury2,atom045,mercury3")
	if err != nil || len(found.Places) != 88 || found.Places[0].Name != "atom045" || found.Places[87].Name != "atom132" {
		t.Errorf("%v %v", found, err)
	}
	both := names.NewFleet(append(three(), named("rack")))
	for _, text := range []string{"rack,atom001", "blade001,1-", "rack,2,", "atom001,rack,"} {
		found, err := both.Find(text)
		if isRight := text == "rack,atom001"; isRight != (err == nil) || isRight && placesOf(found) != "blade001 atom001" {
			t.Errorf("%s: %q %v", text, placesOf(found), err)
		}
	}
}

func named(name string) v1alpha1.Chassis {
	c := chassis(1)
	c.Name, c.Spec.NamePrefix, c.Spec.Slots, c.Spec.Management.MMC = name, "blade", "1", "10.0.0.1"
	return c
}

// Whatever is unknown is refused, and the nearest is named.
func TestUnknown(t *testing.T) {
	fleet := names.NewFleet(three())
	for text, says := range map[string]string{
		"133":              "the nearest is atom132",
		"0":                "the nearest is atom001",
		"atom130-134":      `"atom133" is neither`,
		"atom200m":         "the nearest is atom132m",
		"atom7":            "the nearest is atom007",
		"atmo007":          "the nearest is atom007",
		"mercury4":         "the nearest is mercury",
		"mercury4cmm":      "the nearest is mercury1cmm",
		"mercury1cmn":      "the nearest is mercury1cmm",
		"192.168.5.133":    "the nearest is 192.168.5.132, that of atom132",
		"10.0.0.1":         "the nearest is 192.168.5.1, that of atom001",
		"atom007a":         "the nearest is atom007",
		"somethingelse001": "kubectl get chassis,servers",
		"1,,2":             "one comma",
		"5-":               "5 alone",
	} {
		found, err := fleet.Find(text)
		if err == nil || !strings.Contains(err.Error(), says) || len(found.Places)+len(found.Controllers) > 0 {
			t.Errorf("%s: %v %v, which does not say %q", text, found, err, says)
		}
	}
	if _, err := names.NewFleet(nil).Find("1"); err == nil || !strings.Contains(err.Error(), "no Chassis yet") {
		t.Error(err)
	}
	both := names.NewFleet(append(three(), named("rack")))
	if _, err := both.Find("1"); err == nil || !strings.Contains(err.Error(), "atom001 and of blade001: write the name") {
		t.Error(err)
	}
	if _, err := both.Find(".1"); err == nil || !strings.Contains(err.Error(), "write all four") {
		t.Error(err)
	}
}

// Each server is found by its number, its name, its BMC's name and address, and by those of its Chassis' name.
func TestEachServerIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := names.NewFleet(three())
		number := rapid.Int32Range(1, 132).Draw(t, "number")
		name := names.Server("atom", number)
		for _, text := range []string{
			strconv.Itoa(int(number)), name, names.MMC(name), fmt.Sprintf(".%d", number), fmt.Sprintf("192.168.5.%d", number),
		} {
			found, err := fleet.Find(text)
			if err != nil || len(found.Places) != 1 || found.Places[0].Name != name {
				t.Fatalf("%s: %v %v", text, found, err)
			}
			p := found.Places[0]
			if p.Number != number || p.Slot != (number-1)%44+1 || p.MMC != netip.AddrFrom4([4]byte{192, 168, 5, byte(number)}) {
				t.Fatalf("%+v", p)
			}
		}
	})
}

// FuzzFind: whatever is typed is refused with a text, or stands for at least one server or controller.
func FuzzFind(f *testing.F) {
	for _, seed := range []string{"1,5-7,10+3", "mercury1cmm-3cmm", "rack,.7", "atom001m+200", ","} {
		f.Add(seed)
	}
	fleet := names.NewFleet(append(three(), named("rack")))
	f.Fuzz(func(t *testing.T, text string) {
		found, err := fleet.Find(text)
		count := len(found.Places) + len(found.Controllers)
		if err == nil && (count == 0 || count > ranges.MaxItems) || err != nil && (count > 0 || err.Error() == "") {
			t.Errorf("%q: %d, %v", text, count, err)
		}
	})
}
