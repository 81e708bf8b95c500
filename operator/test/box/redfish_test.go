package box_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/box/redfishd"
	"rcbox.dev/rcbox/operator/test/box/sushy"
	"rcbox.dev/rcbox/operator/test/testbed"
)

// The chassis whose BMCs speak Redfish: three servers, and no chassis manager. The BMCs of the first two are emulators of sushy-tools, and
// the BMC of the third one is a stand-in with faults.
const (
	redfishChassisName, redfishSecret = "xeon", "xeon-bmc"
	redfishPort                       = 8443
	redfishEmulators, redfishServers  = 2, 3
	// redfishFirst is a number that no other Chassis has, because other tests name servers by their numbers alone.
	redfishFirst = 301
)

func redfishName(n int) string { return fmt.Sprintf("xeon%03d", redfishFirst+n-1) }

func redfishUUID(n int) string { return fmt.Sprintf("b1234567-0007-4000-a000-%012d", n) }

func redfishMAC(n int) string { return fmt.Sprintf("52:54:00:05:00:%02x", n) }

// redfishChassis lets the controller carry out each verb on servers whose BMCs speak Redfish, and asks the emulators and the stand-in
// themselves for the results. The emulators answer yes at once, and take from 1 to 11 seconds to carry out an order.
func redfishChassis(b *bed) {
	address := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 5, byte(180 + n)}), redfishPort)
	}
	var emulators []*sushy.Emulator
	var trusted []string
	for n := 1; n <= redfishEmulators; n++ {
		emulator := sushy.Start(b, address(n), username, sushy.Server{Name: redfishName(n), UUID: redfishUUID(n), MAC: redfishMAC(n)})
		emulators, trusted = append(emulators, emulator), append(trusted, emulator.CA)
	}
	standIn := redfishd.Start(b, address(redfishServers), username, sushy.Password, redfishd.Hardware{
		UUID: redfishUUID(redfishServers), MAC: redfishMAC(redfishServers), Serial: "S-0003", Slot: redfishServers,
	})
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: redfishSecret, Namespace: testbed.OperatorNamespace}, Type: v1alpha1.SecretTypeBMC,
		StringData: map[string]string{
			"username": username, "password": sushy.Password, "ca.crt": strings.Join(append(trusted, standIn.CA), ""),
		},
	}
	b.must(b.Client.Create(b.Context(), object))
	chassis := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: redfishChassisName}, Spec: v1alpha1.ChassisSpec{
		Model: "XeonHighDensity", NamePrefix: "xeon", FirstServer: redfishFirst, Slots: fmt.Sprintf("1-%d", redfishServers),
		Management: v1alpha1.ChassisManagement{
			CredentialsSecret: redfishSecret, MMC: fmt.Sprintf("192.168.5.181+%d", redfishServers), Port: redfishPort,
		},
		Networks: []v1alpha1.ChassisNetwork{{NIC: 1}}, Power: v1alpha1.ChassisPower{StartsAtOnce: redfishServers},
	}}
	b.must(b.Client.Create(b.Context(), chassis))
	defer b.removeRedfish(chassis)
	b.power(v1alpha1.PowerOff, redfishName(1), redfishName(2), redfishName(redfishServers))
	b.Run("servers", func(t *testing.T) {
		for name, run := range map[string]func(*bed){
			"on, soft, boot device and light": func(b *bed) {
				b.redfishIdentity(1)
				b.redfishPower(1, emulators[0], v1alpha1.ActionOn, v1alpha1.ActionSoft, v1alpha1.ActionOff)
				b.redfishBootAlways(1, emulators[0])
				b.redfishLight(1, func() bool { return b.stateOf(emulators[0]).IndicatorLED == "Blinking" })
			},
			"on, cycle and off": func(b *bed) {
				b.redfishPower(2, emulators[1], v1alpha1.ActionOn, v1alpha1.ActionCycle, v1alpha1.ActionOff)
			},
			"stand-in": func(b *bed) {
				b.redfishInventory(redfishServers)
				b.redfishBootOnce(redfishServers, standIn)
				b.redfishLight(redfishServers, func() bool { return standIn.State().Lit })
				b.redfishSilent(redfishServers, standIn)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(b.of(t))
			})
		}
	})
	for n, emulator := range emulators {
		if state := b.stateOf(emulator); state.PowerState != "Off" {
			b.Errorf("%s was switched off last, and is %+v", redfishName(n+1), state)
		}
	}
}

func (b *bed) stateOf(judge *sushy.Emulator) sushy.State {
	b.Helper()
	state, err := judge.State(b.Context())
	b.must(err)
	return state
}

