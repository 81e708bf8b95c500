package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
	"rcbox.dev/rcbox/operator/internal/box/join"
	"rcbox.dev/rcbox/operator/test/testbed"
)

const (
	joiners  = 4
	nodeUser = "system:node:"
	boxLogin = "system:serviceaccount:" + testbed.OperatorNamespace + ":rcbox-box"
)

func joinerUUID(i int) string { return fmt.Sprintf("5ab3f1e0-%04d-4c1d-9b7e-0123456789ab", i+1) }

func joinerMAC(i int) string { return fmt.Sprintf("02:00:00:00:03:%02x", i+1) }

// joinBed is a chassis whose blades boot from the network, with real kube-apiserver, signer and box controller. Blades and their BMCs are
// stand-ins; the box host is its handler alone.
type joinBed struct {
	*bed

	box     *testbed.Operator
	blades  [joiners]*standin.BMC
	handler *join.Handler
	signer  *x509.Certificate
	// resolver is that of the cluster.
	resolver string
}

// makeResolver makes the Service by which pods find others.
func (j *joinBed) makeResolver() {
	j.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: metav1.NamespaceSystem},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}},
	}
	j.must(j.Client.Create(j.Context(), service))
	if j.resolver = service.Spec.ClusterIP; j.resolver == "" {
		j.Fatal("the Service kube-dns has no address")
	}
}

func TestJoin(t *testing.T) {
	cluster := testbed.StartAPIServer(t)
	j := &joinBed{bed: &bed{T: t, Cluster: cluster, program: testbed.BuildOperator(t)}, signer: cluster.StartSigner()}
	j.makeResolver()
	j.startBox()
	j.startChassis()
	folder := t.TempDir()
	j.handler = &join.Handler{File: filepath.Join(folder, join.SecretKey), Claims: t.TempDir(), Now: time.Now}

	for i := range 3 {
		j.bootFromNetwork(i)
	}
	j.mustBe(0, v1alpha1.JoinOffered)
	token := j.fetch(0)
	blade := j.asToken(token)
	j.tokenIsGoodForNothingElse(blade)
	j.boxMayDoNothingElse()

	// A name of somebody else, then the right one, then once more.
	j.asksInVain(blade, "csr-other", "atom002", `it asks for the name "system:node:atom002", and its token is that of system:node:atom001`)
	j.saysEvent("atom001", "csr-other")
	j.create(blade, "csr-good", "atom001")
	j.isSigned("csr-good", 0)
	j.asksInVain(blade, "csr-again", "atom001", "serves once, and has served for request csr-good")
	j.mount()
	if code, text := j.ask(0); code != http.StatusForbidden || !strings.Contains(text, "has served already") {
		t.Errorf("a token that has served: %d %s", code, text)
	}

	// That it has served is known to the next box controller.
	j.box.Kill()
	j.startBox()
	j.asksInVain(blade, "csr-restarted", "atom001", "serves once, and has served for request csr-good")

	// The node is there: nobody knows the token any more.
	j.becomesReady("atom001", joinerUUID(0))
	j.mustBe(0, v1alpha1.JoinJoined)
	j.isGone(token)
	j.isUseless(blade, "csr-late", "atom001", "the token of Server atom001 has ended (Joined)")

	// A node of this name is ready on another machine.
	j.becomesReady("atom002", joinerUUID(7))
	j.mustBe(1, v1alpha1.JoinOffered)
	second := j.asToken(j.fetch(1))
	j.asksInVain(second, "csr-namesake", "atom002", "node atom002 is ready on another machine, with UUID")
	// A denial does not use up the token: the blade asks again, gets it, and joins once that node is gone.
	again := j.asToken(j.fetch(1))
	j.must(j.Client.Delete(j.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "atom002"}}))
	j.create(again, "csr-after-denial", "atom002")
	j.isSigned("csr-after-denial", 1)

	// A token that has expired.
	j.mustBe(2, v1alpha1.JoinOffered)
	expiring := j.fetch(2)
	j.expire(2)
	j.mustBe(2, v1alpha1.JoinExpired)
	j.isGone(expiring)
	j.isUseless(j.asToken(expiring), "csr-expired", "atom003", "the token of Server atom003 has ended (Expired)")
	// The next start has another one.
	j.change(2, func(s *v1alpha1.Server) {
		s.Spec.Order = &v1alpha1.PowerOrder{ID: "again", Action: v1alpha1.ActionCycle}
	})
	j.mustBe(2, v1alpha1.JoinOffered)
	if again := j.fetch(2); again == expiring {
		t.Error("another start has the same token")
	}

	j.shutsOut("atom001", "atom002")
	j.othersAreLeftAlone()
	j.roleOfKubernetes()
	if strings.Contains(j.box.Log(), strings.Split(token, ".")[1]) {
		t.Error("a token is in the log")
	}
}

