package names

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/ranges"
)

const (
	// bitsOfSubnet is the size of the network that .2 belongs to.
	bitsOfSubnet = 24
	// maxTypos is how many letters a name may differ in from the one that was meant.
	maxTypos = 3
)

// Fleet is what a list is resolved against.
type Fleet struct {
	places      []Place
	controllers []Management
	chassis     []string

	byName       map[string]int
	byAddress    map[netip.Addr]int
	byNumber     map[int32][]int
	byChassis    map[string][]int
	byController map[string]int
}

// Selection is what a list stands for: each server and each controller once, in the order of the list.
type Selection struct {
	Places      []Place
	Controllers []Management
}

// NewFleet knows the servers of some Chassis. Of two servers that claim one name or address, the one of the earlier Chassis is found.
func NewFleet(all []v1alpha1.Chassis) *Fleet {
	f := &Fleet{
		byName: map[string]int{}, byAddress: map[netip.Addr]int{}, byNumber: map[int32][]int{}, byChassis: map[string][]int{},
		byController: map[string]int{},
	}
	for i := range all {
		f.chassis = append(f.chassis, all[i].Name)
		for _, place := range Places(&all[i]) {
			f.add(place)
		}
		for _, controller := range Controllers(&all[i]) {
			f.byController[controller.Name] = len(f.controllers)
			f.controllers = append(f.controllers, controller)
		}
	}
	return f
}

func (f *Fleet) add(place Place) {
	if _, isThere := f.byName[place.Name]; isThere {
		return
	}
	at := len(f.places)
	f.places = append(f.places, place)
	f.byName[place.Name] = at
	f.byNumber[place.Number] = append(f.byNumber[place.Number], at)
	f.byChassis[place.Chassis] = append(f.byChassis[place.Chassis], at)
	if _, isThere := f.byAddress[place.MMC]; !isThere && place.MMC.IsValid() {
		f.byAddress[place.MMC] = at
	}
}

// Subnet is the network that .2 belongs to: that of all BMCs. Not valid if they are in several.
func (f *Fleet) Subnet() netip.Prefix {
	var subnet netip.Prefix
	for i := range f.places {
		if !f.places[i].MMC.Is4() || subnet.IsValid() && subnet.Contains(f.places[i].MMC) {
			continue
		}
		if subnet.IsValid() {
			return netip.Prefix{}
		}
		subnet = netip.PrefixFrom(f.places[i].MMC, bitsOfSubnet).Masked()
	}
	return subnet
}

// Find reads a list and resolves it. A Chassis may have a name that no other list has, such as one without a number.
func (f *Fleet) Find(text string) (Selection, error) {
	if !slices.ContainsFunc(strings.Split(text, ","), f.isOddName) {
		list, err := ranges.Parse(text, f.Subnet())
		if err != nil {
			return Selection{}, err
		}
		return f.Resolve(list)
	}
	r := f.newResolution()
	for part := range strings.SplitSeq(text, ",") {
		if f.isOddName(part) {
			r.addChassis(part)
			continue
		}
		list, err := ranges.Parse(part, f.Subnet())
		if err == nil {
			err = r.addList(list)
		}
		if err != nil {
			return Selection{}, err
		}
	}
	return r.Selection, nil
}

// isOddName: the name of a Chassis that is not a name with a number in it.
func (f *Fleet) isOddName(part string) bool {
	if !slices.Contains(f.chassis, part) {
		return false
	}
	list, err := ranges.Parse(part, netip.Prefix{})
	return err != nil || len(list) != 1 || list[0].Kind != ranges.Name || list[0].Count != 1
}

// Resolve finds the servers and controllers of a list, or says which of its items is unknown and which is the nearest.
func (f *Fleet) Resolve(list ranges.List) (Selection, error) {
	r := f.newResolution()
	err := r.addList(list)
	if err != nil {
		return Selection{}, err
	}
	return r.Selection, nil
}

type resolution struct {
	Selection

	fleet *Fleet
	seen  map[string]bool
}

func (f *Fleet) newResolution() *resolution { return &resolution{fleet: f, seen: map[string]bool{}} }

func (r *resolution) addList(list ranges.List) error {
	for _, item := range list.Items() {
		if err := r.addItem(item); err != nil {
			return err
		}
	}
	return nil
}

