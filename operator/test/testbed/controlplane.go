package testbed

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/members"
)

const (
	// operatorUser is what the API server calls the operator's ServiceAccount, so that the operator has the rights of config/rbac, no more.
	operatorUser      = "system:serviceaccount:" + OperatorNamespace + ":rcbox-operator"
	operatorNamespace = OperatorNamespace
	// boxUser is the same for the box controller, and config/box.
	boxUser = "system:serviceaccount:" + OperatorNamespace + ":rcbox-box"
	// OperatorNamespace is where the operator's Lease is.
	OperatorNamespace = "rcbox-system"
	// StorageClass is the default one: local volumes, made where the first pod comes to be.
	StorageClass = "testbed-local"
	provisioner  = "rcbox.dev/testbed"

	startTimeout = 2 * time.Minute
	// lastWordsBytes of etcd's output are shown where the control plane does not start.
	lastWordsBytes = 4096
	pollInterval   = 100 * time.Millisecond
)

// auditPolicy has the API server note every call of the operator's and of the box controller's, and no others.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    users: ["` + operatorUser + `", "` + boxUser + `"]
  - level: None
`

// Cluster is a control plane, and nodes of which only kwok's word is there.
type Cluster struct {
	t      *testing.T
	folder string // of this run's files
	env    *envtest.Environment
	// configure changes the API server before it starts; nil: nothing is to be changed.
	configure func(*envtest.APIServer)

	// Config is that of an administrator.
	Config *rest.Config
	// Client does not cache.
	Client    client.WithWatch
	Clientset *kubernetes.Clientset
	Nodes     *Nodes
	Watch     *PodWatch
	Stores    *Stores
	Calls     *Calls
}

// Options of a Cluster.
type Options struct {
	// NodesPerChassis, one entry for each chassis.
	NodesPerChassis []int
	// Heartbeat is how often the Lease of each node is renewed; a node whose Lease was not for four times as long counts as lost.
	Heartbeat time.Duration
}

// StartAPIServer makes a cluster of an API server and etcd alone: what is written there is what the test and its programs write.
func StartAPIServer(t *testing.T) *Cluster {
	t.Helper()
	c := StartEmptyAPIServer(t)
	c.install()
	return c
}

// StartEmptyAPIServer is the same without the operator's definitions and rights: the test installs them as people do.
func StartEmptyAPIServer(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{t: t, folder: t.TempDir()}
	c.startAPIServer(Programs(t))
	c.hasNamespaces()
	return c
}

// Start makes a cluster that ends with the test.
func Start(t *testing.T, options Options) *Cluster {
	t.Helper()
	binaries, kwok := Programs(t), Kwok(t)
	c := &Cluster{t: t, folder: t.TempDir()}
	c.startAPIServer(binaries)
	c.hasNamespaces()
	c.install()
	c.Stores = newStores(t)
	c.Watch = startPodWatch(t, c.Clientset, c.Stores)
	c.startNodes(kwok, options)
	startProvisioner(t, c.Clientset)
	c.startProgram(binaries, "kube-controller-manager", "--node-monitor-grace-period="+options.grace().String(),
		"--controllers=*,-horizontal-pod-autoscaler-controller,-cronjob-controller", "--leader-elect=false", "--secure-port=0")
	c.startProgram(binaries, "kube-scheduler", "--leader-elect=false", "--secure-port=0")
	return c
}

func (c *Cluster) startAPIServer(binaries string) {
	c.t.Helper()
	policy := filepath.Join(c.folder, "audit-policy.yaml")
	c.must(os.WriteFile(policy, []byte(auditPolicy), 0o600))
	c.Calls = &Calls{t: c.t, path: filepath.Join(c.folder, "audit.log")}
	c.env = &envtest.Environment{
		BinaryAssetsDirectory:    binaries,
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  startTimeout,
	}
	output, err := os.Create(filepath.Join(c.folder, "etcd.log"))
	c.must(err)
	defer func() { _ = output.Close() }() // etcd has its own handle
	c.env.ControlPlane.Etcd = &envtest.Etcd{
		URL: &url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", freePort(c.t))}, Out: output, Err: output,
	}
	c.env.ControlPlane.Etcd.Configure().Set("listen-peer-urls", "http://"+net.JoinHostPort("127.0.0.1", freePort(c.t)))
	server := c.env.ControlPlane.GetAPIServer()
	server.Address, server.Port = "127.0.0.1", freePort(c.t)
	server.Configure().
		Append("audit-policy-file", policy).Append("audit-log-path", c.Calls.path).
		// As strict as a cluster may be: who names an owner that blocks must have rights on it.
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement").
		Append("enable-bootstrap-token-auth", "true") // as kubeadm has it
	c.aggregate(server)
	if c.configure != nil {
		c.configure(server)
	}
	config, err := c.env.Start()
	if err != nil {
		said, _ := os.ReadFile(output.Name()) // without it if it cannot be read
		c.t.Fatalf("start etcd and kube-apiserver: %v; etcd's last words:\n%s", err, said[max(0, len(said)-lastWordsBytes):])
	}
	c.t.Cleanup(func() {
		if err := c.env.Stop(); err != nil {
			c.t.Errorf("stop etcd and kube-apiserver: %v", err)
		}
	})
	config.QPS = -1
	c.Config = config
	scheme := runtime.NewScheme()
	c.must(clientgoscheme.AddToScheme(scheme))
	c.must(v1alpha1.AddToScheme(scheme))
	c.Client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	c.must(err)
	c.Clientset, err = kubernetes.NewForConfig(config)
	c.must(err)
}

// hasNamespaces waits until the API server has made its own namespaces.
func (c *Cluster) hasNamespaces() {
	c.t.Helper()
	c.Eventually(startTimeout, func() string {
		for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
			if !c.Get(&corev1.Namespace{}, "", name) {
				return "the API server has not made namespace " + name + " yet"
			}
		}
		return ""
	})
}

// install brings the operator's definitions and rights, as `kubectl apply -k config/default` and `config/box` would, without their
// processes and without the APIService of the box controller, and a class of local volumes.
func (c *Cluster) install() {
	c.t.Helper()
	crds := filepath.Join(root(c.t), "config/crd")
	_, err := envtest.InstallCRDs(c.Config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(crds, "bases"), filepath.Join(crds, "box")}, ErrorIfPathMissing: true, MaxTime: startTimeout,
	})
	c.must(err)
	for _, file := range []string{
		"default/namespace.yaml", "rbac/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml", "rbac/lease.yaml",
		"rbac/operation_policy.yaml", "rbac/store_editor_role.yaml", "rbac/store_operator_role.yaml",
		"box/service_account.yaml", "box/role.yaml", "box/role_binding.yaml", "box/node_leases.yaml", "box/join.yaml",
	} {
		c.apply(filepath.Join(root(c.t), "config", file))
	}
	waiting, deleting := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete
	c.must(c.Client.Create(c.t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: StorageClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: provisioner, VolumeBindingMode: &waiting, ReclaimPolicy: &deleting,
	}))
}

// apply creates what a manifest has.
func (c *Cluster) apply(path string) {
	c.t.Helper()
	file, err := os.Open(path) //nolint:gosec // a file of this project
	c.must(err)
	defer func() { _ = file.Close() }() // read only
	const bufferBytes = 4096
	for decoder := yaml.NewYAMLOrJSONDecoder(file, bufferBytes); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err != nil {
			break // the end
		}
		if object.Object != nil {
			c.must(c.Client.Create(c.t.Context(), object))
		}
	}
}

// AdminKubeconfig is the path of an administrator's.
func (c *Cluster) AdminKubeconfig() string { return c.kubeconfig("admin", "system:masters") }

// kubeconfig writes one for a user of some groups, and gives its path.
func (c *Cluster) kubeconfig(user string, groups ...string) string {
	c.t.Helper()
	path := filepath.Join(c.folder, fmt.Sprintf("kubeconfig-%x", user))
	authenticated, err := c.env.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	c.must(err)
	text, err := authenticated.KubeConfig()
	c.must(err)
	c.must(os.WriteFile(path, text, 0o600))
	return path
}

func (c *Cluster) startProgram(binaries, program string, arguments ...string) {
	c.t.Helper()
	// As many calls as it likes: otherwise their own limits are what is measured.
	arguments = append(arguments, "--kubeconfig="+c.kubeconfig("system:"+program, "system:masters"),
		"--kube-api-qps=2000", "--kube-api-burst=4000")
	StartProcess(c.t, filepath.Join(binaries, program), arguments...)
}

// Eventually waits until a condition holds; it says what is missing while it does not.
func (c *Cluster) Eventually(within time.Duration, missing func() string) {
	c.t.Helper()
	text := "nothing was looked at"
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		if text = missing(); text == "" {
			return
		}
		select {
		case <-time.After(pollInterval):
		case <-c.t.Context().Done():
			c.t.Fatal(c.t.Context().Err())
		}
	}
	c.t.Fatalf("after %s: %s", within, text)
}

// Get reads an object; false if there is none.
func (c *Cluster) Get(object client.Object, namespace, name string) bool {
	c.t.Helper()
	err := c.Client.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false
	}
	c.must(err)
	return true
}

// Store reads a Store that must be there, with what its StoreMembers say.
func (c *Cluster) Store(name string) *v1alpha1.Store {
	c.t.Helper()
	store := c.BareStore(name)
	c.must(members.Join(c.t.Context(), c.Client, store))
	return store
}

// BareStore reads the Store alone.
func (c *Cluster) BareStore(name string) *v1alpha1.Store {
	c.t.Helper()
	store := &v1alpha1.Store{}
	if !c.Get(store, metav1.NamespaceDefault, name) {
		c.t.Fatalf("there is no Store %s", name)
	}
	return store
}

// Change changes a Store as a user would who tries again after a conflict.
func (c *Cluster) Change(name string, change func(*v1alpha1.Store)) {
	c.t.Helper()
	c.Eventually(time.Minute, func() string {
		store := c.Store(name)
		change(store)
		if err := c.Client.Update(c.t.Context(), store); apierrors.IsConflict(err) {
			return err.Error()
		} else if err != nil {
			c.t.Fatal(err)
		}
		return ""
	})
}

// Pods of a Store that were not told to end, by member.
func (c *Cluster) Pods(store string) map[string]*corev1.Pod {
	c.t.Helper()
	list := &corev1.PodList{}
	c.must(c.Client.List(context.WithoutCancel(c.t.Context()), list, client.MatchingLabels{v1alpha1.LabelStore: store}))
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.DeletionTimestamp == nil {
			pods[pod.Labels[v1alpha1.LabelMember]] = pod
		}
	}
	return pods
}

func (c *Cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// As gives a client with the rights of a user.
func (c *Cluster) As(user string) client.Client {
	c.t.Helper()
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	impersonating, err := client.New(config, client.Options{Scheme: c.Client.Scheme()})
	c.must(err)
	return impersonating
}
