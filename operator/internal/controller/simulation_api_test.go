package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// simulatedAPI is an API server in memory for the kinds whose life matters here: Stores, pods, claims, nodes, volumes. It has resource
// versions, uids, preconditions, graceful deletion and finalizers, by the simulation's clock. Objects of fixed names are the fake client's.
type simulatedAPI struct {
	client.Client

	s       *simulation
	objects map[objectKey]client.Object
	version int
	uids    int
}

type objectKey struct {
	kind reflect.Type
	name string
}

func keyOf(object client.Object) objectKey {
	return objectKey{reflect.TypeOf(object), object.GetName()}
}

// simulated says whether a kind is this API's, and not the fake client's.
func simulated(object runtime.Object) bool {
	switch object := object.(type) {
	case *v1alpha1.Store, *v1alpha1.StoreOperation, *v1alpha1.StoreOperationList, *v1alpha1.NodeFence, *corev1.Pod,
		*v1alpha1.StoreMember, *v1alpha1.StoreMemberList,
		*corev1.PersistentVolumeClaim, *corev1.Node, *corev1.PersistentVolume, *corev1.PodList, *corev1.PersistentVolumeClaimList:
		return true
	case *metav1.PartialObjectMetadataList:
		return object.Kind == "StoreMemberList"
	default:
		return false
	}
}

func notFound(name string) error { return apierrors.NewNotFound(schema.GroupResource{}, name) }

func conflict(name string) error {
	return apierrors.NewConflict(schema.GroupResource{}, name, errors.New("it was changed"))
}

// put stores an object, with another resource version.
func (a *simulatedAPI) put(object client.Object) {
	a.version++
	object.SetResourceVersion(strconv.Itoa(a.version))
	if object.GetUID() == "" {
		a.uids++
		object.SetUID(types.UID(fmt.Sprintf("uid%d.", a.uids)))
		object.SetCreationTimestamp(metav1.NewTime(a.s.now))
	}
	_, isStore := object.(*v1alpha1.Store)
	if (isStore || hasEndedForGood(object)) && object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		delete(a.objects, keyOf(object))
		if isStore {
			for _, member := range all[*v1alpha1.StoreMember](a.objects) { // garbage collection
				delete(a.objects, keyOf(member))
			}
		}
		return
	}
	a.objects[keyOf(object)] = object
}

// edit changes the object of a name, if there is one.
func edit[Object client.Object](a *simulatedAPI, name string, change func(Object)) {
	object, there := a.objects[objectKey{reflect.TypeFor[Object](), name}]
	if !there {
		return
	}
	changed, ofKind := object.DeepCopyObject().(Object)
	if !ofKind {
		panic(fmt.Sprintf("%s is a %T", name, object))
	}
	change(changed)
	if !reflect.DeepEqual(changed, object) {
		a.put(changed)
	}
}

// all of a kind, by name. They are not to be changed.
func all[Object client.Object](objects map[objectKey]client.Object) []Object {
	var list []Object
	for key, object := range objects {
		if typed, ofKind := object.(Object); ofKind && key.kind == reflect.TypeFor[Object]() {
			list = append(list, typed)
		}
	}
	slices.SortFunc(list, func(a, b Object) int {
		if a.GetName() < b.GetName() {
			return -1
		}
		return 1
	})
	return list
}

// view reads simulated kinds from some objects: those that there are, or those of a cache.
type view struct {
	objects func() map[objectKey]client.Object
	others  client.Reader
}

func (v view) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if !simulated(into) {
		return v.others.Get(ctx, key, into, options...)
	}
	object, there := v.objects()[objectKey{reflect.TypeOf(into), key.Name}]
	if !there {
		return notFound(key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
	return nil
}

func (v view) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if !simulated(list) {
		return v.others.List(ctx, list, options...)
	}
	wanted := client.ListOptions{}
	wanted.ApplyOptions(options)
	var found []runtime.Object
	add := func(object client.Object) {
		if wanted.LabelSelector == nil || wanted.LabelSelector.Matches(labels.Set(object.GetLabels())) {
			found = append(found, object.DeepCopyObject())
		}
	}
	switch list.(type) {
	case *corev1.PodList:
		for _, pod := range all[*corev1.Pod](v.objects()) {
			add(pod)
		}
	case *v1alpha1.StoreMemberList, *metav1.PartialObjectMetadataList:
		for _, member := range all[*v1alpha1.StoreMember](v.objects()) {
			add(member)
		}
	case *v1alpha1.StoreOperationList:
		for _, operation := range all[*v1alpha1.StoreOperation](v.objects()) {
			add(operation)
		}
	case *corev1.PersistentVolumeClaimList:
		for _, claim := range all[*corev1.PersistentVolumeClaim](v.objects()) {
			add(claim)
		}
	}
	if heads, ofHeads := list.(*metav1.PartialObjectMetadataList); ofHeads {
		for _, object := range found {
			member := object.(*v1alpha1.StoreMember) //nolint:forcetypeassert // there are no others
			heads.Items = append(heads.Items, metav1.PartialObjectMetadata{ObjectMeta: member.ObjectMeta})
		}
		return nil
	}
	return meta.SetList(list, found)
}

