package join_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/join"
)

// world is an API server, a box controller that may be killed between any two writes and that may see old objects, box hosts that see old
// tokens, blades and a stranger who knows every hardware address and UUID.
type world struct {
	random  *mathrand.Rand
	now     time.Time
	servers map[string]*v1alpha1.Server
	// old are earlier versions of Servers, as a cache that is behind has them.
	old     map[string]*v1alpha1.Server
	entries []join.Entry
	// mounted is what each box host sees of entries.
	mounted [2][]join.Entry
	// claimed is whom each box host has given a token to.
	claimed [2]map[string]string
	// tokens are the Secrets of kube-system: the node that each was made for.
	tokens   map[string]string
	nodes    map[string]*join.Node
	requests []*join.Request
	// held are tokens that somebody has got, by the machine that asked.
	held   map[string]string
	bug    bug
	nextID int
	wrong  []string
	// approvedBy is how many requests each token has served for.
	approvedBy map[string]int
	// certified is the last order of each Server under which it got a certificate.
	certified map[string]string
	// fair: nothing goes wrong.
	fair bool
}

// bug breaks a rule.
type bug struct {
	name   string
	before func(*world, *join.Observed)
	after  func(*world, *join.Observed, *join.Plan)
	// blind: steps are taken though their Server's status was not written.
	blind bool
	// unconfirmed: tokens that no Server in the cache has are deleted without asking the API server.
	unconfirmed bool
	// tokenFirst: the token is made before its entry is on record.
	tokenFirst bool
	reported   string
}

const bladesInWorld = 3

func nameOf(i int) string { return fmt.Sprintf("atom%03d", i+1) }

func uuidOf(i int) string { return fmt.Sprintf("5ab3f1e0-%04d-4c1d-9b7e-0123456789ab", i+1) }

func addressOf(i int) string { return "192.168.3." + strconv.Itoa(i+1) }

func macOf(i int) string { return fmt.Sprintf("02:00:00:00:03:%02x", i+1) }

func newWorld(seed uint64, b bug) *world {
	w := &world{
		random: mathrand.New(mathrand.NewPCG(seed, 1)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), bug: b,
		servers: map[string]*v1alpha1.Server{}, old: map[string]*v1alpha1.Server{}, tokens: map[string]string{},
		nodes: map[string]*join.Node{}, held: map[string]string{}, approvedBy: map[string]int{},
		certified: map[string]string{},
	}
	w.claimed = [2]map[string]string{{}, {}}
	for i := range bladesInWorld {
		server := newServer(i)
		w.servers[server.Name], w.old[server.Name] = server, server.DeepCopy()
	}
	return w
}

func newServer(i int) *v1alpha1.Server {
	return &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{
			Name: nameOf(i), ResourceVersion: "1", Labels: map[string]string{v1alpha1.LabelNodeClass: "MicroModularServer"},
		},
		Status: v1alpha1.ServerStatus{
			Chassis: "mercury1", Slot: int32(i + 1), Power: v1alpha1.ServerPower{State: v1alpha1.PowerOff},
			MMC:   v1alpha1.BMCStatus{SystemGUID: uuidOf(i)},
			Ports: []v1alpha1.PortStatus{{Name: nameOf(i), NIC: 1, Address: addressOf(i), MAC: macOf(i)}},
		},
	}
}

func (w *world) fault(format string, arguments ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, arguments...))
}

// write changes a Server as somebody else does.
func (w *world) write(name string, change func(*v1alpha1.Server)) {
	server := w.servers[name].DeepCopy()
	change(server)
	w.store(server)
}

func (w *world) store(server *v1alpha1.Server) {
	version, _ := strconv.Atoi(server.ResourceVersion)
	server.ResourceVersion = strconv.Itoa(version + 1)
	w.old[server.Name] = w.servers[server.Name]
	w.servers[server.Name] = server
}

func (w *world) chance(in int) bool { return !w.fair && w.random.IntN(in) == 0 }

// look is one reconciliation. Killed controllers stop between two writes.
func (w *world) look() {
	o := &join.Observed{Entries: slices.Clone(w.entries), NewTokenID: func() string {
		w.nextID++
		return fmt.Sprintf("t%05d", w.nextID)
	}}
	for i := range bladesInWorld {
		name := nameOf(i)
		seen := w.servers[name]
		if w.chance(6) {
			seen = w.old[name]
		}
		o.Servers = append(o.Servers, seen.DeepCopy())
		if node := w.nodes[name]; node != nil {
			o.Nodes = append(o.Nodes, *node)
		}
	}
	for _, request := range w.requests {
		o.Requests = append(o.Requests, *request)
	}
	if w.bug.before != nil {
		w.bug.before(w, o)
	}
	made := join.Make(w.now, o)
	if w.bug.after != nil {
		w.bug.after(w, o, &made)
	}
	w.carryOut(o, &made)
}

