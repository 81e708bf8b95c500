package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "rcbox.dev", Version: "v1alpha1"}

// SchemeBuilder collects what AddToScheme adds.
var SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme makes the kinds of this package known to a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Store{}, &StoreList{}, &ClusterPerf{}, &ClusterPerfList{},
		&Chassis{}, &ChassisList{}, &Server{}, &ServerList{}, &NodeFence{}, &NodeFenceList{},
		&StoreOperation{}, &StoreOperationList{}, &StoreMember{}, &StoreMemberList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
