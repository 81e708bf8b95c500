package testbed

import (
	"crypto/x509"
	"path/filepath"
)

// StartSigner runs those controllers of Kubernetes that have to do with certificate signing requests: the one that signs what was approved,
// and the one that approves by roles. It gives the authority that signs.
func (c *Cluster) StartSigner() *x509.Certificate {
	c.t.Helper()
	const name = "node-ca"
	authority, _ := c.certificate(name, nil, nil)
	c.startProgram(Programs(c.t), "kube-controller-manager", "--leader-elect=false", "--secure-port=0",
		"--controllers=certificatesigningrequest-signing-controller,certificatesigningrequest-approving-controller",
		"--cluster-signing-cert-file="+filepath.Join(c.folder, name+".crt"),
		"--cluster-signing-key-file="+filepath.Join(c.folder, name+".key"))
	return authority
}
