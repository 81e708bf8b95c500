package testbed

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// annotationSelectedNode is what the scheduler writes to a claim.
const annotationSelectedNode = "volume.kubernetes.io/selected-node"

// startProvisioner is a stand-in for a provisioner of local volumes: a volume is there as soon as the scheduler has chosen a node for it,
// and can be used on that node only. Binding the two is the real controller manager's business.
func startProvisioner(t *testing.T, clientset *kubernetes.Clientset) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(clientset, 0)
	claims := factory.Core().V1().PersistentVolumeClaims().Informer()
	provision := func(object any) {
		claim, isClaim := object.(*corev1.PersistentVolumeClaim)
		if !isClaim || claim.Spec.VolumeName != "" || claim.Annotations[annotationSelectedNode] == "" || claim.DeletionTimestamp != nil {
			return
		}
		_, err := clientset.CoreV1().PersistentVolumes().Create(t.Context(), volumeFor(claim), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) && t.Context().Err() == nil {
			t.Errorf("make a volume for %s: %v", claim.Name, err)
		}
	}
	_, err := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: provision, UpdateFunc: func(_, object any) { provision(object) },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
}

func volumeFor(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	node := claim.Annotations[annotationSelectedNode]
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pv-" + string(claim.UID), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: size},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              StorageClass,
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/stand-in"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}},
			}}}},
		},
	}
}
