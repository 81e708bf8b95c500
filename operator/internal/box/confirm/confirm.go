// Package confirm says what a model of hardware leaves open, and what of that can be seen by reading: in what BMCs have said, and in the
// sensors of a chassis manager. It changes nothing, and decides nothing: a person does, and writes the figure to spec.modelOverrides of the
// Chassis.
package confirm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/model"
)

// State is how far a question is answered.
type State string

const (
	// Open questions must be answered by somebody who looks at the hardware.
	Open State = "open"
	// Seen is what the model says, and what was read.
	Seen State = "seen"
	// Differs is what was read, and not what the model says.
	Differs State = "differs"
)

// Finding is a question, and what was read about it.
type Finding struct {
	// Field is that of the model.
	Field string `json:"field"`
	State State  `json:"state"`
	// What is to be found out, or was read.
	What string `json:"what"`
}

// Read is what was read of a chassis.
type Read struct {
	Servers []*v1alpha1.Server
	// Others are the servers of other Chassis.
	Others []*v1alpha1.Server
	// Sensors are those of the chassis manager; nil: it was not asked.
	Sensors []bmc.Sensor
	// First is how long the first reading of all sensors took, with their records, and Round how long that of those took which the model
	// names. The controller gives a round at most Limit.
	First, Round, Limit time.Duration
}

// maxNamed is how many sensors or servers a finding names.
const maxNamed = 6

// Of gives the findings of a chassis: what was read first, and then what is open.
func Of(m *model.Model, read Read) []Finding {
	c := &checks{model: m, Read: read}
	c.identities()
	c.ports()
	if read.Sensors != nil {
		c.times()
		c.slotSensors("manager.slotWatts", watts(m))
		c.slotSensors("manager.slotState", state(m))
		c.named("manager.inCharge", m.Manager.InCharge)
		c.named("manager.chassisWatts", m.Manager.ChassisWatts)
		c.parts("manager.powerSupplies", m.Manager.PowerSupplies)
		c.parts("manager.fans", m.Manager.Fans)
	}
	for _, question := range m.Confirm {
		c.add(question.Field, Open, "%s", question.What+c.candidates(question.Field))
	}
	for i := range c.found {
		c.found[i].What += whereToWrite(&c.found[i])
	}
	return c.found
}

// whereToWrite names the field for a figure that is unknown or differs from the model. Any other finding is corrected at the hardware.
func whereToWrite(found *Finding) string {
	setting := model.Setting(found.Field)
	switch {
	case found.State == Seen:
		return ""
	case setting != "":
		return " (" + setting + ")"
	case found.State == Open:
		return " (for information only: rcbox does not use this figure)"
	}
	return ""
}

type checks struct {
	Read

	model *model.Model
	found []Finding
}

func (c *checks) add(field string, state State, text string, values ...any) {
	c.found = append(c.found, Finding{Field: field, State: state, What: fmt.Sprintf(text, values...)})
}

// identities: power is taken away on behalf of a node only where the BMC's system GUID is that of the node and of no other server.
func (c *checks) identities() {
	by := map[string][]string{}
	var none []string
	nodes := 0
	for _, server := range c.Servers {
		guid := server.Status.MMC.SystemGUID
		if guid == "" {
			none = append(none, server.Name)
			continue
		}
		by[guid] = append(by[guid], server.Name)
		if server.Status.Node != "" {
			nodes++
		}
	}
	for _, other := range c.Others {
		if guid := other.Status.MMC.SystemGUID; len(by[guid]) > 0 {
			by[guid] = append(by[guid], other.Name)
		}
	}
	for guid, names := range by {
		if len(names) > 1 {
			c.add("system GUID", Differs, "%s is that of %s: each server needs its own", guid, listed(names))
		}
	}
	switch {
	case len(none) > 0:
		c.add("system GUID", Differs, "the BMCs of %s report none: whether a node runs there cannot be known", listed(none))
	case len(c.Servers) > 0:
		c.add("system GUID", Seen, "all %d BMCs report one; that of %d is the systemUUID of a node", len(c.Servers), nodes)
	}
}

// ports: as many hardware addresses as the model has NICs.
func (c *checks) ports() {
	want := int(c.model.Server.NICs.Count)
	var less []string
	for _, server := range c.Servers {
		have := 0
		for _, port := range server.Status.Ports {
			if port.MAC != "" {
				have++
			}
		}
		if have < want {
			less = append(less, fmt.Sprintf("%s (%d)", server.Name, have))
		}
	}
	switch {
	case want == 0 || len(c.Servers) == 0:
	case len(less) > 0:
		c.add("server.nics.count", Differs, "the model says %d, and the BMCs name fewer hardware addresses of %s", want, listed(less))
	default:
		c.add("server.nics.count", Seen, "the BMCs name the hardware addresses of all %d NICs of each server", want)
	}
}

