// Package front says what the front panel shows: each chassis as one sees it from the front, with the state of each slot. It is pure: it
// makes parts of the picture out of what Kubernetes has on record, and reads and writes nothing.
package front

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/model"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/box/ranges"
)

// Objects are what the picture is made of.
type Objects struct {
	Chassis []v1alpha1.Chassis
	Servers []v1alpha1.Server
	Stores  []v1alpha1.Store
}

// Chassis is one chassis, without what is in its slots.
type Chassis struct {
	Name  string `json:"name"`
	Model string `json:"model"`
	Place string `json:"place,omitempty"`
	// Rows are the numbers of its slots, row by row from the top.
	Rows   [][]int32 `json:"rows"`
	On     int32     `json:"on"`
	Total  int32     `json:"total"`
	Watts  *int32    `json:"watts,omitempty"`
	Budget int32     `json:"budget,omitempty"`
	// Managers are its chassis managers and switch boards.
	Managers []Board `json:"managers,omitempty"`
	Cables   []Cable `json:"cables,omitempty"`
	// Troubles are the conditions that somebody should look at.
	Troubles []string `json:"troubles,omitempty"`
}

// Board is a controller of the chassis.
type Board struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Role is Master, Slave or Silent for a chassis manager, and Switch for a switch board, of which nothing is known.
	Role string `json:"role"`
}

// Cable leads from a chassis to another.
type Cable struct {
	QSFP int32  `json:"qsfp"`
	Mode string `json:"mode,omitempty"`
	Peer string `json:"peer"`
	// IsKnown says that there is a Chassis of that name.
	IsKnown bool `json:"isKnown"`
	// PeerQSFP is the cable's other end, as the peer names it; 0 if it does not.
	PeerQSFP int32 `json:"peerQsfp,omitempty"`
}

// Store is one Store.
type Store struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Ready     bool   `json:"ready"`
	Text      string `json:"text"`
	// Recoveries are those under way.
	Recoveries []string `json:"recoveries,omitempty"`
}

// Parts are the picture, by names that stay: chassis/NAME, slot/NAME/NUMBER, store/NAMESPACE/NAME.
type Parts map[string]any

// maxTextBytes is the longest text of a part. Others write it.
const maxTextBytes = 512

// Look makes the picture.
func Look(objects Objects, now time.Time) Parts {
	parts := Parts{}
	servers := map[string]*v1alpha1.Server{}
	for i := range objects.Servers {
		servers[objects.Servers[i].Name] = &objects.Servers[i]
	}
	known := map[string]*v1alpha1.Chassis{}
	for i := range objects.Chassis {
		known[objects.Chassis[i].Name] = &objects.Chassis[i]
	}
	tenants := tenantsOf(objects.Stores)
	for i := range objects.Chassis {
		addChassis(parts, &objects.Chassis[i], known, servers, tenants, now)
	}
	for i := range objects.Stores {
		store := storeOf(&objects.Stores[i])
		parts["store/"+store.Namespace+"/"+store.Name] = store
	}
	return parts
}

func addChassis(
	parts Parts, chassis *v1alpha1.Chassis, known map[string]*v1alpha1.Chassis, servers map[string]*v1alpha1.Server,
	tenants map[string]tenants, now time.Time,
) {
	places := names.Places(chassis)
	byNumber := map[int32]string{}
	numbers := storageSlots(chassis)
	for _, place := range places {
		byNumber[place.Slot] = place.Name
		numbers = append(numbers, place.Slot)
	}
	rows := rowsOf(chassis.Spec.Model, numbers)
	status := &chassis.Status
	one := Chassis{
		Name: chassis.Name, Model: chassis.Spec.Model, Place: placeOf(chassis.Spec.Position), Rows: rows,
		On: status.Servers.On, Total: status.Servers.Total, Watts: status.Watts, Budget: status.BudgetWatts,
		Managers: boardsOf(chassis), Cables: cablesOf(chassis, known), Troubles: troublesOf(chassis),
	}
	parts["chassis/"+chassis.Name] = one
	storage := storageSlots(chassis)
	for _, row := range rows {
		for _, number := range row {
			slot := Slot{Chassis: chassis.Name, Number: number, State: Empty, Text: "empty"}
			switch name := byNumber[number]; {
			case slices.Contains(storage, number):
				slot.State, slot.Text = Storage, "storage board"
			case name != "":
				slot = slotOf(chassis.Name, number, name, servers[name], tenants, now)
			}
			parts[fmt.Sprintf("slot/%s/%d", chassis.Name, number)] = slot
		}
	}
}

func storageSlots(chassis *v1alpha1.Chassis) []int32 {
	list, err := ranges.ParseNumbers(chassis.Spec.StorageSlots)
	if err != nil { // none, or a text that the Chassis' condition Accepted speaks of
		return nil
	}
	return names.Numbers(list)
}

