package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
)

func reader(namespaces ...string) client.Reader {
	builder := fake.NewClientBuilder().WithScheme(newScheme())
	for i, namespace := range namespaces {
		builder.WithObjects(&v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("box%d", i)}})
	}
	return builder.Build()
}

func TestCheckUninstall(t *testing.T) {
	for _, test := range []struct {
		name   string
		stores []string
		want   string
	}{
		{"no store", nil, ""},
		{"one", []string{"a"}, "kubectl delete store -n a box0"},
		{"some, in different namespaces", []string{"a", "b"}, "kubectl delete store -n b box1"},
		{"many", strings.Split(strings.Repeat("a", 12), ""), "and 2 more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			err := checkUninstall(t.Context(), reader(test.stores...), &out)
			switch {
			case test.want == "" && (err != nil || out.Len() == 0):
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("refused with %v", err)
			}
		})
	}
}

func TestRunNeedsAnImage(t *testing.T) {
	command := runCommand()
	command.SetArgs(nil)
	if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--store-image is required") {
		t.Errorf("it says %v", err)
	}
}
