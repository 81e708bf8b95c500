package access

import (
	"cmp"
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/plain"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
	"rcbox.dev/rcbox/operator/internal/plugin/why"
	"rcbox.dev/rcbox/operator/internal/resources"
)

const (
	// logLines of a container are looked through for what it says last.
	logLines = 200
	// maxLogBytes bounds what is read of a log.
	maxLogBytes = 4 << 20
)

// Evidence gathers what tells why a pod is not ready. The name is a pod's, or a member's.
func (c *Cluster) Evidence(ctx context.Context, name string) (*why.Evidence, error) {
	evidence := &why.Evidence{Now: c.Now()}
	pod := &corev1.Pod{}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, pod)
	switch {
	case apierrors.IsNotFound(err):
		evidence.Store, evidence.Member, err = c.storeOfMember(ctx, name)
	case err == nil:
		evidence.Pod, evidence.Member = pod, pod.Labels[v1alpha1.LabelMember]
		evidence.Store, err = c.storeOfPod(ctx, pod)
	default:
		err = explain(err, "read pod %s", name)
	}
	if err != nil {
		return nil, err
	}
	if err := c.addObjects(ctx, evidence); err != nil {
		return nil, err
	}
	c.addLogs(ctx, evidence)
	return evidence, nil
}

// storeOfMember finds the Store that a member's name is of. There may be neither.
func (c *Cluster) storeOfMember(ctx context.Context, name string) (*v1alpha1.Store, string, error) {
	stores, err := c.Stores(ctx)
	if err != nil {
		return nil, "", err
	}
	for i := range stores {
		_, isMaster := v1alpha1.MasterOrdinal(stores[i].Name, name)
		_, isCoordinator := v1alpha1.CoordinatorOrdinal(stores[i].Name, name)
		if isMaster || isCoordinator {
			return &stores[i], name, nil
		}
	}
	return nil, "", fmt.Errorf("there is no pod %s in namespace %s, and no Store with a member of that name", name, c.Namespace)
}

// storeOfPod is nil for a pod that is of no Store, or of one that is gone.
func (c *Cluster) storeOfPod(ctx context.Context, pod *corev1.Pod) (*v1alpha1.Store, error) {
	name := pod.Labels[v1alpha1.LabelStore]
	if name == "" {
		return nil, nil //nolint:nilnil // a pod of no Store can be explained as well
	}
	store := &v1alpha1.Store{}
	err := c.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, store)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // likewise
	case err != nil:
		return nil, explain(err, "read Store %s/%s", pod.Namespace, name)
	default:
		return store, nil
	}
}

func (c *Cluster) addObjects(ctx context.Context, evidence *why.Evidence) error {
	if evidence.Store != nil {
		snapshot, coordinator, err := c.LookAndAsk(ctx, evidence.Store)
		if err != nil {
			return err
		}
		coordinator.Close()
		evidence.Nodes, evidence.ClusterError = snapshot.Nodes, snapshot.ClusterError
		evidence.Reported = reportedMember(snapshot, evidence.Member)
		if evidence.Pod == nil {
			evidence.Pod = podOfMember(snapshot, evidence.Member)
		}
	}
	if err := c.addClaims(ctx, evidence); err != nil {
		return err
	}
	events := &corev1.EventList{}
	if err := c.List(ctx, events, client.InNamespace(c.Namespace)); err != nil {
		return explain(err, "list the events of namespace %s", c.Namespace)
	}
	for i := range events.Items {
		object := &events.Items[i].InvolvedObject
		_, isClaim := evidence.Claims[object.Name]
		isPod := evidence.Pod != nil && object.Kind == "Pod" && object.Name == evidence.Pod.Name
		if isPod || isClaim && object.Kind == "PersistentVolumeClaim" {
			evidence.Events = append(evidence.Events, events.Items[i])
		}
	}
	why.Sort(evidence.Events)
	return nil
}

// addClaims reads the claims that the pod uses, or that a member without a pod needs.
func (c *Cluster) addClaims(ctx context.Context, evidence *why.Evidence) error {
	evidence.Claims = map[string]*corev1.PersistentVolumeClaim{}
	var names []string
	if evidence.Pod != nil {
		for i := range evidence.Pod.Spec.Volumes {
			if source := evidence.Pod.Spec.Volumes[i].PersistentVolumeClaim; source != nil {
				names = append(names, source.ClaimName)
			}
		}
	} else {
		names = append(names, resources.ClaimName(evidence.Member, v1alpha1.ComponentMaster))
	}
	for _, name := range names {
		claim := &corev1.PersistentVolumeClaim{}
		err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, claim)
		switch {
		case apierrors.IsNotFound(err):
			evidence.Claims[name] = nil
		case err != nil:
			return explain(err, "read claim %s", name)
		default:
			evidence.Claims[name] = claim
		}
	}
	return nil
}

func reportedMember(snapshot *view.Snapshot, name string) *adminv1.Member {
	for _, member := range snapshot.Cluster.GetMembers() {
		if member.GetName() == name {
			return member
		}
	}
	return nil
}

func podOfMember(snapshot *view.Snapshot, name string) *corev1.Pod {
	for i := range snapshot.Pods {
		if pod := &snapshot.Pods[i]; pod.Labels[v1alpha1.LabelMember] == name && pod.DeletionTimestamp == nil {
			return pod
		}
	}
	return nil
}

// addLogs does without those that cannot be read: there may be none, and not everybody may read them.
func (c *Cluster) addLogs(ctx context.Context, evidence *why.Evidence) {
	if evidence.Pod == nil || evidence.Pod.Spec.NodeName == "" {
		return
	}
	evidence.Log, _ = c.Log(ctx, evidence.Pod, "", false, logLines)
	evidence.PreviousLog, _ = c.Log(ctx, evidence.Pod, "", true, logLines)
}

// Log is the last lines of a pod's container (empty: the one of the store's process, or the only one), or of the container before.
func (c *Cluster) Log(ctx context.Context, pod *corev1.Pod, container string, previous bool, lines int64) (string, error) {
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return "", fmt.Errorf("connect to the cluster: %w", err)
	}
	container = cmp.Or(container, resources.ContainerName(pod))
	stream, err := clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: &lines,
	}).Stream(ctx)
	if err != nil {
		return "", explain(err, "read the log of pod %s", pod.Name)
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(io.LimitReader(stream, maxLogBytes))
	if err != nil {
		return "", fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
	}
	return plain.Lines(string(text)), nil
}
