package testbed

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Bootstrappers is the group of machines that have a token and are no nodes yet.
const Bootstrappers = "system:bootstrappers:rcbox"

// nodeAuthority is the name of the authority that signs nodes' certificates.
const nodeAuthority = "node-ca"

// StartForNodes makes a cluster that kubelets can join, at an address of this machine: there are bootstrap tokens, and certificates that
// somebody has approved are signed. Nobody approves them but the test.
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
	c.must(c.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "testbed-bootstrappers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: Bootstrappers}},
	}))
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

// Authority is the certificate that the API server's own is signed by, as PEM.
func (c *Cluster) Authority() string { return string(c.Config.CAData) }

// GiveToken makes a bootstrap token.
func (c *Cluster) GiveToken(id, secret string) {
	c.t.Helper()
	c.must(c.Client.Create(c.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "auth-extra-groups": Bootstrappers,
		},
	}))
}

// Approve approves the certificates that bootstrappers ask for as a node, and none of others. It gives how many it has approved.
func (c *Cluster) Approve(node string) int {
	c.t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	c.must(c.Client.List(c.t.Context(), list))
	approved := 0
	for i := range list.Items {
		request := &list.Items[i]
		if len(request.Status.Conditions) > 0 || !slices.Contains(request.Spec.Groups, Bootstrappers) ||
			request.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
			continue
		}
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "the test expects " + node,
		})
		requests := c.Clientset.CertificatesV1().CertificateSigningRequests()
		_, err := requests.UpdateApproval(c.t.Context(), request.Name, request, metav1.UpdateOptions{})
		c.must(err)
		approved++
	}
	return approved
}