func (j *joinBed) startBox() {
	j.Helper()
	// Without an election: nobody waits for the Lease of one that was killed.
	j.box = j.StartBox(j.program, "--leader-elect=false", "--join-api-server="+j.Config.Host)
}

func (j *joinBed) startChassis() {
	j.Helper()
	var port uint16
	for i := range joiners {
		j.blades[i] = j.startStandIn(standin.Config{
			Username: "admin", Password: "canary-7d1e", SystemGUID: joinerUUID(i), Serial: fmt.Sprint("MMS", i),
			Custom:  []string{fmt.Sprintf("SLOT=%d", i+1), "MAC1=" + joinerMAC(i)},
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 6, 0, byte(i + 1)}), port),
		})
		port = j.blades[i].Address().Port()
	}
	j.must(j.Client.Create(j.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "mercury1-bmc", Namespace: testbed.OperatorNamespace},
		Type:       v1alpha1.SecretTypeBMC,
		Data:       map[string][]byte{"username": []byte("admin"), "password": []byte("canary-7d1e")},
	}))
	j.must(j.Client.Create(j.Context(), &v1alpha1.Chassis{
		ObjectMeta: metav1.ObjectMeta{Name: chassisName},
		Spec: v1alpha1.ChassisSpec{
			Model: "EmulatedRack", FirstServer: 1, Slots: fmt.Sprintf("1-%d", joiners),
			Management: v1alpha1.ChassisManagement{
				CredentialsSecret: "mercury1-bmc", MMC: fmt.Sprintf("127.6.0.1+%d", joiners), Port: int32(port),
			},
			Networks: []v1alpha1.ChassisNetwork{{NIC: 1, CIDR: "192.168.3.0/24", Range: fmt.Sprintf("192.168.3.1+%d", joiners)}},
		},
	}))
}

// bootFromNetwork does what kubectl rcbox pxeboot and up do.
func (j *joinBed) bootFromNetwork(i int) {
	j.Helper()
	j.Eventually(patience, func() string {
		if server := j.server(i); server.Status.Power.State != v1alpha1.PowerOff || server.Status.MMC.SystemGUID == "" {
			return fmt.Sprintf("%s is not seen yet: %+v", server.Name, server.Status)
		}
		return ""
	})
	j.change(i, func(s *v1alpha1.Server) { s.Spec.Boot = &v1alpha1.BootOrder{ID: "pxe", Device: v1alpha1.BootNetwork} })
	j.Eventually(patience, func() string {
		if boot := j.server(i).Status.Boot; boot == nil || boot.State != v1alpha1.OrderDone {
			return fmt.Sprintf("the order to boot from the network is %+v", boot)
		}
		return ""
	})
	j.change(i, func(s *v1alpha1.Server) { s.Spec.Order = &v1alpha1.PowerOrder{ID: "up", Action: v1alpha1.ActionOn} })
}

func (j *joinBed) change(i int, change func(*v1alpha1.Server)) {
	j.Helper()
	server := j.server(i)
	before := server.DeepCopy()
	change(server)
	j.must(j.Client.Patch(j.Context(), server, client.MergeFrom(before)))
}

func (j *joinBed) mustBe(i int, state v1alpha1.JoinState) {
	j.Helper()
	j.Eventually(patience, func() string {
		server := j.server(i)
		if server.Status.Join == nil || server.Status.Join.State != state {
			return fmt.Sprintf("%s is not %s: %+v\n%s", server.Name, state, server.Status.Join, j.box.Log())
		}
		return ""
	})
	server := j.server(i)
	if got := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionJoined); got == nil ||
		(got.Status == metav1.ConditionTrue) != (state == v1alpha1.JoinJoined) {
		j.Errorf("%s is %s, and its condition %+v", server.Name, state, got)
	}
}