// operatorClient is what one operator has: its cache, and the API server, which may fail it.
type operatorClient struct {
	*simulatedAPI
	view

	operator *simulatedOperator
	cache    map[objectKey]client.Object
}

func (a *simulatedAPI) newOperatorClient(operator *simulatedOperator) *operatorClient {
	c := &operatorClient{simulatedAPI: a, operator: operator, cache: maps.Clone(a.objects)}
	c.view = view{func() map[objectKey]client.Object { return c.cache }, a.Client}
	return c
}

// refresh brings a kind in the cache up to date; each has a watch of its own.
func (c *operatorClient) refresh(kind reflect.Type) {
	maps.DeleteFunc(c.cache, func(key objectKey, _ client.Object) bool { return key.kind == kind })
	for key, object := range c.simulatedAPI.objects {
		if key.kind == kind {
			c.cache[key] = object
		}
	}
}

func (c *operatorClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return c.view.Get(ctx, key, into, options...)
}

func (c *operatorClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.view.List(ctx, list, options...)
}

func (c *operatorClient) Apply(ctx context.Context, configuration runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	text, err := json.Marshal(configuration)
	if err != nil {
		return fmt.Errorf("encode an object: %w", err)
	}
	head := metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(text, &head); err != nil {
		return fmt.Errorf("decode an object: %w", err)
	}
	if wanted := (&client.ApplyOptions{}).ApplyOptions(options); len(wanted.DryRun) > 0 {
		return c.s.try(c.operator, text)
	}
	return c.s.write("apply "+head.Kind+" "+head.Name, func() error {
		switch head.Kind {
		case "Pod":
			return c.create(text, &corev1.Pod{}) //nolint:contextcheck // the call may arrive late; reconciles are others'
		case "PersistentVolumeClaim":
			return c.create(text, &corev1.PersistentVolumeClaim{}) //nolint:contextcheck // likewise
		case "Lease":
			// The fake client gives whoever applies a Lease for the second time its whole spec.
			there := &coordinationv1.Lease{}
			if err := c.Client.Get(ctx, client.ObjectKey{Namespace: head.Namespace, Name: head.Name}, there); err == nil {
				return nil
			}
			return c.Client.Apply(ctx, configuration, options...)
		default:
			return c.Client.Apply(ctx, configuration, options...)
		}
	})
}

// create applies what is made once; of that only claims are applied with other contents.
func (c *operatorClient) create(text []byte, object client.Object) error {
	if err := json.Unmarshal(text, object); err != nil {
		return fmt.Errorf("decode an object: %w", err)
	}
	if _, there := c.simulatedAPI.objects[keyOf(object)]; there {
		if claim, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim {
			return c.grow(claim)
		}
		return nil
	}
	if pod, isPod := object.(*corev1.Pod); isPod && c.s.refuses(podOf(pod).Inputs.Image) {
		return errRefusedPod(pod.Name)
	}
	if pod, isPod := object.(*corev1.Pod); isPod {
		if err := c.s.exceeds(pod.Name); err != nil {
			return err
		}
	}
	if c.s.lullBeforePod(c.operator, object) || c.operator.isLate {
		return c.createLate(object)
	}
	c.s.checkCreate(c.operator, object)
	c.put(object)
	return nil
}

func (c *operatorClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.s.write("patch "+object.GetName(), func() error {
		if !simulated(object) {
			return c.Client.Patch(ctx, object, patch, options...)
		}
		there, found := c.simulatedAPI.objects[keyOf(object)]
		if !found {
			return notFound(object.GetName())
		}
		changes, err := patch.Data(object)
		if err != nil {
			return fmt.Errorf("make a patch: %w", err)
		}
		return c.merge(there, changes, object)
	})
}

func (c *operatorClient) merge(there client.Object, changes []byte, into client.Object) error {
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(there)
	if err != nil {
		return fmt.Errorf("encode an object: %w", err)
	}
	var change map[string]any
	if err := json.Unmarshal(changes, &change); err != nil {
		return fmt.Errorf("decode a patch: %w", err)
	}
	for field, is := range map[string]string{"resourceVersion": there.GetResourceVersion(), "uid": string(there.GetUID())} {
		if wanted, found := unstructuredString(change, field); found && wanted != is {
			return conflict(there.GetName())
		}
	}
	mergeInto(before, change)
	after := reflect.New(reflect.TypeOf(there).Elem()).Interface()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(before, after); err != nil {
		return fmt.Errorf("decode an object: %w", err)
	}
	object, isObject := after.(client.Object)
	if !isObject {
		return fmt.Errorf("%T is no object", after)
	}
	c.s.checkPatch(there, object)
	c.put(object)
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
	return nil
}

func unstructuredString(change map[string]any, field string) (string, bool) {
	metadata, there := change["metadata"].(map[string]any)
	if !there {
		return "", false
	}
	text, found := metadata[field].(string)
	return text, found
}

