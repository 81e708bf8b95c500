package plan

import (
	"fmt"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// BoxHosts are the box hosts that are to serve the networks of a Chassis.
type BoxHosts struct {
	// Read: this operator has read what they report.
	Read bool
	// Without are networks of the Chassis in which no box host has an address.
	Without []string
	// Hosts are those that have one, ordered by name.
	Hosts []BoxHost
}

// BoxHost is a box host by its last report.
type BoxHost struct {
	Name, Address string
	// Silent: it has not reported for longer than it may.
	Silent bool
	// Ready: all of its services answer. Refused: it serves an earlier configuration, because it refuses the newest.
	Ready, Refused bool
	// Message is the report's own text.
	Message string
	// IsMaintenance: it serves no boot image.
	IsMaintenance bool
	// Image is the version of the boot image that it serves; empty: none.
	Image string
}

// servicesReady says whether each box host serves the networks of the Chassis.
func (p *planning) servicesReady() verdict {
	hosts := p.BoxHosts
	switch {
	case hosts == nil:
		return unknown("NoBoxHosts", "this cluster has no box hosts (box.host.enabled of the chart)")
	case !hosts.Read:
		return notYet("NotRead", "the reports of box hosts were not read yet")
	case len(hosts.Hosts) == 0 && len(hosts.Without) == 0:
		return unknown("NoNetworks", "no network of spec.networks has a range: box hosts have no addresses to give")
	case len(hosts.Without) > 0:
		return no("NoHost", "no box host has an address in "+listed(hosts.Without)+": add one to box.host.hosts of the chart")
	}
	var serving, silent []string
	var unready, refuses *BoxHost
	for i := range hosts.Hosts {
		switch host := &hosts.Hosts[i]; {
		case host.Silent:
			silent = append(silent, fmt.Sprintf("%s (%s)", host.Name, host.Address))
		case !host.Ready:
			unready = host
		case host.Refused:
			refuses = host
		default:
			serving = append(serving, host.Name)
		}
	}
	rest := ""
	if len(serving) > 0 {
		rest = " (" + listed(serving) + " is ready)"
	}
	switch {
	case len(silent) > 0:
		return no("Silent", fmt.Sprintf("box hosts do not report: %s%s; look at the pods with the label "+
			"app.kubernetes.io/name=rcbox-boxhost", listed(silent), rest))
	case unready != nil:
		return no("NotReady", fmt.Sprintf("box host %s is not ready%s: %s", unready.Name, rest, unready.Message))
	case refuses != nil:
		return no("Refused", fmt.Sprintf("box host %s serves an earlier configuration%s: %s", refuses.Name, rest, refuses.Message))
	}
	if wrong := p.wrongImage(); wrong != nil {
		return *wrong
	}
	return yes("AllServe", "every service of these box hosts answers: "+listed(serving))
}

// wrongImage says which box host serves another boot image than the Chassis wants, or none; nil if all serve the right one.
func (p *planning) wrongImage() *verdict {
	wanted := p.Chassis.Spec.Boot.Image
	if wanted == "" && p.Chassis.Spec.Boot.Install != v1alpha1.InstallNew {
		return nil
	}
	for i := range p.BoxHosts.Hosts {
		host := &p.BoxHosts.Hosts[i]
		switch {
		case host.IsMaintenance:
		case host.Image == "":
			v := no("NoImage", fmt.Sprintf("box host %s serves no boot image: put the files of one into box.host.imageFolder of its node "+
				"(hack/blade-image.sh makes it)", host.Name))
			return &v
		case wanted != "" && host.Image != wanted:
			v := no("OtherImage", fmt.Sprintf("box host %s serves the boot image %s, and spec.boot.image is %s: put that one into "+
				"box.host.imageFolder of its node, or change spec.boot.image", host.Name, host.Image, wanted))
			return &v
		}
	}
	return nil
}