// mount does what a kubelet does with the Secret.
func (j *joinBed) mount() {
	j.Helper()
	secret := &corev1.Secret{}
	j.Get(secret, testbed.OperatorNamespace, join.SecretName)
	next := j.handler.File + ".new"
	j.must(os.WriteFile(next, secret.Data[join.SecretKey], 0o600))
	j.must(os.Rename(next, j.handler.File))
}

func (j *joinBed) ask(i int) (code int, text string) {
	j.Helper()
	body, err := json.Marshal(join.Question{MAC: joinerMAC(i), UUID: joinerUUID(i)})
	j.must(err)
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(j.Context(), http.MethodPost, "/join", strings.NewReader(string(body)))
	request.RemoteAddr = fmt.Sprintf("192.168.3.%d:40000", i+1)
	j.handler.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

// fetch gives the token that a box host gives a blade.
func (j *joinBed) fetch(i int) string {
	j.Helper()
	j.mount()
	code, text := j.ask(i)
	var answer join.Answer
	if err := json.Unmarshal([]byte(text), &answer); err != nil || code != http.StatusOK {
		j.Fatalf("%s: %d %s", joinerMAC(i), code, text)
	}
	if answer.APIServer != j.Config.Host || answer.CA != string(j.Config.CAData) || answer.Address != fmt.Sprintf("192.168.3.%d", i+1) ||
		answer.Labels[v1alpha1.LabelChassis] != chassisName || answer.Labels[v1alpha1.LabelSlot] != strconv.Itoa(i+1) ||
		answer.Labels[v1alpha1.LabelNodeClass] != "EmulatedRack" || !slices.Equal(answer.ClusterDNS, []string{j.resolver}) {
		j.Errorf("a blade is told %+v", answer)
	}
	return answer.Token
}

func (j *joinBed) asToken(token string) client.Client {
	j.Helper()
	as, err := client.New(&rest.Config{
		Host: j.Config.Host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: j.Config.CAData},
	}, client.Options{Scheme: j.Client.Scheme()})
	j.must(err)
	return as
}

func signingRequest(t *testing.T, name, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: nodeUser + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: raw}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
}

func (j *joinBed) create(as client.Client, name, node string) {
	j.Helper()
	j.must(as.Create(j.Context(), signingRequest(j.T, name, node)))
}

func (j *joinBed) asksInVain(as client.Client, name, node, why string) {
	j.Helper()
	j.create(as, name, node)
	j.isDenied(name, why)
}

func (j *joinBed) isDenied(name, why string) {
	j.Helper()
	j.Eventually(patience, func() string {
		got := &certificatesv1.CertificateSigningRequest{}
		j.Get(got, "", name)
		for _, condition := range got.Status.Conditions {
			if condition.Type == certificatesv1.CertificateApproved || len(got.Status.Certificate) > 0 {
				j.Fatalf("%s was approved: %+v", name, condition)
			}
			if condition.Type == certificatesv1.CertificateDenied && strings.Contains(condition.Message, why) {
				return ""
			}
		}
		return fmt.Sprintf("%s is not denied because %s: %+v\n%s", name, why, got.Status, j.box.Log())
	})
}

// isSigned waits for the certificate, and reads it with the rights of the token: nobody else fetches it for the blade.
func (j *joinBed) isSigned(name string, i int) {
	j.Helper()
	as := j.asToken(j.tokenOf(i))
	var text []byte
	j.Eventually(patience, func() string {
		got := &certificatesv1.CertificateSigningRequest{}
		if err := as.Get(j.Context(), client.ObjectKey{Name: name}, got); err != nil {
			j.Fatalf("the blade reads its request: %v", err)
		}
		if text = got.Status.Certificate; len(text) == 0 {
			return fmt.Sprintf("%s is not signed: %+v\n%s", name, got.Status, j.box.Log())
		}
		return ""
	})
	block, _ := pem.Decode(text)
	certificate, err := x509.ParseCertificate(block.Bytes)
	j.must(err)
	if certificate.Subject.CommonName != nodeUser+j.server(i).Name || certificate.CheckSignatureFrom(j.signer) != nil {
		j.Errorf("the certificate is for %s", certificate.Subject)
	}
}

func (j *joinBed) tokenOf(i int) string {
	j.Helper()
	secret := &corev1.Secret{}
	j.Get(secret, testbed.OperatorNamespace, join.SecretName)
	file, err := join.ParseFile(secret.Data[join.SecretKey])
	j.must(err)
	return file.Find(j.server(i).Status.Join.TokenID).Token()
}

