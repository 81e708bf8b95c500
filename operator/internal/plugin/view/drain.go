package view

import "fmt"

// DrainProgress says how far a member is with leaving; an error if it does not leave any more.
func (s *Snapshot) DrainProgress(name string) (text string, drained bool, err error) {
	for _, member := range s.Cluster.GetMembers() {
		if member.GetName() != name {
			continue
		}
		switch draining := member.GetDraining(); {
		case draining == nil:
			return "", false, fmt.Errorf("%s is not drained any more: somebody has taken that back", name)
		case draining.GetDrained():
			return name + ": drained: nobody needs anything that it has", true, nil
		default:
			return name + ": draining: " + drainingText(draining), false, nil
		}
	}
	return name + ": it is no member any more", true, nil
}
