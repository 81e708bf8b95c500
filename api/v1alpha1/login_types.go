package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LoginRefusal is why a BMC has refused a login.
//
// +kubebuilder:validation:Enum=Credentials;NewPassword
type LoginRefusal string

const (
	// LoginCredentials means that the user name or the password is wrong, or that the account is locked.
	LoginCredentials LoginRefusal = "Credentials"
	// LoginNewPassword means that the BMC takes the previous password, and cannot be given the new one.
	LoginNewPassword LoginRefusal = "NewPassword"
)

// RefusedLogin is a login that a BMC has refused. BMCs lock accounts after a few wrong passwords, so the box controller does not try the
// same login again, not even after a restart, until one of the fields address to passwordBytes changes. No field is derived from the
// password.
type RefusedLogin struct {
	// The address of the BMC.
	//
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`
	// Its port.
	Port int32 `json:"port"`
	// The management protocol of the login.
	Protocol ManagementProtocol `json:"protocol"`
	// The cipher suite of IPMI.
	//
	// +optional
	CipherSuite int32 `json:"cipherSuite,omitempty"`
	// The UID of the Secret with the password.
	//
	// +kubebuilder:validation:MaxLength=64
	SecretUID string `json:"secretUID"` //nolint:tagliatelle // as Kubernetes spells it
	// The resourceVersion of the Secret: each change of the Secret is another one, also one of its annotations alone.
	//
	// +kubebuilder:validation:MaxLength=64
	SecretVersion string `json:"secretVersion"`
	// The longest password that the BMC is known to keep, as the model or spec.modelOverrides says.
	//
	// +optional
	PasswordBytes int32 `json:"passwordBytes,omitempty"`
	// The reason of the refusal.
	Reason LoginRefusal `json:"reason"`
	// More about the refusal, if more is known.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Detail string `json:"detail,omitempty"`
	// When it was refused.
	At metav1.Time `json:"at"`
}

// IsSame says whether it is the same login, for the same reason.
func (r *RefusedLogin) IsSame(other *RefusedLogin) bool {
	if r == nil || other == nil {
		return r == other
	}
	a, b := *r, *other
	a.At, b.At = metav1.Time{}, metav1.Time{}
	a.Detail, b.Detail = "", ""
	return a == b
}
