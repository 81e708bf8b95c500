package front

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// State is what a slot's light says.
type State string

// States of slots.
const (
	// Up: it is on, and nothing is known to be wrong.
	Up State = "Up"
	// Starting: it is being switched on or restarted, or its node is not ready yet.
	Starting State = "Starting"
	// Stopping: it is being shut down or switched off.
	Stopping State = "Stopping"
	// Isolated: somebody has ordered it; or it is on, and a Store keeps away from it, or it is not the blade that was accepted.
	Isolated State = "Isolated"
	// Failed: it is on, and its node is not ready, or a sensor is beyond its limits.
	Failed State = "Failed"
	// Off: it is off.
	Off State = "Off"
	// Unknown: nobody says whether it is on.
	Unknown State = "Unknown"
	// Empty: there is no server.
	Empty State = "Empty"
	// Storage: there is a storage board.
	Storage State = "Storage"
)

// startTime is how long a node may take to be ready after its server was switched on.
const startTime = 10 * time.Minute

// Slot is a slot, and what is in it.
type Slot struct {
	Chassis string `json:"chassis"`
	Number  int32  `json:"number"`
	// Server is its name; empty where there is none.
	Server string `json:"server,omitempty"`
	State  State  `json:"state"`
	// Text says the state, and why.
	Text string `json:"text"`
	// Temperature is the first that a sensor tells, such as 41 C.
	Temperature string `json:"temperature,omitempty"`
	// Blinks says that its light was told to blink.
	Blinks  bool     `json:"blinks,omitempty"`
	Node    string   `json:"node,omitempty"`
	Members []Tenant `json:"members,omitempty"`
	// Facts are for its card.
	Facts []Fact `json:"facts,omitempty"`
}

// Tenant is a process of a Store on a server.
type Tenant struct {
	Namespace string `json:"namespace"`
	Store     string `json:"store"`
	Name      string `json:"name"`
	// State is that of a master; Coordinator for a coordinator.
	State   string `json:"state"`
	Tablets int64  `json:"tablets,omitempty"`
	// UsedPercent is how full its log is, and CopiesPercent how full its storage for copies of what others hold.
	UsedPercent   int32  `json:"usedPercent"`
	CopiesPercent *int32 `json:"copiesPercent,omitempty"`
	// Recovers says that tablets of it are coming back on other servers.
	Recovers bool `json:"recovers,omitempty"`
}

// Fact is a line of a card.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// IsBad says that somebody should look at it.
	IsBad bool `json:"isBad,omitempty"`
}

// tenants are the processes on a node, and the Stores that keep away from it.
type tenants struct {
	members  []Tenant
	isolated []string
}

func tenantsOf(stores []v1alpha1.Store) map[string]tenants {
	all := map[string]tenants{}
	for i := range stores {
		store := &stores[i]
		status := &store.Status
		recovers := map[string]bool{}
		for j := range status.Recoveries {
			if status.Recoveries[j].TabletsLeft > 0 {
				recovers[status.Recoveries[j].Member] = true
			}
		}
		add := func(node string, tenant Tenant) {
			if node == "" {
				return
			}
			of := all[node]
			of.members = append(of.members, tenant)
			all[node] = of
		}
		for j := range status.Masters.Members {
			member := &status.Masters.Members[j]
			tenant := Tenant{
				Namespace: store.Namespace, Store: store.Name, Name: member.Name, State: string(member.State), Tablets: member.Tablets,
				UsedPercent: member.UsedPercent, Recovers: recovers[member.Name],
			}
			if member.Backup != nil {
				tenant.CopiesPercent = &member.Backup.UsedPercent
			}
			add(member.Node, tenant)
		}
		add(status.Coordinator.Node, Tenant{
			Namespace: store.Namespace, Store: store.Name, Name: status.Coordinator.Pod, State: "Coordinator",
		})
		for _, isolation := range status.Isolations {
			of := all[isolation.Node]
			of.isolated = append(of.isolated, short("Store "+store.Namespace+"/"+store.Name+" keeps away from its node: "+
				strings.TrimSuffix(string(isolation.Cause)+". "+isolation.Message, ". ")))
			all[isolation.Node] = of
		}
	}
	return all
}

func slotOf(chassis string, number int32, name string, server *v1alpha1.Server, all map[string]tenants, now time.Time) Slot {
	slot := Slot{Chassis: chassis, Number: number, Server: name, State: Unknown, Text: "the Server was not made yet"}
	if server == nil {
		return slot
	}
	status := &server.Status
	of := all[status.Node]
	if status.Node == "" {
		of = tenants{}
	}
	slot.Node, slot.Members = status.Node, of.members
	slot.State, slot.Text = stateOf(server, of, now)
	slot.Temperature = temperatureOf(status.Sensors)
	slot.Blinks = server.Spec.LocateUntil != nil && server.Spec.LocateUntil.After(now)
	slot.Facts = factsOf(server, of)
	return slot
}

