package bundle_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/bundle"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

func TestText(t *testing.T) {
	for from, to := range map[string]string{
		"nothing here":                            "nothing here",
		"password: hunter2":                       "password: REDACTED",
		`{"password":"hunter2 and more"}`:         `{"password":"REDACTED"}`,
		`"{\"apiKey\":\"hunter2\",\"n\":1}"`:      `"{\"apiKey\":\"REDACTED\",\"n\":1}"`,
		"DB_PASSWORD='hunter2 x' next":            "DB_PASSWORD='REDACTED' next",
		"--token=hunter2 --cores 2":               "--token=REDACTED --cores 2",
		"Authorization: Bearer hunter2.x":         "Authorization: Bearer REDACTED",
		"https://me:hunter2@host/x":               "https://me:REDACTED@host/x",
		"eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.hunter2": "REDACTED",
		"a -----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY----- b": "a REDACTED b",
		"-----BEGIN PRIVATE KEY-----\nhunter2":                                        "REDACTED",
		"serviceAccountToken:\n  audience: x":                                         "serviceAccountToken:\n  audience: x",
		"imagePullSecrets:\n- name: registry":                                         "imagePullSecrets:\n- name: registry",
		"tcp:host=box.team.svc,port=11100 is fine":                                    "tcp:host=box.team.svc,port=11100 is fine",
	} {
		if got := bundle.Text(from); got != to {
			t.Errorf("%q became %q instead of %q", from, got, to)
		}
	}
}

func TestNames(t *testing.T) {
	names := bundle.NewNames([]string{"fruit", "fruit-salad", "t", "fruit"}, "salt", false)
	fruit, salad := names.Hide("fruit"), names.Hide("fruit-salad")
	if fruit == salad || !strings.HasPrefix(fruit, "table-") || bundle.NewNames(nil, "other", false).Hide("fruit") == fruit {
		t.Errorf("hashes %s, %s", fruit, salad)
	}
	from := `tables: fruit, fruit-salad; "fruit" grapefruit fruits t`
	if got, want := names.Within(from), "tables: "+fruit+", "+salad+`; "`+fruit+`" grapefruit fruits t`; got != want {
		t.Errorf("%q instead of %q", got, want)
	}
	if shown := bundle.NewNames([]string{"fruit"}, "salt", true); shown.Hide("fruit") != "fruit" || shown.Within(from) != from {
		t.Error("hidden, though they are to be shown")
	}
}

