package access

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"

	"rcbox.dev/rcbox/operator/internal/box/subresources/protocol"
)

// MayIPMI is an error unless the user has the right to speak with the BMC of each server, or controller of a chassis.
func (c *Cluster) MayIPMI(ctx context.Context, names []string) error {
	const verb, all = "create", ""
	if may, err := c.may(ctx, verb, protocol.IPMI, all); may || err != nil {
		return err
	}
	for _, name := range names {
		switch may, err := c.may(ctx, verb, protocol.IPMI, name); {
		case err != nil:
			return err
		case !may:
			return fmt.Errorf("you may not use ipmitool with %s: that takes %s on %s/%s in the API group %s", name, verb, protocol.Resource,
				protocol.IPMI, protocol.GroupVersion.Group)
		}
	}
	return nil
}

// may asks whether the user has a right on a server, or, without a name, on all of them.
func (c *Cluster) may(ctx context.Context, verb, subresource, name string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: protocol.GroupVersion.Group, Version: protocol.GroupVersion.Version, Resource: protocol.Resource,
			Subresource: subresource, Name: name,
		},
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask whether you may %s %s/%s: %w", verb, protocol.Resource, subresource, err)
	}
	return review.Status.Allowed, nil
}
