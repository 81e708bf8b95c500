package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// lamp is a BMC's light, and what the server boots from next.
type lamp struct {
	until time.Time
	boot  v1alpha1.BootDevice
	// reads is what it says that the server boots from next, once it was told; nil: what it was told.
	reads *bmc.NextBoot
	// told counts commands of each kind, and at is when the last one was given.
	told [plan.Kinds]int
	at   time.Time
}

// longestLight is what IPMI has room for.
const longestLight = 255 * time.Second

// carry carries out what was planned about a light and a boot device. An answer that is lost is no answer; an error has no effect.
func (s *scene) carry(l *lamp, fail error, isAnswerLost bool) {
	for _, step := range s.made.Steps {
		if step.Kind == plan.KindPower {
			continue
		}
		l.told[step.Kind]++
		l.at = s.now
		if fail == nil && step.Kind == plan.KindLight {
			l.until = s.now.Add(min(step.Light, longestLight))
		}
		if fail == nil && step.Kind == plan.KindBoot {
			l.boot = step.Boot
		}
		if isAnswerLost {
			continue
		}
		answer := &plan.Answer{TriedAt: step.TriedAt, Err: fail}
		if fail == nil && step.Kind == plan.KindBoot {
			answer.Boot.From = map[v1alpha1.BootDevice]bmc.BootSource{
				v1alpha1.BootNetwork: bmc.BootNetwork, v1alpha1.BootDisk: bmc.BootDisk,
			}[step.Boot]
			if l.reads != nil {
				answer.Boot = *l.reads
			}
		}
		if step.Kind == plan.KindLight {
			s.Servers[2].LightAnswer = answer
		} else {
			s.Servers[2].BootAnswer = answer
		}
	}
}

func (s *scene) change(change func(*v1alpha1.ServerSpec)) {
	s.Servers[2].Object = s.Servers[2].Object.DeepCopy()
	change(&s.Servers[2].Object.Spec)
}

func (s *scene) locate(until time.Time) {
	s.change(func(spec *v1alpha1.ServerSpec) { spec.LocateUntil = new(metav1.NewTime(until)) })
}

// live lets a light live through what chance has: wishes, silence, lost answers, operators that are started anew. It returns the rule that
// was broken; empty: none. A planted bug changes what was planned, or what is on record.
func live(seed uint64, plant func(*scene)) string {
	random := rand.New(rand.NewPCG(seed, 0))
	s, l := newScene(bmc.PowerOn), &lamp{}
	wanted, asked, silentFor := time.Time{}, s.now, 0
	look := func(isLost bool) {
		s.pass(5 * time.Second)
		plant(s)
		s.carry(l, nil, isLost)
	}
	for range 1 + random.IntN(200) {
		switch random.IntN(30) {
		case 0:
			wanted, asked = s.now.Add(time.Duration(random.IntN(960)-60)*time.Second), s.now
			s.locate(wanted)
		case 1:
			wanted, asked = time.Time{}, s.now
			s.change(func(spec *v1alpha1.ServerSpec) { spec.LocateUntil = nil })
		case 2: // another operator, which has seen nothing yet
			s.Servers[2].LightAnswer = nil
		case 3:
			silentFor = 1 + random.IntN(30)
		}
		s.Servers[2].MMC.Err = nil
		if silentFor > 0 {
			silentFor--
			asked, s.Servers[2].MMC.Err = s.now, bmc.ErrSilent
		}
		before, told := l.at, l.told
		look(silentFor > 0 || random.IntN(10) == 0)
		isSameWish := asked.Before(before) && before.Before(wanted) == s.now.Before(wanted)
		if told != l.told && isSameWish && s.now.Sub(before) <= s.grace() {
			return fmt.Sprintf("it is told at %s, and again at %s", before, l.at)
		}
		// A command whose answer is lost is repeated after its grace; the light ends within a look.
		settled := asked.Add(s.grace() + s.Times.Silent + 20*time.Second)
		if s.now.After(settled) && s.now.Before(wanted) != s.now.Before(l.until) && !isNear(s.now, wanted) {
			return fmt.Sprintf("wanted until %s, it blinks until %s, and it is %s", wanted, l.until, s.now)
		}
	}
	// With nothing to do, nothing is told or written.
	s.Servers[2].MMC.Err = nil
	s.change(func(spec *v1alpha1.ServerSpec) { spec.LocateUntil = nil })
	for range 20 {
		look(false)
	}
	before, told := s.made, l.told
	look(false)
	if light := s.made.Servers["atom003"].Light; !isSame(before, s.made) || told != l.told || light != nil {
		return fmt.Sprintf("nothing is to be done, and there is %+v", light)
	}
	return ""
}

// A light blinks from soon after somebody asks until then, whatever gets lost, and nothing is told while it is as it should be.
func TestLight(t *testing.T) {
	for seed := range uint64(150) {
		if broken := live(seed, func(*scene) {}); broken != "" {
			t.Fatalf("seed %d: %s", seed, broken)
		}
	}
}