// removeRedfish removes the Chassis and its Servers for the other tests. No garbage collector runs here to delete the Servers.
func (b *bed) removeRedfish(chassis *v1alpha1.Chassis) {
	b.Helper()
	b.must(b.Client.Delete(b.Context(), chassis))
	for n := 1; n <= redfishServers; n++ {
		server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: redfishName(n)}}
		b.must(client.IgnoreNotFound(b.Client.Delete(b.Context(), server)))
	}
}

func (b *bed) serverHas(name, kind string, status metav1.ConditionStatus, reason string) {
	b.Helper()
	b.Eventually(patience, func() string {
		if c := b.condition(name, kind); c == nil || c.Status != status || c.Reason != reason {
			return fmt.Sprintf("%s of %s is not %s %s, but %+v", kind, name, status, reason, c)
		}
		return ""
	})
}

// redfishIdentity: the status has the hardware that the emulator reports.
func (b *bed) redfishIdentity(n int) {
	b.Helper()
	b.Eventually(patience, func() string {
		status := b.server(redfishName(n)).Status
		if status.MMC.SystemGUID != redfishUUID(n) || len(status.Ports) != 1 || status.Ports[0].MAC != redfishMAC(n) ||
			status.Hardware.Manufacturer == "" {
			return fmt.Sprintf("%+v", status)
		}
		return ""
	})
	b.serverHas(redfishName(n), v1alpha1.ConditionFenceable, metav1.ConditionFalse, "NoProof")
	b.serverHas(redfishName(n), v1alpha1.ConditionHealthy, metav1.ConditionTrue, "WithinLimits")
}

// redfishInventory: the status has the hardware, sensors and events that the stand-in reports.
func (b *bed) redfishInventory(n int) {
	b.Helper()
	b.redfishIdentity(n)
	b.Eventually(patience, func() string {
		status := b.server(redfishName(n)).Status
		if status.Hardware.Serial != "S-0003" || len(status.Sensors) != 1 || status.Sensors[0].Value != "41 C" ||
			len(status.Events) != 1 || !strings.Contains(status.Events[0].Text, "Too hot") {
			return fmt.Sprintf("%+v", status)
		}
		return ""
	})
}

// redfishPower gives each order. When the order is done, the emulated server must be in the ordered state.
func (b *bed) redfishPower(n int, judge *sushy.Emulator, actions ...v1alpha1.PowerAction) {
	b.Helper()
	name := redfishName(n)
	for i, action := range actions {
		is, id := "On", fmt.Sprintf("redfish-%d", i)
		if action == v1alpha1.ActionOff || action == v1alpha1.ActionSoft {
			is = "Off"
		}
		b.change(name, func(spec *v1alpha1.ServerSpec) { spec.Order = &v1alpha1.PowerOrder{ID: id, Action: action} })
		wasOff := false
		b.Eventually(patience, func() string {
			order := b.server(name).Status.Order
			state := b.stateOf(judge)
			wasOff = wasOff || state.PowerState == "Off"
			switch {
			case order == nil || order.ID != id || order.State == v1alpha1.OrderWaiting || order.State == v1alpha1.OrderRunning:
				return fmt.Sprintf("order %s of %s: %+v, and the emulator says %s", action, name, order, state.PowerState)
			case order.State != v1alpha1.OrderDone || state.PowerState != is:
				b.Fatalf("order %s is %+v, and the emulator says %s", action, order, state.PowerState)
			}
			return ""
		})
		if action == v1alpha1.ActionCycle && !wasOff {
			b.Error("order Cycle is done, and the emulator was never off")
		}
	}
}

// redfishBoot orders what a server boots from next, and waits for the end of that order.
func (b *bed) redfishBoot(n int, id string, device v1alpha1.BootDevice, state v1alpha1.OrderState, says string) {
	b.Helper()
	name := redfishName(n)
	b.change(name, func(spec *v1alpha1.ServerSpec) { spec.Boot = &v1alpha1.BootOrder{ID: id, Device: device} })
	b.bootHas(name, id, state, says)
}

func (b *bed) bootHas(name, id string, state v1alpha1.OrderState, says string) {
	b.Helper()
	b.Eventually(patience, func() string {
		boot := b.server(name).Status.Boot
		if boot == nil || boot.ID != id || boot.State != state || !strings.Contains(boot.Message, says) {
			return fmt.Sprintf("boot order %s of %s is not %s: %q, but %+v", id, name, state, says, boot)
		}
		return ""
	})
}

