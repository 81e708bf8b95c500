// Package sushy runs the emulator of sushy-tools: a BMC that speaks Redfish, with one simulated server. Tests can ask the emulator for the
// server's state without the product's own client.
package sushy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Password is the emulator's only password, and hash is its bcrypt hash.
const (
	Password = "not-a-secret"
	hash     = "$2a$04$39z2afRtlklpDJlLB6El2.KPTKY6ESWt5be91rhtxZZxbVAOJH3jO"
)

const (
	filesAreFor = 0o600
	lifetime    = time.Hour
)

// Server is the simulated server of an emulator.
type Server struct{ Name, UUID, MAC string }

// Emulator is a running emulator.
type Emulator struct {
	Address  netip.AddrPort
	Username string
	// Trusted has the authority that signed the emulator's certificate. CA is the same authority as PEM.
	Trusted *x509.CertPool
	CA      string

	server Server
	stop   func()
}

// Start starts an emulator at an address, with a server that is off. It skips the test if the emulator is not installed.
func Start(tb testing.TB, address netip.AddrPort, username string, server Server) *Emulator {
	tb.Helper()
	program := os.Getenv("RCBOX_SUSHY_EMULATOR")
	if program == "" {
		tb.Skip("SKIPPED: it needs the emulator of sushy-tools: hack/box.sh")
	}
	dir := tb.TempDir()
	e := &Emulator{Address: address, Username: username, server: server}
	files := map[string]string{
		"htpasswd": username + ":" + hash + "\n",
		"config": fmt.Sprintf("SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_AUTH_FILE = %q\nSUSHY_EMULATOR_FAKE_SYSTEMS = "+
			`[{"uuid": %q, "name": %q, "power_state": "Off", "nics": [{"mac": %q, "ip": "192.168.3.7"}]}]`+"\n",
			filepath.Join(dir, "htpasswd"), server.UUID, server.Name, server.MAC),
	}
	e.Trusted, e.CA, files["key"] = Certificate(tb, address.Addr())
	files["certificate"] = e.CA
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), filesAreFor); err != nil {
			tb.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log")) //nolint:gosec // of this test
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	//nolint:gosec // of this test
	process := exec.CommandContext(ctx, program, "--fake", "--config", filepath.Join(dir, "config"), "-i", address.Addr().String(), "-p",
		strconv.Itoa(int(address.Port())), "--ssl-certificate", filepath.Join(dir, "certificate"), "--ssl-key", filepath.Join(dir, "key"))
	process.Stdout, process.Stderr, process.Dir = log, log, dir
	// The emulator keeps its simulated servers in a file in the directory for temporary files.
	process.Env = append(process.Environ(), "TMPDIR="+dir)
	if err := process.Start(); err != nil {
		tb.Fatal(err)
	}
	e.stop = func() {
		stop()
		_ = process.Wait() // it was killed
	}
	tb.Cleanup(func() {
		e.stop()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); tb.Failed() && err == nil {
			tb.Logf("the emulator says:\n%s", text)
		}
	})
	return e
}

// State is the state of the server, as the emulator reports it.
type State struct {
	PowerState, IndicatorLED string
	Boot                     struct{ BootSourceOverrideEnabled, BootSourceOverrideTarget string }
}

// State asks the emulator itself.
func (e *Emulator) State(ctx context.Context) (State, error) {
	var state State
	answer, err := e.do(ctx, http.MethodGet, "", nil)
	if err != nil {
		return state, err
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(&state); err != nil {
		return state, fmt.Errorf("read what the emulator says: %w", err)
	}
	return state, nil
}

func (e *Emulator) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	url := fmt.Sprintf("https://%s/redfish/v1/Systems/%s%s", e.Address, e.server.UUID, path)
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the emulator: %w", err)
	}
	request.SetBasicAuth(e.Username, Password)
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: e.Trusted, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the emulator: %w", err)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("the emulator says %s: %w", answer.Status, answer.Body.Close())
	}
	return answer, nil
}

// Certificate makes a certificate for an address, the authority that signs it, and its key.
func Certificate(tb testing.TB, address netip.Addr) (trusted *x509.CertPool, certificate, key string) {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stand-in " + address.String()}, NotBefore: time.Now().Add(-lifetime),
		NotAfter: time.Now().Add(lifetime), IPAddresses: []net.IP{address.AsSlice()}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		tb.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	trusted = x509.NewCertPool()
	trusted.AppendCertsFromPEM(text)
	return trusted, string(text), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}
