package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

// wattsStep is what the power of a chassis is rounded to.
const wattsStep = 10

// setChassis makes the status of the chassis.
func (p *planning) setChassis() {
	next := p.Chassis.Status.DeepCopy()
	p.plan.Chassis = next
	next.ObservedGeneration = p.Chassis.Generation
	next.Servers = v1alpha1.ServerCounts{Total: int32(len(p.machines))} //nolint:gosec // at most ranges.MaxItems
	var silent, unread, refused []string
	for _, m := range p.machines {
		switch m.next.Power.State {
		case v1alpha1.PowerOn:
			next.Servers.On++
		case v1alpha1.PowerOff:
			next.Servers.Off++
		case v1alpha1.PowerUnknown:
		}
		switch {
		case m.whyNobody() != "":
			refused = append(refused, m.name())
		case m.isSilent():
			silent = append(silent, m.name())
			next.Servers.Silent++
		}
		if m.Identity == nil && m.next.MMC.SystemGUID == "" {
			unread = append(unread, m.name())
		}
	}
	if len(p.Layout.Problems) == 0 {
		next.AcceptedAddresses = p.Layout.Addresses
	}
	p.setManager(next)
	p.setRefused(next)
	next.Strangers = p.Strangers[:min(len(p.Strangers), v1alpha1.MaxStrangers)]
	p.setWatts(next)
	p.setReserved(next)
	empty := p.setSlots(next)
	management, links, services := p.managementReady(silent, refused), p.linksUp(), p.servicesReady()
	for _, c := range []struct {
		name string
		verdict
	}{
		{v1alpha1.ConditionAccepted, p.accepted()},
		{v1alpha1.ConditionAvailable, p.available(management)},
		{v1alpha1.ConditionManagementReady, management},
		{v1alpha1.ConditionServicesReady, services},
		{v1alpha1.ConditionInventoryComplete, inventoryComplete(unread)},
		{v1alpha1.ConditionDegraded, p.degraded(next, links)},
		{v1alpha1.ConditionPowerRedundant, p.redundant("power supplies", p.model.Manager.PowerSupplies)},
		{v1alpha1.ConditionCoolingRedundant, p.redundant("fans", p.model.Manager.Fans)},
		{v1alpha1.ConditionSlotsFilled, p.slotsFilled(empty)},
		{v1alpha1.ConditionLinksUp, links},
		{v1alpha1.ConditionChainSound, p.chainSound()},
	} {
		set(&next.Conditions, c.name, c.verdict, next.ObservedGeneration, p.now)
	}
	p.install(next, services)
}

// setWatts takes down what the chassis draws. What has hardly changed stays as it is on record.
func (p *planning) setWatts(next *v1alpha1.ChassisStatus) {
	watts := p.measured()
	switch {
	case watts == nil && p.isManagerUnasked():
	case watts == nil:
		next.Watts = nil
	case next.Watts == nil || *watts-*next.Watts >= wattsStep || *next.Watts-*watts >= wattsStep:
		rounded := (*watts + wattsStep/2) / wattsStep * wattsStep
		next.Watts = &rounded
	}
}

// setReserved takes down what may be drawn, and what is reserved of it, once each BMC was asked.
func (p *planning) setReserved(next *v1alpha1.ChassisStatus) {
	next.BudgetWatts = p.budget()
	sum := int32(0)
	for _, m := range p.machines {
		if !m.hasLooked(&m.MMC) {
			return
		}
		sum += m.load().watts
	}
	next.ReservedWatts = sum
}

func (p *planning) setManager(next *v1alpha1.ChassisStatus) {
	if p.isManagerUnasked() {
		return
	}
	next.Manager = v1alpha1.ManagerStatus{}
	if p.manager != nil {
		next.Manager.Master = p.manager.Address
	}
	for i := range p.Managers {
		if m := &p.Managers[i]; m != p.manager && p.answers(&m.Contact) {
			next.Manager.Slave = m.Address
		}
	}
}

// isManagerUnasked: this operator has not asked all chassis managers yet.
func (p *planning) isManagerUnasked() bool {
	return slices.ContainsFunc(p.Managers, func(m Manager) bool { return m.AskedAt.IsZero() })
}

