package join_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"maps"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/join"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// offered is a Server whose token t00001 is offered, and what is observed then.
func offered() (*v1alpha1.Server, *join.Observed) {
	server := newServer(0)
	server.Status.Power.State = v1alpha1.PowerOn
	server.Spec.Boot = &v1alpha1.BootOrder{ID: "a", Device: v1alpha1.BootNetwork}
	server.Status.Boot = &v1alpha1.BootStatus{ID: "a", Device: v1alpha1.BootNetwork, State: v1alpha1.OrderDone}
	server.Status.Boot.Since = metav1.NewTime(start)
	expires := metav1.NewTime(start.Add(join.TokenLifetime))
	server.Status.Join = &v1alpha1.JoinStatus{
		Order: "a", State: v1alpha1.JoinOffered, Since: metav1.NewTime(start), TokenID: "t00001", ExpiresAt: &expires,
	}
	return server, &join.Observed{
		Servers: []*v1alpha1.Server{server},
		Entries: []join.Entry{{
			Node: server.Name, State: join.EntryOffered, TokenID: "t00001", UUID: uuidOf(0),
			Ports:     []join.Port{{MAC: macOf(0), Address: addressOf(0)}},
			ExpiresAt: expires.Time,
		}},
		NewTokenID: func() string { return "t00002" },
	}
}

func requestBy(token string, text []byte, usages ...string) join.Request {
	if usages == nil {
		usages = goodUsages
	}
	return join.Request{
		Name: "csr", UID: "uid", User: "system:bootstrap:" + token, Signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages: usages, PEM: text, CreatedAt: start,
	}
}

// verdict is what becomes of the last request: what is said at a denial, "approved", or nothing.
func verdict(made *join.Plan) string {
	text := ""
	for _, step := range made.Steps {
		switch step.Kind {
		case join.StepApprove:
			text = "approved"
		case join.StepDeny:
			text = step.Why
		case join.StepOffer, join.StepWithhold, join.StepDrop:
		}
	}
	return text
}

