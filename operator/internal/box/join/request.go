package join

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

const (
	// maxPEM bounds what is parsed of a request; one with an RSA key of 8192 bits has 3 kB.
	maxPEM = 16 << 10
	// minRSA and maxRSA bound keys.
	minRSA, maxRSA = 2048, 8192

	nodeUser  = "system:node:"
	nodeGroup = "system:nodes"
	// maxQuoted bounds what a request says in a text.
	maxQuoted = 80
)

// tokenID is the ID of the token that a request was made with. Users that are no bootstrap token's may be in the group, too.
func (r *Request) tokenID() (id string, isOurs bool) {
	id, isOurs = strings.CutPrefix(r.User, bootstrapUser)
	return id, isOurs && id != ""
}

// decide decides about one request.
func (p *planning) decide(r *Request) {
	if r.Signer != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return // nobody approves such a request for this group, and to deny it would take the right to approve it
	}
	id, isOurs := r.tokenID()
	m := p.tokens[id]
	if !isOurs || m == nil || m.join == nil || m.join.TokenID != id {
		m = nil
	}
	switch r.Decision {
	case Approved:
		m.noteApproved(r)
		return
	case Denied:
		m.noteDenied(r)
		return
	case Pending:
	}
	err := p.judge(r, m)
	switch {
	case errors.Is(err, errWait):
		p.recheck(p.now.Add(lookAgain))
		if m.isServedFor(r) {
			m.request = r
		}
	case err != nil:
		step := Step{Kind: StepDeny, TokenID: id, Request: r.Name, UID: r.UID, Why: cut(err.Error())}
		if m != nil {
			step.Server = m.name()
			if m.isServedFor(r) {
				m.end(v1alpha1.JoinRevoked, cut("certificate signing request "+r.Name+" was denied: "+err.Error()))
			}
		}
		p.plan.Steps = append(p.plan.Steps, step)
	default:
		m.accept(r, v1alpha1.JoinApproving)
	}
}

// isServedFor says whether the token is being used for this request.
func (m *machine) isServedFor(r *Request) bool {
	return m != nil && m.join != nil && m.join.State == v1alpha1.JoinApproving && m.isRequest(r.UID)
}

// noteApproved notes that a request was approved: by this controller, or by somebody else. Either way the token has served.
func (m *machine) noteApproved(r *Request) {
	if m == nil {
		return
	}
	switch m.join.State {
	case v1alpha1.JoinPreparing, v1alpha1.JoinOffered:
		m.accept(r, v1alpha1.JoinApproved)
	case v1alpha1.JoinApproving:
		if m.isRequest(r.UID) {
			m.accept(r, v1alpha1.JoinApproved)
		}
	case v1alpha1.JoinWaiting, v1alpha1.JoinApproved, v1alpha1.JoinJoined, v1alpha1.JoinExpired, v1alpha1.JoinRevoked:
	}
}

func (m *machine) noteDenied(r *Request) {
	if m.isServedFor(r) {
		m.end(v1alpha1.JoinRevoked, cut("certificate signing request "+r.Name+" was denied by somebody else: "+forAnother(m.name())))
	}
}

// errWait means that a request is decided on later.
var errWait = errors.New("later")

// judge says why a request is not approved; nil if it is.
func (p *planning) judge(r *Request, m *machine) error {
	if m == nil {
		return fmt.Errorf("the token of user %s is that of no Server that boots from the network: order that with kubectl rcbox pxeboot, "+
			"and start the server", quoted(r.User))
	}
	if err := checkRequest(r.PEM, r.Usages, m.name()); err != nil {
		return err
	}
	isThis := m.isRequest(r.UID)
	switch state := m.join.State; {
	case state == v1alpha1.JoinPreparing:
		return errWait
	case (state == v1alpha1.JoinApproving || state == v1alpha1.JoinApproved) && !isThis:
		return fmt.Errorf("the token of Server %s serves once, and has served for request %s: if that was not this machine, another one "+
			"in the boot network has its name: see docs/join.md. %s", m.name(), m.join.Request, forAnother(m.name()))
	case state != v1alpha1.JoinOffered && state != v1alpha1.JoinApproving:
		return fmt.Errorf("the token of Server %s has ended (%s): %s", m.name(), state, forAnother(m.name()))
	case !m.keepsToken():
		return fmt.Errorf("the token of Server %s has expired: %s", m.name(), forAnother(m.name()))
	}
	return p.checkNamesakes(m)
}

