package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// LabelChassis is a node's failure domain.
	LabelChassis = "rcbox.dev/chassis"

	// containerStart is about what a container with a volume and a network takes.
	containerStart = 300 * time.Millisecond
	workers        = 16
)

// Kubelets is a stand-in for the kubelets of all nodes: pods that are bound run at once, and end at once when told to.
type Kubelets struct {
	t         *testing.T
	clientset *kubernetes.Clientset
	stores    *Stores
	pods      cache.SharedIndexInformer
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu      sync.Mutex
	dead    map[string]bool
	chassis map[string]string    // by node
	running map[types.UID]string // the IP of each pod that runs
	pulled  map[types.UID]bool   // pods whose container is about to start
	lastIP  int
}

func startKubelets(t *testing.T, clientset *kubernetes.Clientset, stores *Stores, options Options) *Kubelets {
	t.Helper()
	k := &Kubelets{
		t: t, clientset: clientset, stores: stores, dead: map[string]bool{}, chassis: map[string]string{},
		running: map[types.UID]string{}, pulled: map[types.UID]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](
			10*time.Millisecond, time.Second)),
	}
	var names []string
	for chassis, nodes := range options.NodesPerChassis {
		for slot := range nodes {
			name := NodeName(chassis, slot)
			names = append(names, name)
			k.chassis[name] = ChassisName(chassis)
		}
	}
	inParallel(names, func(name string) {
		if err := k.register(t.Context(), name); err != nil {
			t.Errorf("register node %s: %v", name, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	if options.Heartbeat > 0 {
		for i := range workers {
			go k.beat(t.Context(), names, i, options.Heartbeat)
		}
	}
	k.watch(t.Context())
	return k
}

// ChassisName is that of the chassis of a number.
func ChassisName(chassis int) string { return fmt.Sprintf("chassis-%02d", chassis) }

// NodeName is that of the node in a slot of a chassis.
func NodeName(chassis, slot int) string { return fmt.Sprintf("%s%02d", NodePrefix(chassis), slot) }

// NodePrefix is what the names of a chassis' nodes begin with.
func NodePrefix(chassis int) string { return fmt.Sprintf("node-%02d-", chassis) }

// inParallel calls a function for each, as many at a time as there are workers.
func inParallel(names []string, call func(string)) {
	var wait sync.WaitGroup
	for i := range workers {
		wait.Go(func() {
			for j := i; j < len(names); j += workers {
				call(names[j])
			}
		})
	}
	wait.Wait()
}

func (k *Kubelets) register(ctx context.Context, name string) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, LabelChassis: k.chassis[name], corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
	}
	created, err := k.clientset.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create it: %w", err)
	}
	created.Status = corev1.NodeStatus{Capacity: capacity, Allocatable: capacity, Conditions: []corev1.NodeCondition{ready()}}
	if _, err := k.clientset.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say that it is ready: %w", err)
	}
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &now},
	}
	if _, err := k.clientset.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make its Lease: %w", err)
	}
	return nil
}

func ready() corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "a stand-in for a kubelet",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}
}

// beat renews every Lease of one worker's nodes once in a period, evenly over it.
func (k *Kubelets) beat(ctx context.Context, names []string, worker int, period time.Duration) {
	mine := (len(names) - worker + workers - 1) / workers
	if mine <= 0 {
		return
	}
	ticker := time.NewTicker(period / time.Duration(mine))
	defer ticker.Stop()
	for i := worker; ; i += workers {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if i >= len(names) {
			i = worker
		}
		if k.isDead(names[i]) {
			continue
		}
		patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, metav1.NowMicro().UTC().Format(metav1.RFC3339Micro))
		// One that fails is made up for by the next; a node whose Leases all fail shows as lost.
		_, _ = k.clientset.CoordinationV1().Leases(corev1.NamespaceNodeLease).
			Patch(ctx, names[i], types.MergePatchType, patch, metav1.PatchOptions{})
	}
}

// Kill has nodes say nothing any more, and processes on them end.
func (k *Kubelets) Kill(nodes ...string) {
	k.mu.Lock()
	for _, node := range nodes {
		k.dead[node] = true
	}
	k.mu.Unlock()
	for _, pod := range k.podsOn(nodes...) {
		k.end(pod)
	}
}

