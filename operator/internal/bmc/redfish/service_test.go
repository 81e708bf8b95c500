package redfish_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/redfish"
)

const (
	user     = "admin"
	password = "canary-5tYw"
	token    = "token-of-a-session"
)

// service is a stand-in for a controller: it answers what such services answer, in JSON of our own.
type service struct {
	*httptest.Server

	mu     sync.Mutex
	sheets map[string]string // resources by path
	power  string
	led    string
	boot   map[string]string
	// keepsBoot: it says yes to what is to be booted from, and forgets it.
	keepsBoot bool
	orders    []string
	logins    int
	sessions  int
	expired   bool
	basic     bool // it has no sessions
	refuse    int  // status of each order
	// statuses are those of the resources that are refused, by path.
	statuses map[string]int
	requests int
	account  account
	// elsewhere is the service that it sends everybody to.
	elsewhere string
	hang      chan struct{}
}

func start(t *testing.T) *service {
	t.Helper()
	s := &service{power: "Off", led: "Off", account: account{password: password}, sheets: map[string]string{
		"/redfish/v1/Systems": `{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}], "Members@odata.count": 1}`,
		"/redfish/v1/Chassis": `{"Members": [{"@odata.id": "/redfish/v1/Chassis/1"}, {"@odata.id": "/redfish/v1/Chassis/2"}]}`,
		"/redfish/v1/Chassis/1": `{"Id": "1", "Location": {"PartLocation": {"LocationType": "Slot", "LocationOrdinalValue": 7}},
			 "Thermal": {"@odata.id": "/redfish/v1/Chassis/1/Thermal"},
			"Power": {"@odata.id": "/redfish/v1/Chassis/1/Power"}}`,
		"/redfish/v1/Chassis/1/Thermal": `{"Temperatures": [
				{"Name": "CPU", "ReadingCelsius": 41.12345, "UpperThresholdCritical": 95},
				{"Name": "Gone", "ReadingCelsius": null}],
			"Fans": [{"FanName": "Fan 1", "Reading": 4200, "ReadingUnits": "RPM", "LowerThresholdCritical": 5000}]}`,
		"/redfish/v1/Chassis/1/Power": `{"PowerControl": [{"Name": "Slot 7", "PowerConsumedWatts": 22.5},
			{"Name": "Slot 8", "PowerConsumedWatts": null}], "Voltages": [{"Name": "12V", "ReadingVolts": 12.1}]}`,
		"/redfish/v1/Chassis/2":           `{"Id": "2", "Sensors": {"@odata.id": "/redfish/v1/Chassis/2/Sensors"}}`,
		"/redfish/v1/Chassis/2/Sensors":   `{"Members": [{"@odata.id": "/redfish/v1/Chassis/2/Sensors/1"}]}`,
		"/redfish/v1/Chassis/2/Sensors/1": `{"Name": "Inlet", "Reading": -5, "ReadingUnits": "Cel"}`,
		"/redfish/v1/Managers":            `{"Members": [{"@odata.id": "/redfish/v1/Managers/1"}]}`,
		"/redfish/v1/Managers/1": `{"FirmwareVersion": "2.07",
			"LogServices": {"@odata.id": "/redfish/v1/Managers/1/LogServices"}}`,
		"/redfish/v1/Managers/1/LogServices":     `{"Members": [{"@odata.id": "/redfish/v1/Managers/1/LogServices/SEL"}]}`,
		"/redfish/v1/Managers/1/LogServices/SEL": `{"Entries": {"@odata.id": "/redfish/v1/Managers/1/LogServices/SEL/Entries"}}`,
		"/redfish/v1/Managers/1/LogServices/SEL/Entries": `{"Members": [
			{"@odata.id": "/redfish/v1/Managers/1/LogServices/SEL/Entries/2"},
			{"Id": "1", "Created": "2026-11-24T12:00:00Z", "Message": "Too \u001b[31mhot", "SensorType": "Temperature",
				"EntryCode": "Assert"}]}`,
		"/redfish/v1/Managers/1/LogServices/SEL/Entries/2": `{"Id": "2", "Created": "2026-11-24T13:00:00+01:00", "Message": "Cool",
			"EntryCode": "Deassert"}`,
		"/redfish/v1/Systems/1/EthernetInterfaces": `{"Members": [{"@odata.id": "/redfish/v1/Systems/1/EthernetInterfaces/NIC.10"},
			{"@odata.id": "/redfish/v1/Systems/1/EthernetInterfaces/NIC.2"}]}`,
		"/redfish/v1/Systems/1/EthernetInterfaces/NIC.10": `{"Id": "NIC.10", "MACAddress": "52:54:00:04:00:07"}`,
		"/redfish/v1/Systems/1/EthernetInterfaces/NIC.2": `{"Id": "NIC.2", "MACAddress": "02:00:00:00:00:01",
			"PermanentMACAddress": "52-54-00-03-00-07"}`,
	}}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.elsewhere != "" {
		http.Redirect(w, r, s.elsewhere+r.URL.Path, http.StatusFound)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var asked map[string]any
	_ = json.Unmarshal(body, &asked)
	switch {
	case r.URL.Path == "/redfish/v1/" || r.URL.Path == "/redfish/v1":
		s.root(w)
	case r.URL.Path == "/redfish/v1/SessionService/Sessions" && r.Method == http.MethodPost:
		s.logins++
		if asked["UserName"] != user || asked["Password"] != s.account.password {
			s.fail(w, http.StatusUnauthorized)
			return
		}
		s.expired = false
		s.sessions++
		w.Header().Set("X-Auth-Token", token)
		w.Header().Set("Location", s.URL+"/redfish/v1/SessionService/Sessions/1")
		w.WriteHeader(http.StatusCreated)
	case !s.authorized(r):
		s.fail(w, http.StatusUnauthorized)
	case s.statuses[r.URL.Path] != 0:
		s.fail(w, s.statuses[r.URL.Path])
	case r.Method == http.MethodDelete:
		s.sessions--
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(r.URL.Path, "/redfish/v1/AccountService") && !s.account.isMissing:
		s.accounts(w, r, asked)
	case r.URL.Path == "/redfish/v1/Systems/1":
		s.system(w, r, asked)
	case r.URL.Path == "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset":
		s.reset(w, asked)
	case s.sheets[r.URL.Path] != "":
		_, _ = io.WriteString(w, s.sheets[r.URL.Path])
	default:
		s.fail(w, http.StatusNotFound)
	}
}

// fail answers with an error. Some services repeat what they were sent, so this one does.
func (s *service) fail(w http.ResponseWriter, status int) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"error": {"code": "Base.1.0.GeneralError", "message": "you sent `+password+`"}}`)
}

func (s *service) root(w io.Writer) {
	sessions := `"Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}},`
	if s.basic {
		sessions = ""
	}
	if !s.account.isMissing {
		sessions += `"AccountService": {"@odata.id": "/redfish/v1/AccountService"},`
	}
	_, _ = io.WriteString(w, `{`+sessions+`"Systems": {"@odata.id": "/redfish/v1/Systems"},
		"Chassis": {"@odata.id": "/redfish/v1/Chassis"}, "Managers": {"@odata.id": "/redfish/v1/Managers"}}`)
}

