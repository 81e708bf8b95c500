package poll

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
)

// maxDetail is the longest detail in the record of a refused login.
const maxDetail = 256

// recordedReasons are the refusals that cost a login with a wrong password each time. Others are not recorded: a certificate, a cipher
// suite or a privilege may be corrected without a change of the login's identity, and another attempt locks no account.
var recordedReasons = map[bmc.Refusal]v1alpha1.LoginRefusal{
	bmc.RefusedCredentials: v1alpha1.LoginCredentials, bmc.RefusedNewPassword: v1alpha1.LoginNewPassword,
}

// refusedLogin is the record of a login that was refused; nil if err is something else.
func refusedLogin(target *pool.Target, err error, at time.Time) *v1alpha1.RefusedLogin {
	refused, is := errors.AsType[*bmc.RefusedError](err)
	if !is || !refused.AtLogin || recordedReasons[refused.Reason] == "" {
		return nil
	}
	record := login(target)
	record.Reason, record.At = recordedReasons[refused.Reason], metav1.NewTime(at.Truncate(time.Second))
	record.Detail = bmc.Printable(refused.Detail)
	record.Detail = record.Detail[:min(len(record.Detail), maxDetail)]
	return record
}

// login is the identity of a login, without a reason.
func login(target *pool.Target) *v1alpha1.RefusedLogin {
	access := &target.Access
	return &v1alpha1.RefusedLogin{
		Address: access.Address.Addr().String(), Port: int32(access.Address.Port()),
		Protocol: v1alpha1.ManagementProtocol(access.Protocol), CipherSuite: int32(access.CipherSuite), //nolint:gosec // 3 or 17
		SecretUID: target.SecretUID, SecretVersion: target.SecretVersion,
		PasswordBytes: int32(access.PasswordBytes), //nolint:gosec // the schema has bounds
	}
}

// OnRecord is the recorded refusal of a login; nil if there is no record, or if the record is of another login.
func OnRecord(target *pool.Target, record *v1alpha1.RefusedLogin) *bmc.RefusedError {
	if record == nil {
		return nil
	}
	same := login(target)
	if same.Reason = record.Reason; !same.IsSame(record) {
		return nil
	}
	for reason, recorded := range recordedReasons {
		if recorded == record.Reason {
			return &bmc.RefusedError{Address: target.Access.Address, Reason: reason, Detail: bmc.Printable(record.Detail), AtLogin: true}
		}
	}
	return nil
}
