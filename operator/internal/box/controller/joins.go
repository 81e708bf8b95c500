package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/join"
)

// lookAtJoins is the pause between two looks while a server boots from the network: a token may be deleted by somebody, which causes no
// event here, and roles may change.
const lookAtJoins = 15 * time.Second

// The rights that joining takes, besides those of config/box/join.yaml. The policy there bounds what is approved and made.
//
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kube-apiserver-client-kubelet,verbs=approve
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups="",namespace=rcbox-system,resources=secrets,resourceNames=rcbox-join-tokens,verbs=update

// Joins makes the bootstrap tokens of Servers that boot from the network, and approves the requests that they serve for. It decides nothing
// itself: package join does.
type Joins struct {
	// Client reads from the cache and writes to the API server; Live reads from the API server.
	Client   client.Client
	Live     client.Reader
	Recorder events.EventRecorder
	// Namespace has the Secret that box hosts mount.
	Namespace string
	// APIServer is the URL at which nodes reach the API server, and CA who vouches for it, as PEM.
	APIServer, CA string
	// ClusterDNS are the resolvers of pods; empty: those of the cluster are found out.
	ClusterDNS []string
	// Now is the clock.
	Now func() time.Time
}

// SetupWithManager has the reconciler called.
func (j *Joins) SetupWithManager(manager ctrl.Manager) error {
	everything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{request("joins")} // one look is about all: what one Server may have depends on the others
	})
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(isBootstrapper))
	err := ctrl.NewControllerManagedBy(manager).
		Named("join").
		Watches(&v1alpha1.Server{}, everything, builder.WithPredicates(changes(isJoinAffected))).
		Watches(&corev1.Node{}, everything, builder.WithPredicates(changes(isReadinessChanged))).
		Watches(&certificatesv1.CertificateSigningRequest{}, everything, ours).
		Complete(j)
	if err != nil {
		return fmt.Errorf("make the controller of joins: %w", err)
	}
	return nil
}

// changes lets updates through that change something of interest.
func changes[T client.Object](isChanged func(before, now T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := e.ObjectOld.(T)
		now, isNow := e.ObjectNew.(T)
		return !isBefore || !isNow || isChanged(before, now)
	}}
}

// isJoinAffected leaves out what changes often, such as sensors.
func isJoinAffected(before, now *v1alpha1.Server) bool {
	a, b := &before.Status, &now.Status
	conditions := func(s *v1alpha1.ServerStatus) *metav1.Condition { return conditionOf(s, v1alpha1.ConditionAsRecorded) }
	return !equality.Semantic.DeepEqual(before.Spec.Boot, now.Spec.Boot) || !equality.Semantic.DeepEqual(a.Boot, b.Boot) ||
		a.Power.State != b.Power.State || !equality.Semantic.DeepEqual(a.Order, b.Order) || !equality.Semantic.DeepEqual(a.Join, b.Join) ||
		a.MMC.SystemGUID != b.MMC.SystemGUID || !equality.Semantic.DeepEqual(a.Ports, b.Ports) ||
		!equality.Semantic.DeepEqual(conditions(a), conditions(b))
}

func conditionOf(status *v1alpha1.ServerStatus, name string) *metav1.Condition {
	at := slices.IndexFunc(status.Conditions, func(c metav1.Condition) bool { return c.Type == name })
	if at < 0 {
		return nil
	}
	return &status.Conditions[at]
}

func isReadinessChanged(before, now *corev1.Node) bool {
	return isReady(before) != isReady(now) || before.Status.NodeInfo.SystemUUID != now.Status.NodeInfo.SystemUUID
}

func isBootstrapper(object client.Object) bool {
	of, is := object.(*certificatesv1.CertificateSigningRequest)
	return is && slices.Contains(of.Spec.Groups, v1alpha1.GroupBootstrappers)
}

// Reconcile looks at all Servers.
func (j *Joins) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	tokens, err := j.readTokens(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	observed, servers, err := j.observe(ctx, tokens)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := j.Now()
	made := join.Make(now, observed)
	err = j.apply(ctx, tokens, servers, &made)
	switch {
	case isStale(err):
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: pauseOfJoins(now, observed, &made)}, nil
}

func pauseOfJoins(now time.Time, observed *join.Observed, made *join.Plan) time.Duration {
	isUnderWay := slices.ContainsFunc(observed.Servers, func(s *v1alpha1.Server) bool {
		return s.Status.Join != nil && s.Status.Join.State != v1alpha1.JoinJoined
	})
	if !isUnderWay && len(made.Steps) == 0 && made.RecheckAt.IsZero() && len(observed.Entries) == 0 {
		return 0 // an event causes the next look
	}
	pause := lookAtJoins
	if !made.RecheckAt.IsZero() {
		pause = min(pause, max(made.RecheckAt.Sub(now), staleRetry))
	}
	return pause
}

