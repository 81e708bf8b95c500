package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/faults/history"
)

const (
	// histories is a folder of each node, with one for each test. What clients have written down there outlives
	// their pods, and is read without an API server.
	histories = "/var/lib/rcbox-histories"
	// sharedKeys are few, so that clients meet, and enough for each of four masters to have some.
	sharedKeys = 16
	// checkLimit is for looking for the order of operations that explains a history; it takes some seconds.
	checkLimit = 2 * time.Minute
)

// Nine clients that do some 20 operations per second each: below 100 KB per second in all, on disks.
const clientsManifest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: clients, namespace: %s}
spec:
  replicas: 3
  selector: {matchLabels: {app: clients}}
  template:
    metadata: {labels: {app: clients}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      nodeSelector: {%s}
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: clients}}}
      containers:
      - name: recorder
        image: %s
        imagePullPolicy: IfNotPresent
        args: [-C, "%s", --to, /histories, --any-client, --clients, "3", --keys, "%d",
          --think-micros, "100000"]
        # They go on until it ends.
        stdin: true
        resources: {requests: {cpu: 10m, memory: 32Mi}}
        volumeMounts: [{name: histories, mountPath: /histories}]
      volumes:
      - {name: histories, hostPath: {path: %s, type: Directory}}
`

// clients is a Deployment whose pods read, write, increment and remove a few keys, and write down what they see. They and their nodes
// may end at any time.
type clients struct {
	// namespace is theirs, folder what they write down in.
	namespace, folder string
	nodes             []string
	files             map[historyName]*historyFile
}

type historyName struct{ node, name string }

// historyFile is what one process has written, as far as it was read.
type historyFile struct {
	history.Recording
	// read is how many bytes are.
	read int
}

// startClients starts them for as long as the whole test takes, and waits until each key is used.
func startClients(t, whole *testing.T) *clients {
	t.Helper()
	return startClientsOn(t, whole, "")
}

// startClientsOn starts them on nodes that are containers of this machine, by a label of theirs, or on all nodes.
func startClientsOn(t, whole *testing.T, label string) *clients {
	t.Helper()
	mine := namespaceOf(t)
	c := &clients{namespace: mine + "-clients", folder: histories + "/" + mine, files: map[historyName]*historyFile{}}
	for _, node := range list[podObject](t, "nodes", "", "-l", label) {
		c.nodes = append(c.nodes, node.Metadata.Name)
		docker(t, "exec", node.Metadata.Name, "sh", "-c", "rm -rf "+c.folder+" && mkdir -p "+histories+" && mkdir -m 777 "+c.folder)
	}
	kubectl(t, "create", "namespace", c.namespace)
	whole.Cleanup(func() { kubectl(whole, "delete", "namespace", c.namespace, "--wait", "--timeout=120s") })
	selector := ""
	if label != "" {
		selector = fmt.Sprintf("%q: \"true\"", label)
	}
	manifest := fmt.Sprintf(clientsManifest, c.namespace, selector, settings.recorderImage, locator(t), sharedKeys, c.folder)
	must(t, settings.kubectl, manifest, "create", "-f", "-")
	kubectl(t, "rollout", "status", "-n", c.namespace, "deployment/clients", "--timeout=120s")
	c.goOn(t, "clients read and write", 5)
	return c
}

func docker(t *testing.T, arguments ...string) string {
	t.Helper()
	return must(t, setting("RCBOX_DOCKER", "docker"), "", arguments...)
}

// now is the clients' clock.
func now(t *testing.T) int64 {
	t.Helper()
	time, err := history.Now()
	if err != nil {
		t.Fatal(err)
	}
	return time
}

// goOn waits until so many operations on each key that began after now were answered.
func (c *clients) goOn(t *testing.T, what string, each int) {
	t.Helper()
	since := now(t)
	eventually(t, what, changeDeadline, func() error {
		unread := c.read()
		answered := map[string]int{}
		for _, file := range c.files {
			for _, operation := range file.Operations {
				if operation.Call >= since && operation.IsKnown() {
					answered[operation.Key]++
				}
			}
		}
		for key := range sharedKeys {
			if count := answered[history.SharedKey(key)]; count < each {
				return errors.Join(fmt.Errorf("%d of %d operations on %s", count, each, history.SharedKey(key)), unread)
			}
		}
		return nil
	})
}

// slowest is the longest operation that was under way at some time since, and was answered, of clients on other nodes than this.
func (c *clients) slowest(since int64, node string) time.Duration {
	var longest int64
	for name, file := range c.files {
		for _, operation := range file.Operations {
			if name.node != node && operation.IsKnown() && operation.Return >= since {
				longest = max(longest, operation.Return-operation.Call)
			}
		}
	}
	return time.Duration(longest)
}

// read reads what was written since it was read last, and tells of nodes that do not answer.
func (c *clients) read() error {
	var problems []error
	for _, node := range c.nodes {
		var script strings.Builder
		fmt.Fprintf(&script, "cd %s || exit; for file in *.jsonl; do [ -e $file ] || continue; from=1; case $file in ", c.folder)
		for name, file := range c.files {
			if name.node == node {
				fmt.Fprintf(&script, "%s) from=%d ;; ", name.name, file.read+1)
			}
		}
		script.WriteString("esac; echo; echo file $file; tail -c +$from $file; done")
		got, err := run(setting("RCBOX_DOCKER", "docker"), "", "exec", node, "sh", "-c", script.String())
		if err == nil && got.exitCode != 0 {
			err = fmt.Errorf("node %s: exit code %d: %s", node, got.exitCode, got.stderr)
		}
		if err == nil {
			err = c.take(node, got.stdout)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// take adds the parts of files that a node has printed, each behind a line with its name.
func (c *clients) take(node, printed string) error {
	for _, part := range strings.Split(printed, "\nfile ")[1:] {
		name, content, _ := strings.Cut(part, "\n")
		file := c.files[historyName{node, name}]
		if file == nil {
			file = &historyFile{}
			c.files[historyName{node, name}] = file
		}
		// What is behind the last end of a line is still being written.
		whole := content[:strings.LastIndexByte(content, '\n')+1]
		for line := range bytes.Lines([]byte(whole)) {
			if err := file.Add(line); err != nil {
				return fmt.Errorf("%s on %s: %w", name, node, err)
			}
		}
		file.read += len(whole)
	}
	return nil
}

// end kills the clients, has everything read back once more, and holds all that was seen against the model.
func (c *clients) end(t *testing.T) {
	t.Helper()
	kubectl(t, "scale", "-n", c.namespace, "deployment/clients", "--replicas=0")
	eventually(t, "the clients have ended", changeDeadline, func() error {
		if pods := list[podObject](t, "pods", c.namespace); len(pods) > 0 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	if err := c.read(); err != nil {
		t.Fatal(err)
	}
	operations := c.readBack(t)
	for _, file := range c.files {
		operations = append(operations, file.Operations...)
	}
	t.Logf("%d operations of %d processes of clients, %d of them with an unknown outcome",
		len(operations), len(c.files), history.CountUnknown(operations))
	if err := errors.Join(history.Complete(operations, sharedKeys), history.Check(operations, checkLimit)); err != nil {
		t.Fatal(err)
	}
}

// readBack reads every key.
func (c *clients) readBack(t *testing.T) []history.Operation {
	t.Helper()
	const pod = "read-back"
	// Standard input is empty: it reads everything once, and ends.
	create(t, podManifest(t, pod, settings.recorderImage, []string{
		"recorder", "-C", locator(t),
		"--clients", "1", "--keys", strconv.Itoa(sharedKeys), "--only-reads",
	}, false))
	got := finishClientPod(t, pod, changeDeadline)
	if got.exitCode != 0 {
		t.Fatalf("%s: exit code %d\n%s", pod, got.exitCode, got.stdout)
	}
	var recording history.Recording
	for line := range bytes.Lines([]byte(got.stdout)) {
		if err := recording.Add(line); err != nil {
			t.Fatal(err)
		}
	}
	return recording.Operations
}
