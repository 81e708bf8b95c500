package box_test

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/box/rack"
)

// given returns the power commands that each controller of a chassis received.
func (b *bed) given(chassis string) map[rack.Controller][]string {
	b.Helper()
	all := map[rack.Controller][]string{}
	controllers := []rack.Controller{rack.Manager(1), rack.Manager(2)}
	for slot := 1; slot <= slots; slot++ {
		controllers = append(controllers, rack.BladeIn(slot))
	}
	for _, controller := range controllers {
		commands, err := b.rack.Given(chassis, controller)
		b.must(err)
		if len(commands) > 0 {
			all[controller] = commands
		}
	}
	return all
}

// whole: a chassis is switched on, and shut down, by one command each to the chassis manager in charge, and by none to a blade's BMC.
func whole(b *bed) {
	const (
		chassis = "mercury3"
		// rounds: if the chassis manager does not answer in time, as may happen on a busy machine, each blade gets its own command. So the
		// test has several attempts.
		rounds = 3
	)
	var all []string
	for slot := 1; slot <= slots; slot++ {
		all = append(all, name(2*slots+slot))
	}
	b.power(v1alpha1.PowerOff, all...)
	isUp, isDown := false, false
	for round := 0; round < rounds && (!isUp || !isDown); round++ {
		b.chassisHas(chassis, v1alpha1.ConditionManagementReady, metav1.ConditionTrue, "AllAnswer", "")
		isUp = b.wholeIsOne(chassis, "up", "power 1", v1alpha1.PowerOn, all) || isUp
		isDown = b.wholeIsOne(chassis, "down", "shutdown 1", v1alpha1.PowerOff, all) || isDown
	}
	if !isUp || !isDown {
		b.Errorf("one command was enough to switch %s on: %t, to shut it down: %t", chassis, isUp, isDown)
	}
}

// wholeIsOne switches all servers of a chassis, and reports whether this took only one command to the manager in charge, and none to a
// blade. It does not wait for the proof that the servers are off: that takes 3 minutes after a command to the whole chassis that starts
// servers.
func (b *bed) wholeIsOne(chassis, verb, command string, state v1alpha1.PowerState, all []string) bool {
	b.Helper()
	before, begun := b.given(chassis), time.Now()
	line := fmt.Sprintf("kubectl rcbox %s %s --wait=false", verb, chassis)
	if output, err := b.shell.run(b.Context(), line); err != nil {
		b.Fatalf("%s: %v\n%s", line, err, output)
	}
	b.power(state, all...)
	given := b.given(chassis)
	for controller := range given {
		if given[controller] = given[controller][len(before[controller]):]; len(given[controller]) == 0 {
			delete(given, controller)
		}
	}
	b.Logf("%s took %s, and the controllers were given %v", line, time.Since(begun).Round(time.Millisecond), given)
	if told := given[rack.Manager(2)]; len(told) > 0 {
		b.Errorf("%s: the chassis manager that is not in charge was told %v", line, told)
	}
	// The same command may be repeated while its answer is late. This is harmless.
	told := slices.Compact(given[rack.Manager(1)])
	return len(given) == 1 && slices.Equal(told, []string{command})
}