// observe reads Servers from the cache, and what a request is approved by from the API server, if there is one.
func (j *Joins) observe(ctx context.Context, tokens *tokensSecret) (*join.Observed, map[string]*v1alpha1.Server, error) {
	servers, requests := &v1alpha1.ServerList{}, &certificatesv1.CertificateSigningRequestList{}
	for _, list := range []client.ObjectList{servers, requests} {
		if err := j.Client.List(ctx, list); err != nil {
			return nil, nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	observed := &join.Observed{Entries: slices.Clone(tokens.file.Entries)}
	observed.NewTokenID = func() string { return unusedTokenID(servers.Items, tokens.file) }
	from := client.Reader(j.Client)
	for i := range requests.Items {
		of := &requests.Items[i]
		if !isBootstrapper(of) {
			continue
		}
		request := requestOf(of)
		if request.Decision == join.Pending {
			from = j.Live
		}
		observed.Requests = append(observed.Requests, request)
	}
	nodes := &corev1.NodeList{}
	if err := from.List(ctx, nodes); err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		observed.Nodes = append(observed.Nodes, join.Node{
			Name: node.Name, SystemUUID: node.Status.NodeInfo.SystemUUID, Ready: isReady(node),
		})
	}
	byName := map[string]*v1alpha1.Server{}
	isWanted := false
	for i := range servers.Items {
		server := &servers.Items[i]
		observed.Servers = append(observed.Servers, server)
		byName[server.Name] = server
		isWanted = isWanted || server.Spec.Boot != nil && server.Spec.Boot.Device == v1alpha1.BootNetwork
	}
	if !isWanted {
		return observed, byName, nil
	}
	var err error
	observed.Blocked, err = j.whyBlocked(ctx, tokens)
	return observed, byName, err
}

// unusedTokenID leaves out the IDs that are on record.
func unusedTokenID(servers []v1alpha1.Server, file *join.File) string {
	for {
		id := join.NewTokenID()
		isUsed := slices.ContainsFunc(servers, func(s v1alpha1.Server) bool { return s.Status.Join != nil && s.Status.Join.TokenID == id })
		if !isUsed && file.Find(id) == nil {
			return id
		}
	}
}

func requestOf(of *certificatesv1.CertificateSigningRequest) join.Request {
	request := join.Request{
		Name: of.Name, UID: of.UID, User: of.Spec.Username, Signer: of.Spec.SignerName, PEM: of.Spec.Request,
		CreatedAt: of.CreationTimestamp.Time,
	}
	for _, usage := range of.Spec.Usages {
		request.Usages = append(request.Usages, string(usage))
	}
	for i := range of.Status.Conditions {
		switch of.Status.Conditions[i].Type {
		case certificatesv1.CertificateApproved:
			request.Decision = join.Approved
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			request.Decision = join.Denied
		}
	}
	return request
}

// whyBlocked says why no tokens are made: somebody else would approve what they ask for. Kubernetes' own approver asks the same question.
func (j *Joins) whyBlocked(ctx context.Context, tokens *tokensSecret) (string, error) {
	if tokens.secret == nil {
		return fmt.Sprintf("there is no Secret %s/%s, by which box hosts get tokens: install the box controller's objects again",
			j.Namespace, join.SecretName), nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:bootstrap:rcbox0",
		Groups: []string{"system:bootstrappers", v1alpha1.GroupBootstrappers, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Subresource: "nodeclient",
			Verb: "create", Version: "*",
		},
	}}
	if err := j.Client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("ask whether Kubernetes would approve the requests of %s by itself: %w", v1alpha1.GroupBootstrappers, err)
	}
	if review.Status.Allowed {
		return "a role lets kube-controller-manager approve every request of this group, whatever it asks for (create on " +
			"certificatesigningrequests/nodeclient). Bind that role to a group other than system:bootstrappers", nil
	}
	return "", nil
}

// apply writes statuses first.
func (j *Joins) apply(ctx context.Context, tokens *tokensSecret, servers map[string]*v1alpha1.Server, made *join.Plan) error {
	var errs []error
	failed := map[string]bool{}
	for name, next := range made.Servers {
		if err := j.writeServer(ctx, servers[name], next); err != nil {
			failed[name] = true
			errs = append(errs, err)
		}
	}
	steps := slices.DeleteFunc(slices.Clone(made.Steps), func(s join.Step) bool { return failed[s.Server] })
	steps, err := j.confirmUnknown(ctx, steps)
	errs = append(errs, err, j.carryOut(ctx, tokens, steps))
	for i := range steps {
		step := &steps[i]
		if step.Kind != join.StepApprove && step.Kind != join.StepDeny {
			continue
		}
		if step.Kind == join.StepApprove && !tokens.isWritten {
			continue // the entry must not be given to anybody any more
		}
		errs = append(errs, j.decide(ctx, step, servers[step.Server]))
	}
	return errors.Join(errs...)
}