// Revive has nodes come back, and with them what is still bound to them.
func (k *Kubelets) Revive(nodes ...string) {
	k.mu.Lock()
	for _, node := range nodes {
		delete(k.dead, node)
	}
	k.mu.Unlock()
	for _, node := range nodes {
		text, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{ready()}}})
		if err == nil {
			_, err = k.clientset.CoreV1().Nodes().
				Patch(k.t.Context(), node, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status")
		}
		if err != nil {
			k.t.Errorf("say that node %s is ready: %v", node, err)
		}
	}
	for _, pod := range k.podsOn(nodes...) {
		k.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

func (k *Kubelets) podsOn(nodes ...string) []*corev1.Pod {
	var list []*corev1.Pod
	for _, object := range k.pods.GetStore().List() {
		pod, isPod := object.(*corev1.Pod)
		for _, node := range nodes {
			if isPod && pod.Spec.NodeName == node {
				list = append(list, pod)
			}
		}
	}
	return list
}

// PodCounts are how many pods of Stores there are that were not told to end, on a node, and ready.
type PodCounts struct{ Made, Placed, Ready int }

// Counts is a look at the watched pods: it asks the API server nothing.
func (k *Kubelets) Counts() PodCounts {
	var counts PodCounts
	for _, object := range k.pods.GetStore().List() {
		pod, isPod := object.(*corev1.Pod)
		if !isPod || pod.DeletionTimestamp != nil {
			continue
		}
		counts.Made++
		if pod.Spec.NodeName != "" {
			counts.Placed++
		}
		if pod.Status.Phase == corev1.PodRunning {
			counts.Ready++
		}
	}
	return counts
}

// Pods are the watched ones, by name.
func (k *Kubelets) Pods() map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	for _, object := range k.pods.GetStore().List() {
		if pod, isPod := object.(*corev1.Pod); isPod {
			pods[pod.Name] = pod
		}
	}
	return pods
}

func (k *Kubelets) isDead(node string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead[node]
}

func (k *Kubelets) watch(ctx context.Context) {
	k.t.Helper()
	factory := informers.NewSharedInformerFactory(k.clientset, 0)
	k.pods = factory.Core().V1().Pods().Informer()
	enqueue := func(object any) {
		if pod, isPod := object.(*corev1.Pod); isPod && pod.Spec.NodeName != "" {
			k.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	_, err := k.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
		DeleteFunc: func(object any) {
			if pod, isPod := object.(*corev1.Pod); isPod {
				k.end(pod)
			}
		},
	})
	if err != nil {
		k.t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range workers {
		go k.work(ctx)
	}
	go func() {
		<-ctx.Done()
		k.queue.ShutDown()
	}()
}

func (k *Kubelets) work(ctx context.Context) {
	for {
		name, over := k.queue.Get()
		if over {
			return
		}
		if err := k.sync(ctx, name); err != nil {
			k.queue.AddRateLimited(name)
		} else {
			k.queue.Forget(name)
		}
		k.queue.Done(name)
	}
}

// sync does for one pod what its kubelet would.
func (k *Kubelets) sync(ctx context.Context, name types.NamespacedName) error {
	object, found, err := k.pods.GetStore().GetByKey(name.String())
	if err != nil || !found {
		return err //nolint:wrapcheck // only ever counted
	}
	pod, isPod := object.(*corev1.Pod)
	if !isPod || k.isDead(pod.Spec.NodeName) {
		return nil
	}
	if pod.DeletionTimestamp != nil {
		k.end(pod)
		now := int64(0)
		err := k.clientset.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // it is gone
		}
		return err //nolint:wrapcheck // only ever counted
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		k.end(pod)
		return nil
	}
	return k.run(ctx, name, pod)
}

// run starts the pod's container, once it has been bound for as long as that takes.
func (k *Kubelets) run(ctx context.Context, name types.NamespacedName, pod *corev1.Pod) error {
	ip, isNew := k.start(pod)
	if ip == "" {
		k.queue.AddAfter(name, containerStart)
		return nil
	}
	if isNew {
		if err := k.stores.started(ctx, pod, ip); err != nil {
			return err
		}
	}
	if pod.Status.PodIP == ip && pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	now := metav1.Now()
	next := pod.DeepCopy()
	next.Status.Phase, next.Status.PodIP, next.Status.StartTime = corev1.PodRunning, ip, &now
	next.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	next.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
	}
	isStarted := true
	next.Status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		next.Status.ContainerStatuses = append(next.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image, Ready: true, Started: &isStarted,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	_, err := k.clientset.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err //nolint:wrapcheck // only ever counted
}

// start gives the IP of a pod that runs; none while its container is about to start.
func (k *Kubelets) start(pod *corev1.Pod) (ip string, isNew bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ip, runs := k.running[pod.UID]; runs {
		return ip, false
	}
	if !k.pulled[pod.UID] {
		k.pulled[pod.UID] = true
		return "", false
	}
	delete(k.pulled, pod.UID)
	k.lastIP++
	// Loopback, so that the operator reaches what a stand-in serves there.
	ip = fmt.Sprintf("127.%d.%d.%d", 64+k.lastIP/62500, 1+k.lastIP/250%250, 1+k.lastIP%250)
	k.running[pod.UID] = ip
	return ip, true
}

// end has the process of a pod end, if it runs.
func (k *Kubelets) end(pod *corev1.Pod) {
	k.mu.Lock()
	_, runs := k.running[pod.UID]
	delete(k.running, pod.UID)
	delete(k.pulled, pod.UID)
	k.mu.Unlock()
	if runs {
		k.stores.ended(pod)
	}
}
