package testbed

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// nodeAuthority is the name of the authority that signs nodes' certificates.
const nodeAuthority = "node-ca"

// StartForNodes makes a cluster that kubelets can join, at an address of this machine: there are bootstrap tokens, and certificates that
// somebody has approved are signed. Nobody approves them but the box controller.
func StartForNodes(t *testing.T, address, port string) *Cluster {
	t.Helper()
	binaries := Programs(t)
	c := &Cluster{t: t, folder: t.TempDir(), configure: func(server *envtest.APIServer) {
		server.Address, server.Port = address, port
		server.Configure().Set("enable-bootstrap-token-auth", "true").Set("authorization-mode", "Node,RBAC").
			Append("enable-admission-plugins", "NodeRestriction")
	}}
	c.startAPIServer(binaries)
	c.hasNamespaces()
	c.install()
	c.certificate(nodeAuthority, nil, nil)
	c.trustNodes()
	authority := filepath.Join(c.folder, nodeAuthority)
	c.startProgram(binaries, "kube-controller-manager", "--controllers=certificatesigningrequest-signing-controller",
		"--leader-elect=false", "--secure-port=0", "--cluster-signing-cert-file="+authority+".crt",
		"--cluster-signing-key-file="+authority+".key")
	return c
}

// trustNodes adds the authority of nodes to those whose clients the API server knows. It looks at the file again when the file changes.
func (c *Cluster) trustNodes() {
	c.t.Helper()
	authority, err := os.ReadFile(filepath.Join(c.folder, nodeAuthority+".crt"))
	c.must(err)
	path := filepath.Join(c.env.ControlPlane.GetAPIServer().CertDir, "client-cert-auth-ca.crt")
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0) //nolint:gosec // envtest's
	c.must(err)
	_, err = file.Write(authority)
	c.must(err)
	c.must(file.Close())
}
