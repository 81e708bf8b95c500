// Package redfishd is a stand-in for a BMC that speaks Redfish, with one server and with faults. Unlike the emulator of sushy-tools, it
// does with a boot override what the standard says: one that is for the next start alone (Once) is gone after that start. It judges
// nothing.
package redfishd

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/test/box/sushy"
)

const (
	root     = "/redfish/v1"
	system   = root + "/Systems/1"
	chassis  = root + "/Chassis/1"
	manager  = root + "/Managers/1"
	log      = manager + "/LogServices/SEL"
	maxBody  = 64 << 10
	patience = 10 * time.Second
)

// Values of BootSourceOverrideEnabled.
const (
	Disabled   = "Disabled"
	Once       = "Once"
	Continuous = "Continuous"
)

// Hardware is what the stand-in reports about its server.
type Hardware struct {
	UUID, MAC, Serial string
	Slot              int
}

// Faults of a BMC. The zero value has none.
type Faults struct {
	// KeepsBoot: it says yes to a boot override, and keeps the former one.
	KeepsBoot bool
	// BootsAlways: it makes each boot override one for all starts.
	BootsAlways bool
	// Hangs: it accepts connections and requests, and answers none.
	Hangs bool
}

// State is the state of the server, as the stand-in knows it.
type State struct {
	On, Lit bool
	// Enabled and Target are its boot override.
	Enabled, Target string
	// Booted are the sources of its starts: the target of an override, or "" without one.
	Booted []string
	// Orders are the changes of power that it was told.
	Orders []string
}

// BMC is a running stand-in.
type BMC struct {
	// CA is the authority that signed its certificate, as PEM.
	CA string

	username, password string
	hardware           Hardware

	mutex  sync.Mutex
	state  State
	faults Faults
	// repaired is closed when the stand-in answers again.
	repaired chan struct{}
}

// Start starts a stand-in, whose server is off, until the test ends.
func Start(tb testing.TB, address netip.AddrPort, username, password string, hardware Hardware) *BMC {
	tb.Helper()
	b := &BMC{
		username: username, password: password, hardware: hardware, state: State{Enabled: Disabled, Target: "None"},
		repaired: make(chan struct{}),
	}
	_, certificate, key := sushy.Certificate(tb, address.Addr())
	b.CA = certificate
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address))
	if err != nil {
		tb.Fatal(err)
	}
	server := &http.Server{Handler: b, ReadHeaderTimeout: patience}
	var serving sync.WaitGroup
	serving.Go(func() {
		_ = server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}))
	})
	tb.Cleanup(func() {
		b.Fault(func(f *Faults) { *f = Faults{} })
		_ = server.Close()
		serving.Wait()
	})
	return b
}

// State returns a copy of the state.
func (b *BMC) State() State {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	state := b.state
	state.Booted, state.Orders = slices.Clone(state.Booted), slices.Clone(state.Orders)
	return state
}

// Fault changes the faults.
func (b *BMC) Fault(change func(*Faults)) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	wasHanging := b.faults.Hangs
	change(&b.faults)
	if wasHanging && !b.faults.Hangs {
		close(b.repaired)
		b.repaired = make(chan struct{})
	}
}

