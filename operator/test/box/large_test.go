package box_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
	"rcbox.dev/rcbox/operator/test/testbed"
)

// A rack of 16 chassis, each with all of its 46 slots in use. Its BMCs are stand-ins in the test's own process.
const (
	chassisOfLarge = 16
	slotsOfLarge   = 46
	portOfBMCs     = 623
	// A chassis' addresses: two chassis in a network of 254.
	halfNetwork  = 100
	firstManager = 51
	// maxMemory is what the controller may take more with the rack than without: what is aimed at is 40 MiB.
	maxMemory = 120 << 20
	largeTime = 10 * time.Minute
)

func largeAddress(chassis, n int) string {
	return fmt.Sprintf("192.168.%d.%d", chassis/2, chassis%2*halfNetwork+n)
}

// startLarge starts the stand-ins, and gives how each server's BMC is reached.
func startLarge(t *testing.T) []pool.Target {
	t.Helper()
	var targets []pool.Target
	start := func(address string, config standin.Config) bmc.Access {
		config.Username, config.Password = username, canary
		config.Address = netip.AddrPortFrom(netip.MustParseAddr(address), portOfBMCs)
		one, err := standin.Start(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.Close)
		return bmc.Access{
			Address: config.Address, Protocol: bmc.IPMI, Username: username, Password: bmc.NewSecret(canary), CipherSuite: 17,
		}
	}
	celsius := standin.Sensor{
		Name: "CPU Temp", Type: types.SensorTypeTemperature, Unit: types.SensorUnitType_DegreesC, Count: 33, UpperCritical: new(uint8(95)),
	}
	for chassis := range chassisOfLarge {
		for slot := 1; slot <= slotsOfLarge; slot++ {
			number := chassis*slotsOfLarge + slot
			access := start(largeAddress(chassis, slot), standin.Config{
				SystemGUID:   fmt.Sprintf("a1234567-89ab-cdef-0000-%012d", number),
				Manufacturer: "rcbox", Product: "stand-in", Serial: fmt.Sprintf("MMS%04d", number),
				Custom:  []string{fmt.Sprintf("SLOT=%d", slot), fmt.Sprintf("MAC1=52:54:00:03:%02x:%02x", number>>8, number&0xff)},
				Sensors: []standin.Sensor{celsius},
			})
			targets = append(targets, pool.Target{Name: fmt.Sprintf("atom%03dm", number), Access: access, SecretVersion: "1"})
		}
		for n := range 2 {
			sensors := []standin.Sensor{{Name: "In Charge", Type: types.SensorTypeSlotConnector, Count: uint8(1 - n)}}
			for slot := 1; slot <= slotsOfLarge; slot++ {
				sensors = append(sensors, standin.Sensor{
					Name: fmt.Sprintf("Slot %02d Power", slot), Type: types.SensorTypePowerSupply, Unit: types.SensorUnitType_Watts,
					Count: 2,
				})
			}
			start(largeAddress(chassis, firstManager+n), standin.Config{Sensors: sensors})
		}
	}
	return targets
}

func largeChassis(n int) *v1alpha1.Chassis {
	return &v1alpha1.Chassis{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("mercury%d", n+1)},
		Spec: v1alpha1.ChassisSpec{
			Model: "EmulatedRack", FirstServer: int32(n*slotsOfLarge + 1), Slots: fmt.Sprintf("1-%d", slotsOfLarge),
			Management: v1alpha1.ChassisManagement{
				CredentialsSecret: secret, CipherSuite: 17, MMC: fmt.Sprintf("%s+%d", largeAddress(n, 1), slotsOfLarge),
				CMM: []string{largeAddress(n, firstManager), largeAddress(n, firstManager+1)},
			},
			Networks: []v1alpha1.ChassisNetwork{{NIC: 1}},
		},
	}
}

