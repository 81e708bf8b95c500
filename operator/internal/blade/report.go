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
	"strings"

	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// Errors of reports.
var (
	ErrNoNode = errors.New("this blade is no node yet: its kubelet has no certificate")
	ErrReport = errors.New("the API server refuses the report")
)

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
	body, err := json.Marshal(object{"metadata": object{"annotations": object{hardware.Annotation: inventory}}})
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
