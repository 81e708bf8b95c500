// Package model says what is known of each line-up of hardware: data, one file a line-up. It decides nothing. A figure that nobody has
// published, and that was not read from the hardware, is absent, and the file says what must be found out.
package model

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

//go:embed models/*.yaml
var files embed.FS

// Model is a line-up of hardware. A figure of 0, or a pointer that is nil, is not known; Confirm says so.
type Model struct {
	// Name is what spec.model of a Chassis says.
	Name string `json:"name"`
	// Description is one sentence.
	Description string `json:"description"`
	// Source says where the figures are from.
	Source string `json:"source"`
	// Protocol is that of its BMCs, unless the Chassis says another.
	Protocol v1alpha1.ManagementProtocol `json:"protocol"`
	// PasswordBytes is the longest password that its BMCs keep whole over IPMI. Each keeps bmc.ShortPassword; none is given a longer one
	// unless this says so.
	PasswordBytes int32 `json:"passwordBytes,omitempty"`
	// RackUnits is its height.
	RackUnits int32 `json:"rackUnits,omitempty"`
	// Slots are those for servers and storage boards.
	Slots Slots `json:"slots,omitzero"`
	// Server is what a slot's server has.
	Server Server `json:"server,omitzero"`
	// SwitchBoards are its switches.
	SwitchBoards SwitchBoards `json:"switchBoards,omitzero"`
	// Manager is the chassis manager.
	Manager Manager `json:"manager,omitzero"`
	// MaxWatts is what the whole chassis draws at most.
	MaxWatts int32 `json:"maxWatts,omitempty"`
	// Confirm names each figure that is absent or uncertain, and what real hardware must show.
	Confirm []Question `json:"confirm,omitempty"`
}

// Slots of a chassis.
type Slots struct {
	Count int32 `json:"count,omitempty"`
	// Rows are the slots of each row, from the top of its front.
	Rows []int32 `json:"rows,omitempty"`
}

// Server is what a slot's server has.
type Server struct {
	Cores            int32 `json:"cores,omitempty"`
	MemoryGigabytes  int32 `json:"memoryGigabytes,omitempty"`
	StorageGigabytes int32 `json:"storageGigabytes,omitempty"`
	NICs             NICs  `json:"nics,omitzero"`
	// Watts is what a server draws at most, and StartWatts what it draws while it starts.
	Watts      int32 `json:"watts,omitempty"`
	StartWatts int32 `json:"startWatts,omitempty"`
	// StartSeconds is how long it draws StartWatts.
	StartSeconds int32 `json:"startSeconds,omitempty"`
	// CommandSeconds is how long its BMC takes at most to carry out a command about power once it was given.
	CommandSeconds int32 `json:"commandSeconds,omitempty"`
}

// NICs of a server.
type NICs struct {
	Count             int32 `json:"count,omitempty"`
	MegabitsPerSecond int32 `json:"megabitsPerSecond,omitempty"`
	// VirtualFunctions of each; 0: it has none.
	VirtualFunctions *int32 `json:"virtualFunctions,omitempty"`
}

// SwitchBoards of a chassis.
type SwitchBoards struct {
	Count int32 `json:"count,omitempty"`
	// Uplinks are the QSFP ports of all boards together.
	Uplinks     int32                 `json:"uplinks,omitempty"`
	UplinkModes []v1alpha1.UplinkMode `json:"uplinkModes,omitempty"`
	// UplinkLink is the sensor of a board's controller for the link of a QSFP port, which one of the boards has. ServerLink is that for the
	// link of the server in a slot, which each of them has.
	UplinkLink *Link `json:"uplinkLink,omitempty"`
	ServerLink *Link `json:"serverLink,omitempty"`
}

// Link is a sensor of a switch board's controller, one for each port.
type Link struct {
	// Sensor is its name, with %d or %02d for the number of the port or slot.
	Sensor string `json:"sensor"`
	// UpFrom: a link whose sensor shows less, or has no reading, is down.
	UpFrom float64 `json:"upFrom"`
}

// Name is the sensor of a port or slot.
func (l *Link) Name(number int32) string { return fmt.Sprintf(l.Sensor, number) }

