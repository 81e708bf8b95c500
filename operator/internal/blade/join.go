package blade

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Errors of joining.
var (
	ErrRefused = errors.New("the box host refuses this blade")
	ErrAnswer  = errors.New("the box host's answer is wrong")
)

// PauseImage holds the namespaces of each pod. The image of a blade carries it, and containerd's configuration there names it.
const PauseImage = "registry.k8s.io/pause:3.10"

const (
	maxAnswerBytes  = 1 << 20
	maxRefusalBytes = 1 << 10
	maxLabels       = 64
)

// JoinRequest says who asks.
type JoinRequest struct {
	MAC  string `json:"mac"`
	UUID string `json:"uuid"`
}

// JoinAnswer is what a blade needs to be a node.
type JoinAnswer struct {
	Node      string `json:"node"`
	APIServer string `json:"apiServer"`
	// CA are the certificates that the API server's is signed by, as PEM.
	CA     string            `json:"ca"`
	Token  string            `json:"token"`
	Labels map[string]string `json:"labels"`
	// Address of the blade's port, with or without the length of its network's prefix.
	Address string `json:"address"`
	// ClusterDNS are the resolvers of pods, where the box host knows them.
	ClusterDNS []string `json:"clusterDNS,omitempty"` //nolint:tagliatelle // as the kubelet has it
}

// Join asks each box host once, until one gives an answer that is right. Each has as long as is given for one.
func Join(ctx context.Context, client *http.Client, hosts []string, patience time.Duration, who JoinRequest) (JoinAnswer, error) {
	ask := func(host string) (JoinAnswer, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return joinAt(ctx, client, host, who)
	}
	var failures []error
	for _, host := range hosts {
		answer, err := ask(host)
		if err == nil {
			return answer, nil
		}
		failures = append(failures, fmt.Errorf("box host %s: %w", host, err))
	}
	return JoinAnswer{}, errors.Join(failures...)
}

func joinAt(ctx context.Context, client *http.Client, host string, who JoinRequest) (JoinAnswer, error) {
	body, err := json.Marshal(who)
	if err != nil {
		return JoinAnswer{}, fmt.Errorf("print the request to join: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+"/join", bytes.NewReader(body))
	if err != nil {
		return JoinAnswer{}, fmt.Errorf("ask to join: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return JoinAnswer{}, fmt.Errorf("ask to join: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // read only
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusalBytes)) // as much of it as came
		return JoinAnswer{}, fmt.Errorf("%w: %s: %s", ErrRefused, response.Status, firstLine(reason))
	}
	text, err := readAtMost(response.Body, maxAnswerBytes)
	if err != nil {
		return JoinAnswer{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	var answer JoinAnswer
	if err := json.Unmarshal(text, &answer); err != nil {
		return JoinAnswer{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return answer, answer.Validate()
}

// firstLine is fit for a console.
func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, line)
}

var tokenPattern = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// Validate refuses what must not get into files: all of these texts are written into configurations. It never prints the token.
func (a JoinAnswer) Validate() error {
	refuse := func(format string, arguments ...any) error {
		return fmt.Errorf("%w: %w", ErrAnswer, fmt.Errorf(format, arguments...)) //nolint:err113 // one text for each field
	}
	if problems := validation.IsDNS1123Label(a.Node); len(problems) > 0 {
		return refuse("node is %q: %s", a.Node, problems[0])
	}
	server, err := url.Parse(a.APIServer)
	if err != nil || server.Scheme != "https" || server.Host == "" || server.User != nil || strings.Trim(server.Path, "/") != "" {
		return refuse("apiServer is %q, not of the form https://HOST:PORT", a.APIServer)
	}
	if block, _ := pem.Decode([]byte(a.CA)); block == nil || block.Type != "CERTIFICATE" {
		return refuse("ca has no certificate as PEM")
	}
	if !tokenPattern.MatchString(a.Token) {
		return refuse("token is no bootstrap token")
	}
	if len(a.Labels) > maxLabels {
		return refuse("there are %d labels, more than %d", len(a.Labels), maxLabels)
	}
	for name, value := range a.Labels {
		if problems := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return refuse("label %q: %s", name, problems[0])
		}
	}
	if _, err := a.address(); err != nil {
		return refuse("address is %q: %w", a.Address, err)
	}
	for _, resolver := range a.ClusterDNS {
		if _, err := netip.ParseAddr(resolver); err != nil {
			return refuse("clusterDNS: %w", err)
		}
	}
	return nil
}

func (a JoinAnswer) address() (netip.Addr, error) {
	text, _, _ := strings.Cut(a.Address, "/")
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, err //nolint:wrapcheck // by the caller
	}
	if !address.Is4() && !address.Is6() || address.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%s has a zone", text)
	}
	return address, nil
}

// Lease is what the blade's port has from DHCP. It becomes fixed, so that a blade starts while no box host does.
type Lease struct {
	MAC       string
	Address   netip.Prefix
	Router    netip.Addr
	Resolvers []netip.Addr
}

// Places of files of a node.
const (
	KubeletEnvironment = "/etc/rcbox/kubelet.env"
	kubeletConfig      = "/var/lib/kubelet/config.yaml"
	kubeconfig         = "/var/lib/kubelet/kubeconfig"
	bootstrapConfig    = "/var/lib/kubelet/bootstrap-kubeconfig"
	certificate        = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	caFile             = "/etc/kubernetes/ca.crt"
)

// HasCertificate says whether the kubelet below root needs no token: it has a certificate that has not expired, and uses that.
func HasCertificate(root fs.FS, now time.Time) bool {
	if _, err := fs.Stat(root, kubeconfig[1:]); err != nil {
		return false
	}
	text, err := readBounded(root, certificate[1:])
	if err != nil {
		return false
	}
	isFound := false
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		found, err := x509.ParseCertificate(block.Bytes)
		if err != nil || now.After(found.NotAfter) {
			return false
		}
		isFound = true
	}
	return isFound
}

