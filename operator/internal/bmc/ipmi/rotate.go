package ipmi

import (
	"context"
	"fmt"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

const (
	// thisChannel is the channel that a command comes by.
	thisChannel = 0x0e
	// maxUsers is the most that a controller can have: an ID has six bits.
	maxUsers = 63
)

// DialRotating opens a session, and changes the password on the way where the controller knows only the previous one.
func DialRotating(ctx context.Context, access bmc.Access, told func()) (*Client, error) {
	rotation := bmc.Rotation[*Client]{Dial: Dial, Told: told, DialAdmin: func(ctx context.Context, access bmc.Access) (*Client, error) {
		session, err := dial(ctx, access, types.PrivilegeLevelAdministrator) // nobody else may set passwords
		if err == nil {
			session.keeps = max(access.PasswordBytes, bmc.ShortPassword)
		}
		return session, err
	}}
	return rotation.Open(ctx, access)
}

// CanKeep says no to a password that is longer than those that the controller is known to keep: it might keep a part of it, and say yes.
func (c *Client) CanKeep(_ context.Context, password bmc.Secret) error {
	if limit := min(c.keeps, maxPassword); len(password.Reveal()) > limit {
		return &bmc.RefusedError{
			Address: c.address, Reason: bmc.RefusedNewPassword,
			Detail: fmt.Sprintf("BMCs of this model are not known to keep more than %d bytes: write one of at most %d bytes", limit, limit),
		}
	}
	return nil
}

// SetPassword gives the user of an access its password.
func (c *Client) SetPassword(ctx context.Context, access bmc.Access) error {
	id, err := c.findUser(ctx, access.Username)
	if err != nil {
		return err
	}
	return c.exchange(ctx, "new password", true, func(ctx context.Context) error {
		password := access.Password.Reveal()
		_, err := c.lib().SetUserPassword(ctx, id, password, len(password) > bmc.ShortPassword)
		return err
	})
}

func (c *Client) findUser(ctx context.Context, name string) (uint8, error) {
	last := uint8(1)
	for id := uint8(1); id <= min(last, maxUsers); id++ {
		var may *app.GetUserAccessResponse
		err := c.exchange(ctx, "users", true, func(ctx context.Context) (err error) {
			may, err = c.lib().GetUserAccess(ctx, thisChannel, id)
			return err
		})
		if err != nil {
			return 0, err
		}
		last = may.MaxUsersIDCount
		var user *app.GetUsernameResponse
		err = c.exchange(ctx, "users", true, func(ctx context.Context) (err error) {
			user, err = c.lib().GetUsername(ctx, id)
			return err
		})
		switch {
		case err == nil && user.Username == name:
			return id, nil
		case err != nil && !wasAnswered(err): // what has no name is refused
			return 0, err
		}
	}
	return 0, &bmc.UnsupportedError{
		Address: c.address, What: "new password", Detail: fmt.Sprintf("none of its %d users has the name of the Secret", last),
	}
}
