package standin_test

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc/standin"
)

// TestIPMIToolJudges lets ipmitool speak with the stand-in, by each cipher suite that we use.
func TestIPMIToolJudges(t *testing.T) {
	if _, err := exec.LookPath("ipmitool"); err != nil {
		t.Skip("SKIPPED: nothing judges the stand-in, because ipmitool is not there; hack/setup.sh box installs it")
	}
	const user, password = "admin", "canary-4mZx"
	critical := uint8(95)
	for _, suite := range []string{"3", "17"} {
		controller, err := standin.Start(standin.Config{
			Username: user, Password: password, SystemGUID: "00112233-4455-4677-8899-aabbccddeeff",
			Manufacturer: "rcbox", Product: "stand-in", Serial: "S-0007", Custom: []string{"SLOT=7"},
			Sensors: []standin.Sensor{
				{Name: "CPU", Type: types.SensorTypeTemperature, Unit: types.SensorUnitType_DegreesC, Count: 41, UpperCritical: &critical},
				{Name: "Power 7", Type: types.SensorTypePowerSupply, Unit: types.SensorUnitType_Watts, Step: 2, Count: 30},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(controller.Close)
		controller.Record(types.SELStandard{
			Timestamp: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), SensorType: types.SensorTypeTemperature, SensorNumber: 1,
			EventReadingType: types.EventReadingTypeThreshold, EventData: types.EventData{EventData1: 0x09},
		})
		run := func(want string, arguments ...string) {
			t.Helper()
			command := exec.CommandContext(t.Context(), "ipmitool", append([]string{
				"-I", "lanplus", "-C", suite, "-H", "127.0.0.1", "-p", strconv.Itoa(int(controller.Address().Port())), "-U", user, "-E",
			}, arguments...)...)
			command.Env = append(command.Environ(), "IPMI_PASSWORD="+password)
			output, err := command.CombinedOutput()
			if err != nil || !strings.Contains(string(output), want) {
				t.Errorf("cipher suite %s: ipmitool %s: %v, no %q in:\n%s", suite, strings.Join(arguments, " "), err, want, output)
			}
		}
		run("is off", "power", "status")
		run("Up/On", "power", "on")
		run("is on", "power", "status")
		run("Soft", "power", "soft")
		run("is off", "power", "status")
		run("Down/Off", "power", "off")
		run("Reset", "power", "reset")
		run("Set Boot Device to pxe", "chassis", "bootdev", "pxe")
		run("Boot Device Selector : Force PXE", "chassis", "bootparam", "get", "5")
		run("15 seconds", "chassis", "identify", "15")
		run("2.07", "mc", "info")
		run("00112233-4455-4677-8899-aabbccddeeff", "mc", "guid")
		run("SLOT=7", "fru", "print", "0")
		run("41 degrees C", "sdr", "list")
		run("95.000", "sensor", "list")
		run("60.000     | Watts", "sensor", "list")
		run("Temperature #0x01 | Upper Critical going high | Asserted", "sel", "list")
		orders := []string{"up", "soft", "down", "reset"}
		if seen := controller.Seen(); !slices.Equal(seen.Orders, orders) || !seen.Network || seen.IdentifySeconds != 15 {
			t.Errorf("cipher suite %s: the stand-in saw %+v", suite, seen)
		}
	}
}
