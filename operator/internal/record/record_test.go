package record_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/record"
)

// fill gives everything in a value something, so that a field that is forgotten is seen.
func fill(value reflect.Value, next *int) {
	*next++
	switch value.Interface().(type) {
	case metav1.Time:
		value.Set(reflect.ValueOf(metav1.NewTime(time.Unix(int64(*next), 0))))
		return
	case resource.Quantity:
		value.Set(reflect.ValueOf(*resource.NewQuantity(int64(*next), resource.BinarySI)))
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem(), next)
	case reflect.Struct:
		for _, field := range value.Fields() {
			fill(field, next)
		}
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 2, 2))
		for i := range value.Len() {
			fill(value.Index(i), next)
		}
	case reflect.String:
		value.SetString(fmt.Sprintf("text%d", *next))
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32, reflect.Int64:
		value.SetInt(int64(*next))
	default:
		panic(fmt.Sprintf("no field is a %s", value.Kind()))
	}
}

// filled is a Store with a status of an earlier operator, in which each field has a value of its own.
func filled() *v1alpha1.Store {
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "team", UID: "uid"}}
	next := 0
	fill(reflect.ValueOf(&store.Status).Elem(), &next)
	store.Status.Record, store.Status.Masters.Unwell = nil, nil
	for i := range store.Status.Masters.Members {
		store.Status.Masters.Members[i].Name = v1alpha1.MasterMember("box", i)
	}
	return store
}

// written is what the API server has after a status was written in parts.
func written(store *v1alpha1.Store) (*v1alpha1.Store, []v1alpha1.StoreMember) {
	parts := record.Split(store.Name, &store.Status)
	var members []v1alpha1.StoreMember
	for _, status := range parts.Members {
		members = append(members, *record.New(store, status))
	}
	after := store.DeepCopy()
	after.Status = parts.Store
	return after, members
}

// Whatever a status has, it has after it was taken apart and made one again.
func TestNothingIsDropped(t *testing.T) {
	former := filled()
	if !record.IsFormer(&former.Status) {
		t.Fatal("a status of an earlier operator is not seen as one")
	}
	after, members := written(former)
	if record.IsFormer(&after.Status) || len(after.Status.Masters.Members) > 0 || after.Status.DisruptionLock != nil ||
		after.Status.Coordinator.PodNumber != 0 || after.Status.Masters.RetiredPodNumber != 0 || after.Status.LossesSeen != 0 {
		t.Errorf("left in the Store: %+v", after.Status)
	}
	alone := after.Status.DeepCopy()
	record.Join(after, members)
	joined := after.Status.DeepCopy()
	joined.Record = nil
	if !equality.Semantic.DeepEqual(*joined, former.Status) {
		t.Errorf("the status was\n%+v\nand is\n%+v", former.Status, *joined)
	}
	again := record.Split("box", &after.Status)
	if !equality.Semantic.DeepEqual(again.Store, *alone) || len(again.Members) != len(members) {
		t.Errorf("it is taken apart otherwise the second time:\n%+v\n%+v", *alone, again.Store)
	}
	record.Part(&after.Status)
	if !equality.Semantic.DeepEqual(after.Status, *alone) {
		t.Errorf("the Store's own part was\n%+v\nand is\n%+v", *alone, after.Status)
	}
}

// StoreMembers of a former Store of the same name, of another one, and those that are being deleted say nothing.
func TestOthersMembers(t *testing.T) {
	store, members := written(filled())
	former := members[0].DeepCopy()
	former.OwnerReferences[0].UID = "another"
	elsewhere := members[0].DeepCopy()
	elsewhere.Namespace = "other"
	ending := members[0].DeepCopy()
	ending.DeletionTimestamp = &metav1.Time{}
	record.Join(store, []v1alpha1.StoreMember{*former, *elsewhere, *ending})
	if len(store.Status.Masters.Members) > 0 {
		t.Errorf("members %+v", store.Status.Masters.Members)
	}
}

// A Store knows which of its masters have a StoreMember, and how far their pods' numbers have got.
func TestMissing(t *testing.T) {
	store := filled()
	store.Status.Masters.Members = nil
	for _, ordinal := range []int{3, 0, 1, 4, 10} {
		status := v1alpha1.MemberStatus{Name: v1alpha1.MasterMember("box", ordinal)}
		status.PodNumber = int64(1000 + ordinal)
		store.Status.Masters.Members = append(store.Status.Masters.Members, status)
	}
	store, members := written(store)
	want := []v1alpha1.OrdinalRange{{First: 0, Last: 1}, {First: 3, Last: 4}, {First: 10, Last: 10}}
	if is := store.Status.Record; !reflect.DeepEqual(is.Members, want) || is.HighestPodNumber != 1010 {
		t.Errorf("on record: %+v", is)
	}
	record.Join(store, members[1:])
	for ordinal := range 12 {
		name := v1alpha1.MasterMember("box", ordinal)
		if record.IsMissing(store, name) != (name == members[0].Name) {
			t.Errorf("%s is missing: %v, and %s is", name, record.IsMissing(store, name), members[0].Name)
		}
	}
	record.Join(store, nil)
	if next := record.Split("box", &store.Status).Store.Record; next.HighestPodNumber != 1010 {
		t.Errorf("the highest number is %d once all StoreMembers are gone", next.HighestPodNumber)
	}
}

// TestSizes says how much is written where something changes about one master of a full Box, and how much was when the Store had
// everything.
func TestSizes(t *testing.T) {
	const masters = 736
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "team", UID: "0a1b2c3d-0000-4000-8000-000000000000"}}
	store.Status.Masters.Replicas, store.Status.Masters.Ready = masters, masters
	for ordinal := range masters {
		status := v1alpha1.MemberStatus{Name: v1alpha1.MasterMember("box", ordinal)}
		status.MemberFigures = v1alpha1.MemberFigures{
			State: v1alpha1.MemberUp, Pod: fmt.Sprintf("box-master-%d-bcdfg", ordinal), Node: fmt.Sprintf("atom%03d.rack.example", ordinal),
			ServerIDs: []string{fmt.Sprintf("%d.1", ordinal+1), fmt.Sprintf("%d.1", ordinal+737)}, Tablets: 4,
			CapacityBytes: 24 << 30, UsedPercent: 50, Copies: 2, Claim: fmt.Sprintf("box-master-%d-copies", ordinal),
			Domain: fmt.Sprintf("chassis-%d", ordinal/46), Backup: &v1alpha1.BackupStatus{Frames: 6000, UsedPercent: 40},
		}
		status.PodNumber = 1
		for port := range 2 {
			status.Addresses = append(status.Addresses, v1alpha1.MemberAddress{
				IP: fmt.Sprintf("10.%d.%d.%d", port, ordinal/256, ordinal%256), Pod: status.Pod,
			})
		}
		store.Status.Masters.Members = append(store.Status.Masters.Members, status)
	}
	size := func(object any) int {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	before := size(store.Status)
	after, members := written(store)
	largest := 0
	for i := range members {
		largest = max(largest, size(members[i]))
	}
	t.Logf("%d masters: the Store's status had %d bytes, and has %d; the largest StoreMember has %d",
		masters, before, size(after.Status), largest)
	const most = 2000
	if size(after.Status) > most || largest > most {
		t.Errorf("the Store's status has %d bytes, a StoreMember %d: more than %d", size(after.Status), largest, most)
	}
}
