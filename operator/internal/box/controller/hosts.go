package controller

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/hosting"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// hostsEvery is the pause between two readings of what box hosts report, and of the ConfigMap that somebody else may have changed.
const hostsEvery = 5 * time.Second

// maxReports bounds how many box hosts are listened to.
const maxReports = 16

// Hosts writes what box hosts serve into a ConfigMap, and reads what they report from another one. What is to be served follows from what
// is on record of Chassis and Servers; it is written only when it has changed.
type Hosts struct {
	Client client.Client
	// Live reads the ConfigMaps, which are not cached.
	Live client.Reader
	// Namespace has the ConfigMaps.
	Namespace string
	// Settings are the part of it that somebody has written.
	Settings *boxhost.Settings

	// Now is the clock; nil: that of the machine.
	Now func() time.Time

	// changed has a Chassis looked at.
	changed func(chassis string)
	// notes were said last.
	notes []string

	mutex sync.Mutex
	// strangers by the network in which they asked, and by MAC.
	strangers map[string]map[string]v1alpha1.StrangerStatus
	// renewed are the reports that were read last, by key.
	renewed map[string]renewal
	// hosts are those of Settings by their reports; nil: none was read yet.
	hosts []plan.BoxHost
}

// silentAfter is for how long a box host may leave its report as it is.
const silentAfter = 4 * boxhost.ReportEvery

// renewal is a report, and when this operator saw it change last, by its own clock: the clocks of box hosts prove nothing.
type renewal struct {
	data  string
	since time.Time
}

func (h *Hosts) now() time.Time {
	if h.Now == nil {
		return time.Now()
	}
	return h.Now()
}

func (h *Hosts) setUp(manager ctrl.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: h.Namespace, Name: boxhost.ConfigMap}}}
	})
	// Box hosts wait for something to serve, also where there is no Chassis yet that would have it written.
	first := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: h.Namespace, Name: boxhost.ConfigMap}})
		return nil
	})
	err := ctrl.NewControllerManagedBy(manager).Named("boxhost").
		WatchesRawSource(first).
		Watches(&v1alpha1.Chassis{}, one).
		Watches(&v1alpha1.Server{}, one).
		Complete(h)
	if err != nil {
		return fmt.Errorf("make the controller of box hosts: %w", err)
	}
	return nil
}

// Reconcile looks at everything.
func (h *Hosts) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	chassis, servers := &v1alpha1.ChassisList{}, &v1alpha1.ServerList{}
	for _, list := range []client.ObjectList{chassis, servers} {
		if err := h.Client.List(ctx, list); err != nil {
			return ctrl.Result{}, fmt.Errorf("list %T: %w", list, err)
		}
	}
	if err := h.write(ctx, chassis.Items, servers.Items); err != nil {
		return ctrl.Result{}, err
	}
	if err := h.read(ctx, chassis.Items); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: hostsEvery}, nil
}

func (h *Hosts) write(ctx context.Context, chassis []v1alpha1.Chassis, servers []v1alpha1.Server) error {
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: boxhost.ConfigMap}}
	err := h.Live.Get(ctx, client.ObjectKeyFromObject(written), written)
	isThere := err == nil
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", h.Namespace, boxhost.ConfigMap, err)
	}
	// What cannot be read, somebody else has written: nothing of it is kept.
	before, _ := boxhost.Decode([]byte(written.Data[boxhost.Key]))
	desired, notes := hosting.Desired(h.Settings, chassis, servers, before)
	if !slices.Equal(notes, h.notes) {
		h.notes = notes
		log.FromContext(ctx).Info("what box hosts do not serve", "notes", strings.Join(notes, "; "))
	}
	data, err := desired.Encode()
	if err != nil {
		return err
	}
	if isThere && bytes.Equal(data, []byte(written.Data[boxhost.Key])) {
		return nil
	}
	written.Data = map[string]string{boxhost.Key: string(data)}
	write, verb := func() error { return h.Client.Update(ctx, written, FieldManager) }, "write"
	if !isThere {
		write, verb = func() error { return h.Client.Create(ctx, written, FieldManager) }, "make"
	}
	switch err := write(); {
	case apierrors.IsForbidden(err) && !isThere:
		return fmt.Errorf("there is no ConfigMap %s/%s: install the chart with box.host.enabled, which makes it: %w",
			h.Namespace, boxhost.ConfigMap, err)
	case err != nil:
		return fmt.Errorf("%s ConfigMap %s/%s: %w", verb, h.Namespace, boxhost.ConfigMap, err)
	}
	log.FromContext(ctx).Info("box hosts have something else to serve", "servers", len(desired.Servers), "bytes", len(data))
	return nil
}