// Manager is the chassis manager: what it shows and switches.
type Manager struct {
	// Count is how many there are; one is in charge.
	Count int32 `json:"count,omitempty"`
	// WholeChassis are the actions that one command to it does to all servers.
	WholeChassis []v1alpha1.PowerAction `json:"wholeChassis,omitempty"`
	// StaggersStarts: when it switches all servers on, it does so one after the other.
	StaggersStarts *bool `json:"staggersStarts,omitempty"`
	// SlotState is the sensor that shows whether a slot's server is on.
	SlotState *SlotState `json:"slotState,omitempty"`
	// SlotWatts is the sensor that shows what a slot draws.
	SlotWatts *SlotWatts `json:"slotWatts,omitempty"`
	// InCharge is the name of the sensor that is above 0 at the manager that is in charge.
	InCharge string `json:"inCharge,omitempty"`
	// ChassisWatts is the name of the sensor that shows what the chassis draws.
	ChassisWatts string `json:"chassisWatts,omitempty"`
	// PowerSupplies and Fans are those of the chassis.
	PowerSupplies *Parts `json:"powerSupplies,omitempty"`
	Fans          *Parts `json:"fans,omitempty"`
}

// Parts are things of which a chassis has several, each with a sensor of the chassis manager. They can be replaced while it runs.
type Parts struct {
	// Sensor is its name, with %d or %02d for the number of the part, from 1.
	Sensor string `json:"sensor"`
	// Count is how many there are.
	Count int32 `json:"count"`
	// WorksFrom: a part whose sensor shows less, or has no reading, has failed or is not there.
	WorksFrom float64 `json:"worksFrom"`
}

// SlotState is a discrete sensor of the chassis manager, one for each slot.
type SlotState struct {
	// Sensor is its name, with %d or %02d for the number of the slot.
	Sensor string `json:"sensor"`
	// On and Off are its values, as bits.
	On  int64 `json:"on"`
	Off int64 `json:"off"`
}

// SlotWatts is a sensor of the chassis manager for the power of a slot.
type SlotWatts struct {
	// Sensor is its name, with %d or %02d for the number of the slot.
	Sensor string `json:"sensor"`
	// EmptyBelow: a slot that draws less has no blade, for the BMC of one that is off still draws some. 0: that is not known.
	EmptyBelow float64 `json:"emptyBelow,omitempty"`
	// OffBelow: a server that draws less is off.
	OffBelow float64 `json:"offBelow"`
	// OnFrom: a server that draws so much is on. Between the two nothing is known.
	OnFrom float64 `json:"onFrom"`
}

// Question is something that real hardware must show.
type Question struct {
	// Field is that of the model, such as manager.slotWatts.
	Field string `json:"field"`
	// What is to be found out, and how.
	What string `json:"what"`
}

// load reads all files once; a mistake in them is one of the build, and the package's tests find it.
var load = sync.OnceValues(func() ([]Model, error) {
	names, err := files.ReadDir("models")
	if err != nil {
		return nil, fmt.Errorf("read models: %w", err)
	}
	models := make([]Model, 0, len(names))
	for _, file := range names {
		text, err := files.ReadFile(path.Join("models", file.Name()))
		if err != nil {
			return nil, fmt.Errorf("read models: %w", err)
		}
		m, err := Decode(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		models = append(models, m)
	}
	slices.SortFunc(models, func(a, b Model) int { return cmp.Compare(a.Name, b.Name) })
	return models, nil
})

// All models, by name.
func All() ([]Model, error) { return load() }

// Get finds a model by its name.
func Get(name string) (*Model, error) {
	models, err := load()
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range models {
		if models[i].Name == name {
			return &models[i], nil
		}
		names = append(names, models[i].Name)
	}
	return nil, &UnknownError{Name: name, Known: names}
}

// UnknownError means that there is no such model.
type UnknownError struct {
	Name  string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("there is no model %q: write one of %s", e.Name, strings.Join(e.Known, ", "))
}

// Decode reads a model; fields that it does not know are refused, as is what contradicts itself.
func Decode(text []byte) (Model, error) {
	var m Model
	if err := yaml.UnmarshalStrict(bytes.TrimSpace(text), &m); err != nil {
		return Model{}, fmt.Errorf("not a model: %w", err)
	}
	var problems []error
	for _, problem := range m.problems() {
		problems = append(problems, errors.New(problem))
	}
	return m, errors.Join(problems...)
}

// maxPassword is the longest password of IPMI.
const maxPassword = 20

// maxParts is the most power supplies, or fans, that a chassis has.
const maxParts = 64

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)
	sensorForm = regexp.MustCompile(`^[^%]*%(02)?d[^%]*$`)
)

