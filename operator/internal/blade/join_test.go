package blade

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"sigs.k8s.io/yaml"
)

const someToken = "abcdef.0123456789abcdef"

func answer() JoinAnswer {
	return JoinAnswer{
		Node: "atom001", APIServer: "https://192.168.3.254:6443", Token: someToken, Address: "192.168.3.1",
		CA:     "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
		Labels: map[string]string{"rcbox.dev/slot": "1", "rcbox.dev/chassis": "mercury1"},
	}
}

func lease() Lease {
	return Lease{
		MAC: "52:54:00:03:00:01", Address: netip.MustParsePrefix("192.168.3.1/24"), Router: netip.MustParseAddr("192.168.3.254"),
		Resolvers: []netip.Addr{netip.MustParseAddr("192.168.3.254")},
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	status, body := http.StatusOK, ""
	var asked JoinRequest
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(text, &asked); err != nil || r.Method != http.MethodPost || r.URL.Path != "/join" {
			t.Errorf("%s %s: %s", r.Method, r.URL, text)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	who := JoinRequest{MAC: "52:54:00:03:00:01", UUID: "u"}
	text, err := json.Marshal(answer())
	if err != nil {
		t.Fatal(err)
	}
	body = string(text)
	got, err := Join(t.Context(), server.Client(), []string{"127.0.0.1:1", server.Listener.Addr().String()}, time.Minute, who)
	if err != nil || !reflect.DeepEqual(got, answer()) || asked != who {
		t.Errorf("%+v, %v; asked %+v", got, err, asked)
	}
	hosts := []string{server.Listener.Addr().String()}
	status, body = http.StatusForbidden, "Server atom001 does not boot\x1b[31m\nmore"
	if _, err := Join(t.Context(), server.Client(), hosts, time.Minute, who); !errors.Is(err, ErrRefused) ||
		!strings.HasSuffix(err.Error(), "403 Forbidden: Server atom001 does not boot?[31m") {
		t.Errorf("it says: %q", err)
	}
	for _, body = range []string{"", "{}", "[", `{"node":"` + strings.Repeat("a", maxAnswerBytes) + `"}`} {
		status = http.StatusOK
		if _, err := Join(t.Context(), server.Client(), hosts, time.Minute, who); !errors.Is(err, ErrAnswer) {
			t.Errorf("%.20q: %v", body, err)
		}
	}
}

// TestHostileAnswersAreRefused: texts of an answer get into files that root's programs read.
func TestHostileAnswersAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*JoinAnswer){
		"node with a line":      func(a *JoinAnswer) { a.Node = "atom001\nx" },
		"node with an option":   func(a *JoinAnswer) { a.Node = "--x" },
		"no node":               func(a *JoinAnswer) { a.Node = "" },
		"server without TLS":    func(a *JoinAnswer) { a.APIServer = "http://192.168.3.254" },
		"server with a user":    func(a *JoinAnswer) { a.APIServer = "https://a:b@c" },
		"server with a path":    func(a *JoinAnswer) { a.APIServer = "https://c/d" },
		"server with a line":    func(a *JoinAnswer) { a.APIServer = "https://c\nd" },
		"no certificate":        func(a *JoinAnswer) { a.CA = "" },
		"a key":                 func(a *JoinAnswer) { a.CA = strings.ReplaceAll(a.CA, "CERTIFICATE", "PRIVATE KEY") },
		"token of another form": func(a *JoinAnswer) { a.Token = "x y" },
		"label with options":    func(a *JoinAnswer) { a.Labels["a"] = "b --v=9" },
		"label with a comma":    func(a *JoinAnswer) { a.Labels["a"] = "b,c=d" },
		"label's name":          func(a *JoinAnswer) { a.Labels["a=b"] = "c" },
		"too many labels": func(a *JoinAnswer) {
			for i := range maxLabels {
				a.Labels["l"+strings.Repeat("x", i)] = ""
			}
		},
		"no address":     func(a *JoinAnswer) { a.Address = "" },
		"address's zone": func(a *JoinAnswer) { a.Address = "fe80::1%eth0" },
		"resolver":       func(a *JoinAnswer) { a.ClusterDNS = []string{"x"} },
	} {
		changed := answer()
		change(&changed)
		err := changed.Validate()
		if !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Contains(err.Error(), someToken) || strings.Contains(err.Error(), "x y") {
			t.Errorf("%s: the error has the token: %v", name, err)
		}
		if _, err := NodeFiles(changed, lease()); err == nil {
			t.Errorf("%s got into files", name)
		}
	}
}