func TestRequests(t *testing.T) {
	subject := pkix.Name{CommonName: "system:node:atom001", Organization: []string{"system:nodes"}}
	of := func(change func(*x509.CertificateRequest)) []byte {
		template := &x509.CertificateRequest{Subject: subject}
		change(template)
		return makeRequest(template, testKey())
	}
	forged := of(func(*x509.CertificateRequest) {})
	block, _ := pem.Decode(forged)
	block.Bytes[len(block.Bytes)-1] ^= 1
	forged = pem.EncodeToMemory(block)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	inGroups := func(groups ...string) []byte {
		return of(func(r *x509.CertificateRequest) { r.Subject.Organization = groups })
	}
	inUnit := of(func(r *x509.CertificateRequest) { r.Subject.OrganizationalUnit = []string{"x"} })
	withName := of(func(r *x509.CertificateRequest) { r.DNSNames = []string{"kubernetes"} })
	withAddress := of(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{{10, 0, 0, 1}} })
	noDER := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("hello")})
	nobody := join.Request{User: "system:anonymous", Signer: certificatesv1.KubeAPIServerClientKubeletSignerName}
	bare := requestBy("", pemOf("atom001"))
	bare.User = "t00001"
	plain := &x509.CertificateRequest{Subject: subject}
	const encipherment = string(certificatesv1.UsageKeyEncipherment)
	for name, test := range map[string]struct {
		request join.Request
		want    string
	}{
		"good":                  {requestBy("t00001", pemOf("atom001")), "approved"},
		"good, RSA's usages":    {requestBy("t00001", pemOf("atom001"), encipherment, goodUsages[1], goodUsages[0]), "approved"},
		"good, Ed25519":         {requestBy("t00001", makeRequest(plain, edKey)), "approved"},
		"another's name":        {requestBy("t00001", pemOf("atom002")), "and its token is that of system:node:atom001"},
		"another's token":       {requestBy("t00009", pemOf("atom001")), "is that of no Server that boots from the network"},
		"no token at all":       {nobody, "no Server"},
		"a user named like one": {bare, "no Server"},
		"an empty token":        {requestBy("", pemOf("atom001")), "no Server"},
		"for servers":           {requestBy("t00001", pemOf("atom001"), goodUsages[0], string(certificatesv1.UsageServerAuth)), "usages"},
		"a usage more":          {requestBy("t00001", pemOf("atom001"), append([]string{"cert sign"}, goodUsages...)...), "usages"},
		"a weak key":            {requestBy("t00001", makeRequest(plain, weak)), "1024 bits"},
		"not its own key":       {requestBy("t00001", forged), "not signed by its own key"},
		"no PEM":                {requestBy("t00001", []byte("hello")), "not one PEM block"},
		"two PEMs":              {requestBy("t00001", append(pemOf("atom001"), pemOf("atom002")...)), "not one PEM block"},
		"too much":              {requestBy("t00001", append(pemOf("atom001"), make([]byte, 20<<10)...)), "more than"},
		"no DER":                {requestBy("t00001", noDER), "read"},
		"masters":               {requestBy("t00001", inGroups("system:masters")), "groups"},
		"one group more":        {requestBy("t00001", inGroups("system:nodes", "x")), "groups"},
		"a unit":                {requestBy("t00001", inUnit), "more than CN"},
		"two names":             {requestBy("t00001", of(addName)), "another"},
		"a DNS name":            {requestBy("t00001", withName), "further names"},
		"an address":            {requestBy("t00001", withAddress), "further names"},
		"an authority":          {requestBy("t00001", of(addConstraint)), "extensions"},
		"escapes in the name":   {requestBy("t00001", of(func(r *x509.CertificateRequest) { r.Subject.CommonName = "\x1b[2J" })), `\x1b`},
		"another signer stays":  {another(requestBy("t00001", pemOf("atom001"))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, o := offered()
			o.Requests = []join.Request{test.request}
			made := join.Make(start.Add(time.Minute), o)
			got := verdict(&made)
			if test.want == "another" { // Go's parser takes the last of two CNs: that one is compared, and there is one too many
				test.want = "more than CN"
			}
			if got != test.want && (test.want == "" || test.want == "approved" || !strings.Contains(got, test.want)) {
				t.Errorf("it says %q, not %q", got, test.want)
			}
			for _, r := range got {
				if r < ' ' || r > '~' {
					t.Errorf("a terminal would be told %q", got)
				}
			}
		})
	}
}

func another(request join.Request) join.Request {
	request.Signer = certificatesv1.KubeAPIServerClientSignerName
	return request
}

func addName(r *x509.CertificateRequest) {
	r.Subject.ExtraNames = []pkix.AttributeTypeAndValue{
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "system:node:atom002"},
		{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "system:nodes"},
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "system:node:atom001"},
	}
}

func addConstraint(r *x509.CertificateRequest) {
	value, _ := asn1.Marshal(struct{ IsCA bool }{true})
	r.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: value}}
}