// times: a chassis manager that takes too long is no witness.
func (c *checks) times() {
	const step = 10 * time.Millisecond
	text := fmt.Sprintf("reading all %d sensors took %s the first time, as after each login; those that the model names take %s a round",
		len(c.Sensors), c.First.Round(step), c.Round.Round(step))
	if c.Round > c.Limit {
		c.add("manager", Differs, "%s, and the box controller waits %s: it is no witness that a server is off", text, c.Limit)
		return
	}
	c.add("manager", Seen, "%s, and the box controller waits %s", text, c.Limit)
}

func watts(m *model.Model) string {
	if m.Manager.SlotWatts == nil {
		return ""
	}
	return m.Manager.SlotWatts.Sensor
}

func state(m *model.Model) string {
	if m.Manager.SlotState == nil {
		return ""
	}
	return m.Manager.SlotState.Sensor
}

// slotSensors: the chassis manager has a sensor for the slot of each server.
func (c *checks) slotSensors(field, form string) {
	if form == "" {
		return
	}
	var missing []string
	for _, server := range c.Servers {
		if name := fmt.Sprintf(form, server.Status.Slot); !c.has(name) {
			missing = append(missing, fmt.Sprintf("%q", name))
		}
	}
	if len(missing) > 0 {
		c.add(field, Differs, "the chassis manager shows no sensor %s", listed(missing))
		return
	}
	c.add(field, Seen, "the chassis manager shows a sensor for each slot, such as %q", fmt.Sprintf(form, 1))
}

func (c *checks) named(field, name string) {
	switch {
	case name == "":
	case c.has(name):
		c.add(field, Seen, "the chassis manager shows the sensor %q", name)
	default:
		c.add(field, Differs, "the chassis manager shows no sensor %q", name)
	}
}

func (c *checks) parts(field string, parts *model.Parts) {
	if parts == nil {
		return
	}
	for n := int32(1); n <= parts.Count; n++ {
		c.named(field, fmt.Sprintf(parts.Sensor, n))
	}
}

func (c *checks) has(name string) bool {
	return slices.ContainsFunc(c.Sensors, func(s bmc.Sensor) bool { return s.Name == name })
}

var digits = regexp.MustCompile(`[0-9]`)

// candidates are sensors of the chassis manager that may be the answer to a question.
func (c *checks) candidates(field string) string {
	may, isKnown := map[string]func(s *bmc.Sensor) bool{
		"manager.slotWatts":     func(s *bmc.Sensor) bool { return s.Unit == "W" && digits.MatchString(s.Name) },
		"manager.chassisWatts":  func(s *bmc.Sensor) bool { return s.Unit == "W" && !digits.MatchString(s.Name) },
		"manager.slotState":     func(s *bmc.Sensor) bool { return s.Discrete && digits.MatchString(s.Name) },
		"manager.inCharge":      func(s *bmc.Sensor) bool { return s.Discrete && !digits.MatchString(s.Name) },
		"manager.powerSupplies": func(s *bmc.Sensor) bool { return isCalled(s, "psu", "power supply", "ps") },
		"manager.fans":          func(s *bmc.Sensor) bool { return s.Unit == "RPM" || isCalled(s, "fan") },
	}[field]
	if !isKnown || c.Sensors == nil {
		return ""
	}
	var all []string
	for i := range c.Sensors {
		if s := &c.Sensors[i]; may(s) {
			all = append(all, fmt.Sprintf("%q (%s)", s.Name, valueOf(s)))
		}
	}
	if len(all) == 0 {
		return "; the chassis manager shows none that may be it"
	}
	return "; the chassis manager shows " + listed(all)
}

func isCalled(s *bmc.Sensor, beginnings ...string) bool {
	name := strings.ToLower(s.Name)
	return slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(name, b) })
}

func valueOf(s *bmc.Sensor) string {
	if s.Discrete {
		return fmt.Sprintf("%#x", int64(s.Value))
	}
	return strings.TrimSpace(fmt.Sprintf("%g %s", s.Value, s.Unit))
}

func listed(all []string) string {
	if len(all) > maxNamed {
		all = append(slices.Clone(all[:maxNamed]), fmt.Sprintf("and %d more", len(all)-maxNamed))
	}
	return strings.Join(all, ", ")
}