func (w *world) carryOut(o *join.Observed, made *join.Plan) {
	failed := map[string]bool{}
	versions := map[string]string{}
	for _, seen := range o.Servers {
		versions[seen.Name] = seen.ResourceVersion
		next := made.Servers[seen.Name]
		if next == nil {
			continue
		}
		if w.chance(20) {
			return // killed
		}
		if w.servers[seen.Name].ResourceVersion != seen.ResourceVersion {
			failed[seen.Name] = true
			continue
		}
		written := w.servers[seen.Name].DeepCopy()
		written.Status = *next.DeepCopy()
		w.store(written)
		versions[seen.Name] = written.ResourceVersion
	}
	for i := range made.Steps {
		step := &made.Steps[i]
		if step.Kind == join.StepApprove && versions[step.Server] != w.servers[step.Server].ResourceVersion && !w.bug.blind {
			continue
		}
		if failed[step.Server] && !w.bug.blind || step.Server == "" && !w.bug.unconfirmed && w.isRecorded(step.TokenID) {
			continue
		}
		if w.chance(20) {
			return // killed
		}
		if !w.take(step, o) {
			return
		}
		w.check()
	}
}

func (w *world) isRecorded(id string) bool {
	for _, server := range w.servers {
		if server.Status.Join != nil && server.Status.Join.TokenID == id {
			return true
		}
	}
	return false
}

// take takes one step; false if the controller was killed in the middle.
func (w *world) take(step *join.Step, o *join.Observed) bool {
	entry := w.entry(step.TokenID)
	switch step.Kind {
	case join.StepOffer:
		if w.bug.tokenFirst {
			w.tokens[step.TokenID] = step.Entry.Node
			w.check()
			if w.chance(10) {
				return false
			}
		}
		if entry == nil {
			delete(w.tokens, step.TokenID)
			made := *step.Entry
			made.State = join.EntryPreparing
			w.entries = append(w.entries, made)
			entry = w.entry(step.TokenID)
		}
		if w.chance(10) {
			return false
		}
		w.tokens[step.TokenID] = entry.Node
		if w.chance(10) {
			return false
		}
		entry.State = join.EntryOffered
	case join.StepWithhold:
		if entry != nil {
			entry.State = join.EntryUsed
		}
	case join.StepDrop:
		for _, server := range w.servers {
			if of := server.Status.Join; of != nil && of.TokenID == step.TokenID && of.State.HasToken() && w.now.Before(of.ExpiresAt.Time) {
				w.fault("token %s is deleted though it is on record as that of %s", step.TokenID, server.Name)
			}
		}
		delete(w.tokens, step.TokenID)
		if w.chance(10) {
			return false
		}
		w.entries = slices.DeleteFunc(w.entries, func(e join.Entry) bool { return e.TokenID == step.TokenID })
	case join.StepApprove:
		w.approve(step, o)
	case join.StepDeny:
		if request := w.request(step.UID); request != nil && request.Decision == join.Pending {
			request.Decision = join.Denied
		}
	}
	return true
}

func (w *world) entry(id string) *join.Entry {
	at := slices.IndexFunc(w.entries, func(e join.Entry) bool { return e.TokenID == id })
	if at < 0 {
		return nil
	}
	return &w.entries[at]
}

func (w *world) request(uid types.UID) *join.Request {
	for _, request := range w.requests {
		if request.UID == uid {
			return request
		}
	}
	return nil
}

