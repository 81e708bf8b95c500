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
	text, err := blade.Inventory{Serial: "MMS0001"}.Encode()
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
	found, err := blade.ParseInventory(patch.Metadata.Annotations[blade.AnnotationInventory])
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

// TestEncodedInventoriesAreBounded: a report fits its bound whatever the machine has, says what it leaves out, and a longer one is refused.
func TestEncodedInventoriesAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	inventory := blade.Inventory{Serial: "MMS0001", Missing: []string{"cpu: gone"}}
	for range 1024 {
		inventory.Disks = append(inventory.Disks, blade.Disk{Name: long, Serial: long})
		inventory.Ports = append(inventory.Ports, blade.Port{Name: long, MAC: macOfPort})
	}
	text, err := inventory.Encode()
	if err != nil || len(text) > blade.MaxInventoryBytes {
		t.Fatal(len(text), err)
	}
	found, err := blade.ParseInventory(text)
	if err != nil || found.Serial != "MMS0001" || len(found.Missing) != 4 || len(inventory.Missing) != 1 {
		t.Errorf("%+v %v", found, err)
	}
	for range 1024 {
		inventory.Missing = append(inventory.Missing, long)
	}
	if _, err := inventory.Encode(); !errors.Is(err, blade.ErrInventory) {
		t.Errorf("%v", err)
	}
	for _, wrong := range []string{`"` + strings.Repeat("x", blade.MaxInventoryBytes) + `"`, "{", `{"cpu":1}`} {
		if _, err := blade.ParseInventory(wrong); !errors.Is(err, blade.ErrInventory) {
			t.Errorf("%.20s: %v", wrong, err)
		}
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	inventory := blade.Inventory{Serial: "MMS0001", Ports: []blade.Port{{Name: "eth0", MAC: macOfPort}}}
	for name, test := range map[string]struct {
		inventory blade.Inventory
		serial    string
		mac       string
		want      int
	}{
		"the same":                      {inventory, "MMS0001", "52:54:00:03:00:01", 0},
		"another serial number":         {inventory, "MMS0002", macOfPort, 1},
		"a port is missing":             {inventory, "MMS0001", "52:54:00:03:00:02", 1},
		"both":                          {inventory, "MMS0002", "52:54:00:03:00:02", 2},
		"the BMC reports nothing":       {inventory, "", "", 0},
		"the blade could read no ports": {blade.Inventory{}, "MMS0001", macOfPort, 0},
	} {
		got := test.inventory.Differences(test.serial, []blade.RecordedPort{{Name: "atom001", MAC: strings.ToUpper(test.mac)}})
		if len(got) != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func FuzzParseInventory(f *testing.F) {
	f.Add(`{"uuid":"a","cpu":{"cores":8},"channels":[{"name":"A"}],"ports":[{"mac":"` + macOfPort + `"}]}`)
	f.Add("{")
	f.Fuzz(func(t *testing.T, text string) {
		inventory, err := blade.ParseInventory(text)
		if err != nil {
			return
		}
		again, err := inventory.Encode()
		if err == nil {
			_, err = blade.ParseInventory(again)
		}
		if err != nil && !errors.Is(err, blade.ErrInventory) {
			t.Error(err)
		}
		inventory.Differences("x", []blade.RecordedPort{{Name: "a", MAC: macOfPort}})
	})
}
