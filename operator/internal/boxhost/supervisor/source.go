package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// fileEvery is the pause between two looks at a file.
const fileEvery = 250 * time.Millisecond

// FromFile follows a file.
func FromFile(path string, log logr.Logger) func(context.Context, func([]byte)) {
	return func(ctx context.Context, changed func([]byte)) {
		var last []byte
		var trouble string
		for ctx.Err() == nil {
			data, err := os.ReadFile(path) //nolint:gosec // a path that whoever starts the program chooses
			switch {
			case err != nil && err.Error() != trouble:
				trouble = err.Error()
				log.Error(err, "what is to be served cannot be read")
			case err == nil && !bytes.Equal(data, last):
				last, trouble = data, ""
				changed(data)
			}
			wait(ctx, fileEvery)
		}
	}
}

// FromConfigMap follows the ConfigMap boxhost.ConfigMap. While there is no API server, what was served before goes on.
func FromConfigMap(client kubernetes.Interface, namespace string) func(context.Context, func([]byte)) {
	return func(ctx context.Context, changed func([]byte)) {
		one := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", namespace,
			fields.OneTermEqualSelector(metav1.ObjectNameField, boxhost.ConfigMap))
		tell := func(object any) {
			if found, is := object.(*corev1.ConfigMap); is {
				if data, isThere := found.Data[boxhost.Key]; isThere {
					changed([]byte(data))
				}
			}
		}
		_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: one, ObjectType: &corev1.ConfigMap{},
			// A ConfigMap that is deleted is made again by the box controller: what it said goes on until then.
			Handler: cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, object any) { tell(object) }},
		})
		controller.RunWithContext(ctx)
	}
}

// ToConfigMap reports into boxhost.StatusConfigMap, under the name of this box host.
func ToConfigMap(client kubernetes.Interface, namespace, host string) func(context.Context, *boxhost.Report) error {
	return func(ctx context.Context, report *boxhost.Report) error {
		data, err := report.Encode()
		if err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{"data": map[string]string{host: string(data)}})
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		maps := client.CoreV1().ConfigMaps(namespace)
		_, err = maps.Patch(ctx, boxhost.StatusConfigMap, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("write into ConfigMap %s/%s: %w", namespace, boxhost.StatusConfigMap, err)
		}
		return nil
	}
}

// ToFile reports into a file, for box hosts without a cluster.
func ToFile(path string) func(context.Context, *boxhost.Report) error {
	return func(_ context.Context, report *boxhost.Report) error {
		data, err := report.Encode()
		if err != nil {
			return err
		}
		return writeFile(path, data)
	}
}
