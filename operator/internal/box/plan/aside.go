package plan

import (
	"fmt"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

// Kind is what a command is about. Commands of different kinds do not wait for each other.
type Kind int

// Kinds of commands.
const (
	// KindPower changes the power.
	KindPower Kind = iota
	// KindLight has the light blink, or stop.
	KindLight
	// KindBoot says what is booted from next.
	KindBoot
	// Kinds is how many there are.
	Kinds
)

const (
	// lightFor is how long a BMC is told to let its light blink, at most: IPMI knows no more than 255 seconds. It is told anew when less
	// than lightLeft is left.
	lightFor  = 4 * time.Minute
	lightLeft = time.Minute
)

// followAside does what the spec says beside power.
func (m *machine) followAside() {
	m.followLight()
	m.followBoot()
}

// followLight has the light blink until the spec says so. A BMC without a clock for that, as of Redfish, is told to stop.
func (m *machine) followLight() {
	wanted := m.spec().LocateUntil
	isWanted := wanted != nil && m.now.Before(wanted.Time)
	light := m.next.Light
	if light == nil {
		if isWanted && m.canBeTold() && !isOf(m.LightAnswer, m.second()) {
			m.next.Light = &v1alpha1.LightStatus{}
			m.tellLight()
		}
		return
	}
	if answer := m.LightAnswer; light.State == v1alpha1.OrderRunning && isOf(answer, light.TriedAt.Time) {
		switch {
		case answer.Err == nil:
			light.State, light.Message = v1alpha1.OrderDone, ""
		case isHarmless(answer.Err):
			light.State, light.Message = v1alpha1.OrderFailed, cut("the BMC did not switch the light: "+answer.Err.Error())
		default:
			light.Message = cut("the BMC is told again to switch the light: " + answer.Err.Error())
		}
	}
	switch {
	case light.State != v1alpha1.OrderRunning && !isWanted && light.Until == nil:
		m.next.Light = nil
	case m.elapsed(light.TriedAt.Time) <= m.grace() && light.State != v1alpha1.OrderDone, !m.canBeTold():
	case light.TriedAt.Time.Equal(m.second()): // in the next second
	case light.State == v1alpha1.OrderFailed && (light.Until != nil) == isWanted: // it never will
	case light.State != v1alpha1.OrderDone || !m.isLight(isWanted):
		m.tellLight()
	}
}

// isLight: what the BMC was told is what is wanted, and for long enough.
func (m *machine) isLight(isWanted bool) bool {
	until := m.next.Light.Until
	if !isWanted || until == nil {
		return isWanted == (until != nil)
	}
	wanted := m.spec().LocateUntil.Time
	isShort := until.Time.Before(wanted.Truncate(time.Second)) && until.Sub(m.now) < lightLeft
	return !isShort && !until.After(wanted.Add(time.Second))
}

// tellLight gives a command about the light.
func (m *machine) tellLight() {
	left := time.Duration(0)
	light := m.next.Light
	light.Until, light.State, light.Message, light.TriedAt = nil, v1alpha1.OrderRunning, "", *stamp(m.now)
	if wanted := m.spec().LocateUntil; wanted != nil && m.now.Before(wanted.Time) {
		left = min(wanted.Sub(m.now), lightFor)
		light.Until = stamp(m.now.Add(left))
	}
	m.plan.Steps = append(m.plan.Steps, Step{
		Kind: KindLight, Light: left, Servers: []string{m.name()}, TriedAt: light.TriedAt.Time, Until: m.now.Add(m.Times.Step),
		Why: "spec.locateUntil",
	})
}

// followBoot tells a BMC what the server boots from next, until it says yes, and compares what the BMC has on record since. Whether it is
// true is seen once the server starts.
func (m *machine) followBoot() {
	order := m.spec().Boot
	if order == nil {
		return
	}
	boot := m.next.Boot
	if boot == nil || boot.ID != order.ID {
		if boot != nil && boot.TriedAt != nil && boot.TriedAt.Time.Equal(m.second()) {
			return // in the next second
		}
		boot = &v1alpha1.BootStatus{ID: order.ID, Device: order.Device, State: v1alpha1.OrderWaiting, Since: *stamp(m.now)}
		m.next.Boot = boot
	}
	if boot.State != v1alpha1.OrderWaiting && boot.State != v1alpha1.OrderRunning {
		return
	}
	end := func(state v1alpha1.OrderState, text string) { boot.State, boot.Message = state, cut(text) }
	answer := m.BootAnswer
	if boot.TriedAt == nil || !isOf(answer, boot.TriedAt.Time) {
		answer = nil
	}
	switch {
	case answer != nil && answer.Err == nil:
		end(whatBoots(boot.Device, answer.Boot))
	case isHarmlessAnswer(answer):
		end(v1alpha1.OrderFailed, answer.Err.Error())
	case boot.TriedAt != nil && m.elapsed(boot.TriedAt.Time) <= m.grace():
		boot.Message = "the BMC was told, and has not answered yet"
	case boot.Tries >= maxTries:
		end(v1alpha1.OrderFailed, fmt.Sprintf("the BMC was told %d times, and gave no answer", boot.Tries))
	case m.canBeTold():
		m.tellBoot(boot)
	case m.elapsed(boot.Since.Time) > m.Times.Patience:
		end(v1alpha1.OrderFailed, fmt.Sprintf("BMC %s does not answer; nothing was done", m.layout.MMC))
	default:
		boot.Message = fmt.Sprintf("waiting for BMC %s, which does not answer", m.layout.MMC)
	}
}

func (m *machine) tellBoot(boot *v1alpha1.BootStatus) {
	boot.State, boot.Message, boot.TriedAt = v1alpha1.OrderRunning, "its BMC is told", stamp(m.now)
	boot.Tries++
	m.plan.Steps = append(m.plan.Steps, Step{
		Kind: KindBoot, Boot: boot.Device, Servers: []string{m.name()}, TriedAt: boot.TriedAt.Time, Until: m.now.Add(m.Times.Step),
		Why: "spec.boot",
	})
}

// whatBoots compares an order that the BMC said yes to with what it has on record since.
func whatBoots(ordered v1alpha1.BootDevice, next bmc.NextBoot) (v1alpha1.OrderState, string) {
	says := "its BMC says that the next start is from the " + deviceName(ordered)
	wanted := bmc.BootDisk
	if ordered == v1alpha1.BootNetwork {
		wanted = bmc.BootNetwork
	}
	switch {
	case next.From == bmc.BootUnknown:
		return v1alpha1.OrderDone, says + ", and the BMC cannot be asked what it has on record"
	case next.From != wanted:
		return v1alpha1.OrderFailed, fmt.Sprintf("its BMC said yes, and has on record that the next start is from %s, not from %s: unless "+
			"it was started meanwhile, set that in the server's own setup, and look for newer firmware of the BMC", next.From, wanted)
	case next.EachTime:
		return v1alpha1.OrderFailed, fmt.Sprintf("its BMC said yes, and has on record that each start is from %s, not only the next one: "+
			"give the other order once it was started, or correct that in the server's own setup", next.From)
	}
	if next.Invalid {
		return v1alpha1.OrderDone, says + ", and has that on record, but marked as not valid"
	}
	return v1alpha1.OrderDone, says + ", and has that on record"
}

func deviceName(device v1alpha1.BootDevice) string {
	if device == v1alpha1.BootNetwork {
		return "network"
	}
	return "disk"
}

// second is that of now. An answer is told from others by the second of its command, so there is one command of a kind in each.
func (m *machine) second() time.Time { return stamp(m.now).Time }

// isOf says whether an answer is that to the command of a time on record.
func isOf(answer *Answer, triedAt time.Time) bool {
	return answer != nil && answer.TriedAt.Equal(triedAt)
}

func isHarmlessAnswer(answer *Answer) bool {
	return answer != nil && answer.Err != nil && isHarmless(answer.Err)
}