func TestNodeFiles(t *testing.T) {
	t.Parallel()
	given := answer()
	given.ClusterDNS = []string{"10.96.0.10"}
	files, err := NodeFiles(given, lease())
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]File{}
	for _, file := range files {
		by[file.Path] = file
		if (file.Mode == secret) != strings.Contains(file.Content, someToken) {
			t.Errorf("%s has mode %o", file.Path, file.Mode)
		}
	}
	if got, want := by[KubeletEnvironment].Content, "KUBELET_ARGUMENTS=--config=/var/lib/kubelet/config.yaml "+
		"--bootstrap-kubeconfig=/var/lib/kubelet/bootstrap-kubeconfig --kubeconfig=/var/lib/kubelet/kubeconfig "+
		"--hostname-override=atom001 --node-ip=192.168.3.1 --pod-infra-container-image=registry.k8s.io/pause:3.10 "+
		"--node-labels=rcbox.dev/chassis=mercury1,rcbox.dev/slot=1\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got, want := by["/etc/systemd/network/10-rcbox.network"].Content, "[Match]\nMACAddress=52:54:00:03:00:01\nKind=!*\n\n[Network]\n"+
		"Address=192.168.3.1/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nGateway=192.168.3.254\nDNS=192.168.3.254\n"; got != want {
		t.Errorf("got %q", got)
	}
	var kubelet struct {
		ClusterDNS     []string `json:"clusterDNS"` //nolint:tagliatelle // as the kubelet has it
		Authentication struct {
			Anonymous struct {
				Enabled *bool `json:"enabled"`
			} `json:"anonymous"`
		} `json:"authentication"`
	}
	if err := yaml.Unmarshal([]byte(by[kubeletConfig].Content), &kubelet); err != nil ||
		!reflect.DeepEqual(kubelet.ClusterDNS, given.ClusterDNS) ||
		kubelet.Authentication.Anonymous.Enabled == nil || *kubelet.Authentication.Anonymous.Enabled {
		t.Errorf("%v\n%s", err, by[kubeletConfig].Content)
	}
	// What DHCP and the Chassis say of the address must agree.
	other := lease()
	other.Address = netip.MustParsePrefix("192.168.3.2/24")
	if _, err := NodeFiles(given, other); !errors.Is(err, ErrAnswer) {
		t.Errorf("another address: %v", err)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	settings := DefaultSettings()
	settings.VFIO = []string{"8086:1520"}
	by := map[string]string{}
	for _, file := range settings.Files(32 << 30) {
		by[file.Path] = file.Content
	}
	for path, want := range map[string]string{
		"/etc/sysctl.d/70-rcbox.conf":            "vm.nr_hugepages = 1638\n",
		"/etc/systemd/network/70-rcbox-igb.link": "CombinedChannels=8\nRxCoalesceSec=1us\n",
		"/etc/modprobe.d/rcbox.conf":             "options vfio-pci ids=8086:1520\n",
		"/etc/modules-load.d/rcbox.conf":         "vfio-pci\n",
	} {
		if !strings.Contains(by[path], want) {
			t.Errorf("%s: %q", path, by[path])
		}
	}
	for _, file := range DefaultSettings().Files(0) {
		if strings.Contains(file.Content, "hugepages") || strings.Contains(file.Path, "modprobe") {
			t.Errorf("without a memory and devices: %+v", file)
		}
	}
	for _, bad := range []Settings{
		{Queues: 0},
		{Queues: 65},
		{Queues: 8, HugePagesPercent: -1},
		{Queues: 8, HugePagesPercent: 91},
		{Queues: 8, VFIO: []string{"8086:1520 x"}},
		{Queues: 8, VFIO: []string{""}},
	} {
		if err := bad.Validate(); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	if err := settings.Validate(); err != nil {
		t.Error(err)
	}
}

func TestPauseImageIsTheOneOfContainerd(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../images/blade/files/etc/containerd/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `sandbox_image = "`+PauseImage+`"`) {
		t.Errorf("containerd's configuration does not name %s", PauseImage)
	}
}

