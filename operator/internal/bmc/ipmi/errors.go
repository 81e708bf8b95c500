package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// errMalformed means that the controller sent something that cannot be decoded.
var errMalformed = errors.New("the controller's answer cannot be decoded")

func isTimeout(err error) bool {
	var netError net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netError) && netError.Timeout()
}

// unreachable is the error when nothing listens or no route leads there. Both mean that the controller does not answer.
func unreachable(ctx context.Context, address netip.AddrPort, err error) error {
	if cause := ended(ctx); cause != nil {
		return fmt.Errorf("%s: %w", address, cause)
	}
	var operation *net.OpError
	if errors.As(err, &operation) && operation.Err != nil {
		return fmt.Errorf("%s: %w (%w)", address, bmc.ErrSilent, operation.Err)
	}
	return fmt.Errorf("%s: %w", address, bmc.ErrSilent)
}

// loginError says why no session was established.
func (c *Client) loginError(ctx context.Context, err error) error {
	refused := &bmc.RefusedError{Address: c.address}
	var status *types.RmcpStatusError
	switch {
	case ended(ctx) != nil:
		return fmt.Errorf("%s: login: %w", c.address, ended(ctx))
	case errors.As(err, &status):
		return c.statusError(status.StatusCode())
	case errors.Is(err, client.ErrRAKPAuthentication):
		refused.Reason = bmc.RefusedCredentials
	case errors.Is(err, errDowngraded):
		refused.Reason, refused.Detail = bmc.RefusedCipherSuite, errDowngraded.Error()
	case !c.conn.answered():
		return unreachable(ctx, c.address, err)
	default:
		return fmt.Errorf("%s: login: %w", c.address, errMalformed)
	}
	return refused
}

// statusError is the error of a status of the login: IPMI 2.0, table 13-15.
func (c *Client) statusError(status types.RmcpStatusCode) error {
	refused := &bmc.RefusedError{Address: c.address, Detail: status.String()}
	switch status {
	case types.RmcpStatusCodeNoResToCreateSess, types.RmcpStatusCodeNoResToCreateSessAtRole:
		return &bmc.BusyError{Address: c.address, What: "it has no session left"}
	case types.RmcpStatusCodeInvalidSessionID, types.RmcpStatusCodeInactiveSessionID:
		return &bmc.BusyError{Address: c.address, What: "it dropped the session during the login"}
	case types.RmcpStatusCodeInvalidRole, types.RmcpStatusCodeUnauthorizedRoleOfPriLevel:
		refused.Reason = bmc.RefusedPrivilege
	case types.RmcpStatusCodeInvalidNameLength, types.RmcpStatusCodeUnauthorizedName, types.RmcpStatusCodeUnauthorizedGUID,
		types.RmcpStatusCodeInvalidIntegrityCheckValue:
		refused.Reason = bmc.RefusedCredentials
	default:
		refused.Reason = bmc.RefusedCipherSuite
	}
	return refused
}

// commandError is the error of a completion code: IPMI 2.0, table 5-2. It keeps the code for callers that know better.
func (c *Client) commandError(what string, err error) error {
	if err == nil {
		return nil
	}
	var answer *types.ResponseError
	if !errors.As(err, &answer) || answer.CompletionCode() == types.CodeOK { // the library's code for what it cannot decode
		return fmt.Errorf("%s: %s: %w", c.address, what, errMalformed)
	}
	detail := fmt.Sprintf("completion code %#02x", uint8(answer.CompletionCode()))
	var typed error
	switch answer.CompletionCode() {
	case types.CodeInvalidCommand, types.CodeInvalidCommandForLUN, types.CodeIllegalCommand, types.CodeSubFnDisabled,
		types.CodeParameterOutOfRange, types.CodeRequestDataFieldInvalid:
		typed = &bmc.UnsupportedError{Address: c.address, What: what, Detail: detail}
	case types.CodeNodeBusy, types.CodeProcessTimeout, types.CodeOutOfSpace, types.CodeCannotProvideResponse,
		types.CodeCannotExecuteDuplicatedRequest, types.CodeCannotProvideResponseSDRRInUpdate,
		types.CodeCannotProvideResponseFirmwareUpdate, types.CodeCannotProvideResponseBMCInitialize, types.CodeDestinationUnavailable,
		types.CodeNotSupported: // "in the present state"
		typed = &bmc.BusyError{Address: c.address, What: what, Detail: detail}
	case types.CodeInsufficientPrivilege:
		typed = &bmc.RefusedError{Address: c.address, Reason: bmc.RefusedPrivilege, Detail: what}
	default:
		typed = fmt.Errorf("%s: %s: %s", c.address, what, detail)
	}
	return &commandError{typed: typed, answer: answer}
}

// commandError is one of the types of package bmc, and beside it the code that a controller answered.
type commandError struct {
	typed  error
	answer *types.ResponseError
}

func (e *commandError) Error() string   { return e.typed.Error() }
func (e *commandError) Unwrap() []error { return []error{e.typed, e.answer} }

// hasCode says whether the controller answered one of codes.
func hasCode(err error, codes ...types.CompletionCode) bool {
	answer := answerOf(err)
	return answer != nil && slices.Contains(codes, answer.CompletionCode())
}

// wasAnswered says whether the controller answered, with whatever completion code.
func wasAnswered(err error) bool { return answerOf(err) != nil }

// answerOf returns the controller's answer in err, or nil.
func answerOf(err error) *types.ResponseError {
	var answer *types.ResponseError
	errors.As(err, &answer)
	return answer
}
