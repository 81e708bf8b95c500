package redfish

import (
	"context"
	"fmt"
	"net/http"

	"github.com/stmcginnis/gofish/common"
	"github.com/stmcginnis/gofish/redfish"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// DialRotating opens a session, and changes the password on the way where the controller knows only the previous one.
func (d Dialer) DialRotating(ctx context.Context, access bmc.Access, told func()) (*Client, error) {
	rotation := bmc.Rotation[*Client]{Dial: d.Dial, Told: told, DialAdmin: func(ctx context.Context, before bmc.Access) (*Client, error) {
		session, err := d.Dial(ctx, before)
		if err == nil {
			session.keeps = max(access.PasswordBytes, bmc.ShortPassword)
		}
		return session, err
	}}
	return rotation.Open(ctx, access)
}

// CanKeep says no to a password that is longer than the service says that it takes, or than each controller can keep if it does not say.
func (c *Client) CanKeep(ctx context.Context, password bmc.Secret) error {
	limit := c.keeps
	err := c.call(ctx, "new password", func() error {
		service, err := c.accountService()
		if err != nil {
			return err
		}
		if service.MaxPasswordLength > 0 {
			limit = service.MaxPasswordLength
		}
		return nil
	})
	if err == nil && len(password.Reveal()) > limit {
		err = c.cannot(fmt.Sprintf("it is not known to keep more than %d bytes: write one of at most %d bytes", limit, limit))
	}
	return err
}

// SetPassword gives the account of an access its password.
func (c *Client) SetPassword(ctx context.Context, access bmc.Access) error {
	return c.call(ctx, "new password", func() error {
		account, err := c.findAccount(access.Username)
		if err != nil {
			return err
		}
		account.Password = access.Password.Reveal()
		err = account.Update()
		if status(err) == http.StatusBadRequest {
			return c.cannot("its rules for passwords do not allow the new one: write another one")
		}
		return err //nolint:wrapcheck // types are given to it in one place
	})
}

// accounts is the part of an account service that matters here.
type accounts struct {
	Accounts          link
	MaxPasswordLength int
}

func (c *Client) accountService() (accounts, error) {
	root, err := get[struct{ AccountService link }](c, common.DefaultServiceRoot)
	if err != nil {
		return accounts{}, err
	}
	if root.AccountService.ID == "" {
		return accounts{}, c.cannot("it has no account service: change it in the BMC's own pages, and remove previousPassword")
	}
	return get[accounts](c, root.AccountService.ID)
}

func (c *Client) findAccount(name string) (*redfish.ManagerAccount, error) {
	service, err := c.accountService()
	if err != nil {
		return nil, err
	}
	uris, err := c.members(service.Accounts.ID)
	if err != nil {
		return nil, err
	}
	for _, uri := range uris {
		account, err := redfish.GetManagerAccount(c.api, uri)
		if err != nil {
			return nil, err //nolint:wrapcheck // types are given to it in one place
		}
		if account.UserName == name {
			return account, nil
		}
	}
	return nil, c.cannot(fmt.Sprintf("none of its %d accounts has the name of the Secret", len(uris)))
}

// cannot says why the controller is not given the new password.
func (c *Client) cannot(why string) error {
	return &bmc.RefusedError{Address: c.address, Reason: bmc.RefusedNewPassword, Detail: why}
}