// certificateFiles are those of a kubelet whose certificate ends at a time.
func certificateFiles(t *testing.T, end time.Time) fstest.MapFS {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	return fstest.MapFS{kubeconfig[1:]: {Data: []byte("{}")}, certificate[1:]: {Data: text}}
}

// TestOnlyABladeWithoutCertificateAsks: a token that came is no reason not to ask again, and neither is a certificate that the kubelet does
// not use.
func TestOnlyABladeWithoutCertificateAsks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if !HasCertificate(certificateFiles(t, now.Add(time.Minute)), now) {
		t.Error("a blade with a certificate would ask")
	}
	for name, change := range map[string]func(fstest.MapFS){
		"expired":            func(files fstest.MapFS) { maps.Copy(files, certificateFiles(t, now.Add(-time.Minute))) },
		"no kubeconfig":      func(files fstest.MapFS) { delete(files, kubeconfig[1:]) },
		"no certificate":     func(files fstest.MapFS) { delete(files, certificate[1:]) },
		"empty":              func(files fstest.MapFS) { files[certificate[1:]] = &fstest.MapFile{} },
		"cut by a power cut": func(files fstest.MapFS) { files[certificate[1:]].Data = files[certificate[1:]].Data[:100] },
		"no DER": func(files fstest.MapFS) {
			files[certificate[1:]].Data = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}})
		},
	} {
		files := certificateFiles(t, now.Add(time.Minute))
		change(files)
		if HasCertificate(files, now) {
			t.Errorf("%s: the blade would not ask", name)
		}
	}
}

// TestOnlyTheClusterOfTheImageIsJoined, if the image names one.
func TestOnlyTheClusterOfTheImageIsJoined(t *testing.T) {
	t.Parallel()
	other := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("another")}))
	given := answer()
	for _, trusted := range []string{given.CA, other + given.CA} {
		if err := CheckAuthority(given, []byte(trusted)); err != nil {
			t.Error(err)
		}
	}
	for _, trusted := range []string{"", "text", other} {
		if err := CheckAuthority(given, []byte(trusted)); !errors.Is(err, ErrAnswer) {
			t.Errorf("%q: %v", trusted, err)
		}
	}
	given.CA += other // one more that the kubelet would trust
	if err := CheckAuthority(given, []byte(answer().CA)); !errors.Is(err, ErrAnswer) {
		t.Error("a second authority was taken")
	}
}

// TestAHangingBoxHostLeavesTheOthersTheirTime: and no box host sends a blade to a third one.
func TestAHangingBoxHostLeavesTheOthersTheirTime(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(answer())
	if err != nil {
		t.Fatal(err)
	}
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }))
	defer good.Close()
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-release
	}))
	defer hanging.Close()
	defer close(release)
	hosts := []string{hanging.Listener.Addr().String(), good.Listener.Addr().String()}
	got, err := Join(t.Context(), good.Client(), hosts, time.Second, JoinRequest{})
	if err != nil || got.Node != answer().Node {
		t.Errorf("%+v, %v", got, err)
	}
}
