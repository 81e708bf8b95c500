// Package join decides which machines become nodes: for which Servers there is a bootstrap token, and which certificate signing requests
// are approved. It also answers the machines that ask a box host for their token (Handler). The deciding part is pure: it is given the time
// and what was observed, and returns steps.
//
// The caller writes the status of a Server first, on condition that the Server is still the version that was observed, and
// takes that Server's steps only if the status was written or does not differ. Each step may be taken again after an interruption.
package join

import (
	"cmp"
	"crypto/rand"
	"math/big"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// TokenLifetime is how long a token may be used.
const TokenLifetime = 15 * time.Minute

// The parts of a bootstrap token, ID.SECRET, as Kubernetes wants them.
const (
	tokenIDLength     = 6
	tokenSecretLength = 16
	tokenAlphabet     = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// bootstrapUser precedes the ID of a token in the name of its user.
const bootstrapUser = "system:bootstrap:"

// SecretPrefix precedes the ID of a token in the name of its Secret in kube-system.
const SecretPrefix = "bootstrap-token-"

// Node is a node of Kubernetes.
type Node struct {
	Name, SystemUUID string
	Ready            bool
}

// Decision is what became of a certificate signing request.
type Decision int

// Decisions.
const (
	Pending Decision = iota
	Approved
	Denied
)

// Request is a certificate signing request of a user in GroupBootstrappers.
type Request struct {
	Name      string
	UID       types.UID
	User      string
	Signer    string
	Usages    []string
	PEM       []byte
	CreatedAt time.Time
	Decision  Decision
}

// Observed is what was last seen.
type Observed struct {
	// Servers are all of the cluster.
	Servers []*v1alpha1.Server
	// Entries are those of the Secret that box hosts mount.
	Entries []Entry
	// Nodes are all of the cluster.
	Nodes []Node
	// Requests are those of users in GroupBootstrappers, decided ones included.
	Requests []Request
	// Blocked says why no tokens are made at all; empty if they are.
	Blocked string
	// NewTokenID returns the ID of a token that there has never been.
	NewTokenID func() string
}

// StepKind is what a step does.
type StepKind int

const (
	// StepOffer makes the token of Entry, in this order: the entry as Preparing, with a new secret part; the Secret of the token in
	// kube-system; the entry as Offered. If the entry is there already, its secret part is used. If it is not, a Secret of this token in
	// kube-system is deleted first.
	StepOffer StepKind = iota
	// StepWithhold marks the entry as used, so that no box host gives it to anybody any more. The token remains: its owner still has to
	// fetch the certificate.
	StepWithhold
	// StepDrop deletes the Secret of the token in kube-system, and then the entry.
	StepDrop
	// StepApprove approves a request, if it is still undecided.
	StepApprove
	// StepDeny denies a request, if it is still undecided.
	StepDeny
)

// Step is something to be done.
type Step struct {
	Kind    StepKind
	TokenID string
	// Entry is that of StepOffer, without the secret part of the token.
	Entry *Entry
	// Request and UID are those of StepApprove and StepDeny.
	Request string
	UID     types.UID
	// Why is for the condition of the request, and for the event of the Server.
	Why string
	// Server is empty for a step that belongs to no Server.
	Server string
}

// Plan is what is to be on record, and what is to be done after that.
type Plan struct {
	// Servers are the statuses of those Servers whose status changes.
	Servers map[string]*v1alpha1.ServerStatus
	// Steps in their order. A step of a Server is taken only if the status of the Server in this plan was written.
	Steps []Step
	// RecheckAt is when time alone changes the plan; zero: never.
	RecheckAt time.Time
}

type planning struct {
	*Observed

	now     time.Time
	plan    Plan
	entries map[string]*Entry
	// tokens are the machines by the ID of their token, after their states were advanced.
	tokens map[string]*machine
	// certified are the IDs of tokens by which a certificate was approved.
	certified map[string]bool
	// guids are the Servers by a key of their BMCs' system GUIDs; nil until somebody asks.
	guids map[string][]*v1alpha1.Server
}

// Make plans.
func Make(now time.Time, o *Observed) Plan {
	p := &planning{Observed: o, now: now, entries: map[string]*Entry{}, tokens: map[string]*machine{}}
	p.plan.Servers = map[string]*v1alpha1.ServerStatus{}
	for i := range o.Entries {
		p.entries[o.Entries[i].TokenID] = &o.Entries[i]
	}
	p.findCertified()
	machines := make([]*machine, 0, len(o.Servers))
	for _, server := range o.Servers {
		m := newMachine(p, server)
		m.advance()
		if m.join != nil && m.join.TokenID != "" {
			p.tokens[m.join.TokenID] = m
		}
		machines = append(machines, m)
	}
	p.decideAll()
	for _, m := range machines {
		m.finish()
	}
	p.dropUnknown()
	return p.plan
}

// findCertified finds the tokens that have served, also those about which that is not on record yet.
func (p *planning) findCertified() {
	p.certified = map[string]bool{}
	for i := range p.Requests {
		r := &p.Requests[i]
		if id, isOurs := r.tokenID(); isOurs && r.Decision == Approved && r.Signer == certificatesv1.KubeAPIServerClientKubeletSignerName {
			p.certified[id] = true
		}
	}
}

// decideAll decides about all requests, the oldest first: the first good request of a token is the one that the token serves for.
func (p *planning) decideAll() {
	requests := slices.Clone(p.Requests)
	slices.SortFunc(requests, func(a, b Request) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for i := range requests {
		p.decide(&requests[i])
	}
}

// dropUnknown deletes the tokens that no Server has on record. Whoever carries that out asks the API server first whether that is so: a
// cache may not have the status yet with which a token was made.
func (p *planning) dropUnknown() {
	recorded := map[string]bool{}
	for _, server := range p.Servers {
		if join := server.Status.Join; join != nil {
			recorded[join.TokenID] = true
		}
	}
	for i := range p.Entries {
		if id := p.Entries[i].TokenID; !recorded[id] {
			p.plan.Steps = append(p.plan.Steps, Step{Kind: StepDrop, TokenID: id, Why: "no Server has this token"})
		}
	}
}

// recheck asks to be called at a time.
func (p *planning) recheck(at time.Time) {
	if p.plan.RecheckAt.IsZero() || at.Before(p.plan.RecheckAt) {
		p.plan.RecheckAt = at
	}
}

// NewTokenID returns a random ID of a token.
func NewTokenID() string { return randomText(tokenIDLength) }

// NewTokenSecret returns the random secret part of a token.
func NewTokenSecret() string { return randomText(tokenSecretLength) }

func randomText(length int) string {
	text := make([]byte, length)
	for i := range text {
		at, _ := rand.Int(rand.Reader, big.NewInt(int64(len(tokenAlphabet)))) // never fails: crypto/rand ends the program instead
		text[i] = tokenAlphabet[at.Int64()]
	}
	return string(text)
}