func stateOf(server *v1alpha1.Server, of tenants, now time.Time) (State, string) {
	status := &server.Status
	if isolation := status.Isolation; isolation != nil && isolation.Stage != v1alpha1.StageReturning {
		return Isolated, isolationText(status)
	}
	if change := status.Change; change != nil {
		switch change.Stage {
		case v1alpha1.StageShuttingDown, v1alpha1.StageSwitchingOff:
			return Stopping, "is being switched off since " + at(&change.Since)
		case v1alpha1.StageSwitchingOn, v1alpha1.StageRestarting:
			return Starting, "is being started since " + at(&change.Since)
		}
	}
	switch status.Power.State {
	case v1alpha1.PowerOff:
		return Off, offText(status)
	case v1alpha1.PowerOn:
	default:
		if since := status.MMC.SilentSince; since != nil {
			return Unknown, "its BMC has been silent since " + at(since)
		}
		return Unknown, "nobody says whether it is on"
	}
	if healthy := conditionOf(status, v1alpha1.ConditionHealthy); healthy.Status == metav1.ConditionFalse {
		return Failed, short(healthy.Message)
	}
	ready := conditionOf(status, v1alpha1.ConditionNodeReady)
	if ready.Status == metav1.ConditionFalse && status.Node != "" {
		if since := status.Power.Since; since != nil && now.Sub(since.Time) < startTime {
			return Starting, "is on since " + at(since) + "; its node is not ready yet"
		}
		return Failed, short(ready.Message)
	}
	if recorded := conditionOf(status, v1alpha1.ConditionAsRecorded); recorded.Status == metav1.ConditionFalse {
		return Isolated, short(recorded.Message)
	}
	if len(of.isolated) > 0 {
		return Isolated, of.isolated[0]
	}
	text := "is on"
	if status.Power.Since != nil {
		text += " since " + at(status.Power.Since)
	}
	if status.Node == "" {
		text += "; no node runs on it"
	}
	return Up, text
}

// isolationText says why it is isolated, and how far that is.
func isolationText(status *v1alpha1.ServerStatus) string {
	text := "is isolated since " + at(&status.Isolation.Since) + ": "
	if said := conditionOf(status, v1alpha1.ConditionIsolated).Message; said != "" {
		return short(text + said)
	}
	return short(text + status.Isolation.Reason)
}

func offText(status *v1alpha1.ServerStatus) string {
	if status.LastOff == nil {
		return "is off, as " + string(status.Power.Source) + " says; that is no proof"
	}
	return "is off: proved at " + at(&status.LastOff.At) + " by " + witnesses(status.LastOff.By)
}

func witnesses(by []v1alpha1.Witness) string {
	texts := make([]string, len(by))
	for i, witness := range by {
		texts[i] = string(witness)
	}
	return strings.Join(texts, " and ")
}

func temperatureOf(sensors []v1alpha1.SensorStatus) string {
	for _, sensor := range sensors {
		if strings.HasSuffix(sensor.Value, " C") {
			return sensor.Value
		}
	}
	return ""
}

func factsOf(server *v1alpha1.Server, of tenants) []Fact {
	status := &server.Status
	var facts []Fact
	add := func(name, value string, isBad bool) {
		if value != "" {
			facts = append(facts, Fact{Name: name, Value: short(value), IsBad: isBad})
		}
	}
	add("node", status.Node, false)
	add("BMC", status.MMC.Address, false)
	for _, port := range status.Ports {
		add(port.Name, strings.TrimSpace(port.Address+" "+port.MAC), false)
	}
	add("hardware", strings.TrimSpace(status.Hardware.Manufacturer+" "+status.Hardware.Product), false)
	add("serial number", status.Hardware.Serial, false)
	for _, sensor := range status.Sensors {
		add(sensor.Name, sensor.Value, sensor.Beyond)
	}
	if order := status.Order; order != nil {
		text := string(order.Action) + " " + strings.ToLower(string(order.State))
		if order.Message != "" {
			text += ": " + order.Message
		}
		add("last order", text, order.State == v1alpha1.OrderRefused || order.State == v1alpha1.OrderFailed)
	}
	if light := status.Light; light != nil && light.State == v1alpha1.OrderFailed {
		add("light", light.Message, true)
	}
	if status.LastOff != nil {
		add("last proof of off", at(&status.LastOff.At)+", by "+witnesses(status.LastOff.By), false)
	}
	for i := range status.Conditions {
		if condition := &status.Conditions[i]; condition.Status == metav1.ConditionFalse {
			add(condition.Type, "no: "+condition.Message, condition.Type != v1alpha1.ConditionPoweredOn)
		}
	}
	for _, text := range of.isolated {
		add("isolated", text, true)
	}
	return facts
}

func at(when *metav1.Time) string { return when.UTC().Format(time.RFC3339) }

// conditionOf gives a condition; one that is not there is Unknown.
func conditionOf(status *v1alpha1.ServerStatus, kind string) metav1.Condition {
	if found := meta.FindStatusCondition(status.Conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown}
}