// approve checks what must be so when a certificate is approved.
func (w *world) approve(step *join.Step, o *join.Observed) {
	request := w.request(step.UID)
	if request == nil || request.Decision != join.Pending {
		return
	}
	request.Decision = join.Approved
	id := request.User[len("system:bootstrap:"):]
	w.approvedBy[id]++
	if w.approvedBy[id] > 1 {
		w.fault("token %s has served %d times", id, w.approvedBy[id])
	}
	name := requestedNames[string(request.PEM)]
	server := w.servers[name]
	if server == nil || server.Status.Join == nil || server.Status.Join.TokenID != id {
		w.fault("%s was approved by token %s, which is not on record as that of this Server", name, id)
		return
	}
	if server.Status.Join.RequestUID != string(request.UID) {
		w.fault("%s was approved, and that is not on record", name)
	}
	if server.Spec.Boot == nil || server.Spec.Boot.Device != v1alpha1.BootNetwork || server.Status.Power.State == v1alpha1.PowerOff {
		// Somebody may have changed that since the look, whose status would then not have been written.
		w.fault("%s was approved, and it does not boot from the network", name)
	}
	if !w.now.Before(server.Status.Join.ExpiresAt.Time) {
		w.fault("%s was approved after its token had ended", name)
	}
	w.certified[name] = server.Status.Join.Order
	for i := range o.Nodes {
		if node := &o.Nodes[i]; node.Name == name && node.Ready {
			w.fault("%s was approved while a node of this name was ready", name)
		}
	}
	if entry := w.entry(id); entry != nil && entry.State == join.EntryOffered {
		w.fault("%s was approved while box hosts still offer its token", name)
	}
}

// check checks what is always so.
func (w *world) check() {
	perNode := map[string]int{}
	for id, node := range w.tokens {
		perNode[node]++
		if w.entry(id) == nil {
			w.fault("token %s of %s has no entry: nobody will delete it", id, node)
		}
	}
	for node, count := range perNode {
		if count > 2 { // one, and one that is about to be deleted
			w.fault("%s has %d tokens", node, count)
		}
	}
}

// settle lets the controller work undisturbed, and checks that nothing is left that should not be.
func (w *world) settle() {
	w.fair = true
	for range 4 {
		w.look()
	}
	for id, node := range w.tokens {
		server := w.servers[node]
		of := server.Status.Join
		switch {
		case of == nil || of.TokenID != id || !of.State.HasToken():
			w.fault("token %s of %s is left over", id, node)
		case !w.now.Before(of.ExpiresAt.Time):
			w.fault("token %s of %s has expired and is left over", id, node)
		case server.Spec.Boot == nil || server.Spec.Boot.Device != v1alpha1.BootNetwork:
			w.fault("there is a token of %s, which does not boot from the network", node)
		}
	}
	for i := range bladesInWorld {
		w.checkJoined(i)
	}
	for _, request := range w.requests {
		id := request.User[len("system:bootstrap:"):]
		if request.Decision == join.Pending && w.tokens[id] == "" {
			w.fault("request %s of token %s, which has ended, is not decided", request.Name, id)
		}
	}
	w.fair = false
}

// checkJoined: a machine that got a certificate since the order, and is ready, has joined, however often it was off in between.
func (w *world) checkJoined(i int) {
	name := nameOf(i)
	boot, node, of := w.servers[name].Spec.Boot, w.nodes[name], w.servers[name].Status.Join
	if boot == nil || boot.Device != v1alpha1.BootNetwork || w.certified[name] != boot.ID || node == nil || !node.Ready ||
		node.SystemUUID != uuidOf(i) {
		return
	}
	if of == nil || of.State != v1alpha1.JoinJoined {
		w.fault("%s got a certificate and is ready, and its join is %+v", name, of)
	}
}

var (
	requestsLock   sync.Mutex
	madeRequests   = map[string][]byte{}
	requestedNames = map[string]string{}
	testKey        = sync.OnceValue(func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		return key
	})
)

// pemOf is a request for a node's certificate; one for each name is enough.
func pemOf(node string) []byte {
	requestsLock.Lock()
	defer requestsLock.Unlock()
	if madeRequests[node] == nil {
		subject := pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
		text := makeRequest(&x509.CertificateRequest{Subject: subject}, testKey())
		madeRequests[node], requestedNames[string(text)] = text, node
	}
	return bytes.Clone(madeRequests[node])
}

func makeRequest(template *x509.CertificateRequest, key any) []byte {
	raw, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: raw})
}

var goodUsages = []string{string(certificatesv1.UsageDigitalSignature), string(certificatesv1.UsageClientAuth)}

func (w *world) ask(id, node string) {
	if w.tokens[id] == "" { // the API server does not know the user
		return
	}
	w.nextID++
	w.requests = append(w.requests, &join.Request{
		Name: fmt.Sprintf("csr-%d", w.nextID), UID: types.UID(fmt.Sprintf("uid-%d", w.nextID)), User: "system:bootstrap:" + id,
		Signer: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: goodUsages, PEM: pemOf(node), CreatedAt: w.now,
	})
}

func report(t *testing.T, w *world, seed uint64) {
	t.Helper()
	if len(w.wrong) > 0 {
		t.Fatalf("seed %d: %s (%d more)", seed, w.wrong[0], len(w.wrong)-1)
	}
}
