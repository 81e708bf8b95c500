// Package redfish speaks Redfish over HTTPS with one management controller. It is the client of gofish behind a transport that bounds time
// and size, verifies the certificate, and sends nothing to another host. Readings are decoded here, because gofish shows a reading that the
// controller does not have as 0, and 0 watts would be a witness that a server is off.
package redfish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/common"
	"github.com/stmcginnis/gofish/redfish"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// Bounds of a session.
const (
	// silence is how long the connection, and the TLS handshake, are waited for.
	silence = 2 * time.Second
	// slow is how long an answer is waited for: controllers take seconds to collect some.
	slow = 10 * time.Second
	// farewell bounds the end of a session.
	farewell = time.Second
	// maxBody bounds an answer. With the pool's 32 controllers at once, all together are bounded by 16 MiB.
	maxBody = 512 << 10
	// maxMembers bounds the members of a collection that are read one by one, and maxPages the pages that they come in.
	maxMembers = 512
	maxPages   = 32
)

// Dialer opens sessions.
type Dialer struct {
	// RootCAs are those who may vouch for certificates where an access names nobody; nil: those of the machine.
	RootCAs *x509.CertPool
}

// authorities are those who may vouch for the certificate of a controller.
func (d Dialer) authorities(access bmc.Access) (*x509.CertPool, error) {
	if access.CA == "" {
		return d.RootCAs, nil
	}
	named := x509.NewCertPool()
	if !named.AppendCertsFromPEM([]byte(access.CA)) {
		return nil, &bmc.RefusedError{
			Address: access.Address, Reason: bmc.RefusedCertificate, Detail: "the authorities of the Secret are no certificates as PEM",
		}
	}
	return named, nil
}

// Client is a session with a controller.
type Client struct {
	address netip.AddrPort
	api     *gofish.APIClient
	limit   *transport
	system  string   // the server, empty if there is none or several
	chassis []string // what its sensors are in
	manager []string
	// keeps is how many bytes of a password the controller is known to keep, unless it says that itself.
	keeps   int
	closing sync.Once
}

var _ bmc.BMC = (*Client)(nil)

// Dial opens a session. A wrong password costs the account one attempt.
func (d Dialer) Dial(ctx context.Context, access bmc.Access) (*Client, error) {
	trusted, err := d.authorities(access)
	if err != nil {
		return nil, err
	}
	limit := &transport{host: access.Address.String(), base: &http.Transport{
		DialContext:           (&net.Dialer{Timeout: silence}).DialContext,
		TLSHandshakeTimeout:   silence,
		ResponseHeaderTimeout: slow,
		MaxIdleConnsPerHost:   1,
		IdleConnTimeout:       time.Minute,
		// Without verification somebody on the way reads the password; it is the user's choice.
		TLSClientConfig: &tls.Config{RootCAs: trusted, InsecureSkipVerify: access.InsecureSkipVerify}, //nolint:gosec // see above
	}}
	defer limit.during(ctx)()
	c := &Client{address: access.Address, limit: limit}
	config := gofish.ClientConfig{
		Endpoint: "https://" + access.Address.String(), HTTPClient: &http.Client{Transport: limit}, ReuseConnections: true,
	}
	// The context of gofish lasts as long as the session; limit has that of each call.
	lasting := context.WithoutCancel(ctx)
	api, err := gofish.ConnectContext(lasting, config) // the root is there for everybody
	if err != nil {
		limit.base.CloseIdleConnections()
		return nil, c.loginError(ctx, err)
	}
	c.api = api
	if access.Username != "" {
		config.Username, config.Password = access.Username, access.Password.Reveal()
		config.BasicAuth, err = c.withoutSessions()
		if err == nil {
			api, err = gofish.ConnectContext(lasting, config)
		}
	}
	if err == nil {
		c.api = api
		err = c.find()
	}
	if err != nil {
		limit.base.CloseIdleConnections()
		return nil, c.loginError(ctx, err)
	}
	return c, nil
}

// Format prints the address alone: gofish keeps the token.
func (c *Client) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, "Redfish session with "+c.address.String())
}

// withoutSessions says whether the service has no sessions, so that each request has to have the password.
func (c *Client) withoutSessions() (bool, error) {
	root, err := get[struct {
		Links struct{ Sessions link }
	}](c, common.DefaultServiceRoot)
	return root.Links.Sessions.ID == "", err
}

// find reads which resources are there, which also tries the password where there are no sessions.
func (c *Client) find() error {
	root, err := get[struct{ Systems, Chassis, Managers link }](c, common.DefaultServiceRoot)
	if err != nil {
		return err
	}
	systems, err := c.members(root.Systems.ID)
	if err != nil {
		return err
	}
	if len(systems) == 1 {
		c.system = systems[0]
	}
	if c.chassis, err = c.members(root.Chassis.ID); err != nil {
		return err
	}
	c.manager, err = c.members(root.Managers.ID)
	return err
}