// mergeInto is a JSON merge patch (RFC 7386).
func mergeInto(object, change map[string]any) {
	for name, value := range change {
		inner, isObject := value.(map[string]any)
		switch {
		case value == nil:
			delete(object, name)
		case isObject:
			below, there := object[name].(map[string]any)
			if !there {
				below = map[string]any{}
			}
			mergeInto(below, inner)
			object[name] = below
		default:
			object[name] = value
		}
	}
}

func (c *operatorClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.s.write("delete "+object.GetName(), func() error {
		if !simulated(object) {
			return c.Client.Delete(ctx, object, options...)
		}
		there, found := c.simulatedAPI.objects[keyOf(object)]
		if !found {
			return notFound(object.GetName())
		}
		wanted := client.DeleteOptions{}
		wanted.ApplyOptions(options)
		if !fits(wanted.Preconditions, there) {
			return conflict(object.GetName())
		}
		c.s.checkDelete(c.operator, there)
		wasToSleep := c.s.store() != nil && c.s.isToSleep(there)
		if c.s.lull(c.operator, there) { //nolint:contextcheck // the call arrives late; reconciles are others'
			if there, found = c.simulatedAPI.objects[keyOf(object)]; !found {
				c.s.counts[isLateEnd]++
				return notFound(object.GetName())
			}
			if !fits(wanted.Preconditions, there) {
				c.s.counts[isLateEnd]++
				return conflict(object.GetName())
			}
			c.s.checkAwake(wasToSleep, there)
		}
		c.s.checkEndsAlone(c.operator, there)
		c.tellToEnd(there)
		return nil
	})
}

func fits(p *metav1.Preconditions, there client.Object) bool {
	return p == nil || (p.UID == nil || *p.UID == there.GetUID()) &&
		(p.ResourceVersion == nil || *p.ResourceVersion == there.GetResourceVersion())
}

// tellToEnd is a deletion by whomever: pods get time, claims wait for their pods.
func (a *simulatedAPI) tellToEnd(object client.Object) {
	if object.GetDeletionTimestamp() != nil {
		return
	}
	switch object.(type) {
	case *v1alpha1.NodeFence, *v1alpha1.StoreOperation, *v1alpha1.StoreMember:
		delete(a.objects, keyOf(object))
		return
	}
	if pod, isPod := object.(*corev1.Pod); isPod && pod.Spec.NodeName == "" && len(pod.Finalizers) == 0 {
		delete(a.objects, keyOf(object))
		return
	}
	ending, isObject := object.DeepCopyObject().(client.Object)
	if !isObject {
		panic(fmt.Sprintf("%T is no object", object))
	}
	const grace = 10
	at := metav1.NewTime(a.s.now.Add(grace * second))
	ending.SetDeletionTimestamp(&at)
	a.put(ending)
}

func (c *operatorClient) Status() client.SubResourceWriter { return statusWriter{c.Client.Status(), c} }

type statusWriter struct {
	client.SubResourceWriter

	c *operatorClient
}

func (w statusWriter) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	return w.c.s.write("update the status", func() error {
		there, found := w.c.simulatedAPI.objects[keyOf(object)]
		if !found {
			return notFound(object.GetName())
		}
		if there.GetResourceVersion() != object.GetResourceVersion() {
			return conflict(object.GetName())
		}
		if next, isOperation := object.(*v1alpha1.StoreOperation); isOperation {
			edit(w.c.simulatedAPI, next.Name, func(operation *v1alpha1.StoreOperation) { operation.Status = *next.Status.DeepCopy() })
			w.c.s.checkSplit(next)
			return nil
		}
		edit(w.c.simulatedAPI, object.GetName(), func(store *v1alpha1.Store) {
			if next, isStore := object.(*v1alpha1.Store); isStore {
				store.Status = *next.Status.DeepCopy()
			}
		})
		w.c.operator.wroteStatus = true
		w.c.s.noteRecorded()
		return nil
	})
}

// liveReader reads what there is, if it is answered.
type liveReader struct {
	view

	s *simulation
}

func (l liveReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if lease, isLease := into.(*coordinationv1.Lease); isLease && key.Namespace == corev1.NamespaceNodeLease {
		const oneIn = 7
		if l.s.faults.read > 0 && l.s.now.Second()%oneIn == 0 {
			return apierrors.NewTimeoutError("read the Lease of "+key.Name, 1)
		}
		*lease = *l.s.leaseOf(key.Name)
		return nil
	}
	l.s.maybeKilled("read " + key.Name)
	if l.s.chance(l.s.faults.read) {
		return apierrors.NewTimeoutError("read "+key.Name, 1)
	}
	return l.view.Get(ctx, key, into, options...)
}

func (l liveReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	l.s.maybeKilled("list")
	if l.s.chance(l.s.faults.read) {
		return apierrors.NewTimeoutError("list", 1)
	}
	return l.view.List(ctx, list, options...)
}