// planted has the word hunter2 in every place where a secret may be, and table names wherever these are.
func planted() *bundle.Contents {
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "box", Annotations: map[string]string{
		corev1.LastAppliedConfigAnnotation: `{"a":"hunter2"}`, "example.com/note": "hunter2", v1alpha1.AnnotationAcknowledgedLosses: "1",
	}}}
	store.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	store.Status.Losses = []v1alpha1.Loss{{Number: 1, Member: "box-master-0", Tables: []string{"orchard", "t"}}}
	store.Status.Conditions = []metav1.Condition{{Type: "Progressing", Message: "tables: orchard"}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "box-master-0-x", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "hunter2"}},
	}}
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Annotations: map[string]string{"x.io/y": "hunter2"}}}
	draining := &adminv1.Draining{WaitsFor: []string{"to move (tables: orchard)"}}
	pod.Spec.Containers = []corev1.Container{{
		Args: []string{"--token", "hunter2", "--password=hunter2", "--cores", "2"},
		Env: []corev1.EnvVar{
			{Name: "INNOCENT", Value: "hunter2"}, {Name: "RCBOX_TOKEN", Value: "hunter2"}, {Name: "RCBOX_REBUILD", Value: "true"},
		},
	}}
	order := v1alpha1.StoreOperation{ObjectMeta: metav1.ObjectMeta{Name: "drain", Annotations: map[string]string{"x.io/y": "hunter2"}}}
	order.Status.Conditions = []metav1.Condition{{Type: "Complete", Message: "1 tablet, 0 copies left; to move (tables: orchard)"}}
	class := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	class.Spec.CSI = &corev1.CSIPersistentVolumeSource{VolumeAttributes: map[string]string{"key": "hunter2"}}
	return &bundle.Contents{
		Snapshot: &view.Snapshot{
			Now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Store: store, Pods: []corev1.Pod{pod},
			Nodes: map[string]*corev1.Node{"node-1": {ObjectMeta: metav1.ObjectMeta{
				Name: "node-1", Labels: map[string]string{"rack": "a"}, Annotations: map[string]string{"x": "hunter2"},
			}}},
			Cluster: &adminv1.GetClusterStatusResponse{
				Members: []*adminv1.Member{{Name: "box-master-0", Draining: draining}},
				Losses:  []*adminv1.Loss{{Tables: []string{"orchard", "t"}}}, Migrations: []*adminv1.Migration{{Table: "orchard"}},
			},
			Tables: []*adminv1.Table{{TableId: 1, Name: "orchard"}, {TableId: 2, Name: "t"}},
		},
		Events:     []corev1.Event{{Message: "env PASSWORD=hunter2 is bad"}},
		Claims:     []corev1.PersistentVolumeClaim{claim},
		Operations: []v1alpha1.StoreOperation{order},
		Members: []v1alpha1.StoreMember{{
			ObjectMeta: metav1.ObjectMeta{Name: "box-master-0", Annotations: map[string]string{"x": "hunter2"}},
			Status:     v1alpha1.MemberFigures{Node: "node-1", Message: "env PASSWORD=hunter2 is bad"},
		}},
		Volumes:    []corev1.PersistentVolume{class},
		ConfigMaps: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "box-state-root"}, Data: map[string]string{"root": "hunter2"}}},
		Logs:       map[string]string{"logs/a.log": `{"message":"table orchard","password":"hunter2"}`},
		Metrics:    map[string]string{"metrics/a.txt": "up 1"},
		Reasons:    map[string]string{"why/a.txt": "error: token=hunter2"},
		LeftOut:    []string{"nodes: https://me:hunter2@host refused"},
	}
}

func TestNoPlantedSecretGetsIn(t *testing.T) {
	files, err := bundle.Files(planted(), bundle.Options{Salt: "salt"})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		all[file.Path] = file.Text
		for _, word := range []string{"hunter2", "orchard", `"t"`, "- t\n"} {
			if strings.Contains(file.Text, word) {
				t.Errorf("%s has %q:\n%s", file.Path, word, file.Text)
			}
		}
	}
	// What is harmless is there: a bundle of nothing would be safe as well.
	for path, part := range map[string]string{
		"store.yaml": "name: registry", "pods.yaml": "RCBOX_REBUILD", "nodes.yaml": "rack: a", "events.yaml": "is bad",
		"metrics/a.txt": "up 1", "members.yaml": "node: node-1",
		"configmaps.txt": "box-state-root  1 keys, 7 bytes", "cluster-status.json": "box-master-0", "tables.json": "table-",
		"README.txt": "logs/a.log", "status.txt": "team/box", "claims.yaml": "name: c", "logs/a.log": "table table-",
	} {
		if !strings.Contains(all[path], part) {
			t.Errorf("%s has no %q:\n%s", path, part, all[path])
		}
	}
	if _, found := all["state/box-state-root.yaml"]; found {
		t.Error("the state is in, and nobody has asked for it")
	}
}

func TestWhatIsAskedForIsIn(t *testing.T) {
	contents := planted()
	contents.ConfigMaps[0].Data["root"] = "chunks"
	files, err := bundle.Files(contents, bundle.Options{State: true, Names: true})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Builder{}
	for _, file := range files {
		all.WriteString(file.Path + "\n" + file.Text)
	}
	text := all.String()
	for _, part := range []string{"state/box-state-root.yaml", "root: chunks", "orchard", "--state was given", "--names was given"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in it", part)
		}
	}
	if strings.Contains(text, "hunter2") {
		t.Error("a secret is in it")
	}
}