func (j *Joins) writeServer(ctx context.Context, server *v1alpha1.Server, next *v1alpha1.ServerStatus) error {
	written := server.DeepCopy()
	written.Status = *next
	// With the version that was observed: the API server refuses it once somebody else has written.
	if err := j.Client.Status().Update(ctx, written, FieldManager); err != nil {
		return fmt.Errorf("write the status of Server %s: %w", server.Name, err)
	}
	defer written.DeepCopyInto(server) // the version that was written last
	before, now := server.Status.Join, next.Join
	if now != nil && (before == nil || before.State != now.State || before.Order != now.Order) {
		kind := corev1.EventTypeNormal
		if now.State == v1alpha1.JoinExpired || now.State == v1alpha1.JoinRevoked {
			kind = corev1.EventTypeWarning
		}
		j.Recorder.Eventf(written, nil, kind, "Join"+string(now.State), "Join", "%s", messageOf(next))
	}
	return nil
}

func messageOf(status *v1alpha1.ServerStatus) string {
	if condition := conditionOf(status, v1alpha1.ConditionJoined); condition != nil {
		return condition.Message
	}
	return string(status.Join.State)
}

// confirmUnknown asks the API server whether tokens that no Server has on record are really nobody's.
func (j *Joins) confirmUnknown(ctx context.Context, steps []join.Step) ([]join.Step, error) {
	isUnknown := func(s join.Step) bool { return s.Kind == join.StepDrop && s.Server == "" }
	if !slices.ContainsFunc(steps, isUnknown) {
		return steps, nil
	}
	servers := &v1alpha1.ServerList{}
	if err := j.Live.List(ctx, servers); err != nil {
		return slices.DeleteFunc(steps, isUnknown), fmt.Errorf("list Servers: %w", err)
	}
	return slices.DeleteFunc(steps, func(s join.Step) bool {
		return isUnknown(s) && slices.ContainsFunc(servers.Items, func(server v1alpha1.Server) bool {
			return server.Status.Join != nil && server.Status.Join.TokenID == s.TokenID
		})
	}), nil
}

// isUnchanged says whether a Server is still as it was when the approval was planned. A cache may not have what somebody has written since,
// such as that it was switched off.
func (j *Joins) isUnchanged(ctx context.Context, server *v1alpha1.Server) error {
	now := &v1alpha1.Server{}
	if err := j.Live.Get(ctx, client.ObjectKeyFromObject(server), now); err != nil {
		return fmt.Errorf("read Server %s: %w", server.Name, err)
	}
	if now.UID != server.UID || now.ResourceVersion != server.ResourceVersion {
		return fmt.Errorf("approve what Server %s asks for: %w", server.Name, apierrors.NewConflict(
			v1alpha1.GroupVersion.WithResource("servers").GroupResource(), server.Name, errors.New("it has changed since")))
	}
	return nil
}

// decide approves or denies a request, unless somebody has decided already.
func (j *Joins) decide(ctx context.Context, step *join.Step, server *v1alpha1.Server) error {
	of := &certificatesv1.CertificateSigningRequest{}
	if err := j.Live.Get(ctx, client.ObjectKey{Name: step.Request}, of); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read certificate signing request %s: %w", step.Request, err)
	}
	if of.UID != step.UID || requestOf(of).Decision != join.Pending {
		return nil
	}
	if step.Kind == join.StepApprove {
		if err := j.isUnchanged(ctx, server); err != nil {
			return err
		}
	}
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ServerJoins", Message: step.Why,
		LastUpdateTime: metav1.NewTime(j.Now()),
	}
	if step.Kind == join.StepDeny {
		condition.Type, condition.Reason = certificatesv1.CertificateDenied, "JoinDenied"
	}
	of.Status.Conditions = append(of.Status.Conditions, condition)
	if err := j.Client.SubResource("approval").Update(ctx, of, FieldManager); err != nil {
		return fmt.Errorf("decide on certificate signing request %s: %w", step.Request, err)
	}
	if step.Kind == join.StepDeny && server != nil {
		j.Recorder.Eventf(server, of, corev1.EventTypeWarning, condition.Reason, "Join", "request %s: %s", of.Name, step.Why)
	}
	return nil
}