// isUseless: the API server knows nobody by this token, or has not noticed yet (it trusts a token for 10 s after it has checked it); then
// the request is denied.
func (j *joinBed) isUseless(as client.Client, name, node, why string) {
	j.Helper()
	err := as.Create(j.Context(), signingRequest(j.T, name, node))
	if apierrors.IsUnauthorized(err) {
		return
	}
	j.must(err)
	j.isDenied(name, why)
}

func (j *joinBed) isGone(token string) {
	j.Helper()
	id, _, _ := strings.Cut(token, ".")
	j.Eventually(patience, func() string {
		secret := &corev1.Secret{}
		if j.Get(secret, metav1.NamespaceSystem, join.SecretPrefix+id) {
			return "the token is still there"
		}
		j.Get(secret, testbed.OperatorNamespace, join.SecretName)
		if strings.Contains(string(secret.Data[join.SecretKey]), id) {
			return "box hosts still have the token"
		}
		return ""
	})
}

func (j *joinBed) becomesReady(name, systemUUID string) {
	j.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	j.must(j.Client.Create(j.Context(), node))
	node.Status.NodeInfo.SystemUUID = systemUUID
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	j.must(j.Client.Status().Update(j.Context(), node))
}

// expire has a quarter of an hour pass for one Server.
func (j *joinBed) expire(i int) {
	j.Helper()
	j.Eventually(patience, func() string {
		server := j.server(i)
		past := metav1.NewTime(time.Now().Add(-time.Second).Truncate(time.Second))
		server.Status.Join.ExpiresAt = &past
		if err := j.Client.Status().Update(j.Context(), server); apierrors.IsConflict(err) {
			return err.Error()
		} else if err != nil {
			j.Fatal(err)
		}
		return ""
	})
}

func (j *joinBed) saysEvent(server, text string) {
	j.Helper()
	j.Eventually(patience, func() string {
		list := &eventsv1.EventList{}
		j.must(j.Client.List(j.Context(), list))
		for i := range list.Items {
			if of := &list.Items[i]; of.Regarding.Name == server && of.Reason == "JoinDenied" && strings.Contains(of.Note, text) {
				return ""
			}
		}
		return "there is no event about " + text
	})
}

// tokenIsGoodForNothingElse: with it, nothing but certificate signing requests can be read or made.
func (j *joinBed) tokenIsGoodForNothingElse(as client.Client) {
	j.Helper()
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &corev1.SecretList{}, &v1alpha1.ServerList{}, &corev1.PodList{}} {
		if err := as.List(j.Context(), list); !apierrors.IsForbidden(err) {
			j.Errorf("a token reads %T: %v", list, err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "atom001"}}
	if err := as.Create(j.Context(), node); !apierrors.IsForbidden(err) {
		j.Errorf("a token makes a node: %v", err)
	}
}

