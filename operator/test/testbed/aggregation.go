package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// frontProxy is the name by which the API server shows itself to aggregated ones. Another client has a certificate of the same authority.
const (
	frontProxy  = "front-proxy-client"
	otherClient = "another-client"
)

// aggregate has the API server pass requests on to aggregated ones, as kubeadm sets it up. There is no kube-proxy: it goes to the addresses
// of EndpointSlices itself.
func (c *Cluster) aggregate(server *envtest.APIServer) {
	c.t.Helper()
	authority, authorityKey := c.certificate("front-proxy-ca", nil, nil)
	c.certificate(frontProxy, authority, authorityKey)
	c.certificate(otherClient, authority, authorityKey)
	server.Configure().
		Set("requestheader-client-ca-file", filepath.Join(c.folder, "front-proxy-ca.crt")).
		Set("requestheader-allowed-names", frontProxy).
		Set("requestheader-username-headers", "X-Remote-User").
		Set("requestheader-group-headers", "X-Remote-Group").
		Set("requestheader-extra-headers-prefix", "X-Remote-Extra-").
		Set("proxy-client-cert-file", filepath.Join(c.folder, frontProxy+".crt")).
		Set("proxy-client-key-file", filepath.Join(c.folder, frontProxy+".key")).
		Set("enable-aggregator-routing", "true")
}

// certificate writes one, and its key, as files of that name; without a parent, it is an authority's.
func (c *Cluster) certificate(name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true,
		IsCA: parent == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	c.must(err)
	made, err := x509.ParseCertificate(raw)
	c.must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	c.must(err)
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: raw}, name + ".key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		c.must(os.WriteFile(filepath.Join(c.folder, file), pem.EncodeToMemory(block), 0o600))
	}
	return made, key
}

// FrontProxyFiles are the certificate and the key by which the API server shows itself to aggregated ones.
func (c *Cluster) FrontProxyFiles() (certificate, key string) {
	return filepath.Join(c.folder, frontProxy+".crt"), filepath.Join(c.folder, frontProxy+".key")
}

// OtherClientFiles are those of somebody whom the same authority knows, by a name that is not the API server's.
func (c *Cluster) OtherClientFiles() (certificate, key string) {
	return filepath.Join(c.folder, otherClient+".crt"), filepath.Join(c.folder, otherClient+".key")
}

// InstallSubresources brings what of config/box leads the API server to a box controller, and says who may use it. Where no box controller
// runs, it would keep namespaces from being deleted.
func (c *Cluster) InstallSubresources() {
	c.t.Helper()
	for _, file := range []string{"box/api_service.yaml", "box/power_policy.yaml", "box/user_roles.yaml"} {
		c.apply(filepath.Join(root(c.t), "config", file))
	}
}

// Subresources waits until the API server reaches a box controller.
func (c *Cluster) Subresources(within time.Duration) {
	c.t.Helper()
	c.Eventually(within, func() string {
		service := &unstructured.Unstructured{}
		service.SetAPIVersion("apiregistration.k8s.io/v1")
		service.SetKind("APIService")
		if !c.Get(service, "", "v1alpha1.subresources.rcbox.dev") {
			return "there is no APIService"
		}
		conditions, _, err := unstructured.NestedSlice(service.Object, "status", "conditions")
		c.must(err)
		text := "nobody has looked whether the APIService is available"
		for _, one := range conditions {
			if condition, ok := one.(map[string]any); ok && condition["type"] == "Available" {
				if condition["status"] == "True" {
					return ""
				}
				text = "the APIService is not available: " + condition["message"].(string) //nolint:forcetypeassert // a test
			}
		}
		return text
	})
}

// Kubeconfig is the path of one for a user.
func (c *Cluster) Kubeconfig(user string, groups ...string) string {
	c.t.Helper()
	return c.kubeconfig(user, append(groups, "system:authenticated")...)
}