// TestCircumstances: one good request, in circumstances that differ from good ones in one thing.
func TestCircumstances(t *testing.T) {
	other := "5ab3f1e0-9999-4c1d-9b7e-0123456789ab"
	for name, test := range map[string]struct {
		change func(*v1alpha1.Server, *join.Observed)
		after  time.Duration
		want   string
	}{
		"good": {want: "approved"},
		"another machine is ready under this name": {
			change: func(_ *v1alpha1.Server, o *join.Observed) {
				o.Nodes = []join.Node{{Name: "atom001", SystemUUID: other, Ready: true}}
			},
			want: "is ready on another machine",
		},
		"its own node was not missed yet": {
			change: func(_ *v1alpha1.Server, o *join.Observed) {
				o.Nodes = []join.Node{{Name: "atom001", SystemUUID: uuidOf(0), Ready: true}}
			},
		},
		"its own node under another name was not missed yet": {
			change: func(_ *v1alpha1.Server, o *join.Observed) {
				o.Nodes = []join.Node{{Name: "worker", SystemUUID: strings.ToUpper(uuidOf(0)), Ready: true}}
			},
		},
		"its own node is not ready": {
			change: func(_ *v1alpha1.Server, o *join.Observed) {
				o.Nodes = []join.Node{{Name: "atom001", SystemUUID: uuidOf(0)}}
			},
			want: "approved",
		},
		"the token has expired": {after: join.TokenLifetime, want: "has ended (Expired)"},
		"the clock was set back": {
			change: func(s *v1alpha1.Server, _ *join.Observed) {
				s.Status.Join.ExpiresAt.Time = start.Add(2 * join.TokenLifetime)
			},
			want: "has ended (Expired)",
		},
		"the server is off": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.Power.State = v1alpha1.PowerOff }, want: "is that of no Server",
		},
		"whether it is on is not known": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.Power.State = v1alpha1.PowerUnknown }, want: "approved",
		},
		"it boots from its disk": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Spec.Boot.Device = v1alpha1.BootDisk }, want: "is that of no Server",
		},
		"another order": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Spec.Boot.ID = "b" }, want: "is that of no Server",
		},
		"the blade was changed": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.MMC.SystemGUID = other }, want: "has ended (Revoked)",
		},
		"the port was changed": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.Ports[0].MAC = macOf(5) }, want: "has ended (Revoked)",
		},
		"the port has another address": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.Ports[0].Address = addressOf(5) }, want: "has ended (Revoked)",
		},
		"the token was deleted": {
			change: func(_ *v1alpha1.Server, o *join.Observed) { o.Entries = nil }, want: "has ended (Revoked)",
		},
		"the token has served": {
			change: func(s *v1alpha1.Server, _ *join.Observed) {
				s.Status.Join.State, s.Status.Join.Request, s.Status.Join.RequestUID = v1alpha1.JoinApproved, "before", "uid-before"
			},
			want: "has served for request before",
		},
		"somebody else has approved one": {
			change: func(_ *v1alpha1.Server, o *join.Observed) {
				first := requestBy("t00001", pemOf("atom001"))
				first.Name, first.UID, first.Decision, first.CreatedAt = "before", "uid-before", join.Approved, start.Add(-time.Second)
				o.Requests = append(o.Requests, first)
			},
			want: "has served for request before",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, o := offered()
			o.Requests = []join.Request{requestBy("t00001", pemOf("atom001"))}
			if test.change != nil {
				test.change(server, o)
			}
			made := join.Make(start.Add(test.after), o)
			if got := verdict(&made); got != test.want && (test.want == "" || !strings.Contains(got, test.want)) {
				t.Errorf("it says %q, not %q", got, test.want)
			}
		})
	}
}