// link is a reference to another resource.
type link struct {
	ID string `json:"@odata.id"` //nolint:tagliatelle // Redfish's name
}

// get reads a resource.
func get[T any](c *Client, uri string) (value T, err error) {
	answer, err := c.api.Get(uri)
	if err != nil {
		return value, err //nolint:wrapcheck // types are given to it in one place
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(&value); err != nil {
		return value, errMalformed
	}
	return value, nil
}

// members returns the references of a collection.
func (c *Client) members(uri string) ([]string, error) {
	var found []string
	for range maxPages {
		if uri == "" {
			return found, nil
		}
		page, err := get[struct {
			Members list[link]
			Next    string `json:"Members@odata.nextLink"` //nolint:tagliatelle // Redfish's name
		}](c, uri)
		if err != nil {
			return nil, err
		}
		for _, member := range page.Members {
			found = append(found, member.ID)
		}
		if len(found) > maxMembers {
			break
		}
		uri = page.Next
	}
	return nil, errMalformed
}

// Close ends the session.
func (c *Client) Close() error {
	c.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		defer c.limit.during(ctx)()
		if session, err := c.api.GetSession(); err == nil {
			_ = redfish.DeleteSession(c.api, session.ID)
		}
		c.limit.base.CloseIdleConnections()
	})
	return nil
}

// transport sends requests to one host, each within the context of the call that it belongs to.
type transport struct {
	host string
	base *http.Transport

	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // gofish has one for all requests of a session
}

// during lets a call's context bound the requests until the returned function is called.
func (t *transport) during(ctx context.Context) func() { //nolint:contextcheck // the requests have the session's until then
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.ctx
	t.ctx = ctx
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ctx = before
	}
}

// RoundTrip sends a request.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	t.mu.Lock()
	ctx := t.ctx
	t.mu.Unlock()
	if request.URL.Host != t.host || request.URL.Scheme != "https" {
		// A reference from a controller's answer; our token, or the password, is for the controller alone.
		return nil, fmt.Errorf("a request to another host, %q: %w", request.URL.Host, errMalformed)
	}
	answer, err := t.base.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return nil, err //nolint:wrapcheck // types are given to it in one place
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(answer.Body, maxBody), answer.Body}
	return answer, nil
}

// errMalformed means that the controller sent something that cannot be decoded.
var errMalformed = errors.New("the controller's answer cannot be decoded")

// loginError says why there is no session.
func (c *Client) loginError(ctx context.Context, err error) error {
	refused := &bmc.RefusedError{Address: c.address, Reason: bmc.RefusedCredentials}
	if _, bad := errors.AsType[*tls.CertificateVerificationError](err); bad {
		refused.Reason = bmc.RefusedCertificate
		return refused
	}
	switch status(err) {
	case http.StatusUnauthorized:
		return refused
	case http.StatusForbidden:
		refused.Reason = bmc.RefusedPrivilege
		return refused
	default:
		return c.callError(ctx, "login", err)
	}
}

// callError gives types to the errors of a call.
func (c *Client) callError(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %s: %w", c.address, what, ctx.Err())
	}
	code := status(err)
	detail := fmt.Sprintf("HTTP status %d", code)
	switch code {
	case 0:
		if _, network := errors.AsType[net.Error](err); network || errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %s: %w", c.address, what, bmc.ErrSilent)
		}
		return fmt.Errorf("%s: %s: %w", c.address, what, errMalformed)
	case http.StatusUnauthorized: // after a login that succeeded
		return fmt.Errorf("%s: %s: the controller has ended the session: %w", c.address, what, bmc.ErrSilent)
	case http.StatusForbidden:
		return &bmc.RefusedError{Address: c.address, Reason: bmc.RefusedPrivilege, Detail: what}
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusBadRequest:
		return &bmc.UnsupportedError{Address: c.address, What: what, Detail: detail}
	case http.StatusConflict, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusInsufficientStorage:
		return &bmc.BusyError{Address: c.address, What: what, Detail: detail}
	default:
		return fmt.Errorf("%s: %s: %s", c.address, what, detail)
	}
}

// isAbsent says whether the controller answered that it does not have a resource, or not for this account. Such an answer stays the same,
// unlike that of a controller that is busy.
func isAbsent(err error) bool {
	switch status(err) {
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusBadRequest:
		return true
	default:
		return false
	}
}

// status is the HTTP status of an error, or 0. The text of gofish's error is the whole answer, which is for no log.
func status(err error) int {
	if answer, has := errors.AsType[*common.Error](err); has {
		return answer.HTTPReturnedStatusCode
	}
	return 0
}