// read takes down who box hosts have seen, and has the Chassis looked at that are concerned.
func (h *Hosts) read(ctx context.Context, chassis []v1alpha1.Chassis) error {
	reported := &corev1.ConfigMap{}
	err := h.Live.Get(ctx, client.ObjectKey{Namespace: h.Namespace, Name: boxhost.StatusConfigMap}, reported)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", h.Namespace, boxhost.StatusConfigMap, err)
	}
	next := map[string]map[string]v1alpha1.StrangerStatus{}
	renewed, byAddress := map[string]renewal{}, map[netip.Addr]plan.BoxHost{}
	for i, key := range slices.Sorted(maps.Keys(reported.Data)) {
		report, err := boxhost.DecodeReport([]byte(reported.Data[key]))
		if err != nil || i >= maxReports {
			log.FromContext(ctx).Info("the report of a box host is not read", "host", key, "why", fmt.Sprint(err))
			continue
		}
		renewed[key] = renewal{data: reported.Data[key], since: h.now()}
		if last := h.renewed[key]; last.data == reported.Data[key] {
			renewed[key] = last
		}
		byAddress[report.Address] = plan.BoxHost{
			Silent: h.now().Sub(renewed[key].since) > silentAfter, Ready: report.Ready, Refused: report.Refused, Message: report.Message,
			Image: report.Image,
		}
		network := report.Network.Masked().String()
		if next[network] == nil {
			next[network] = map[string]v1alpha1.StrangerStatus{}
		}
		for _, stranger := range report.Strangers {
			since := metav1.NewTime(stranger.Since.Truncate(time.Second))
			if other, isThere := next[network][stranger.MAC]; !isThere || since.Before(&other.Since) {
				next[network][stranger.MAC] = v1alpha1.StrangerStatus{MAC: stranger.MAC, Network: network, Since: since}
			}
		}
	}
	hosts := make([]plan.BoxHost, 0, len(h.Settings.Hosts))
	for _, of := range h.Settings.Hosts {
		host, isReported := byAddress[of.Address]
		host.Name, host.Address, host.Silent = of.Name, of.Address.String(), host.Silent || !isReported
		host.IsMaintenance = of.Role == boxhost.RoleMaintenance
		hosts = append(hosts, host)
	}
	slices.SortFunc(hosts, func(a, b plan.BoxHost) int { return strings.Compare(a.Name, b.Name) })
	h.mutex.Lock()
	isSame := equality.Semantic.DeepEqual(h.strangers, next) && h.hosts != nil && slices.Equal(h.hosts, hosts)
	h.strangers, h.renewed, h.hosts = next, renewed, hosts
	h.mutex.Unlock()
	if !isSame {
		for i := range chassis {
			h.changed(chassis[i].Name)
		}
	}
	return nil
}

// hostsOf are the box hosts that are to serve the networks of a Chassis in which servers have addresses.
func (h *Hosts) hostsOf(chassis *v1alpha1.Chassis) *plan.BoxHosts {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	found := &plan.BoxHosts{Read: h.hosts != nil}
	serves := map[string]bool{}
	for i := range chassis.Spec.Networks {
		of := &chassis.Spec.Networks[i]
		network, err := netip.ParsePrefix(of.CIDR)
		if of.Range == "" || err != nil {
			continue
		}
		isServed := false
		for _, host := range h.Settings.Hosts {
			if network.Contains(host.Address) {
				serves[host.Name] = true
				isServed = isServed || host.Role != boxhost.RoleMaintenance
			}
		}
		if !isServed {
			found.Without = append(found.Without, network.Masked().String())
		}
	}
	for _, host := range h.hosts {
		if serves[host.Name] {
			found.Hosts = append(found.Hosts, host)
		}
	}
	return found
}

// strangersOf are those in networks of a Chassis, by MAC.
func (h *Hosts) strangersOf(chassis *v1alpha1.Chassis) []v1alpha1.StrangerStatus {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	all := map[string]v1alpha1.StrangerStatus{}
	for i := range chassis.Spec.Networks {
		if network, err := netip.ParsePrefix(chassis.Spec.Networks[i].CIDR); err == nil {
			maps.Copy(all, h.strangers[network.Masked().String()])
		}
	}
	sorted := make([]v1alpha1.StrangerStatus, 0, len(all))
	for _, mac := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[mac])
	}
	if len(sorted) == 0 {
		return nil
	}
	return sorted
}