// TestTokens: when there is one, and what the status says when there is none.
func TestTokens(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.Server, *join.Observed)
		want   string
	}{
		"it was off, and is on": {},
		"no start was seen": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.Join.SeenOff = false }, want: "no start was seen",
		},
		"an order has restarted it": {change: func(s *v1alpha1.Server, _ *join.Observed) {
			s.Status.Join.SeenOff = false
			s.Status.Order = &v1alpha1.OrderStatus{Action: v1alpha1.ActionReset, State: v1alpha1.OrderDone, Since: &s.Status.Join.Since}
		}},
		"an earlier order has restarted it": {
			change: func(s *v1alpha1.Server, _ *join.Observed) {
				s.Status.Join.SeenOff = false
				earlier := metav1.NewTime(start.Add(-time.Second))
				s.Status.Order = &v1alpha1.OrderStatus{Action: v1alpha1.ActionReset, State: v1alpha1.OrderDone, Since: &earlier}
			},
			want: "no start was seen",
		},
		"it is off": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.Power.State = v1alpha1.PowerOff }, want: "it is off",
		},
		"it is isolated": {
			change: func(s *v1alpha1.Server, _ *join.Observed) {
				s.Spec.Isolated = &v1alpha1.ServerIsolationSpec{Reason: "ECC errors"}
			},
			want: "it is isolated: kubectl rcbox isolate-server atom001 --undo",
		},
		"its BMC is silent": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.Power.State = v1alpha1.PowerUnknown }, want: "is not known",
		},
		"its BMC was not told yet": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.Boot.State = v1alpha1.OrderRunning },
			want:   "has not confirmed yet",
		},
		"its BMC has refused": {
			change: func(s *v1alpha1.Server, _ *join.Observed) {
				s.Status.Boot.State, s.Status.Boot.Message = v1alpha1.OrderFailed, "no"
			},
			want: "is not from the network: no",
		},
		"no GUID": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.MMC.SystemGUID = "" }, want: "no system GUID",
		},
		"a GUID of the factory": {
			change: func(s *v1alpha1.Server, _ *join.Observed) {
				s.Status.MMC.SystemGUID = "03000200-0400-0500-0006-000700080009"
			},
			want: "no system GUID",
		},
		"no hardware address": {
			change: func(s *v1alpha1.Server, _ *join.Observed) { s.Status.Ports[0].MAC = "" }, want: "no hardware address",
		},
		"a twin": {
			change: func(_ *v1alpha1.Server, o *join.Observed) {
				twin := newServer(1)
				twin.Status.MMC.SystemGUID = strings.ToUpper(uuidOf(0))
				o.Servers = append(o.Servers, twin)
			},
			want: "Server atom002 reports the same system GUID",
		},
		"another blade": {
			change: func(s *v1alpha1.Server, _ *join.Observed) {
				meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ConditionAsRecorded, Status: metav1.ConditionFalse, Reason: "x", Message: "serial number",
				})
			},
			want: "is not the one on record: serial number",
		},
		"somebody else would approve": {
			change: func(_ *v1alpha1.Server, o *join.Observed) { o.Blocked = "a role" }, want: "a role",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, o := offered()
			o.Entries = nil
			server.Status.Join = &v1alpha1.JoinStatus{Order: "a", State: v1alpha1.JoinWaiting, Since: metav1.NewTime(start), SeenOff: true}
			if test.change != nil {
				test.change(server, o)
			}
			made := join.Make(start.Add(time.Second), o)
			next := made.Servers["atom001"]
			condition := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionJoined)
			isMade := len(made.Steps) == 1 && made.Steps[0].Kind == join.StepOffer
			if isMade != (test.want == "") || !strings.Contains(next.Join.Message, test.want) || condition.Message != next.Join.Message {
				t.Errorf("steps are %+v, and it says %q", made.Steps, next.Join.Message)
			}
			if isMade {
				entry := made.Steps[0].Entry
				labels := map[string]string{
					v1alpha1.LabelChassis: "mercury1", v1alpha1.LabelSlot: "1", v1alpha1.LabelNodeClass: "MicroModularServer",
				}
				ports := []join.Port{{MAC: macOf(0), Address: "192.168.3.1"}}
				if entry.UUID != uuidOf(0) || !slices.Equal(entry.Ports, ports) ||
					!maps.Equal(entry.Labels, labels) || !entry.ExpiresAt.Equal(start.Add(time.Second+15*time.Minute)) {
					t.Errorf("the entry is %+v", entry)
				}
			}
		})
	}
}

// TestAnotherMachine: a node of this name on another machine is named, and is not taken for this one.
func TestAnotherMachine(t *testing.T) {
	server, o := offered()
	server.Status.Join.State, server.Status.Join.RequestUID = v1alpha1.JoinApproved, "uid"
	o.Nodes = []join.Node{{Name: "atom001", SystemUUID: uuidOf(4), Ready: true}}
	made := join.Make(start.Add(time.Second), o)
	condition := meta.FindStatusCondition(made.Servers["atom001"].Conditions, v1alpha1.ConditionJoined)
	if condition.Status != metav1.ConditionFalse || condition.Reason != "OtherMachine" || !strings.Contains(condition.Message, uuidOf(4)) {
		t.Errorf("it says %+v", condition)
	}
	// A node says of itself what it likes.
	for _, text := range []string{"\x1b[2J", strings.Repeat("\u00e9", 400), "\xff"} {
		o.Nodes[0].SystemUUID = text
		message := join.Make(start.Add(time.Second), o).Servers["atom001"].Join.Message
		if !utf8.ValidString(message) || strings.Contains(message, "\x1b") || !strings.Contains(message, "shut it out") {
			t.Errorf("it says %q", message)
		}
	}
	// Nor does a text that is too long end in half a letter.
	o.Nodes = nil
	server.Status.Join.State, server.Status.Join.Certified = v1alpha1.JoinWaiting, false
	for shift := range 2 {
		o.Blocked = strings.Repeat("x", shift) + strings.Repeat("\u00e9", 400)
		if message := join.Make(start, o).Servers["atom001"].Join.Message; !utf8.ValidString(message) || len(message) > 300 {
			t.Errorf("it says %q", message)
		}
	}
	server.Status.Join.State = v1alpha1.JoinApproved
	o.Blocked, o.Nodes = "", []join.Node{{Name: "atom001", SystemUUID: uuidOf(0), Ready: true}}
	made = join.Make(start.Add(time.Second), o)
	if got := made.Servers["atom001"].Join.State; got != v1alpha1.JoinJoined {
		t.Errorf("it is %s", got)
	}
}

