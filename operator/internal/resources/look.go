package resources

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationac "k8s.io/client-go/applyconfigurations/coordination/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// missedLooks is after how many looks that were not noted a Lease counts as not held any more.
const missedLooks = 3

// LookLease says when an operator looked at the Store last, as a node's Lease says it of a kubelet.
func LookLease(store *v1alpha1.Store, holder string, at time.Time, interval time.Duration) *coordinationac.LeaseApplyConfiguration {
	return coordinationac.Lease(v1alpha1.LookLease(store.Name), store.Namespace).
		WithLabels(StoreLabels(store.Name)).
		WithOwnerReferences(Owner(store)).
		WithSpec(coordinationac.LeaseSpec().
			WithHolderIdentity(holder).
			WithLeaseDurationSeconds(int32((missedLooks * interval).Seconds())).
			WithRenewTime(metav1.NewMicroTime(at)))
}