// noManager says why no chassis manager counts.
func (p *planning) noManager() (reason, message string) {
	const reasonSlow = "ManagerSlow"
	for i := range p.Managers {
		m := &p.Managers[i]
		slow, isSlow := errors.AsType[*bmc.SlowError](m.Err)
		switch {
		case isSlow && slow.What == bmc.SlowRecords:
			return reasonSlow, fmt.Sprintf("chassis manager %s is slow, and the records of its sensors are still being read", m.Address)
		case isSlow || errors.Is(m.Err, context.DeadlineExceeded):
			return reasonSlow, fmt.Sprintf("chassis manager %s is too slow: reading its sensors takes longer than the box controller "+
				"waits (kubectl rcbox scan --check measures it)", m.Address)
		case whyRefuses(m.Err) != "":
			return "Refused", fmt.Sprintf("chassis manager %s refuses: %s; %s", m.Address, whyRefuses(m.Err), p.whatToDo())
		}
	}
	return "NoManager", "no chassis manager answers and says that it is in charge"
}

func (p *planning) accepted() verdict {
	message := p.Layout.Message(maxMessage)
	switch {
	case len(p.Layout.Problems) > 0:
		return no("Contradiction", message)
	case len(p.Taken) > 0:
		return no("NameTaken", "there are Servers of these names which this Chassis does not own, so these slots are not looked after: "+
			listed(p.Taken)+"; delete such a Server, or set another firstServer or namePrefix")
	case message != "":
		return yes("Accepted", message)
	}
	return yes("Accepted", "the spec contradicts neither its model nor another Chassis")
}

func (p *planning) managementReady(silent, refused []string) verdict {
	asked := 0
	for _, m := range p.machines {
		if !m.MMC.AskedAt.IsZero() {
			asked++
		}
	}
	switch {
	case len(refused) > 0:
		return no("Refused", fmt.Sprintf("BMCs refuse the login: %s; %s", listed(refused), p.whatToDo()))
	case len(silent) > 0:
		return no("Silent", "BMCs do not answer: "+listed(silent))
	case asked < len(p.machines):
		return notYet("NotAsked", fmt.Sprintf("%d of %d BMCs were asked", asked, len(p.machines)))
	case p.isManagerUnasked():
		return notYet("NotAsked", "not all chassis managers were asked yet")
	case len(p.Managers) > 0 && p.manager == nil:
		return no(p.noManager())
	}
	return yes("AllAnswer", "all BMCs answer")
}

func (p *planning) available(management verdict) verdict {
	if len(p.Layout.Problems) > 0 {
		return no("NotAccepted", "the Chassis is not accepted: nothing in it is switched")
	}
	return management
}

func inventoryComplete(unread []string) verdict {
	if len(unread) > 0 {
		return no("NotRead", "the hardware in these slots was not read yet: "+listed(unread))
	}
	return yes("Complete", "the hardware in each slot was read")
}

// degraded: what is there twice has failed once, or a sensor of the chassis is beyond its limits.
func (p *planning) degraded(next *v1alpha1.ChassisStatus, links verdict) verdict {
	var beyond []string
	if p.manager != nil {
		for i := range p.manager.Sensors {
			if s := &p.manager.Sensors[i]; s.Beyond {
				beyond = append(beyond, label(s.Name, maxLabel))
			}
		}
	}
	failed := append(p.failedParts(p.model.Manager.PowerSupplies), p.failedParts(p.model.Manager.Fans)...)
	switch {
	case p.isManagerUnasked():
		return notYet("NotAsked", "not all chassis managers were asked yet")
	case len(failed) > 0:
		return yes("PartsFailed", "parts of the chassis do not work: "+listed(failed))
	case len(beyond) > 0:
		return yes("BeyondLimits", "sensors of the chassis are beyond their limits: "+listed(beyond))
	case p.manager == nil && len(p.Managers) > 0:
		reason, message := p.noManager()
		return yes(reason, message+": nothing proves that a server is off")
	case len(p.Managers) > 1 && next.Manager.Slave == "":
		return yes("OneManager", "only one of the chassis managers answers: "+next.Manager.Master)
	}
	if links.status == metav1.ConditionFalse {
		return yes("Links"+links.reason, links.message)
	}
	return no("AsExpected", "no part of the chassis is known to have failed")
}
