package access

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/bundle"
	"rcbox.dev/rcbox/operator/internal/plugin/tunnel"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
	"rcbox.dev/rcbox/operator/internal/plugin/why"
	"rcbox.dev/rcbox/operator/internal/resources"
)

const (
	// operatorName is the label of the operator's pods.
	operatorName = "rcbox-operator"
	// metricsTimeout bounds reading those of one pod.
	metricsTimeout  = 10 * time.Second
	maxMetricsBytes = 8 << 20
)

// Gathering says how much goes into a report.
type Gathering struct {
	// Lines of each log.
	Lines int64
	// Pods whose logs and metrics are read, at most: those that are not ready first.
	Pods int
	// Version of the plugin.
	Version string
}

// gathering collects; what it cannot have is noted, for half a report is better than none.
type gathering struct {
	*Cluster
	Gathering

	contents *bundle.Contents
}

// Gather reads all that a report of a Store has in it. Secrets are not read.
func (c *Cluster) Gather(ctx context.Context, store *v1alpha1.Store, how Gathering) (*bundle.Contents, error) {
	snapshot, coordinator, err := c.LookAndAsk(ctx, store)
	if err != nil {
		return nil, err
	}
	defer coordinator.Close()
	g := &gathering{Cluster: c, Gathering: how, contents: &bundle.Contents{
		Snapshot: snapshot, Logs: map[string]string{}, Metrics: map[string]string{}, Reasons: map[string]string{}, Version: how.Version,
	}}
	if coordinator == nil {
		g.leaveOut("the coordinator's answer: " + snapshot.ClusterError)
	} else if snapshot.Tables, err = coordinator.Tables(ctx); err != nil {
		g.leaveOut("tables: " + err.Error())
	}
	if snapshot.Nodes == nil {
		g.leaveOut("nodes: you may not list them")
	}
	g.objects(ctx, store)
	g.pods(ctx, snapshot)
	g.operator(ctx)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("gather: %w", err)
	}
	return g.contents, nil
}

func (g *gathering) leaveOut(text string) { g.contents.LeftOut = append(g.contents.LeftOut, text) }

// list reads objects of the Store's namespace, and notes it if that cannot be.
func (g *gathering) list(ctx context.Context, what string, list client.ObjectList, options ...client.ListOption) {
	if err := g.List(ctx, list, options...); err != nil {
		g.leaveOut(what + ": " + err.Error())
	}
}

func (g *gathering) objects(ctx context.Context, store *v1alpha1.Store) {
	here := client.InNamespace(store.Namespace)
	own := client.MatchingLabels{v1alpha1.LabelStore: store.Name}
	events, claims, configMaps := &corev1.EventList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ConfigMapList{}
	g.list(ctx, "events", events, here)
	for i := range events.Items {
		name := events.Items[i].InvolvedObject.Name
		if name == store.Name || strings.HasPrefix(name, store.Name+"-") {
			g.contents.Events = append(g.contents.Events, events.Items[i])
		}
	}
	why.Sort(g.contents.Events)
	operations := &v1alpha1.StoreOperationList{}
	g.list(ctx, "StoreOperations", operations, here)
	g.contents.Operations = slices.DeleteFunc(operations.Items, func(operation v1alpha1.StoreOperation) bool {
		return operation.Spec.StoreRef.Name != store.Name
	})
	members := &v1alpha1.StoreMemberList{}
	g.list(ctx, "StoreMembers", members, here, own)
	g.contents.Members = members.Items
	g.list(ctx, "volume claims", claims, here, own)
	g.contents.Claims = claims.Items
	g.list(ctx, "ConfigMaps", configMaps, here, own)
	g.contents.ConfigMaps = configMaps.Items
	for i := range claims.Items {
		if name := claims.Items[i].Spec.VolumeName; name != "" {
			volume := &corev1.PersistentVolume{}
			if err := g.Get(ctx, client.ObjectKey{Name: name}, volume); err != nil {
				g.leaveOut("volume " + name + ": " + err.Error())
				continue
			}
			g.contents.Volumes = append(g.contents.Volumes, *volume)
		}
	}
}

// pods reads logs and metrics, and says why those are not ready that are not.
func (g *gathering) pods(ctx context.Context, snapshot *view.Snapshot) {
	ready := func(pod *corev1.Pod) int {
		isReady := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		switch {
		case !isReady:
			return 0
		case pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentCoordinator:
			return 1
		default:
			return 2
		}
	}
	pods := make([]*corev1.Pod, 0, len(snapshot.Pods))
	for i := range snapshot.Pods {
		pods = append(pods, &snapshot.Pods[i])
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(ready(a), ready(b)) })
	if len(pods) > g.Pods {
		g.leaveOut(fmt.Sprintf("logs and metrics of %d pods that are ready (--pods is %d)", len(pods)-g.Pods, g.Pods))
		pods = pods[:max(g.Pods, 0)]
	}
	for _, pod := range pods {
		if ctx.Err() != nil {
			return
		}
		g.log(ctx, "logs/"+pod.Name, pod)
		if ready(pod) == 0 {
			g.reason(ctx, pod)
		}
		g.metrics(ctx, pod)
	}
}

func (g *gathering) log(ctx context.Context, path string, pod *corev1.Pod) {
	text, err := g.Log(ctx, pod, "", false, g.Lines)
	if err != nil {
		g.leaveOut(path + ".log: " + err.Error())
		return
	}
	g.contents.Logs[path+".log"] = text
	if process := resources.ProcessStatus(pod); process == nil || process.RestartCount == 0 {
		return
	}
	if text, err = g.Log(ctx, pod, "", true, g.Lines); err != nil {
		g.leaveOut(path + "-previous.log: " + err.Error())
		return
	}
	g.contents.Logs[path+"-previous.log"] = text
}

func (g *gathering) reason(ctx context.Context, pod *corev1.Pod) {
	evidence, err := g.Evidence(ctx, pod.Name)
	if err != nil {
		g.leaveOut("why " + pod.Name + " is not ready: " + err.Error())
		return
	}
	g.contents.Reasons["why/"+pod.Name+".txt"] = why.Explain(evidence).Text(view.Style{})
}

func (g *gathering) metrics(ctx context.Context, pod *corev1.Pod) {
	if pod.Status.Phase != corev1.PodRunning {
		return
	}
	text, err := g.metricsOf(ctx, pod)
	if err != nil {
		g.leaveOut("metrics of " + pod.Name + ": " + err.Error())
		return
	}
	g.contents.Metrics["metrics/"+pod.Name+".txt"] = text
}

func (g *gathering) metricsOf(ctx context.Context, pod *corev1.Pod) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	port := resources.MasterHTTPPort
	if pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentCoordinator {
		port = resources.CoordinatorHTTPPort
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return tunnel.Dial(ctx, g.Config, pod.Namespace, pod.Name, port)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pod.Name+"/metrics", http.NoBody)
	if err != nil {
		return "", fmt.Errorf("ask for metrics: %w", err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", fmt.Errorf("ask for metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxMetricsBytes))
	if err != nil {
		return "", fmt.Errorf("read metrics: %w", err)
	}
	return string(text), nil
}

// operator reads the operator's logs, wherever it runs.
func (g *gathering) operator(ctx context.Context) {
	pods := &corev1.PodList{}
	g.list(ctx, "the operator's logs", pods, client.MatchingLabels{v1alpha1.LabelName: operatorName})
	for i := range pods.Items {
		g.log(ctx, "operator/"+pods.Items[i].Name, &pods.Items[i])
	}
}
