package ipmi

import (
	"context"
	"fmt"

	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

var _ bmc.VLANs = (*Client)(nil)

const maxVLAN = 4094

// DialAdministrator opens a session with the rights of an administrator, which it takes to change how a controller is reached.
func DialAdministrator(ctx context.Context, access bmc.Access) (*Client, error) {
	return dial(ctx, access, types.PrivilegeLevelAdministrator)
}

// VLAN reads which VLAN the controller's own frames are in; 0: they have no tag.
func (c *Client) VLAN(ctx context.Context) (int, error) {
	var id types.LanConfigParam_VLANID
	err := c.exchange(ctx, "VLAN", true, func(ctx context.Context) error {
		return c.lib().GetLanConfigParamFor(ctx, thisChannel, &id)
	})
	if err != nil {
		return 0, err
	}
	if !id.Enabled {
		return 0, nil
	}
	return int(id.ID), nil
}

// SetVLAN has the controller move to another VLAN; 0: its frames have no tag. It may move before it answers. The command is sent once: an
// answer that is lost is what the caller has to know.
func (c *Client) SetVLAN(ctx context.Context, id int) error {
	if id < 0 || id > maxVLAN {
		return fmt.Errorf("VLAN %d: there are only those from 1 to %d, and 0 for none", id, maxVLAN)
	}
	parameter := &types.LanConfigParam_VLANID{Enabled: id > 0, ID: uint16(id)}
	return c.exchange(ctx, "VLAN", false, func(ctx context.Context) error {
		return c.lib().SetLanConfigParamFor(ctx, thisChannel, parameter)
	})
}