// lights changes the commands about lights.
func lights(made *plan.Plan, change func(*plan.Step) (isGiven bool)) {
	made.Steps = slices.DeleteFunc(made.Steps, func(step plan.Step) bool { return step.Kind == plan.KindLight && !change(&step) })
}

func TestPlantedBugsOfLights(t *testing.T) {
	for name, test := range map[string]struct {
		plant    func(*scene)
		reported string
	}{
		"NeverStop: a light that blinks is not told to stop": {func(s *scene) {
			lights(&s.made, func(step *plan.Step) bool { return step.Light > 0 })
		}, "it blinks until"},
		"TellOnce: a light is not told again before it ends": {func(s *scene) {
			lights(&s.made, func(step *plan.Step) bool { return step.Light == 0 || step.Light > 235*time.Second })
		}, "it blinks until"},
		"TellWithoutRecord: what was told is forgotten": {func(s *scene) {
			s.Servers[2].Object.Status.Light = nil
		}, "and again at"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100) {
				if broken := live(seed, test.plant); strings.Contains(broken, test.reported) {
					t.Logf("seed %d: %s", seed, broken)
					return
				}
			}
			t.Error("it is not found")
		})
	}
}

// isNear: within two looks of a time.
func isNear(now, at time.Time) bool { return now.Sub(at).Abs() <= 10*time.Second }

func TestLightThatIsRefused(t *testing.T) {
	s, l := newScene(bmc.PowerOn), &lamp{}
	s.locate(s.now.Add(time.Hour))
	for range 100 {
		s.pass(5 * time.Second)
		s.carry(l, &bmc.UnsupportedError{What: "identify"}, false)
	}
	light := s.made.Servers["atom003"].Light
	if l.told[plan.KindLight] != 1 || light.State != v1alpha1.OrderFailed {
		t.Errorf("told %d times: %+v", l.told[plan.KindLight], light)
	}
	expect(t, light.Message, "does not support identify")
}

// An error that may pass by itself is not a failure: the BMC is told again.
func TestLightOfBusyBMC(t *testing.T) {
	s, l := newScene(bmc.PowerOn), &lamp{}
	s.locate(s.now.Add(time.Hour))
	for range 6 {
		s.pass(5 * time.Second)
		s.carry(l, &bmc.BusyError{What: "it restarts"}, false)
	}
	light := s.made.Servers["atom003"].Light
	if l.told[plan.KindLight] != 2 || light.State != v1alpha1.OrderRunning {
		t.Errorf("told %d times: %+v", l.told[plan.KindLight], light)
	}
	expect(t, light.Message, "it restarts")
	for range 12 {
		s.pass(5 * time.Second)
		s.carry(l, nil, false)
	}
	if light := s.made.Servers["atom003"].Light; light.State != v1alpha1.OrderDone || light.Message != "" {
		t.Errorf("%+v", light)
	}
}

func TestBoot(t *testing.T) {
	for name, test := range map[string]struct {
		fail   error
		isLost bool
		silent bool
		reads  *bmc.NextBoot
		told   int
		state  v1alpha1.OrderState
		says   string
	}{
		"yes": {told: 1, state: v1alpha1.OrderDone, says: "the next start is from the network, and has that on record"},
		"yes, and cannot be asked": {
			reads: &bmc.NextBoot{}, told: 1, state: v1alpha1.OrderDone,
			says: "the network, and the BMC cannot be asked what it has on record",
		},
		"yes, and of no force": {
			reads: &bmc.NextBoot{From: bmc.BootNetwork, Invalid: true}, told: 1, state: v1alpha1.OrderDone,
			says: "has that on record, but marked as not valid",
		},
		"yes, and nothing came of it": {
			reads: &bmc.NextBoot{From: bmc.BootUnset}, told: 1, state: v1alpha1.OrderFailed,
			says: "said yes, and has on record that the next start is from whatever the server's own setup says, not from the network",
		},
		"yes, and something else came of it": {
			reads: &bmc.NextBoot{From: bmc.BootDisk}, told: 1, state: v1alpha1.OrderFailed,
			says: "the next start is from the disk, not from",
		},
		"yes, and for ever": {
			reads: &bmc.NextBoot{From: bmc.BootNetwork, EachTime: true}, told: 1, state: v1alpha1.OrderFailed,
			says: "each start is from the network, not only the next one",
		},
		"refused":     {fail: &bmc.UnsupportedError{What: "boot device"}, told: 1, state: v1alpha1.OrderFailed, says: "boot device"},
		"busy":        {fail: &bmc.BusyError{What: "it restarts"}, told: 3, state: v1alpha1.OrderFailed, says: "told 3 times"},
		"answer lost": {isLost: true, told: 3, state: v1alpha1.OrderFailed, says: "told 3 times"},
		"silent":      {silent: true, state: v1alpha1.OrderFailed, says: "192.168.5.3 does not answer; nothing was done"},
	} {
		t.Run(name, func(t *testing.T) {
			s, l := newScene(bmc.PowerOff), &lamp{reads: test.reads}
			if test.silent {
				s.Servers[2].MMC.Err = errors.New("silent")
				s.pass(time.Minute)
			}
			for round := range 2 {
				s.change(func(spec *v1alpha1.ServerSpec) {
					spec.Boot = &v1alpha1.BootOrder{ID: strconv.Itoa(round), Device: v1alpha1.BootNetwork}
				})
				for range 200 {
					s.pass(5 * time.Second)
					s.carry(l, test.fail, test.isLost)
				}
				boot := s.made.Servers["atom003"].Boot
				if l.told[plan.KindBoot] != (round+1)*test.told || boot.State != test.state || boot.ID != strconv.Itoa(round) {
					t.Errorf("told %d times: %+v", l.told[plan.KindBoot], boot)
				}
				expect(t, boot.Message, test.says)
				isYes := test.state == v1alpha1.OrderDone || test.isLost || test.reads != nil
				if (l.boot == v1alpha1.BootNetwork) != isYes {
					t.Errorf("it boots from %q", l.boot)
				}
			}
		})
	}
}

