package rack

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// power is what ipmi_sim runs to switch blades.
//
//go:embed power.sh
var power []byte

// Numbers of sensors. A controller of a blade has its temperature; a chassis manager has what each slot draws, by the slot's number, and
// whether it is in charge, and how its power supplies and fans do.
const (
	temperatureSensor = 1
	chargeSensor      = 60
	firstPartSensor   = 61

	statesOfSensor = 15
)

// parts of a chassis, how many there are, and what a sensor shows of one that works: watts that it gives, and hundreds of revolutions.
var (
	parts   = []Part{PowerSupply, PowerSupply, Fan, Fan, Fan, Fan}
	working = map[Part]string{PowerSupply: "120", Fan: "42"}
	unitOf  = map[Part]byte{PowerSupply: unitWatts, Fan: unitNone}
	kindOf  = map[Part]byte{PowerSupply: kindPowerSupply, Fan: kindFan}
)

// eachPart calls with the number of each part among those of its kind.
func eachPart(call func(at int, part Part, n int)) {
	count := map[Part]int{}
	for at, part := range parts {
		count[part]++
		call(at, part, count[part])
	}
}

// write makes the folder of a chassis.
func (r *Rack) write(chassis *Chassis) error {
	dir := r.dir(chassis)
	errs := []error{os.MkdirAll(filepath.Join(dir, "state"), dirsAreFor)}
	file := func(name string, text []byte) {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), text, filesAreFor))
	}
	errs = append(errs, r.openSerial(chassis))
	file("power.sh", power)
	file("requests", nil)
	file("commands", []byte(r.commands(chassis)))
	file("lan.conf", []byte(r.lan(chassis)))
	for i := range chassis.Managers {
		errs = append(errs, replace(r.charge(chassis, i), strconv.Itoa(1-min(i, 1))))
	}
	for i := range chassis.SwitchBoards {
		links(i+1, func(_ byte, name string) { errs = append(errs, replace(r.link(chassis, i+1, name), "1")) })
	}
	eachPart(func(_ int, part Part, n int) { errs = append(errs, replace(r.part(chassis, part, n), working[part])) })
	for i := range chassis.Slots {
		slot := &chassis.Slots[i]
		errs = append(errs, os.MkdirAll(filepath.Dir(r.file(chassis.Name, slot.Number, "")), dirsAreFor),
			os.MkdirAll(filepath.Join(dir, "slots", strconv.Itoa(slot.Number)), dirsAreFor))
		errs = append(errs, r.Set(chassis.Name, slot.Number, Off), replace(r.file(chassis.Name, slot.Number, "temperature"), "33"))
		file(filepath.Join("slots", strconv.Itoa(slot.Number), "fru"), fru(slot))
	}
	return errors.Join(errs...)
}

// lan says at which addresses controllers are, and who may use them.
func (r *Rack) lan(chassis *Chassis) string {
	var text strings.Builder
	fmt.Fprintf(&text, "name %q\n", chassis.Name)
	mc := func(number int, address, guid, whom, serial string) {
		fmt.Fprintf(&text, "set_working_mc %#x\n  startlan 1\n    addr %s 623\n    priv_limit admin\n", number, address)
		for _, privilege := range []string{"callback", "user", "operator", "admin"} {
			fmt.Fprintf(&text, "    allowed_auths_%s md5\n", privilege)
		}
		fmt.Fprintf(&text, "    guid %s\n  endlan\n", guid)
		fmt.Fprintf(&text, "  chassis_control \"sh %s %s %s\"\n", filepath.Join(r.dir(chassis), "power.sh"), r.dir(chassis), whom)
		fmt.Fprintf(&text, "  user 2 true %q %q admin 10 none md5\n%s", r.options.Username, r.options.Password, serial)
	}
	for i, address := range chassis.Managers {
		mc(managerMC+i*stepOfMC, address.String(), fmt.Sprintf("%032x", len(chassis.Name)+i), string(Manager(i+1)), "")
	}
	for i, address := range chassis.SwitchBoards {
		mc(firstBoard+i*stepOfMC, address.String(), fmt.Sprintf("%032x", 16+len(chassis.Name)+i), "none", "")
	}
	for i := range chassis.Slots {
		slot := &chassis.Slots[i]
		mc(firstBlade+i*stepOfMC, slot.Address.String(), slot.Blade.GUID, string(BladeIn(slot.Number)),
			fmt.Sprintf("  sol \"tcp:%s\" 115200\n", r.Serial(chassis.Name, slot.Number).address()))
	}
	return text.String()
}

// commands say what controllers there are, and what they measure.
func (r *Rack) commands(chassis *Chassis) string {
	var text strings.Builder
	fmt.Fprintf(&text, "mc_setbmc %#x\n", managerMC)
	mc := func(number byte, product int) {
		fmt.Fprintf(&text, "mc_add %#x 0 no-device-sdrs 0x23 9 8 0x9f 0x000077 %#04x persist_sdr\n", number, product)
		fmt.Fprintf(&text, "sel_enable %#x 1000 0x0a\n", number)
	}
	sensor := func(number, sensor, kind, unit byte, name, file string) {
		fmt.Fprintf(&text, "sensor_add %#x 0 %d %#x 0x01 poll 500 file %q\n", number, sensor, kind, file)
		none := strings.Repeat(" "+strings.Repeat("0", statesOfSensor), 4) // no events of any state, in either direction
		fmt.Fprintf(&text, "sensor_set_event_support %#x 0 %d enable scanning none%s\n", number, sensor, none)
		fmt.Fprintf(&text, "main_sdr_add %#x", number)
		for _, b := range sdr(number, sensor, kind, unit, name) {
			fmt.Fprintf(&text, " %#02x", b)
		}
		text.WriteString("\n")
	}
	for i := range chassis.Managers {
		number := byte(managerMC + i*stepOfMC)
		mc(number, 0x0102)
		for j := range chassis.Slots {
			slot := chassis.Slots[j].Number
			name, file := fmt.Sprintf("Slot %02d Power", slot), r.file(chassis.Name, slot, "watts")
			sensor(number, byte(slot), kindOther, unitWatts, name, file) //nolint:gosec // at most maxSlots
		}
		sensor(number, chargeSensor, kindOther, unitNone, "In Charge", r.charge(chassis, i))
		eachPart(func(at int, part Part, n int) {
			sensor(number, firstPartSensor+byte(at), kindOf[part], unitOf[part], //nolint:gosec // few
				fmt.Sprintf("%s %d", part, n), r.part(chassis, part, n))
		})
		fmt.Fprintf(&text, "mc_enable %#x\n", number)
	}
	for i := range chassis.SwitchBoards {
		number := byte(firstBoard + i*stepOfMC)
		mc(number, 0x0104)
		links(i+1, func(at byte, name string) {
			sensor(number, at, kindOther, unitNone, name, r.link(chassis, i+1, name))
		})
		fmt.Fprintf(&text, "mc_enable %#x\n", number)
	}
	for i := range chassis.Slots {
		slot, number := chassis.Slots[i].Number, byte(firstBlade+i*stepOfMC)
		mc(number, 0x0103)
		fmt.Fprintf(&text, "mc_add_fru_data %#x 0 %d file 0 %q\n", number, fruBytes, r.file(chassis.Name, slot, "fru"))
		sensor(number, temperatureSensor, kindTemperature, unitCelsius, "CPU Temp", r.file(chassis.Name, slot, "temperature"))
		fmt.Fprintf(&text, "mc_enable %#x\n", number)
	}
	return text.String()
}
