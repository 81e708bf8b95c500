package blade

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// AnnotationInventory of a node is the Inventory of its blade, as JSON. The blade writes it with the certificate of its kubelet, which may
// change no other node.
const AnnotationInventory = "rcbox.dev/inventory"

// MaxInventoryBytes bounds the annotation: an API server keeps at most 256 KiB of annotations for an object, of all who write some.
const MaxInventoryBytes = 16 << 10

// Errors of reports.
var (
	ErrInventory = errors.New("the inventory is not usable")
	ErrNoNode    = errors.New("this blade is no node yet: its kubelet has no certificate")
	ErrReport    = errors.New("the API server refuses the report")
)

// Encode is the inventory as it is reported. If it is too long, lists that are usually the longest are left out, and Missing says so.
func (i Inventory) Encode() (string, error) {
	leaveOut := []struct {
		what string
		out  func(*Inventory)
	}{
		{"memory modules", func(i *Inventory) { i.Modules = nil }},
		{"disks", func(i *Inventory) { i.Disks = nil }},
		{"ports", func(i *Inventory) { i.Ports = nil }},
	}
	i.Missing = slices.Clone(i.Missing)
	for next := 0; ; next++ {
		text, err := json.Marshal(i)
		if err != nil {
			return "", fmt.Errorf("print the inventory: %w", err)
		}
		if len(text) <= MaxInventoryBytes {
			return string(text), nil
		}
		if next == len(leaveOut) {
			return "", fmt.Errorf("%w: it has %d bytes, more than %d", ErrInventory, len(text), MaxInventoryBytes)
		}
		leaveOut[next].out(&i)
		i.Missing = append(i.Missing, leaveOut[next].what+": left out, since the report would be too long")
	}
}

// ParseInventory reads a report. Its texts are those that the blade chose: make them plain before they are shown.
func ParseInventory(text string) (Inventory, error) {
	if len(text) > MaxInventoryBytes {
		return Inventory{}, fmt.Errorf("%w: it has %d bytes, more than %d", ErrInventory, len(text), MaxInventoryBytes)
	}
	var inventory Inventory
	if err := json.Unmarshal([]byte(text), &inventory); err != nil {
		return Inventory{}, fmt.Errorf("%w: %w", ErrInventory, err)
	}
	return inventory, nil
}

// RecordedPort is a port as the BMC reports it.
type RecordedPort struct{ Name, MAC string }

// Differences compares the inventory with what the BMC of the blade reports: its serial number and its ports. A port that the BMC does not
// report is no difference, since BMCs know the ports of the board only.
func (i Inventory) Differences(serial string, ports []RecordedPort) []string {
	var all []string
	if serial != "" && i.Serial != "" && serial != i.Serial {
		all = append(all, fmt.Sprintf("the BMC reports the serial number %s, and the blade's firmware reports %s", serial, i.Serial))
	}
	if len(i.Ports) == 0 {
		return all
	}
	for _, port := range ports {
		hasMAC := func(found Port) bool { return strings.EqualFold(found.MAC, port.MAC) }
		if port.MAC != "" && !slices.ContainsFunc(i.Ports, hasMAC) {
			all = append(all, fmt.Sprintf("the BMC reports port %s with the MAC address %s, and the blade's system found no such port",
				port.Name, port.MAC))
		}
	}
	return all
}

// Credentials are those of a blade's kubelet.
type Credentials struct {
	Node      string
	APIServer string
	TLS       *tls.Config
}

// KubeletCredentials reads them below root. ErrNoNode: there are none yet.
func KubeletCredentials(root fs.FS) (Credentials, error) {
	text, err := readBounded(root, kubeconfig[1:])
	if err != nil {
		return Credentials{}, fmt.Errorf("%w: %w", ErrNoNode, err)
	}
	pair, err := readBounded(root, certificate[1:])
	if err != nil {
		return Credentials{}, fmt.Errorf("%w: %w", ErrNoNode, err)
	}
	authorities, err := readBounded(root, caFile[1:])
	if err != nil {
		return Credentials{}, fmt.Errorf("%w: %w", ErrNoNode, err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return Credentials{}, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	if len(config.Clusters) != 1 || !strings.HasPrefix(config.Clusters[0].Cluster.Server, "https://") {
		return Credentials{}, fmt.Errorf("%s names no API server of the form https://HOST:PORT", kubeconfig)
	}
	return credentials(config.Clusters[0].Cluster.Server, pair, authorities)
}

func credentials(server string, pair, authorities []byte) (Credentials, error) {
	const user = "system:node:"
	own, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		return Credentials{}, fmt.Errorf("%s: %w", certificate, err)
	}
	leaf, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		return Credentials{}, fmt.Errorf("%s: %w", certificate, err)
	}
	node, isNode := strings.CutPrefix(leaf.Subject.CommonName, user)
	if !isNode {
		return Credentials{}, fmt.Errorf("%s: it is the certificate of %q, not of a node", certificate, leaf.Subject.CommonName)
	}
	roots := x509.NewCertPool()
	if block, _ := pem.Decode(authorities); block == nil || !roots.AppendCertsFromPEM(authorities) {
		return Credentials{}, fmt.Errorf("%s has no certificate as PEM", caFile)
	}
	return Credentials{
		Node: node, APIServer: strings.TrimSuffix(server, "/"),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, RootCAs: roots},
	}, nil
}

// Report writes an encoded inventory to the blade's node.
func Report(ctx context.Context, client *http.Client, to Credentials, inventory string) error {
	body, err := json.Marshal(object{"metadata": object{"annotations": object{AnnotationInventory: inventory}}})
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	address := to.APIServer + "/api/v1/nodes/" + to.Node + "?fieldManager=rcbox-blade"
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("report the inventory: %w", err)
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("report the inventory: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // read only
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusalBytes)) // as much of it as came
		return fmt.Errorf("%w: %s: %s", ErrReport, response.Status, firstLine(reason))
	}
	return nil
}
