package plan

import (
	"errors"
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

// refused is the refusal of a login that the status has to have: the newest one, until the controller has accepted a login of this
// operator.
func (c *Contact) refused(recorded *v1alpha1.RefusedLogin) *v1alpha1.RefusedLogin {
	switch {
	case c.Refused != nil && !c.Refused.IsSame(recorded):
		return c.Refused
	case c.Refused == nil && !c.AnsweredAt.IsZero() && c.Err == nil:
		return nil
	}
	return recorded
}

// setRefused records the same for chassis managers and controllers of switch boards. It drops the records of controllers that the spec does
// not name any more.
func (p *planning) setRefused(next *v1alpha1.ChassisStatus) {
	before := next.Refused
	next.Refused = nil
	for _, m := range slices.Concat(p.Managers, p.SwitchBoards) {
		var recorded *v1alpha1.RefusedLogin
		if at := slices.IndexFunc(before, func(r v1alpha1.RefusedLogin) bool { return r.Address == m.Address }); at >= 0 {
			recorded = &before[at]
		}
		if record := m.refused(recorded); record != nil {
			next.Refused = append(next.Refused, *record)
		}
	}
}

// whyRefuses says why a controller refuses the login; empty if it does not.
func whyRefuses(err error) string {
	var refused *bmc.RefusedError
	if !errors.As(err, &refused) {
		return ""
	}
	why := string(refused.Reason)
	if refused.Reason == bmc.RefusedNewPassword { // the reason does not say what to do, the detail does
		why += " (" + label(refused.Detail, maxDetail) + ")"
	}
	return why
}

// whatToDo says how to get another attempt after a refusal: each change of the Secret allows one.
func (p *planning) whatToDo() string {
	return fmt.Sprintf("correct Secret %s, or annotate it if the password is right: each change allows one more login",
		p.Chassis.Spec.Management.CredentialsSecret)
}