func (s *service) authorized(r *http.Request) bool {
	if s.basic {
		s.logins++
		name, secret, _ := r.BasicAuth()
		return name == user && secret == s.account.password
	}
	return r.Header.Get("X-Auth-Token") == token && !s.expired
}

func (s *service) system(w http.ResponseWriter, r *http.Request, asked map[string]any) {
	if r.Method == http.MethodPatch {
		if led, has := asked["IndicatorLED"].(string); has {
			s.led = led
		}
		if boot, has := asked["Boot"].(map[string]any); has && !s.keepsBoot {
			s.boot = make(map[string]string)
			for key, value := range boot {
				s.boot[key], _ = value.(string)
			}
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_, _ = io.WriteString(w, `{"@odata.id": "/redfish/v1/Systems/1", "Id": "1",
		"Links": {"Chassis": [{"@odata.id": "/redfish/v1/Chassis/1"}]}, "PowerState": "`+s.power+`", "IndicatorLED": "`+s.led+`",
		"Boot": {"BootSourceOverrideTarget": "`+s.boot["BootSourceOverrideTarget"]+`",
			"BootSourceOverrideEnabled": "`+s.boot["BootSourceOverrideEnabled"]+`"},
		"UUID": "00112233-4455-4677-8899-AABBCCDDEEFF", "Manufacturer": "rcbox", "Model": "stand-in", "SerialNumber": "S-0007",
		"EthernetInterfaces": {"@odata.id": "/redfish/v1/Systems/1/EthernetInterfaces"},
		"Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
			"ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart"]}}}`)
}

func (s *service) reset(w http.ResponseWriter, asked map[string]any) {
	order, _ := asked["ResetType"].(string)
	s.orders = append(s.orders, order)
	if s.refuse != 0 {
		s.fail(w, s.refuse)
		return
	}
	s.power = map[string]string{"On": "On", "ForceOff": "Off", "GracefulShutdown": "Off", "ForceRestart": "On"}[order]
	w.WriteHeader(http.StatusNoContent)
}

// change changes the service.
func (s *service) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *service) access() bmc.Access {
	return bmc.Access{
		Address: netip.MustParseAddrPort(strings.TrimPrefix(s.URL, "https://")), Protocol: bmc.Redfish, Username: user,
		Password: bmc.NewSecret(password),
	}
}

func (s *service) dial(ctx context.Context, access bmc.Access) (*redfish.Client, error) {
	trusted := x509.NewCertPool()
	trusted.AddCert(s.Certificate())
	return redfish.Dialer{RootCAs: trusted}.Dial(ctx, access)
}

func (s *service) open(t *testing.T) *redfish.Client {
	t.Helper()
	session, err := s.dial(t.Context(), s.access())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}