// boxMayDoNothingElse: with the rights of the box controller, no other Secret of kube-system is made, read or deleted, and no other group's
// request is approved.
func (j *joinBed) boxMayDoNothingElse() {
	j.Helper()
	box := j.As(boxLogin)
	secret := func(name, group string, change func(*corev1.Secret)) *corev1.Secret {
		made := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}, Type: corev1.SecretTypeBootstrapToken,
			Data: map[string][]byte{
				"token-id": []byte("aaaaaa"), "token-secret": []byte("0123456789abcdef"), "auth-extra-groups": []byte(group),
				"usage-bootstrap-authentication": []byte("true"), "expiration": []byte("2000-01-01T00:00:00Z"),
			},
		}
		if change != nil {
			change(made)
		}
		return made
	}
	const kubeadm, ours = "system:bootstrappers:kubeadm:default-node-token", v1alpha1.GroupBootstrappers
	theirs := secret("bootstrap-token-aaaaaa", kubeadm, nil)
	j.must(j.Client.Create(j.Context(), theirs))
	const other, alone = "bootstrap-token-bbbbbb", "alone"
	for _, test := range []struct {
		name string
		err  error
		says string
	}{
		{"a Secret of another type", box.Create(j.Context(), secret("x", ours, func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeOpaque
		})), alone},
		{"a token of another group", box.Create(j.Context(), secret(other, kubeadm, nil)), alone},
		{"a token of two groups", box.Create(j.Context(), secret(other, ours+","+kubeadm, nil)), alone},
		{"a token that signs", box.Create(j.Context(), secret(other, ours, func(s *corev1.Secret) {
			s.Data["usage-bootstrap-signing"] = []byte("true")
		})), "for authentication alone"},
		{"a token for nothing", box.Create(j.Context(), secret(other, ours, func(s *corev1.Secret) {
			delete(s.Data, "usage-bootstrap-authentication")
		})), "for authentication alone"},
		{"a token without an end", box.Create(j.Context(), secret(other, ours, func(s *corev1.Secret) {
			delete(s.Data, "expiration")
		})), "expires"},
		{"deletes a token of kubeadm", box.Delete(j.Context(), theirs.DeepCopy()), alone},
		{"reads a token of kubeadm", box.Get(j.Context(), client.ObjectKeyFromObject(theirs), &corev1.Secret{}), "cannot get"},
	} {
		if !apierrors.IsForbidden(test.err) || !strings.Contains(test.err.Error(), test.says) {
			j.Errorf("with the box controller's rights, %s: %v", test.name, test.err)
		}
	}
	good := secret(other, ours, nil)
	j.must(box.Create(j.Context(), good))
	j.must(box.Delete(j.Context(), good))
	const installer = "system:serviceaccount:default:installer"
	j.must(j.Client.Create(j.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "installer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "rcbox-box-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: installer}},
	}))
	request := signingRequest(j.T, "csr-installer", "atom001")
	j.must(j.As(installer).Create(j.Context(), request))
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "x", Message: "x",
	}}
	if err := box.SubResource("approval").Update(j.Context(), request); !apierrors.IsForbidden(err) {
		j.Errorf("with the box controller's rights, the request of another group is approved: %v", err)
	}
}

// shutsOut takes the remedy of docs/join.md: whoever has the certificate of a node writes nothing any more, and does not renew it.
func (j *joinBed) shutsOut(name, other string) {
	j.Helper()
	page, err := os.ReadFile("../../../docs/join.md")
	j.must(err)
	_, after, _ := strings.Cut(string(page), "```yaml\n")
	remedy, _, isThere := strings.Cut(after, "```")
	if !isThere || !strings.Contains(remedy, nodeUser+name) {
		j.Fatalf("docs/join.md has no remedy for %s", name)
	}
	renew := func(name string) error {
		config := rest.CopyConfig(j.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: nodeUser + name, Groups: []string{"system:nodes", "system:authenticated"}}
		as, err := client.New(config, client.Options{Scheme: j.Client.Scheme()})
		j.must(err)
		return as.Create(j.Context(), signingRequest(j.T, "csr-renewal", name), client.DryRunAll)
	}
	j.must(j.Client.Create(j.Context(), &rbacv1.ClusterRoleBinding{ // no node authorizer runs here
		ObjectMeta: metav1.ObjectMeta{Name: "nodes"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}))
	j.Eventually(patience, func() string {
		if err := renew(name); err != nil {
			return fmt.Sprintf("a node cannot renew its certificate: %v", err)
		}
		return ""
	})
	for text := range strings.SplitSeq(strings.ReplaceAll("\n"+remedy, "\n   ", "\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		j.must(yaml.Unmarshal([]byte(text), &object.Object))
		j.must(j.Client.Create(j.Context(), object))
	}
	j.Eventually(patience, func() string {
		if err := renew(name); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "another machine may have the certificate") {
			return fmt.Sprintf("a node that is shut out renews its certificate: %v", err)
		}
		return ""
	})
	j.must(renew(other))
}

// othersAreLeftAlone: the requests of others have waited all along, and nobody has decided.
func (j *joinBed) othersAreLeftAlone() {
	j.Helper()
	got := &certificatesv1.CertificateSigningRequest{}
	if !j.Get(got, "", "csr-installer") || len(got.Status.Conditions) > 0 {
		j.Errorf("the request of another group: %+v", got.Status)
	}
}

// roleOfKubernetes: while a role would approve everything that bootstrappers ask for, there are no tokens.
func (j *joinBed) roleOfKubernetes() {
	j.Helper()
	j.must(j.Client.Create(j.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "approve-everything"},
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
		},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:bootstrappers"}},
	}))
	j.bootFromNetwork(3)
	j.Eventually(patience, func() string {
		of := j.server(3).Status.Join
		if of == nil || !strings.Contains(of.Message, "a role lets kube-controller-manager approve every request of this group") {
			return fmt.Sprintf("its join is %+v", of)
		}
		return ""
	})
}