// An answer is told from others by the second of its command. An order that comes within the second of another one waits for the next, and
// the answer to the earlier one is not taken for its own.
func TestOrdersWithinOneSecond(t *testing.T) {
	for delay := range 4 { // so many looks later, a command is carried out and answered
		t.Run(strconv.Itoa(delay), func(t *testing.T) {
			s, l := newScene(bmc.PowerOff), &lamp{}
			var given []plan.Plan
			look := func() {
				s.pass(100 * time.Millisecond)
				made := s.made
				if given = append(given, made); len(given) > delay {
					s.made = given[0]
					s.carry(l, nil, false)
					s.made, given = made, given[1:]
				}
			}
			s.locate(s.now.Add(time.Hour))
			s.change(func(spec *v1alpha1.ServerSpec) {
				spec.Boot = &v1alpha1.BootOrder{ID: "1", Device: v1alpha1.BootNetwork}
			})
			look()
			look()
			s.change(func(spec *v1alpha1.ServerSpec) {
				spec.LocateUntil, spec.Boot = nil, &v1alpha1.BootOrder{ID: "2", Device: v1alpha1.BootDisk}
			})
			for range 30 {
				look()
				status := s.made.Servers["atom003"]
				isEnded := status.Boot.State != v1alpha1.OrderWaiting && status.Boot.State != v1alpha1.OrderRunning
				if status.Boot.ID == "2" && isEnded && (status.Boot.State != v1alpha1.OrderDone || l.boot != v1alpha1.BootDisk) {
					t.Fatalf("%+v, and it boots from %s", status.Boot, l.boot)
				}
				if status.Light == nil && l.until.After(s.now) {
					t.Fatalf("nothing is on record, and the light blinks until %s", l.until)
				}
			}
			wasToldTwice := l.told[plan.KindBoot] == 2 && l.told[plan.KindLight] == 2
			if !wasToldTwice || l.boot != v1alpha1.BootDisk || l.until.After(s.now) {
				t.Errorf("told %v, boots from %s, blinks until %s, and it is %s", l.told, l.boot, l.until, s.now)
			}
			if status := s.made.Servers["atom003"]; status.Boot.State != v1alpha1.OrderDone || status.Light != nil {
				t.Errorf("%+v, %+v", status.Boot, status.Light)
			}
		})
	}
}

// A second order to restart a server, within the second of the first, is not taken to be carried out by the answer to the first.
func TestRestartsWithinOneSecond(t *testing.T) {
	for delay := 1; delay < 5; delay++ { // so many looks later, a command is carried out and answered
		s, restarts := newScene(bmc.PowerOn), 0
		var given []plan.Plan
		look := func() {
			s.pass(100 * time.Millisecond)
			order := s.made.Servers["atom003"].Order
			if order.ID == "2" && order.State == v1alpha1.OrderDone && restarts < 2 {
				t.Fatalf("delay %d: %+v, and it was restarted %d times", delay, order, restarts)
			}
			if given = append(given, s.made); len(given) > delay {
				for _, step := range given[0].Steps {
					restarts++
					s.Servers[2].Answer = &plan.Answer{TriedAt: step.TriedAt}
				}
				given = given[1:]
			}
		}
		for _, id := range []string{"1", "2"} {
			s.change(func(spec *v1alpha1.ServerSpec) {
				spec.Order = &v1alpha1.PowerOrder{ID: id, Action: v1alpha1.ActionReset}
			})
			look()
		}
		for range 30 {
			look()
		}
		if order := s.made.Servers["atom003"].Order; order.ID != "2" || order.State != v1alpha1.OrderDone || restarts != 2 {
			t.Errorf("delay %d: %+v, and it was restarted %d times", delay, order, restarts)
		}
	}
}
