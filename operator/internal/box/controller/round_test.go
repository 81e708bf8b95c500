package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// handed is a list that the cache has given to the controller, and a copy of it from that moment.
type handed struct{ list, copied client.ObjectList }

// The lists of Servers and Nodes are those of the cache itself. A reconciliation changes nothing in them, whatever it writes: here the
// record of an order from its beginning to its end, and the labels of a node.
func TestCacheIsNotChanged(t *testing.T) {
	t.Parallel()
	c := newChassisOfOne(t)
	api, isWatching := c.api.(client.WithWatch)
	if !isWatching {
		t.Fatal("the API server's stand-in cannot be watched")
	}
	var all []handed
	c.reconciler.Client = interceptor.NewClient(api, interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			err := api.List(ctx, list, options...)
			if copied, is := list.DeepCopyObject().(client.ObjectList); is {
				all = append(all, handed{list, copied})
			}
			return err
		},
	})
	server := c.until("read", func(s *v1alpha1.Server) bool { return s.Status.MMC.SystemGUID != "" })
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.NodeInfo.SystemUUID = server.Status.MMC.SystemGUID
	if err := c.api.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if order := c.cycle(); order.State != v1alpha1.OrderDone {
		t.Errorf("%+v", order)
	}
	if err := c.api.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil || node.Labels[v1alpha1.LabelChassis] == "" {
		t.Errorf("the node is labelled %v: %v", node.Labels, err)
	}
	for _, one := range all {
		switch one.list.(type) {
		case *v1alpha1.ServerList, *corev1.NodeList:
			if !equality.Semantic.DeepEqual(one.list, one.copied) {
				t.Fatalf("it was %+v, and is %+v", one.copied, one.list)
			}
		}
	}
}
