package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The suite drives the cluster as a user does, with kubectl and helm, and reads what they print.

// commandTimeout bounds one kubectl or helm call; none of them waits longer by itself.
const commandTimeout = 3 * time.Minute

// result is what a command left behind.
type result struct {
	stdout, stderr string
	exitCode       int
}

func run(name string, stdin string, args ...string) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if stdin != "" {
		command.Stdin = strings.NewReader(stdin)
	}
	err := command.Run()
	got := result{stdout: stdout.String(), stderr: stderr.String()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got.exitCode = exit.ExitCode()
		return got, nil
	}
	return got, err
}

// must runs a command that has to succeed and returns what it printed.
func must(t *testing.T, name string, stdin string, args ...string) string {
	t.Helper()
	got, err := run(name, stdin, args...)
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	if got.exitCode != 0 {
		t.Fatalf("%s %s: exit code %d\n%s%s", name, strings.Join(args, " "), got.exitCode, got.stdout, got.stderr)
	}
	return got.stdout
}

// sideBySide is the test whose parts run at the same time, each with a Store of its own.
const sideBySide = "TestSideBySide"

// namespaceOf is where a test has its Store: each has a namespace of its own.
func namespaceOf(t *testing.T) string {
	t.Helper()
	names := strings.Split(t.Name(), "/")
	if names[0] == onBlades { // the sample says where its Store is
		return "default"
	}
	if names[0] == sideBySide && len(names) > 1 {
		names = names[1:]
	}
	return "e2e-" + strings.ToLower(strings.TrimPrefix(names[0], "Test"))
}

// locator is where clients in pods find the coordinator of a test's Store.
func locator(t *testing.T) string {
	t.Helper()
	return "tcp:host=" + storeName + "." + namespaceOf(t) + ".svc,port=11100"
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, settings.kubectl, "", args...)
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	must(t, settings.kubectl, manifest, "apply", "-n", namespaceOf(t), "-f", "-")
}

func helm(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, settings.helm, "", args...)
}

// get reads one object, or false if there is none.
func get[T any](t *testing.T, kind, in, name string) (T, bool) {
	t.Helper()
	var object T
	got, err := run(settings.kubectl, "", "get", kind, name, "-n", in, "-o", "json", "--ignore-not-found")
	if err != nil || got.exitCode != 0 {
		t.Fatalf("kubectl get %s %s: %v %s", kind, name, err, got.stderr)
	}
	if strings.TrimSpace(got.stdout) == "" {
		return object, false
	}
	if err := json.Unmarshal([]byte(got.stdout), &object); err != nil {
		t.Fatalf("kubectl get %s %s: %v", kind, name, err)
	}
	return object, true
}

