package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/poll"
	"rcbox.dev/rcbox/operator/internal/box/vlan"
)

const (
	// lookAtVLANs is the pause between two looks while BMCs are being moved, and lookAtMoved the one after that.
	lookAtVLANs = 5 * time.Second
	lookAtMoved = 5 * time.Minute
	// vlanTimeout bounds what is asked of one BMC, and vlansAtOnce how many are asked at once.
	vlanTimeout = 10 * time.Second
	vlansAtOnce = 8
)

// VLANSession is a session in which the VLAN of a BMC can be set.
type VLANSession interface {
	bmc.VLANs
	Close() error
}

// VLANs moves BMCs to the VLAN that their Chassis names. It decides nothing itself: package vlan does.
type VLANs struct {
	Client   client.Client
	Recorder events.EventRecorder
	// Poller knows how BMCs are reached.
	Poller *poll.Poller
	// Dial opens a session with the rights that this takes; one of its own, for a BMC may end it by moving.
	Dial func(context.Context, bmc.Access) (VLANSession, error)
	Now  func() time.Time

	lock sync.Mutex
	// answers and silent are what this process has seen, by Server.
	answers map[string]*vlan.Answer
	silent  map[string]time.Time
}

// SetupWithManager has the reconciler called.
func (v *VLANs) SetupWithManager(manager ctrl.Manager) error {
	v.answers, v.silent = map[string]*vlan.Answer{}, map[string]time.Time{}
	isWord := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetAnnotations()[v1alpha1.AnnotationVLANMoved] != e.ObjectNew.GetAnnotations()[v1alpha1.AnnotationVLANMoved]
	}}
	err := ctrl.NewControllerManagedBy(manager).
		Named("vlan").
		For(&v1alpha1.Chassis{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Server{}, handler.EnqueueRequestsFromMapFunc(chassisOfServer), builder.WithPredicates(isWord)).
		Complete(v)
	if err != nil {
		return fmt.Errorf("make the controller of VLANs: %w", err)
	}
	return nil
}

// Reconcile looks at one Chassis.
func (v *VLANs) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	chassis := &v1alpha1.Chassis{}
	if err := v.Client.Get(ctx, request.NamespacedName, chassis); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read Chassis %s: %w", request.Name, err)
	}
	list := &v1alpha1.ServerList{}
	if err := v.Client.List(ctx, list); err != nil {
		return ctrl.Result{}, fmt.Errorf("list Servers: %w", err)
	}
	var servers []*v1alpha1.Server
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], chassis) {
			servers = append(servers, &list.Items[i])
		}
	}
	wanted := int(chassis.Spec.Management.VLAN)
	if wanted == 0 || chassis.DeletionTimestamp != nil || len(servers) == 0 {
		return ctrl.Result{}, v.writeChassis(ctx, chassis, nil)
	}
	observed, reported := v.observe(ctx, chassis, servers)
	made := vlan.Make(v.Now(), observed)
	err := v.apply(ctx, chassis, servers, reported, &made)
	switch {
	case isStale(err):
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	err = v.writeChassis(ctx, chassis, &v1alpha1.ChassisVLAN{
		Wanted: chassis.Spec.Management.VLAN, Phase: string(made.Phase), Message: made.Message,
	})
	switch {
	case isStale(err):
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case err != nil:
		return ctrl.Result{}, err
	case made.Phase == vlan.PhaseDone:
		return ctrl.Result{RequeueAfter: lookAtMoved}, nil
	}
	return ctrl.Result{RequeueAfter: lookAtVLANs}, nil
}

// observe asks all BMCs. It gives the VLANs that they report, too.
func (v *VLANs) observe(ctx context.Context, chassis *v1alpha1.Chassis, servers []*v1alpha1.Server) (*vlan.Observed, []int) {
	observed := &vlan.Observed{Wanted: int(chassis.Spec.Management.VLAN), MMCs: make([]vlan.MMC, len(servers))}
	reported := make([]int, len(servers))
	v.each(len(servers), func(i int) {
		server := servers[i]
		m := &observed.MMCs[i]
		m.Name, m.Record = server.Name, recordOf(server)
		m.Confirmed = server.Annotations[v1alpha1.AnnotationVLANMoved] == strconv.Itoa(observed.Wanted)
		var id int
		err := v.with(ctx, chassis.Name, server.Name, func(ctx context.Context, session VLANSession) (err error) {
			id, err = session.VLAN(ctx)
			return err
		})
		if id == 0 {
			id = vlan.Native
		}
		v.lock.Lock()
		defer v.lock.Unlock()
		m.Answer = v.answers[server.Name]
		switch {
		case err == nil:
			m.Answers, m.VLAN, reported[i] = true, id, id
			delete(v.silent, server.Name)
		case errors.Is(err, bmc.ErrSilent):
			if v.silent[server.Name].IsZero() {
				v.silent[server.Name] = v.Now()
			}
			m.SilentSince = v.silent[server.Name]
		}
	})
	return observed, reported
}

