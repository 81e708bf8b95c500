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
		name       string
		stores     []string
		namespaces []string
		want       string
	}{
		{"no store", nil, nil, ""},
		{"none in these namespaces", []string{"a"}, []string{"b", "c"}, ""},
		{"one", []string{"a"}, nil, "kubectl delete store -n a box0"},
		{"one in these namespaces", []string{"a", "b"}, []string{"b"}, "kubectl delete store -n b box1"},
		{"many", strings.Split(strings.Repeat("a", 12), ""), nil, "and 2 more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			err := checkUninstall(t.Context(), reader(test.stores...), test.namespaces, &out)
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
