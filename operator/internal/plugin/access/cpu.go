package access

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// podMetrics is what of metrics.k8s.io is used.
type podMetrics struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Containers []struct {
			Usage struct {
				CPU resource.Quantity `json:"cpu"`
			} `json:"usage"`
		} `json:"containers"`
	} `json:"items"`
}

// PodCPU is what a Store's pods use, in thousandths of a core; nil where nobody measures that, or it may not be read.
func (c *Cluster) PodCPU(ctx context.Context, store *v1alpha1.Store) map[string]int64 {
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return nil
	}
	text, err := clientset.RESTClient().Get().AbsPath("apis", "metrics.k8s.io", "v1beta1", "namespaces", store.Namespace, "pods").
		Param("labelSelector", v1alpha1.LabelStore+"="+store.Name).DoRaw(ctx)
	if err != nil {
		return nil
	}
	return cpuOf(text)
}

func cpuOf(text []byte) map[string]int64 {
	metrics := podMetrics{}
	if json.Unmarshal(text, &metrics) != nil {
		return nil
	}
	cpu := map[string]int64{}
	for i := range metrics.Items {
		for _, container := range metrics.Items[i].Containers {
			cpu[metrics.Items[i].Metadata.Name] += container.Usage.CPU.MilliValue()
		}
	}
	return cpu
}