// TestJoinedAfterPowerOff: a machine whose certificate was approved, and that was off before its node was ready, has joined once it is
// ready, at whatever point of its next start. A machine that is ready without a certificate of this order has started from its disk.
func TestJoinedAfterPowerOff(t *testing.T) {
	for _, certified := range []bool{true, false} {
		for _, state := range []v1alpha1.JoinState{
			v1alpha1.JoinWaiting, v1alpha1.JoinPreparing, v1alpha1.JoinOffered, v1alpha1.JoinExpired, v1alpha1.JoinRevoked,
		} {
			server, o := offered()
			server.Status.Join.State, server.Status.Join.Certified = state, certified
			o.Nodes = []join.Node{{Name: "atom001", SystemUUID: uuidOf(0), Ready: true}}
			made := join.Make(start.Add(time.Second), o)
			got := server.Status.Join.State
			if next := made.Servers["atom001"]; next != nil {
				got = next.Join.State
			}
			dropped := slices.ContainsFunc(made.Steps, func(s join.Step) bool { return s.Kind == join.StepDrop && s.TokenID == "t00001" })
			if (got == v1alpha1.JoinJoined) != certified || certified && !dropped {
				t.Errorf("from %s, certified %t: it is %s, and the steps are %+v", state, certified, got, made.Steps)
			}
		}
	}
	server, o := offered()
	o.Nodes = []join.Node{{Name: "atom001", SystemUUID: uuidOf(0), Ready: true}}
	server.Status.Join.ExpiresAt.Time = start
	made := join.Make(start, o)
	next := made.Servers["atom001"].Join
	if next.State != v1alpha1.JoinExpired || !strings.Contains(next.Message, "started from its disk") {
		t.Errorf("it says %+v", next)
	}
}

// TestApprovedAtPowerOff: the server is seen off in the same look as the approval.
func TestApprovedAtPowerOff(t *testing.T) {
	server, o := offered()
	server.Status.Power.State = v1alpha1.PowerOff
	server.Status.Join.State, server.Status.Join.RequestUID = v1alpha1.JoinApproving, "uid"
	request := requestBy("t00001", pemOf("atom001"))
	request.Decision = join.Approved
	o.Requests = []join.Request{request}
	if next := join.Make(start, o).Servers["atom001"].Join; next.State != v1alpha1.JoinWaiting || !next.Certified {
		t.Errorf("it says %+v", next)
	}
	// For another signer, it is no certificate of a kubelet.
	o.Requests[0].Signer = "kubernetes.io/kubelet-serving"
	if next := join.Make(start, o).Servers["atom001"].Join; next.Certified {
		t.Errorf("it says %+v", next)
	}
}

// TestDeniedThenApproved: a denial does not use up the token.
func TestDeniedThenApproved(t *testing.T) {
	_, o := offered()
	first, second := requestBy("t00001", pemOf("atom001")), requestBy("t00001", pemOf("atom001"))
	first.Decision, second.Name, second.UID = join.Denied, "csr2", "uid2"
	o.Requests = []join.Request{first, second}
	made := join.Make(start.Add(time.Minute), o)
	if got := verdict(&made); got != "approved" {
		t.Errorf("it says %q", got)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(pemOf("atom001"))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----"))
	huge := makeRequest(&x509.CertificateRequest{Subject: pkix.Name{CommonName: new(big.Int).Lsh(big.NewInt(1), 4000).String()}}, testKey())
	f.Add(huge)
	f.Fuzz(func(t *testing.T, text []byte) {
		_, o := offered()
		o.Requests = []join.Request{requestBy("t00001", text)}
		made := join.Make(start, o)
		if got := verdict(&made); got == "" {
			t.Error("it was not decided")
		}
	})
}