// TestSixteenChassis: 16 chassis with 736 BMCs, a rack full of them. It gives the figures of docs/performance.md.
func TestSixteenChassis(t *testing.T) {
	if os.Getenv("RCBOX_BOX_LARGE") == "" {
		t.Skip("SKIPPED: it takes minutes; RCBOX_BOX_LARGE=1 hack/box.sh -run '^TestSixteenChassis$' runs it")
	}
	if os.Getenv("RCBOX_BOX_NETWORK") == "" {
		t.Skip("SKIPPED: it needs a network namespace of its own: hack/box.sh")
	}
	cluster := testbed.StartAPIServer(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(cluster.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secret, Namespace: testbed.OperatorNamespace},
		Type:       v1alpha1.SecretTypeBMC,
		Data:       map[string][]byte{"username": []byte(username), "password": []byte(canary)},
	}))
	targets := startLarge(t)
	t.Logf("one round of power states of %d BMCs: %v", len(targets), rounds(t, targets))
	box := cluster.StartBox(testbed.BuildOperator(t))
	cluster.Eventually(largeTime, func() string {
		if !box.Ready() {
			return "the box controller is not ready"
		}
		return ""
	})
	// Nothing is to be written while there is no Chassis.
	quietFor(t, cluster, 5*time.Second)
	before := box.Usage()
	begun := time.Now()
	for n := range chassisOfLarge {
		must(cluster.Client.Create(t.Context(), largeChassis(n)))
	}
	cluster.Eventually(largeTime, func() string {
		list := &v1alpha1.ServerList{}
		must(cluster.Client.List(t.Context(), list))
		known := 0
		for i := range list.Items {
			status := &list.Items[i].Status
			if status.Power.State == v1alpha1.PowerOff && status.Hardware.Serial != "" && len(status.Sensors) > 0 && status.LastOff != nil {
				known++
			}
		}
		if known < len(targets) {
			return fmt.Sprintf("of %d servers all is known", known)
		}
		return ""
	})
	t.Logf("of %d servers all was known after %s", len(targets), time.Since(begun).Round(time.Millisecond))
	quietFor(t, cluster, time.Minute)
	after := box.Usage()
	more := after.Bytes - before.Bytes
	t.Logf("the box controller has %d MiB, %d MiB more than without Chassis; at most it had %d MiB; in %s it took %s of CPU",
		after.Bytes>>20, more>>20, after.PeakBytes>>20, time.Since(begun).Round(time.Second),
		(after.CPU - before.CPU).Round(time.Millisecond))
	if more > maxMemory {
		t.Errorf("it took %d MiB more", more>>20)
	}
}

// quietFor waits until nothing but Leases was written for some time.
func quietFor(t *testing.T, cluster *testbed.Cluster, calm time.Duration) {
	t.Helper()
	begun := time.Now()
	cluster.Eventually(largeTime, func() string {
		to := time.Now()
		if to.Sub(begun) < calm {
			return "it has not looked for long enough"
		}
		if writes := cluster.Calls.WritesBut(to.Add(-calm), to, "leases"); len(writes) > 0 {
			return fmt.Sprintf("in %s it wrote %v", calm, writes)
		}
		return ""
	})
	t.Logf("nothing was written in %s, %s after the beginning", calm, time.Since(begun).Round(time.Second))
}

// rounds reads the power of all servers a few times, as the controller does, in kept sessions.
func rounds(t *testing.T, targets []pool.Target) []time.Duration {
	t.Helper()
	sessions := pool.New(pool.Config{Dial: func(ctx context.Context, access bmc.Access) (bmc.BMC, error) { return ipmi.Dial(ctx, access) }})
	defer sessions.Close()
	var took []time.Duration
	for range 6 {
		begun := time.Now()
		var reading sync.WaitGroup
		for _, target := range targets {
			reading.Go(func() {
				err := sessions.Read(t.Context(), target, func(ctx context.Context, session bmc.BMC) error {
					reading, err := session.Power(ctx)
					if err == nil && reading.Power != bmc.PowerOff {
						err = errors.New("it is not off")
					}
					return err
				})
				if err != nil {
					t.Errorf("%s: %v", target.Name, err)
				}
			})
		}
		reading.Wait()
		took = append(took, time.Since(begun).Round(time.Millisecond))
	}
	return slices.Clip(took)
}
