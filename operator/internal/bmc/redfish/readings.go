package redfish

import (
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// typed says whether an error is one of package bmc already.
func typed(err error) bool {
	_, unsupported := errors.AsType[*bmc.UnsupportedError](err)
	_, refused := errors.AsType[*bmc.RefusedError](err)
	return unsupported || refused
}

// Identity reads what the hardware is.
func (c *Client) Identity(ctx context.Context) (bmc.Identity, error) {
	var identity bmc.Identity
	err := c.call(ctx, "identity", func() error {
		if c.system == "" {
			return &bmc.UnsupportedError{Address: c.address, What: "identity", Detail: "it has no system, or several"}
		}
		system, err := get[struct {
			UUID, Manufacturer, Model, SerialNumber string
			EthernetInterfaces                      link
			Links                                   struct{ Chassis []link }
		}](c, c.system)
		if err != nil {
			return err
		}
		identity = bmc.Identity{
			Manufacturer: bmc.Printable(system.Manufacturer),
			Product:      bmc.Printable(system.Model),
			Serial:       bmc.Printable(system.SerialNumber),
		}
		// A text that is no GUID, or one that many boards have, identifies no system.
		if uuid := strings.ToLower(system.UUID); bmc.SameSystem(uuid, uuid) {
			identity.SystemGUID = uuid
		}
		if len(c.manager) > 0 {
			manager, err := get[struct{ FirmwareVersion string }](c, c.manager[0])
			if err != nil && !isAbsent(err) {
				return err
			}
			identity.Firmware = bmc.Printable(manager.FirmwareVersion)
		}
		if identity.Slot, err = c.slot(system.Links.Chassis); err != nil {
			return err
		}
		if identity.MACs, err = c.addresses(system.EthernetInterfaces.ID); isAbsent(err) {
			return nil
		}
		return err
	})
	return identity, err
}

// slot is the number of the slot that a system's only chassis, its blade, reports; 0: it reports none.
func (c *Client) slot(chassis []link) (int, error) {
	if len(chassis) != 1 || chassis[0].ID == "" {
		return 0, nil
	}
	blade, err := get[struct {
		Location struct {
			PartLocation struct {
				LocationType         string
				LocationOrdinalValue int
			}
		}
	}](c, chassis[0].ID)
	switch at := blade.Location.PartLocation; {
	case errors.Is(err, errMalformed) || isAbsent(err):
		return 0, nil // as if it reported no slot
	case err != nil:
		return 0, err
	case at.LocationType != "Slot" && at.LocationType != "Bay" || at.LocationOrdinalValue < 1:
		return 0, nil
	default:
		return at.LocationOrdinalValue, nil
	}
}

// addresses numbers the NICs in the order of their names, in which numbers count as numbers.
func (c *Client) addresses(collection string) (map[int]string, error) {
	uris, err := c.members(collection)
	if err != nil {
		return nil, err
	}
	type nic struct {
		ID                              string `json:"Id"` //nolint:tagliatelle // Redfish's name
		MACAddress, PermanentMACAddress string
	}
	nics := make([]nic, 0, len(uris))
	for _, uri := range uris {
		read, err := get[nic](c, uri)
		if err != nil {
			return nil, err
		}
		nics = append(nics, read)
	}
	slices.SortFunc(nics, func(a, b nic) int { return compareNames(a.ID, b.ID) })
	macs := make(map[int]string)
	for i, nic := range nics {
		for _, text := range []string{nic.PermanentMACAddress, nic.MACAddress} {
			if mac, err := net.ParseMAC(text); err == nil && len(mac) == 6 && macs[i+1] == "" {
				macs[i+1] = mac.String()
			}
		}
	}
	return macs, nil
}

// compareNames puts NIC.2 before NIC.10.
func compareNames(a, b string) int {
	if len(a) != len(b) && strings.TrimRight(a, "0123456789") == strings.TrimRight(b, "0123456789") {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// reading is what sensors of all kinds have. What the controller does not know is null.
type reading struct {
	Name, FanName, MemberID string
	Reading                 *float64
	ReadingUnits            string
	ReadingCelsius          *float64
	ReadingVolts            *float64
	PowerConsumedWatts      *float64
	LowerThresholdCritical  *float64
	UpperThresholdCritical  *float64
	Thresholds              struct{ LowerCritical, UpperCritical struct{ Reading *float64 } }
}

// Sensors reads the sensors of each chassis: those of the newer model if there are some, or else of the older one. Their names are in
// the readings, so that all are read.
func (c *Client) Sensors(ctx context.Context, isWanted func(name string) bool) ([]bmc.Sensor, error) {
	var sensors []bmc.Sensor
	err := c.call(ctx, "sensors", func() error {
		for _, uri := range c.chassis {
			chassis, err := get[struct{ Sensors, Thermal, Power link }](c, uri)
			if err != nil {
				return err
			}
			if err := c.newer(chassis.Sensors.ID, &sensors); err != nil {
				return err
			}
			if chassis.Sensors.ID != "" {
				continue
			}
			if err := c.older(chassis.Thermal.ID, chassis.Power.ID, &sensors); err != nil {
				return err
			}
		}
		return nil
	})
	if isWanted != nil {
		sensors = slices.DeleteFunc(sensors, func(s bmc.Sensor) bool { return !isWanted(s.Name) })
	}
	return sensors, err
}

func (c *Client) newer(collection string, sensors *[]bmc.Sensor) error {
	uris, err := c.members(collection)
	if err != nil {
		return err
	}
	units := map[string]string{"Cel": "C", "{rev}/min": "RPM"}
	for _, uri := range uris {
		read, err := get[reading](c, uri)
		if err != nil {
			return err
		}
		unit := read.ReadingUnits
		if short := units[unit]; short != "" {
			unit = short
		}
		add(sensors, read.Name, read.Reading, unit, read.Thresholds.LowerCritical.Reading, read.Thresholds.UpperCritical.Reading)
	}
	return nil
}

func (c *Client) older(thermal, power string, sensors *[]bmc.Sensor) error {
	if thermal != "" {
		read, err := get[struct{ Temperatures, Fans list[reading] }](c, thermal)
		if err != nil {
			return err
		}
		for _, r := range read.Temperatures {
			add(sensors, r.Name, r.ReadingCelsius, "C", r.LowerThresholdCritical, r.UpperThresholdCritical)
		}
		for _, r := range read.Fans {
			unit := r.ReadingUnits
			if unit == "Percent" {
				unit = "%"
			}
			add(sensors, first(r.Name, r.FanName), r.Reading, unit, r.LowerThresholdCritical, r.UpperThresholdCritical)
		}
	}
	if power != "" {
		read, err := get[struct{ PowerControl, Voltages list[reading] }](c, power)
		if err != nil {
			return err
		}
		for i, r := range read.PowerControl {
			add(sensors, first(r.Name, "Power "+strconv.Itoa(i+1)), r.PowerConsumedWatts, "W", nil, nil)
		}
		for _, r := range read.Voltages {
			add(sensors, r.Name, r.ReadingVolts, "V", r.LowerThresholdCritical, r.UpperThresholdCritical)
		}
	}
	return nil
}

// add leaves out what has no reading.
func add(sensors *[]bmc.Sensor, name string, value *float64, unit string, lower, upper *float64) {
	if value == nil {
		return
	}
	rounded := math.Round(*value*1000) / 1000
	*sensors = append(*sensors, bmc.Sensor{
		Name: bmc.Printable(name), Value: rounded, Unit: bmc.Printable(unit), Lower: lower, Upper: upper,
		Beyond: lower != nil && rounded <= *lower || upper != nil && rounded >= *upper,
	})
}

// event is an entry of a log. Controllers put them into the collection, or references to them.
type event struct {
	link

	Identifier string `json:"Id"` //nolint:tagliatelle // Redfish's name
	Created    string
	Message    string
	SensorType string
	EntryType  string
	EntryCode  string
}

// Log reads the newest entries of all logs of the controller and of the server together, oldest first.
func (c *Client) Log(ctx context.Context) ([]bmc.LogEntry, error) {
	var entries []bmc.LogEntry
	err := c.call(ctx, "event log", func() error {
		for _, owner := range slices.Concat(c.manager, []string{c.system}) {
			if owner == "" {
				continue
			}
			resource, err := get[struct{ LogServices link }](c, owner)
			if err != nil {
				return err
			}
			services, err := c.members(resource.LogServices.ID)
			if err != nil {
				return err
			}
			for _, service := range services {
				if err := c.readLog(service, &entries); err != nil {
					return err
				}
			}
		}
		return nil
	})
	slices.SortStableFunc(entries, func(a, b bmc.LogEntry) int { return a.At.Compare(b.At) })
	return entries[max(len(entries)-bmc.MaxLog, 0):], err
}

func (c *Client) readLog(service string, entries *[]bmc.LogEntry) error {
	log, err := get[struct{ Entries link }](c, service)
	if err != nil || log.Entries.ID == "" {
		return err
	}
	page, err := get[struct{ Members pageOfLog }](c, log.Entries.ID) // the first page has the newest entries, or all of them
	if err != nil {
		return err
	}
	for _, entry := range page.Members {
		if entry.Created == "" && entry.Message == "" {
			if entry, err = get[event](c, entry.ID); err != nil {
				return err
			}
		}
		id, _ := strconv.Atoi(entry.Identifier) // some have names
		at, _ := time.Parse(time.RFC3339, entry.Created)
		*entries = append(*entries, bmc.LogEntry{
			ID: id, At: bmc.EventTime(at), Sensor: bmc.Printable(entry.SensorType), Text: bmc.Printable(entry.Message),
			Asserted: !strings.HasPrefix(entry.EntryCode, "Deassert"),
		})
	}
	return nil
}

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