// ServeHTTP answers one request.
func (b *BMC) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mutex.Lock()
	isHanging, repaired := b.faults.Hangs, b.repaired
	b.mutex.Unlock()
	if isHanging {
		select {
		case <-repaired:
		case <-r.Context().Done():
		}
		return
	}
	if name, password, _ := r.BasicAuth(); r.URL.Path != root+"/" && (name != b.username || password != b.password) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch r.Method {
	case http.MethodGet:
		b.read(w, r.URL.Path)
	case http.MethodPatch, http.MethodPost:
		b.change(w, r)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// read answers with a resource.
func (b *BMC) read(w http.ResponseWriter, path string) {
	members := func(of string) map[string]any { return map[string]any{"Members": []any{link(of)}} }
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC).Format(time.RFC3339)
	resource, isThere := map[string]map[string]any{
		root + "/": {
			"RedfishVersion": "1.15.0", "Systems": link(root + "/Systems"), "Chassis": link(root + "/Chassis"),
			"Managers": link(root + "/Managers"),
		},
		root + "/Systems": members(system), root + "/Chassis": members(chassis), root + "/Managers": members(manager),
		system:                           b.system(),
		system + "/EthernetInterfaces":   members(system + "/EthernetInterfaces/1"),
		system + "/EthernetInterfaces/1": {"Id": "1", "MACAddress": b.hardware.MAC},
		chassis: {
			"Id": "1", "Thermal": link(chassis + "/Thermal"),
			"Location": map[string]any{"PartLocation": map[string]any{"LocationType": "Slot", "LocationOrdinalValue": b.hardware.Slot}},
		},
		chassis + "/Thermal": {"Temperatures": []any{
			map[string]any{"Name": "CPU", "ReadingCelsius": 41, "UpperThresholdCritical": 95},
		}},
		manager:                  {"FirmwareVersion": "2.07", "LogServices": link(manager + "/LogServices")},
		manager + "/LogServices": members(log),
		log:                      {"Entries": link(log + "/Entries")},
		log + "/Entries": {"Members": []any{map[string]any{
			"Id": "1", "Created": at, "Message": "Too hot", "SensorType": "Temperature", "EntryCode": "Assert",
		}}},
	}[path]
	if !isThere {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(resource); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func link(path string) map[string]any { return map[string]any{"@odata.id": path} }

func (b *BMC) system() map[string]any {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	power := "Off"
	if b.state.On {
		power = "On"
	}
	const reset = system + "/Actions/ComputerSystem.Reset"
	return map[string]any{
		"@odata.id": system, "Id": "1", "UUID": b.hardware.UUID, "Manufacturer": "rcbox", "Model": "stand-in",
		"SerialNumber": b.hardware.Serial, "PowerState": power, "LocationIndicatorActive": b.state.Lit,
		"Links":              map[string]any{"Chassis": []any{link(chassis)}},
		"EthernetInterfaces": link(system + "/EthernetInterfaces"),
		"Boot": map[string]any{
			"BootSourceOverrideEnabled": b.state.Enabled, "BootSourceOverrideTarget": b.state.Target,
		},
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target":                            reset,
			"ResetType@Redfish.AllowableValues": []string{"On", "ForceOff", "GracefulShutdown", "ForceRestart"},
		}},
	}
}

// asked is what a request may change.
type asked struct {
	ResetType               string
	LocationIndicatorActive *bool
	Boot                    *struct{ BootSourceOverrideEnabled, BootSourceOverrideTarget string }
}

// change does what a request says.
func (b *BMC) change(w http.ResponseWriter, r *http.Request) {
	var request asked
	if err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(&request); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if lit := request.LocationIndicatorActive; lit != nil {
		b.state.Lit = *lit
	}
	if boot := request.Boot; boot != nil && !b.faults.KeepsBoot {
		b.state.Enabled, b.state.Target = boot.BootSourceOverrideEnabled, boot.BootSourceOverrideTarget
		if b.faults.BootsAlways {
			b.state.Enabled = Continuous
		}
	}
	if request.ResetType != "" {
		b.reset(request.ResetType)
	}
	w.WriteHeader(http.StatusNoContent)
}

// reset carries out an order about power. The caller holds the mutex.
func (b *BMC) reset(order string) {
	b.state.Orders = append(b.state.Orders, order)
	wasOn := b.state.On
	b.state.On = order == "On" || order == "ForceRestart"
	if !b.state.On || order == "On" && wasOn {
		return
	}
	source := ""
	if b.state.Enabled != Disabled {
		source = b.state.Target
	}
	b.state.Booted = append(b.state.Booted, source)
	if b.state.Enabled == Once {
		b.state.Enabled, b.state.Target = Disabled, "None"
	}
}
