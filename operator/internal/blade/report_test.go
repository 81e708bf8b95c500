package blade_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

const (
	kubeconfigOfServer = "clusters:\n- cluster:\n    certificate-authority: /etc/kubernetes/ca.crt\n    server: @SERVER@\n" +
		"  name: default-cluster\n"
	macOfPort = "52:54:00:03:00:01"
)

// pairOf is a kubelet's certificate with its key, as the kubelet writes them.
func pairOf(t *testing.T, user string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user, Organization: []string{"system:nodes"}},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// filesOfNode are those of a blade whose kubelet has joined.
func filesOfNode(t *testing.T, server *httptest.Server) fstest.MapFS {
	t.Helper()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return fstest.MapFS{
		"var/lib/kubelet/kubeconfig":                     {Data: []byte(strings.ReplaceAll(kubeconfigOfServer, "@SERVER@", server.URL))},
		"var/lib/kubelet/pki/kubelet-client-current.pem": {Data: []byte(pairOf(t, "system:node:atom001"))},
		"etc/kubernetes/ca.crt":                          {Data: authority},
	}
}

// TestReport: the blade's own node gets the annotation, by the kubelet's certificate; a refusal is an error with the server's reason.
func TestReport(t *testing.T) {
	t.Parallel()
	answer := http.StatusOK
	var asked, user, body, kind string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		asked, body, kind = r.Method+" "+r.URL.String(), string(text), r.Header.Get("Content-Type")
		user = r.TLS.PeerCertificates[0].Subject.CommonName
		w.WriteHeader(answer)
		_, _ = io.WriteString(w, "no such node\x1b[31m\nmore")
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	to, err := blade.KubeletCredentials(filesOfNode(t, server))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: to.TLS}}
	defer client.CloseIdleConnections()
	text, err := hardware.Inventory{Serial: "MMS0001"}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := blade.Report(t.Context(), client, to, text); err != nil {
		t.Fatal(err)
	}
	if asked != "PATCH /api/v1/nodes/atom001?fieldManager=rcbox-blade" || user != "system:node:atom001" ||
		kind != "application/merge-patch+json" {
		t.Errorf("%s by %s, %s", asked, user, kind)
	}
	var patch struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal([]byte(body), &patch); err != nil {
		t.Fatal(err)
	}
	found, err := hardware.Parse(patch.Metadata.Annotations[hardware.Annotation])
	if err != nil || found.Serial != "MMS0001" || len(patch.Metadata.Annotations) != 1 {
		t.Errorf("%s: %v", body, err)
	}
	answer = http.StatusForbidden
	if err := blade.Report(t.Context(), client, to, text); !errors.Is(err, blade.ErrReport) ||
		!strings.HasSuffix(err.Error(), "403 Forbidden: no such node?[31m") {
		t.Errorf("%v", err)
	}
}

// TestReportNeedsANode: without one of its files a blade is no node yet; a file that is wrong is named.
func TestReportNeedsANode(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	for path := range filesOfNode(t, server) {
		files := filesOfNode(t, server)
		delete(files, path)
		if _, err := blade.KubeletCredentials(files); !errors.Is(err, blade.ErrNoNode) {
			t.Errorf("without %s: %v", path, err)
		}
		files[path] = &fstest.MapFile{Data: []byte("{}")}
		if _, err := blade.KubeletCredentials(files); err == nil || errors.Is(err, blade.ErrNoNode) ||
			!strings.Contains(err.Error(), "/"+path) {
			t.Errorf("with a wrong %s: %v", path, err)
		}
	}
	files := filesOfNode(t, server)
	files["var/lib/kubelet/pki/kubelet-client-current.pem"] = &fstest.MapFile{Data: []byte(pairOf(t, "admin"))}
	if _, err := blade.KubeletCredentials(files); err == nil || !strings.Contains(err.Error(), `"admin", not of a node`) {
		t.Errorf("%v", err)
	}
	files = filesOfNode(t, server)
	files["var/lib/kubelet/kubeconfig"] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(kubeconfigOfServer, "@SERVER@", "http://a"))}
	if _, err := blade.KubeletCredentials(files); err == nil {
		t.Error("an API server without TLS")
	}
}