// problems are what contradicts itself, in a fixed order.
func (m *Model) problems() []string {
	var problems []string
	wrong := func(isWrong bool, text string, values ...any) {
		if isWrong {
			problems = append(problems, fmt.Sprintf(text, values...))
		}
	}
	wrong(!nameForm.MatchString(m.Name), "name %q must consist of letters and digits", m.Name)
	wrong(m.Description == "" || m.Source == "", "description and source must say what it is and who says so")
	protocols := []v1alpha1.ManagementProtocol{v1alpha1.ManagementIPMI, v1alpha1.ManagementRedfish}
	wrong(!slices.Contains(protocols, m.Protocol), "protocol %q must be IPMI or Redfish", m.Protocol)
	wrong(m.PasswordBytes != 0 && (m.PasswordBytes < bmc.ShortPassword || m.PasswordBytes > maxPassword),
		"passwordBytes must be from %d to %d: those that IPMI knows", bmc.ShortPassword, maxPassword)
	sum := int32(0)
	for _, row := range m.Slots.Rows {
		wrong(row < 1, "slots.rows has a row of %d", row)
		sum += row
	}
	wrong(sum != m.Slots.Count && len(m.Slots.Rows) > 0, "slots.rows add up to %d, and slots.count is %d", sum, m.Slots.Count)
	for field, value := range map[string]int32{
		"rackUnits": m.RackUnits, "slots.count": m.Slots.Count, "server.cores": m.Server.Cores,
		"server.memoryGigabytes":  m.Server.MemoryGigabytes,
		"server.storageGigabytes": m.Server.StorageGigabytes, "server.nics.count": m.Server.NICs.Count, "server.watts": m.Server.Watts,
		"server.startWatts": m.Server.StartWatts, "server.startSeconds": m.Server.StartSeconds,
		"server.commandSeconds": m.Server.CommandSeconds, "maxWatts": m.MaxWatts,
		"manager.count": m.Manager.Count, "switchBoards.count": m.SwitchBoards.Count, "switchBoards.uplinks": m.SwitchBoards.Uplinks,
	} {
		wrong(value < 0, "%s is negative", field)
	}
	for _, action := range m.Manager.WholeChassis {
		wrong(action != v1alpha1.ActionOn && action != v1alpha1.ActionSoft,
			"manager.wholeChassis has %s: only On and Soft are ever given to all servers at once", action)
	}
	if s := m.Manager.SlotState; s != nil {
		wrong(!sensorForm.MatchString(s.Sensor), "manager.slotState.sensor %q must have one %%d or %%02d", s.Sensor)
		wrong(s.On == s.Off, "manager.slotState has the same value for on and off")
	}
	if s := m.Manager.SlotWatts; s != nil {
		wrong(!sensorForm.MatchString(s.Sensor), "manager.slotWatts.sensor %q must have one %%d or %%02d", s.Sensor)
		wrong(s.OffBelow <= 0 || s.OnFrom < s.OffBelow, "manager.slotWatts needs 0 < offBelow <= onFrom")
		wrong(s.EmptyBelow < 0 || s.EmptyBelow > s.OffBelow, "manager.slotWatts needs 0 <= emptyBelow <= offBelow")
	}
	for field, parts := range map[string]*Parts{"manager.powerSupplies": m.Manager.PowerSupplies, "manager.fans": m.Manager.Fans} {
		if parts != nil {
			wrong(!sensorForm.MatchString(parts.Sensor), "%s.sensor %q must have one %%d or %%02d", field, parts.Sensor)
			wrong(parts.Count < 1 || parts.Count > maxParts, "%s.count must be from 1 to %d", field, maxParts)
			wrong(parts.WorksFrom <= 0, "%s.worksFrom must be more than 0: a part that has failed shows 0", field)
		}
	}
	for field, link := range map[string]*Link{
		"switchBoards.uplinkLink": m.SwitchBoards.UplinkLink, "switchBoards.serverLink": m.SwitchBoards.ServerLink,
	} {
		if link != nil {
			wrong(!sensorForm.MatchString(link.Sensor), "%s.sensor %q must have one %%d or %%02d", field, link.Sensor)
			wrong(link.UpFrom <= 0, "%s.upFrom must be more than 0: a link that is down shows 0", field)
		}
	}
	slices.Sort(problems) // some are of fields of a map
	return problems
}

