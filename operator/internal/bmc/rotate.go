package bmc

import (
	"context"
	"errors"
	"fmt"
)

// ShortPassword is the longest password, in bytes, that each IPMI controller can keep. Some have room for 20, some keep 16 of them and say
// yes.
const ShortPassword = 16

// Account is a session that can change the password of the account that it was opened with.
type Account interface {
	// CanKeep returns why the controller would not keep a password; nil: nothing is known against that. It changes nothing.
	CanKeep(ctx context.Context, password Secret) error
	// SetPassword gives the account of an access its password.
	SetPassword(ctx context.Context, access Access) error
	Close() error
}

// Rotation changes passwords by one protocol.
type Rotation[A Account] struct {
	// Dial opens a session, and DialAdmin one that may change passwords.
	Dial, DialAdmin func(context.Context, Access) (A, error)
	// Told is called once a controller has the new password.
	Told func()
}

// Open opens a session. A controller that refuses the password and takes the previous one is given the password, which is then proved by a
// session of its own. How far that is, is on record nowhere but in the controller, so whoever is killed in the middle begins anew: a
// controller has either of the two, because none is given a password that it is not known to keep. It costs the account one attempt with a
// wrong password. An error of another type than RefusedError is a RotationError once it has cost that.
func (r Rotation[A]) Open(ctx context.Context, access Access) (A, error) {
	var none A
	session, err := r.Dial(ctx, access)
	if !isWrong(err) || access.Previous.IsEmpty() {
		return session, err
	}
	before := access
	before.Password = access.Previous
	old, errBefore := r.DialAdmin(ctx, before)
	switch {
	case isWrong(errBefore):
		return none, err // neither of them is right
	case errBefore != nil:
		return none, rotationError(access, errBefore)
	}
	defer func() { _ = old.Close() }()
	if err := old.CanKeep(ctx, access.Password); err != nil {
		return none, rotationError(access, err)
	}
	if err := old.SetPassword(ctx, access); err != nil {
		return none, rotationError(access, err)
	}
	session, err = r.Dial(ctx, access)
	switch {
	case err == nil:
		r.Told()
		return session, nil
	case !isWrong(err):
		return none, rotationError(access, err)
	}
	if err := old.SetPassword(ctx, before); err != nil {
		return none, rotationError(access, fmt.Errorf("it did not keep the new one, and the previous one could not be put back: %w", err))
	}
	return none, &RefusedError{
		Address: access.Address, Reason: RefusedNewPassword, Detail: "it did not keep it, and has the previous one: write another one",
	}
}

// isWrong says whether a password was refused.
func isWrong(err error) bool {
	refused, is := errors.AsType[*RefusedError](err)
	return is && refused.Reason == RefusedCredentials
}

// rotationError is final unless the controller was silent or our time has ended: a new attempt costs one with a wrong password again.
func rotationError(access Access, err error) error {
	_, isRefused := errors.AsType[*RefusedError](err)
	switch {
	case isRefused:
		return err
	case errors.Is(err, ErrSilent), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &RotationError{Err: err}
	}
	return &RefusedError{Address: access.Address, Reason: RefusedNewPassword, Detail: err.Error()}
}

// RotationError means that a controller was silent, or our time over, after it had refused the new password.
type RotationError struct{ Err error }

func (e *RotationError) Error() string { return "while it is given the new password: " + e.Err.Error() }

// Unwrap returns why.
func (e *RotationError) Unwrap() error { return e.Err }
