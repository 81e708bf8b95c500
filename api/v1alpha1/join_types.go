package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupBootstrappers is the group of the bootstrap tokens that the box controller makes. No role of Kubernetes approves its requests.
const GroupBootstrappers = "system:bootstrappers:rcbox"

// ConditionJoined of a Server means that the machine was booted from the network by the last order, and is a node that is ready. It is
// absent while there is no such order.
const ConditionJoined = "Joined"

// JoinState is how far a server is that boots from the network and becomes a node.
//
// +kubebuilder:validation:Enum=Waiting;Preparing;Offered;Approving;Approved;Joined;Expired;Revoked
type JoinState string

// States of a join.
const (
	// JoinWaiting means that there is no token: the server was not seen starting yet, or something is in the way.
	JoinWaiting JoinState = "Waiting"
	// JoinPreparing means that a token is being made.
	JoinPreparing JoinState = "Preparing"
	// JoinOffered means that the server may ask a box host for the token.
	JoinOffered JoinState = "Offered"
	// JoinApproving means that one certificate signing request is being approved, and no other one will be by this token.
	JoinApproving JoinState = "Approving"
	// JoinApproved means that this request was approved.
	JoinApproved JoinState = "Approved"
	// JoinJoined means that the node was seen ready, and that its systemUUID is the system GUID of the server's BMC.
	JoinJoined JoinState = "Joined"
	// JoinExpired means that nobody used the token in its time.
	JoinExpired JoinState = "Expired"
	// JoinRevoked means that the token was taken back before it was used.
	JoinRevoked JoinState = "Revoked"
)

// HasToken says whether there may be a token in this state.
func (s JoinState) HasToken() bool {
	switch s {
	case JoinPreparing, JoinOffered, JoinApproving, JoinApproved:
		return true
	case JoinWaiting, JoinJoined, JoinExpired, JoinRevoked:
	}
	return false
}

// JoinStatus describes how far a server is that boots from the network and becomes a node. It is on record before anything is done. It does
// not contain the token.
type JoinStatus struct {
	// The order in spec.boot.
	//
	// +kubebuilder:validation:MaxLength=63
	Order string `json:"order"`
	// How far it is.
	State JoinState `json:"state"`
	// A start of the server after this time gets a token.
	Since metav1.Time `json:"since"`
	// The server was seen off since then, so that it starts when it is seen on.
	//
	// +optional
	SeenOff bool `json:"seenOff,omitempty"`
	// The public part of the token of this start.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=6
	TokenID string `json:"tokenID,omitempty"` //nolint:tagliatelle // as Kubernetes spells it
	// When the token ends.
	//
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// A certificate was approved since the order: the machine may become a node without another token.
	//
	// +optional
	Certified bool `json:"certified,omitempty"`
	// The one certificate signing request for which the token has served.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Request string `json:"request,omitempty"`
	// The UID of that request.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RequestUID string `json:"requestUID,omitempty"` //nolint:tagliatelle // as Kubernetes spells it
	// The reason for the wait, or why there is no token.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