func (r *resolution) addItem(item ranges.Item) error {
	f := r.fleet
	if len(f.chassis) == 0 {
		return &ranges.Error{Element: item.Text, Reason: "is unknown", Hint: "there is no Chassis yet; make one"}
	}
	switch item.Kind {
	case ranges.Number:
		return r.addNumber(item)
	case ranges.Address:
		if at, isThere := f.byAddress[item.Address]; isThere {
			r.addPlace(at)
			return nil
		}
		return unknown(item.Text, "is the address of no server's BMC", f.nearestAddress(item.Address))
	case ranges.Name:
	}
	if at, isThere := f.byController[item.Text]; isThere {
		r.addController(at)
		return nil
	}
	if slices.Contains(f.chassis, item.Text) {
		r.addChassis(item.Text)
		return nil
	}
	name, isOne := Parse(item.Text)
	at, isThere := f.byName[name.Server()]
	switch {
	case isOne && isThere && name.IsPort():
		return unknown(item.Text, "is a port of a server, not a server", name.Server())
	case isOne && isThere:
		r.addPlace(at)
		return nil
	}
	return unknown(item.Text, "is neither a server nor a Chassis nor one of its controllers", f.nearestName(item))
}

func (r *resolution) addNumber(item ranges.Item) error {
	found := r.fleet.byNumber[int32(item.Number)] //nolint:gosec // ranges reads at most nine digits
	switch len(found) {
	case 0:
		return unknown(item.Text, "is the number of no server", r.fleet.nearestNumber(item.Number))
	case 1:
		r.addPlace(found[0])
		return nil
	}
	var all []string
	for _, at := range found {
		all = append(all, r.fleet.places[at].Name)
	}
	return &ranges.Error{
		Element: item.Text, Reason: "is the number of " + strings.Join(all, " and of "), Hint: "write the name",
	}
}

func (r *resolution) addPlace(at int) {
	if place := r.fleet.places[at]; !r.seen[place.Name] {
		r.seen[place.Name] = true
		r.Places = append(r.Places, place)
	}
}

func (r *resolution) addController(at int) {
	if controller := r.fleet.controllers[at]; !r.seen[controller.Name] {
		r.seen[controller.Name] = true
		r.Controllers = append(r.Controllers, controller)
	}
}

func (r *resolution) addChassis(name string) {
	for _, at := range r.fleet.byChassis[name] {
		r.addPlace(at)
	}
}

func unknown(text, reason, nearest string) error {
	hint := "list those that there are with kubectl get chassis,servers"
	if nearest != "" {
		hint = "the nearest is " + nearest
	}
	return &ranges.Error{Element: text, Reason: reason, Hint: hint}
}

func (f *Fleet) nearestNumber(number uint32) string {
	return f.nearestPlace(func(p Place) (int64, bool) { return distance(int64(p.Number), int64(number)), true })
}

func (f *Fleet) nearestAddress(address netip.Addr) string {
	nearest := f.nearestPlace(func(p Place) (int64, bool) {
		return distance(number(p.MMC), number(address)), p.MMC.Is4()
	})
	if at, isThere := f.byName[nearest]; isThere {
		return fmt.Sprintf("%s, that of %s", f.places[at].MMC, nearest)
	}
	return nearest
}

func (f *Fleet) nearestPlace(distanceTo func(Place) (int64, bool)) string {
	name, least := "", int64(-1)
	for _, place := range f.places {
		if d, isOne := distanceTo(place); isOne && (least < 0 || d < least) {
			name, least = place.Name, d
		}
	}
	return name
}

// nearestName is the server with this prefix and the nearest number, or else the name that differs in the fewest letters.
func (f *Fleet) nearestName(item ranges.Item) string {
	nearest := f.nearestPlace(func(p Place) (int64, bool) {
		name, isOne := Parse(p.Name)
		return distance(int64(p.Number), int64(item.Number)), isOne && name.Prefix == item.Prefix
	})
	if nearest != "" && (item.Suffix == "" || item.Suffix == mmcSuffix) {
		return nearest + item.Suffix
	}
	all := slices.Clone(f.chassis)
	for i := range f.controllers {
		all = append(all, f.controllers[i].Name)
	}
	for i := range f.places {
		all = append(all, f.places[i].Name, MMC(f.places[i].Name))
	}
	if len(all) == 0 {
		return ""
	}
	best := slices.MinFunc(all, func(a, b string) int {
		return cmp.Compare(typos(a, item.Text), typos(b, item.Text))
	})
	if typos(best, item.Text) > maxTypos {
		return nearest
	}
	return best
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

func number(address netip.Addr) int64 {
	if !address.Is4() {
		return 0
	}
	bytes := address.As4()
	return int64(binary.BigEndian.Uint32(bytes[:]))
}

// typos is how many letters are to be changed, added or left out to get from one text to the other.
func typos(a, b string) int {
	before := make([]int, len(b)+1)
	for j := range before {
		before[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(before[j]+cost, before[j+1]+1, row[j]+1)
		}
		before = row
	}
	return before[len(b)]
}