// list reads all objects of a kind in a namespace.
func list[T any](t *testing.T, kind, in string, args ...string) []T {
	t.Helper()
	var objects struct {
		Items []T `json:"items"`
	}
	out := kubectl(t, append([]string{"get", kind, "-n", in, "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &objects); err != nil {
		t.Fatalf("kubectl get %s: %v", kind, err)
	}
	return objects.Items
}

// eventually waits until the check finds nothing to complain about. The deadline says that something hangs, not that
// it is slow: it is at least ten times what is typical.
func eventually(t *testing.T, what string, deadline time.Duration, check func() error) {
	t.Helper()
	start := time.Now()
	var last error
	for time.Since(start) < deadline {
		if last = check(); last == nil {
			t.Logf("%s: %.1f s", what, time.Since(start).Seconds())
			return
		}
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the interval of a poll
	}
	t.Fatalf("%s: not after %s: %v", what, deadline, last)
}

// clientPod runs one command of the store's image as a pod of its own, to its end.
func clientPod(t *testing.T, name string, deadline time.Duration, command ...string) result {
	t.Helper()
	startClientPod(t, name, command...)
	return finishClientPod(t, name, deadline)
}

func startClientPod(t *testing.T, name string, command ...string) {
	t.Helper()
	create(t, podManifest(t, name, settings.storeImage, command, false))
}

// create makes an object.
func create(t *testing.T, object map[string]any) {
	t.Helper()
	manifest, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	must(t, settings.kubectl, string(manifest), "create", "-f", "-")
}

// podManifest is a pod that runs one command to its end; with stdin, it waits for what is attached to it.
func podManifest(t *testing.T, name, image string, command []string, stdin bool) map[string]any {
	t.Helper()
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata":   map[string]any{"name": name, "namespace": namespaceOf(t), "labels": map[string]string{"e2e": "client"}},
		"spec": map[string]any{
			"restartPolicy":                 "Never",
			"automountServiceAccountToken":  false,
			"terminationGracePeriodSeconds": 1,
			"securityContext": map[string]any{
				"runAsNonRoot":   true,
				"runAsUser":      65532,
				"seccompProfile": map[string]string{"type": "RuntimeDefault"},
			},
			"containers": []any{map[string]any{
				"name":            "client",
				"image":           image,
				"imagePullPolicy": "IfNotPresent",
				"command":         command,
				"stdin":           stdin,
				"stdinOnce":       stdin,
				"securityContext": map[string]any{
					"allowPrivilegeEscalation": false,
					"capabilities":             map[string]any{"drop": []string{"ALL"}},
				},
			}},
		},
	}
}

func finishClientPod(t *testing.T, name string, deadline time.Duration) result {
	t.Helper()
	var done podObject
	eventually(t, "pod "+name+" ends", deadline, func() error {
		pod, found := get[podObject](t, "pod", namespaceOf(t), name)
		if !found {
			return errors.New("gone")
		}
		if pod.Status.Phase != "Succeeded" && pod.Status.Phase != "Failed" {
			return fmt.Errorf("phase %s", pod.Status.Phase)
		}
		done = pod
		return nil
	})
	out := kubectl(t, "logs", "-n", namespaceOf(t), name)
	code := -1
	for _, container := range done.Status.ContainerStatuses {
		if container.State.Terminated != nil {
			code = container.State.Terminated.ExitCode
		}
	}
	kubectl(t, "delete", "pod", "-n", namespaceOf(t), name, "--wait=false")
	return result{stdout: out, exitCode: code}
}

type objectMeta struct {
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	Labels            map[string]string `json:"labels"`
	DeletionTimestamp string            `json:"deletionTimestamp"`
	OwnerReferences   []struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"ownerReferences"`
}

type podObject struct {
	Metadata objectMeta `json:"metadata"`
	Spec     struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase             string `json:"phase"`
		PodIP             string `json:"podIP"`
		ContainerStatuses []struct {
			Name         string `json:"name"`
			RestartCount int    `json:"restartCount"`
			Ready        bool   `json:"ready"`
			State        struct {
				Running    *struct{} `json:"running"`
				Terminated *struct {
					ExitCode int `json:"exitCode"`
				} `json:"terminated"`
			} `json:"state"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

// storePods are the live pods of a Store, by the member that they are.
func storePods(t *testing.T, store string) map[string]podObject {
	t.Helper()
	pods := map[string]podObject{}
	for _, pod := range list[podObject](t, "pods", namespaceOf(t)) {
		owned := false
		for _, owner := range pod.Metadata.OwnerReferences {
			owned = owned || owner.Kind == "Store" && owner.Name == store
		}
		if owned && pod.Metadata.DeletionTimestamp == "" {
			member := pod.Metadata.Name[:strings.LastIndex(pod.Metadata.Name, "-")]
			pods[member] = pod
		}
	}
	return pods
}

// fingerprints tell whether a process was restarted: the pod's uid and how often its container was.
func fingerprints(pods map[string]podObject) map[string]string {
	prints := map[string]string{}
	for member, pod := range pods {
		restarts := 0
		for _, container := range pod.Status.ContainerStatuses {
			restarts += container.RestartCount
		}
		prints[member] = fmt.Sprintf("%s/%d", pod.Metadata.UID, restarts)
	}
	return prints
}

// step is a part of a test that needs those before it.
type step struct {
	name string
	test func(*testing.T)
}

// inOrder runs steps; after one that fails, nothing that follows means anything.
func inOrder(t *testing.T, steps []step) {
	t.Helper()
	for _, one := range steps {
		if !t.Run(one.name, one.test) {
			diagnose(t)
			t.FailNow()
		}
	}
}

// diagnose prints what one looks at when something went wrong: first last, for where only the end of a log is kept.
func diagnose(t *testing.T) {
	for _, args := range [][]string{
		{"logs", "-n", operatorNamespace, "deployment/rcbox-operator", "--tail=60", "--previous"},
		{"logs", "-n", operatorNamespace, "deployment/rcbox-operator", "--tail=60"},
		{"describe", "pods", "-n", operatorNamespace},
		{"describe", "stores", "-n", namespaceOf(t)},
		{"get", "events", "-n", namespaceOf(t), "--sort-by=.lastTimestamp"},
		{"get", "stores,storemembers,storeoperations,clusterperfs,pods", "-A", "-o", "wide"},
		{"get", "stores", "-n", namespaceOf(t), "-o", `jsonpath={range .items[*].status.conditions[?(@.status!="True")]}{@}{"\n"}{end}`},
	} {
		got, err := run(settings.kubectl, "", args...)
		t.Logf("--- kubectl %s (%v)\n%s%s", strings.Join(args, " "), err, got.stdout, got.stderr)
	}
}

func setting(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

// namespacesAreThere, and restricted: a pod of the operator or of a store that asks for more is refused. The test's own goes with it.
func namespacesAreThere(t *testing.T) {
	t.Helper()
	for _, in := range []string{namespaceOf(t), operatorNamespace} {
		if _, found := get[podObject](t, "namespace", "default", in); !found {
			kubectl(t, "create", "namespace", in)
		}
		setPodSecurity(t, in, "restricted")
	}
	t.Cleanup(func() {
		if !t.Failed() {
			kubectl(t, "delete", "namespace", namespaceOf(t), "--ignore-not-found", "--wait=false")
		}
	})
}

// setPodSecurity says what a namespace lets pods do.
func setPodSecurity(t *testing.T, in, level string) {
	t.Helper()
	kubectl(t, "label", "namespace", in, "--overwrite", "pod-security.kubernetes.io/enforce="+level)
}