// each runs a function for each BMC, some at once.
func (*VLANs) each(count int, do func(int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, vlansAtOnce)
	for i := range count {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	all.Wait()
}

// with opens a session with the BMC of a Server.
func (v *VLANs) with(ctx context.Context, chassis, server string, do func(context.Context, VLANSession) error) error {
	target, isKnown := v.Poller.Target(chassis, server)
	switch {
	case !isKnown:
		return fmt.Errorf("how to reach the BMC of %s is not known yet", server)
	case target.Refused != nil: // BMCs lock users out
		return target.Refused
	}
	ctx, cancel := context.WithTimeout(ctx, vlanTimeout)
	defer cancel()
	session, err := v.Dial(ctx, target.Access)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // the BMC may have moved
	return do(ctx, session)
}

// apply writes all records, and tells those BMCs whose record was written.
func (v *VLANs) apply(ctx context.Context, chassis *v1alpha1.Chassis, servers []*v1alpha1.Server, reported []int, made *vlan.Plan) error {
	errs := make([]error, len(servers))
	for i, server := range servers {
		errs[i] = v.writeServer(ctx, server, statusOf(&made.Records[i], reported[i], server.Status.MMC.VLAN))
	}
	v.each(len(made.Tell), func(at int) {
		i := made.Tell[at]
		if errs[i] == nil {
			errs[i] = v.tell(ctx, chassis, servers[i], &made.Records[i])
		}
	})
	return errors.Join(errs...)
}

// tell has a BMC move, and puts on record that it has said yes.
func (v *VLANs) tell(ctx context.Context, chassis *v1alpha1.Chassis, server *v1alpha1.Server, record *vlan.Record) error {
	id := record.Wanted
	if id == vlan.Native {
		id = 0
	}
	v.Recorder.Eventf(server, nil, corev1.EventTypeNormal, "VLANTold", "VLAN", "its BMC is told to move to VLAN %d", record.Wanted)
	answer := &vlan.Answer{TriedAt: record.TriedAt}
	answer.Err = v.with(ctx, chassis.Name, server.Name, func(ctx context.Context, session VLANSession) error {
		return session.SetVLAN(ctx, id)
	})
	v.lock.Lock()
	v.answers[server.Name] = answer
	v.lock.Unlock()
	if answer.Err != nil {
		return nil //nolint:nilerr // the next look says what that means
	}
	next := server.Status.MMC.VLAN.DeepCopy()
	next.Agreed = true
	return v.writeServer(ctx, server, next)
}

func recordOf(server *v1alpha1.Server) vlan.Record {
	of := server.Status.MMC.VLAN
	if of == nil {
		return vlan.Record{}
	}
	record := vlan.Record{Wanted: int(of.Wanted), Stage: vlan.Stage(of.Stage), Tries: int(of.Tries), Agreed: of.Agreed}
	if of.TriedAt != nil {
		record.TriedAt = of.TriedAt.Time
	}
	return record
}

func statusOf(record *vlan.Record, reported int, before *v1alpha1.BMCVLAN) *v1alpha1.BMCVLAN {
	next := &v1alpha1.BMCVLAN{
		Wanted: int32(record.Wanted), Reported: int32(reported), Tries: int32(record.Tries), //nolint:gosec // at most 4095
		Stage: v1alpha1.VLANStage(record.Stage), Agreed: record.Agreed,
	}
	if reported == 0 && before != nil {
		next.Reported = before.Reported
	}
	if !record.TriedAt.IsZero() {
		next.TriedAt = &metav1.Time{Time: record.TriedAt}
	}
	return next
}

// writeServer writes the record at the version that was seen, and keeps what was written.
func (v *VLANs) writeServer(ctx context.Context, server *v1alpha1.Server, next *v1alpha1.BMCVLAN) error {
	if equality.Semantic.DeepEqual(server.Status.MMC.VLAN, next) {
		return nil
	}
	written := server.DeepCopy()
	written.Status.MMC.VLAN = next
	if err := v.Client.Status().Update(ctx, written, FieldManager); err != nil {
		return fmt.Errorf("write the status of Server %s: %w", server.Name, err)
	}
	written.DeepCopyInto(server)
	return nil
}

func (v *VLANs) writeChassis(ctx context.Context, chassis *v1alpha1.Chassis, next *v1alpha1.ChassisVLAN) error {
	before := chassis.Status.VLAN
	if equality.Semantic.DeepEqual(before, next) {
		return nil
	}
	written := chassis.DeepCopy()
	written.Status.VLAN = next
	if err := v.Client.Status().Update(ctx, written, FieldManager); err != nil {
		return fmt.Errorf("write the status of Chassis %s: %w", chassis.Name, err)
	}
	if next != nil && (before == nil || before.Phase != next.Phase || before.Wanted != next.Wanted) {
		kind := corev1.EventTypeNormal
		if next.Phase == string(vlan.PhaseBlocked) {
			kind = corev1.EventTypeWarning
		}
		v.Recorder.Eventf(written, nil, kind, "VLAN"+next.Phase, "VLAN", "%s", next.Message)
	}
	return nil
}