// rowsOf are the rows of a model, or one row of what the spec names where the model has none.
func rowsOf(name string, numbers []int32) [][]int32 {
	var rows [][]int32
	if known, err := model.Get(name); err == nil {
		next := int32(1)
		for _, count := range known.Slots.Rows {
			row := make([]int32, 0, count)
			for range count {
				row = append(row, next)
				next++
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		slices.Sort(numbers)
		rows = slices.Collect(slices.Chunk(slices.Compact(numbers), maxRow))
	}
	return rows
}

// maxRow is the length of a row where the model does not say.
const maxRow = 23

func placeOf(position v1alpha1.ChassisPosition) string {
	var texts []string
	if position.Rack != "" {
		texts = append(texts, "rack "+position.Rack)
	}
	if position.Unit > 0 {
		texts = append(texts, fmt.Sprintf("unit %d", position.Unit))
	}
	return strings.Join(texts, ", ")
}

func boardsOf(chassis *v1alpha1.Chassis) []Board {
	var boards []Board
	manager := chassis.Status.Manager
	for _, of := range names.Controllers(chassis) {
		board := Board{Name: of.Name, Address: of.Address.String(), Role: "Switch"}
		if slices.Contains([]names.Role{names.CMM, names.CMS}, of.Role) {
			switch board.Address {
			case manager.Master:
				board.Role = "Master"
			case manager.Slave:
				board.Role = "Slave"
			default:
				board.Role = "Silent"
			}
		}
		boards = append(boards, board)
	}
	return boards
}

// cablesOf a chassis: the first of its cables to a peer is the first that the peer has back, of those with the same mode, and so on.
func cablesOf(chassis *v1alpha1.Chassis, known map[string]*v1alpha1.Chassis) []Cable {
	var cables []Cable
	for _, uplink := range uplinksOf(chassis) {
		cable := Cable{QSFP: uplink.QSFP, Mode: string(uplink.Mode), Peer: uplink.Peer, IsKnown: known[uplink.Peer] != nil}
		before := 0
		for _, other := range cables {
			if other.Peer == cable.Peer && other.Mode == cable.Mode {
				before++
			}
		}
		back := slices.DeleteFunc(slices.Clone(uplinksOf(known[uplink.Peer])), func(other v1alpha1.ChassisUplink) bool {
			return other.Peer != chassis.Name || other.Mode != uplink.Mode
		})
		if before < len(back) && uplink.Peer != chassis.Name {
			cable.PeerQSFP = back[before].QSFP
		}
		cables = append(cables, cable)
	}
	return cables
}

// uplinksOf a chassis are those that lead somewhere, by QSFP.
func uplinksOf(chassis *v1alpha1.Chassis) []v1alpha1.ChassisUplink {
	if chassis == nil || chassis.Spec.Chain == nil {
		return nil
	}
	uplinks := slices.DeleteFunc(slices.Clone(chassis.Spec.Chain.Uplinks), func(u v1alpha1.ChassisUplink) bool { return u.Peer == "" })
	slices.SortFunc(uplinks, func(a, b v1alpha1.ChassisUplink) int { return int(a.QSFP - b.QSFP) })
	return uplinks
}

// good are the conditions of a Chassis that should be True; Degraded should be False.
var good = []string{
	"Accepted", "Available", "ManagementReady", "ServicesReady", "PowerRedundant", "CoolingRedundant", "SlotsFilled", "ChainSound",
}

func troublesOf(chassis *v1alpha1.Chassis) []string {
	var troubles []string
	for i := range chassis.Status.Conditions {
		condition := &chassis.Status.Conditions[i]
		isGood := slices.Contains(good, condition.Type)
		if (isGood && condition.Status == metav1.ConditionFalse) ||
			(condition.Type == v1alpha1.ConditionDegraded && condition.Status == metav1.ConditionTrue) {
			troubles = append(troubles, short(condition.Type+"="+string(condition.Status)+": "+condition.Message))
		}
	}
	return troubles
}

func storeOf(store *v1alpha1.Store) Store {
	status := &store.Status
	one := Store{Namespace: store.Namespace, Name: store.Name, Text: "not looked at yet"}
	if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready != nil {
		one.Ready = ready.Status == metav1.ConditionTrue
		one.Text = short(ready.Reason + ": " + ready.Message)
	}
	for i := range status.Recoveries {
		recovery := &status.Recoveries[i]
		if recovery.TabletsLeft == 0 {
			continue
		}
		text := fmt.Sprintf("%s of %s comes back: %d of its tablets are left", cmp.Or(recovery.ServerID, "a server"),
			cmp.Or(recovery.Member, "a former member"), recovery.TabletsLeft)
		if recovery.WaitsFor != "" {
			text += "; it waits for " + recovery.WaitsFor
		}
		one.Recoveries = append(one.Recoveries, short(text))
	}
	return one
}

// short bounds a text. It is cut between characters.
func short(text string) string {
	if len(text) <= maxTextBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxTextBytes], "") + " ..."
}

// sortedKeys gives the names of parts in their order.
func (p Parts) sortedKeys() []string { return slices.Sorted(maps.Keys(p)) }