// TrustedAuthorities of the image: if it is there, an answer's certificates must be among those of this file, which the image's signature
// covers.
const TrustedAuthorities = "/etc/rcbox/cluster-ca.crt"

// CheckAuthority refuses an answer whose cluster is not one that the image names. Nothing else of an answer is authenticated: whoever gives
// another cluster would have his pods run here as root.
func CheckAuthority(answer JoinAnswer, trusted []byte) error {
	known := map[string]bool{}
	for block, rest := pem.Decode(trusted); block != nil; block, rest = pem.Decode(rest) {
		known[string(block.Bytes)] = true
	}
	if len(known) == 0 {
		return fmt.Errorf("%w: %s of the image has no certificate as PEM; build the image anew", ErrAnswer, TrustedAuthorities)
	}
	for block, rest := pem.Decode([]byte(answer.CA)); block != nil; block, rest = pem.Decode(rest) {
		if !known[string(block.Bytes)] {
			return fmt.Errorf("%w: a certificate in ca is none of those in %s of the image: this is another cluster, or the cluster has "+
				"a new authority, which takes a new image", ErrAnswer, TrustedAuthorities)
		}
	}
	return nil
}

// NodeFiles are the files that make a blade the node of an answer. The last one is KubeletEnvironment.
func NodeFiles(answer JoinAnswer, lease Lease) ([]File, error) {
	if err := answer.Validate(); err != nil {
		return nil, err
	}
	address, err := answer.address()
	if err != nil {
		return nil, err
	}
	if lease.Address.Addr() != address {
		return nil, fmt.Errorf("%w: it gives this blade the address %s, and DHCP has given it %s; do Chassis and DHCP agree?",
			ErrAnswer, address, lease.Address)
	}
	network, err := networkFile(lease)
	if err != nil {
		return nil, err
	}
	bootstrap, err := yaml.Marshal(bootstrapKubeconfig(answer))
	if err != nil {
		return nil, fmt.Errorf("print the bootstrap kubeconfig: %w", err)
	}
	configuration, err := yaml.Marshal(kubeletConfiguration(answer))
	if err != nil {
		return nil, fmt.Errorf("print the kubelet's configuration: %w", err)
	}
	return []File{
		{"/etc/systemd/network/10-rcbox.network", readable, network},
		{"/etc/hostname", readable, answer.Node + "\n"},
		{"/etc/hosts", readable, fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", address, answer.Node)},
		{caFile, readable, answer.CA},
		{bootstrapConfig, secret, string(bootstrap)},
		{kubeletConfig, readable, string(configuration)},
		{KubeletEnvironment, readable, kubeletEnvironment(answer, address)},
	}, nil
}

func networkFile(lease Lease) (string, error) {
	mac, err := net.ParseMAC(lease.MAC)
	if err != nil {
		return "", fmt.Errorf("the port that this blade was started from: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "[Match]\nMACAddress=%s\nKind=!*\n\n[Network]\nAddress=%s\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n", mac,
		lease.Address)
	if lease.Router.IsValid() {
		fmt.Fprintf(&text, "Gateway=%s\n", lease.Router)
	}
	for _, resolver := range lease.Resolvers {
		fmt.Fprintf(&text, "DNS=%s\n", resolver)
	}
	return text.String(), nil
}

type object = map[string]any

func bootstrapKubeconfig(answer JoinAnswer) object {
	return object{
		"apiVersion": "v1", "kind": "Config", "current-context": "bootstrap",
		"clusters": []object{{"name": "cluster", "cluster": object{"server": answer.APIServer, "certificate-authority": caFile}}},
		"users":    []object{{"name": "bootstrap", "user": object{"token": answer.Token}}},
		"contexts": []object{{"name": "bootstrap", "context": object{"cluster": "cluster", "user": "bootstrap"}}},
	}
}

func kubeletConfiguration(answer JoinAnswer) object {
	configuration := object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": object{
			"anonymous": object{"enabled": false}, "webhook": object{"enabled": true}, "x509": object{"clientCAFile": caFile},
		},
		"authorization":            object{"mode": "Webhook"},
		"cgroupDriver":             "systemd",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"resolvConf":               "/run/systemd/resolve/resolv.conf",
		"rotateCertificates":       true,
		"systemReserved":           object{"cpu": "100m", "memory": "256Mi"},
		// A store's server that is told to end passes its tablets on.
		"shutdownGracePeriod": "60s", "shutdownGracePeriodCriticalPods": "10s",
	}
	if len(answer.ClusterDNS) > 0 {
		configuration["clusterDNS"] = answer.ClusterDNS
		configuration["clusterDomain"] = "cluster.local"
	}
	return configuration
}

func kubeletEnvironment(answer JoinAnswer, address netip.Addr) string {
	labels := make([]string, 0, len(answer.Labels))
	for _, name := range slices.Sorted(maps.Keys(answer.Labels)) {
		labels = append(labels, name+"="+answer.Labels[name])
	}
	arguments := []string{
		"--config=" + kubeletConfig, "--bootstrap-kubeconfig=" + bootstrapConfig, "--kubeconfig=" + kubeconfig,
		"--hostname-override=" + answer.Node, "--node-ip=" + address.String(), "--pod-infra-container-image=" + PauseImage,
	}
	if len(labels) > 0 {
		arguments = append(arguments, "--node-labels="+strings.Join(labels, ","))
	}
	return "KUBELET_ARGUMENTS=" + strings.Join(arguments, " ") + "\n"
}
