package plan

import (
	"fmt"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

const (
	// minPeers is how many other servers of its kind a server is compared with at least.
	minPeers = 3
	// slowPart: a part is slow if it is slower than this part of the median of its peers.
	slowPart = 2
	// maxThrottledPercent is for how much of an hour a processor may run slower because it is too hot.
	maxThrottledPercent = 16
)

// Reasons of the condition Qualified beside those of Healthy.
const (
	reasonNotReported  = "NotReported"
	reasonNotMeasured  = "NotMeasured"
	reasonTooFewPeers  = "TooFewPeers"
	reasonAsItsPeers   = "AsItsPeers"
	reasonNotQualified = "NotQualified"
)

// figure is how fast a part of a server is. Peers are those with a figure of the same kind.
type figure struct {
	cause v1alpha1.UnhealthyReason
	// part is what was measured, and what says so in a sentence that ends with the value and its unit.
	part, what, unit string
	// kind is what peers have in common; empty: any.
	kind  string
	value int64
}

// figures of a report, as many as it has.
func (f *Found) figures() (all []figure) {
	add := func(next figure) {
		if next.value > 0 {
			all = append(all, next)
		}
	}
	processor := fmt.Sprintf("%s/%d", f.CPU.Model, f.CPU.Threads)
	if measured := f.Measured; measured != nil {
		add(figure{
			v1alpha1.UnhealthySlowProcessor, "processor", "its slowest processor thread computes checksums at", "MB/s", processor,
			measured.ChecksumMBps,
		})
		add(figure{v1alpha1.UnhealthySlowMemory, "memory", "its memory is copied at", "MB/s", processor, measured.CopyMBps})
		name := label(measured.Disk, maxLabel)
		add(figure{
			v1alpha1.UnhealthySlowDisk, "disk", "its disk " + name + " is read at", "MB/s", f.kindOfDisk(measured.Disk), measured.ReadMBps,
		})
	}
	for _, port := range f.Ports {
		name := label(port.Name, maxLabel)
		add(figure{v1alpha1.UnhealthySlowLink, name, "the link of its port " + name + " has", "Mbit/s", port.Driver, int64(port.Mbps)})
	}
	return all
}

func (f *Found) kindOfDisk(name string) string {
	i := slices.IndexFunc(f.Disks, func(d hardware.Disk) bool { return d.Name == name })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("%s/%t", f.Disks[i].Model, f.Disks[i].Spins)
}

// key is the same of figures that are compared.
func (f *figure) key() string { return f.part + "/" + f.kind }

// indexFigures enters what all running systems of the chassis have measured.
func (p *planning) indexFigures() {
	p.figures = map[string]map[*machine]int64{}
	for _, m := range p.machines {
		report := m.report()
		if report == nil {
			continue
		}
		for _, of := range report.figures() {
			if p.figures[of.key()] == nil {
				p.figures[of.key()] = map[*machine]int64{}
			}
			p.figures[of.key()][m] = of.value
		}
	}
}

// peers is the median of a figure of the other servers, and how many these are.
func (m *machine) peers(of *figure) (median int64, count int) {
	var values []int64
	for other, value := range m.figures[of.key()] {
		if other != m {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		return 0, 0
	}
	slices.Sort(values)
	return values[(len(values)-1)/2], len(values)
}

// slowness is what of the server is far slower than that of its peers, in a report of its running system; empty: nothing, as far as it was
// compared.
func (m *machine) slowness(report *Found) (cause v1alpha1.UnhealthyReason, what string) {
	if percent := report.CPU.ThrottledPercent; percent > maxThrottledPercent {
		return v1alpha1.UnhealthySlowProcessor, fmt.Sprintf("its processor ran slower for more than %d %% of the last hour, because it "+
			"was too hot", min(percent, 100)/2) //nolint:mnd // in percent, rounded up to a power of two
	}
	for _, of := range report.figures() {
		if median, count := m.peers(&of); count >= minPeers && of.value < median/slowPart {
			return of.cause, fmt.Sprintf("%s %d %s; the median of %d other servers is %d %s", of.what, of.value, of.unit, count, median,
				of.unit)
		}
	}
	return "", ""
}

// isMeasurable: its system is one that reports, so its figures are waited for.
func (m *machine) isMeasurable() bool {
	return m.node != nil && (m.node.Found != nil || m.Chassis.Spec.Boot.Image != "" || m.Chassis.Spec.Boot.Install == v1alpha1.InstallNew)
}

// qualified is the condition of that name; false if nothing measures the server.
func (m *machine) qualified() (verdict, bool) {
	if !m.isMeasurable() {
		return verdict{}, false
	}
	report := m.report()
	switch {
	case report == nil && m.node.Found != nil && m.node.Found.Unusable != "":
		return no(reasonNotMeasured, m.node.Found.Unusable), true
	case report == nil:
		return unknown(reasonNotReported, "its system has reported nothing since it was started last"), true
	case report.Measured == nil:
		return unknown(reasonNotMeasured, "its system has measured nothing at its start: rcbox-measure.service of the blade says why"), true
	case len(report.Measured.Failed) > 0:
		return no(reasonNotMeasured, "not measured: "+label(strings.Join(report.Measured.Failed, "; "), maxDetail)), true
	}
	if cause, what := m.slowness(report); cause != "" {
		return no(string(cause), what), true
	}
	var compared, alone []string
	for _, of := range report.figures() {
		if _, count := m.peers(&of); count >= minPeers {
			compared = append(compared, of.part)
		} else {
			alone = append(alone, of.part)
		}
	}
	if len(compared) == 0 {
		return unknown(reasonTooFewPeers, fmt.Sprintf("measured, but fewer than %d other servers of its kind have figures", minPeers)), true
	}
	text := "not slower than half of what other servers have: " + listed(compared)
	if len(alone) > 0 {
		text += "; too few others to compare: " + listed(alone)
	}
	return yes(reasonAsItsPeers, text), true
}

// whyNotQualified is why the node of a server that returns gets no pods yet; empty if it may.
func (m *machine) whyNotQualified() string {
	if m.spec().Qualification == v1alpha1.QualificationWaived {
		return ""
	}
	if m.node == nil {
		m.isDoubted = true
		return "waiting for the BMC's system GUID, which says which node runs on the server"
	}
	anyway := "; " + m.howToReturn() + " --force uses it all the same"
	if ill := m.illness(); ill != nil {
		m.isolationReason = reasonNotQualified
		return ill.what + anyway
	}
	of, isThere := m.qualified()
	switch {
	case !isThere || of.reason == reasonAsItsPeers || of.reason == reasonTooFewPeers:
		return ""
	case of.reason == reasonNotReported:
		return "waiting for what its system measures and reports after its start" + anyway
	}
	m.isolationReason = reasonNotQualified
	return of.message + anyway
}