// emulatedRack is the model of chassis whose controllers are programs.
const emulatedRack = "EmulatedRack"

// IsEmulated says whether the chassis' controllers are programs, which may run on the box controller's own machine.
func (m *Model) IsEmulated() bool { return m.Name == emulatedRack }

// HasSlot says whether there is such a slot, as far as the model knows.
func (m *Model) HasSlot(slot int32) bool {
	return slot >= 1 && (m.Slots.Count == 0 || slot <= m.Slots.Count)
}

// Row is the row that a slot is in, from 1, and its place in the row; 0 where the model has no rows.
func (m *Model) Row(slot int32) (row, place int) {
	for at, count := range m.Slots.Rows {
		if slot <= count {
			return at + 1, int(slot)
		}
		slot -= count
	}
	return 0, 0
}

// ServerWatts is what is reserved for a server that runs: what the model says, or else its share of what the chassis draws at most.
// 0: nothing is known, and nothing can be reserved.
func (m *Model) ServerWatts() int32 {
	if m.Server.Watts == 0 && m.Slots.Count > 0 {
		return m.MaxWatts / m.Slots.Count
	}
	return m.Server.Watts
}

// StartWatts is what is reserved for a server that starts: at least as much as for one that runs.
func (m *Model) StartWatts() int32 { return max(m.Server.StartWatts, m.ServerWatts()) }

// StartTime is how long a server counts as starting; fallback where the model does not know.
func (m *Model) StartTime(fallback time.Duration) time.Duration {
	if m.Server.StartSeconds == 0 {
		return fallback
	}
	return time.Duration(m.Server.StartSeconds) * time.Second
}

// CommandTime is how long a BMC takes at most to carry out a command once it was given; fallback where the model does not know.
func (m *Model) CommandTime(fallback time.Duration) time.Duration {
	if m.Server.CommandSeconds == 0 {
		return fallback
	}
	return time.Duration(m.Server.CommandSeconds) * time.Second
}

// HasSlotSensor says whether the chassis manager shows which slots are off.
func (m *Model) HasSlotSensor() bool { return m.Manager.SlotState != nil || m.Manager.SlotWatts != nil }

// ManagerSensors are the names of the sensors of the chassis manager that are read for a chassis with these slots.
func (m *Model) ManagerSensors(slots []int32) []string {
	var names []string
	add := func(name string) {
		if name != "" {
			names = append(names, name)
		}
	}
	add(m.Manager.InCharge)
	for _, slot := range slots {
		if of := m.Manager.SlotState; of != nil {
			add(fmt.Sprintf(of.Sensor, slot))
		}
		if of := m.Manager.SlotWatts; of != nil {
			add(fmt.Sprintf(of.Sensor, slot))
		}
	}
	add(m.Manager.ChassisWatts)
	for _, parts := range []*Parts{m.Manager.PowerSupplies, m.Manager.Fans} {
		for n := int32(1); parts != nil && n <= parts.Count; n++ {
			add(fmt.Sprintf(parts.Sensor, n))
		}
	}
	return names
}

// SwitchesAll says whether one command to the chassis manager does this to all servers.
func (m *Model) SwitchesAll(action v1alpha1.PowerAction) bool {
	return slices.Contains(m.Manager.WholeChassis, action)
}