// redfishBootAlways: the emulator of sushy-tools takes a boot override for the next start, and then says that it is for all starts. The
// order fails, and says so.
func (b *bed) redfishBootAlways(n int, judge *sushy.Emulator) {
	b.Helper()
	for device, target := range map[v1alpha1.BootDevice]string{v1alpha1.BootNetwork: "Pxe", v1alpha1.BootDisk: "Hdd"} {
		b.redfishBoot(n, "always-"+target, device, v1alpha1.OrderFailed, "not only the next one")
		boot := b.stateOf(judge).Boot
		if boot.BootSourceOverrideTarget != target || boot.BootSourceOverrideEnabled != redfishd.Continuous {
			b.Errorf("it was told to boot from %s next, and says %+v", target, boot)
		}
	}
}

// redfishBootOnce: the stand-in takes a boot override for the next start, which is gone after that start. The order fails if the override
// is forgotten, or is for all starts.
func (b *bed) redfishBootOnce(n int, judge *redfishd.BMC) {
	b.Helper()
	name := redfishName(n)
	b.redfishBoot(n, "once", v1alpha1.BootNetwork, v1alpha1.OrderDone, "has that on record")
	if state := judge.State(); state.Enabled != redfishd.Once || state.Target != "Pxe" {
		b.Errorf("it was told to boot from the network next, and has %+v", state)
	}
	b.change(name, func(spec *v1alpha1.ServerSpec) {
		spec.Order = &v1alpha1.PowerOrder{ID: "start", Action: v1alpha1.ActionOn}
	})
	b.power(v1alpha1.PowerOn, name)
	if state := judge.State(); state.Enabled != redfishd.Disabled || !slices.Equal(state.Booted, []string{"Pxe"}) {
		b.Errorf("it was started once, from the network, and has %+v", state)
	}
	judge.Fault(func(f *redfishd.Faults) { f.KeepsBoot = true })
	b.redfishBoot(n, "forgotten", v1alpha1.BootNetwork, v1alpha1.OrderFailed, "the next start is from whatever the server's own setup says")
	judge.Fault(func(f *redfishd.Faults) { f.KeepsBoot, f.BootsAlways = false, true })
	b.redfishBoot(n, "always", v1alpha1.BootNetwork, v1alpha1.OrderFailed, "not only the next one")
	judge.Fault(func(f *redfishd.Faults) { f.BootsAlways = false })
	b.redfishBoot(n, "disk", v1alpha1.BootDisk, v1alpha1.OrderDone, "has that on record")
	if state := judge.State(); state.Enabled != redfishd.Once || state.Target != "Hdd" {
		b.Errorf("it was told to boot from the disk next, and has %+v", state)
	}
}

// redfishLight: the light is on while somebody wants it, and no longer.
func (b *bed) redfishLight(n int, isLit func() bool) {
	b.Helper()
	name := redfishName(n)
	for _, wanted := range []*metav1.Time{{Time: time.Now().Add(time.Hour)}, nil} {
		b.change(name, func(spec *v1alpha1.ServerSpec) { spec.LocateUntil = wanted })
		b.Eventually(patience, func() string {
			light := b.server(name).Status.Light
			if isDone := (light == nil) == (wanted == nil); !isDone || isLit() != (wanted != nil) {
				return fmt.Sprintf("the light of %s is wanted: %v, is on: %v, and the status has %+v", name, wanted != nil, isLit(), light)
			}
			return ""
		})
	}
}

// redfishSilent: a BMC accepts connections and answers nothing. It counts as silent, nothing is known of its server, and orders wait.
func (b *bed) redfishSilent(n int, judge *redfishd.BMC) {
	b.Helper()
	name := redfishName(n)
	before := len(judge.State().Orders)
	judge.Fault(func(f *redfishd.Faults) { f.Hangs = true })
	b.serverHas(name, v1alpha1.ConditionReachable, metav1.ConditionFalse, "Silent")
	b.power(v1alpha1.PowerUnknown, name)
	b.change(name, func(spec *v1alpha1.ServerSpec) {
		spec.Order = &v1alpha1.PowerOrder{ID: "silent", Action: v1alpha1.ActionOff}
		spec.Boot = &v1alpha1.BootOrder{ID: "silent", Device: v1alpha1.BootNetwork}
	})
	b.bootHas(name, "silent", v1alpha1.OrderWaiting, "does not answer")
	b.orderIs(name, "silent", v1alpha1.OrderWaiting, "does not answer")
	if state := judge.State(); !state.On || len(state.Orders) != before {
		b.Errorf("it answers nothing, and was told %v", state.Orders[before:])
	}
	judge.Fault(func(f *redfishd.Faults) { f.Hangs = false })
	b.serverHas(name, v1alpha1.ConditionReachable, metav1.ConditionTrue, "Answers")
	b.power(v1alpha1.PowerOff, name)
	b.bootHas(name, "silent", v1alpha1.OrderDone, "has that on record")
	if state := judge.State(); state.On || state.Target != "Pxe" {
		b.Errorf("it answers again, and is %+v", state)
	}
}