// checkNamesakes refuses while a node of this name is ready. If it is this machine, as it was before it was started, Kubernetes will notice
// soon that it is not ready.
func (p *planning) checkNamesakes(m *machine) error {
	guid := m.server.Status.MMC.SystemGUID
	for i := range p.Nodes {
		node := &p.Nodes[i]
		isIt := bmc.SameSystem(node.SystemUUID, guid)
		switch {
		case !node.Ready || node.Name != m.name() && !isIt:
		case isIt:
			return errWait
		default:
			return fmt.Errorf("node %s is ready on another machine, with UUID %s: delete that node, or two machines would have its name",
				node.Name, quoted(node.SystemUUID))
		}
	}
	return nil
}

// checkRequest says why this is no request for a client certificate of this node's kubelet.
func checkRequest(text []byte, usages []string, node string) error {
	if len(text) > maxPEM {
		return fmt.Errorf("the request has more than %d bytes", maxPEM)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return errors.New("the request is not one PEM block CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("the request cannot be read: %s", quoted(err.Error()))
	}
	if err := checkKey(request); err != nil { // before its signature: large keys take long
		return err
	}
	if err := request.CheckSignature(); err != nil {
		return errors.New("the request is not signed by its own key")
	}
	return errors.Join(checkSubject(request, node), checkUsages(usages))
}

func checkSubject(request *x509.CertificateRequest, node string) error {
	subject := request.Subject
	if subject.CommonName != nodeUser+node {
		return fmt.Errorf("it asks for the name %s, and its token is that of %s: a machine joins under the name of its slot alone",
			quoted(subject.CommonName), nodeUser+node)
	}
	if !slices.Equal(subject.Organization, []string{nodeGroup}) {
		return fmt.Errorf("it asks for the groups %s, and nodes have %s alone", quoted(strings.Join(subject.Organization, ",")), nodeGroup)
	}
	if len(subject.Names) != 2 { // the two above
		return errors.New("its subject has more than CN and O")
	}
	if len(request.DNSNames)+len(request.IPAddresses)+len(request.EmailAddresses)+len(request.URIs) > 0 || len(request.Extensions) > 0 {
		return errors.New("it asks for further names or extensions, which a client certificate of a kubelet does not have")
	}
	return nil
}

func checkUsages(usages []string) error {
	sorted := slices.Sorted(slices.Values(usages))
	with := []string{string(certificatesv1.UsageClientAuth), string(certificatesv1.UsageDigitalSignature)}
	if slices.Equal(sorted, with) || slices.Equal(sorted, append(with, string(certificatesv1.UsageKeyEncipherment))) {
		return nil
	}
	return fmt.Errorf("it asks for the usages %s, and a kubelet's client certificate has %s, and key encipherment at most",
		quoted(strings.Join(usages, ",")), strings.Join(with, " and "))
}

func checkKey(request *x509.CertificateRequest) error {
	switch key := request.PublicKey.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey: // the curves of the standard library all do
		if curve, is := key.(*ecdsa.PublicKey); is && curve.Curve.Params().BitSize < 256 {
			return errors.New("its key is on a curve of less than 256 bits")
		}
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSA || bits > maxRSA {
			return fmt.Errorf("its RSA key has %d bits, and must have from %d to %d", bits, minRSA, maxRSA)
		}
		return nil
	}
	return errors.New("its key is of a kind that is not known: make an ECDSA, Ed25519 or RSA key")
}

// quoted is what a stranger says, with everything that is not plain text escaped.
func quoted(text string) string {
	if len(text) > maxQuoted {
		text = text[:maxQuoted] + "..."
	}
	return fmt.Sprintf("%+q", text)
}
