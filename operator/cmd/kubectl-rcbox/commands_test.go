package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

// contains fails for each part that is not in the text.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

func TestStatus(t *testing.T) {
	h := newHarness(t)
	contains(t, h.must("status"), "team/box", "2 of 2 up", "node-of-box-master-1")

	var document view.StatusDocument
	if err := json.Unmarshal([]byte(h.must("status", "box", "-o", "json")), &document); err != nil {
		t.Fatal(err)
	}
	if !document.Available || len(document.Members) != 2 || document.Members[1].State != view.StateUp || document.CoordinatorError != "" {
		t.Errorf("as JSON: %+v", document)
	}

	broken := h.storeNow()
	broken.Status.Conditions[0].Status = metav1.ConditionFalse
	if err := h.client.Status().Update(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := h.run("status", "box"); code != exitNotAvailable || !strings.Contains(out, "team/box") || errs != "" {
		t.Errorf("not Available: exit code %d, %s", code, errs)
	}
}

// What the operator has seen is shown without the right to forward ports; what needs the coordinator says which right is missing.
func TestWithoutTheRightToForward(t *testing.T) {
	h := newHarness(t)
	h.mayForward = false
	contains(t, h.must("status", "box"), "what the operator has seen last", "pods/portforward")
	for _, arguments := range [][]string{{"recover", "box"}, {"top", "box"}, {"locate", "box", "fruit", "apple"}} {
		code, _, errs := h.run(arguments...)
		if code != exitFailed {
			t.Errorf("%v: exit code %d", arguments, code)
		}
		contains(t, errs, "create and get on pods/portforward", "docs/kubectl-rcbox.md")
	}
}

func TestWrongUse(t *testing.T) {
	h := newHarness(t, store("crate"))
	for _, test := range []struct {
		arguments []string
		code      int
		text      string
	}{
		{[]string{"status", "a", "b"}, exitUsage, "kubectl rcbox status --help"},
		{[]string{"status", "-o", "xml"}, exitUsage, "json is all that there is"},
		{[]string{"status", "--nonsense"}, exitUsage, "unknown flag"},
		{[]string{"locate", "box", "fruit", "xyz", "--hex"}, exitUsage, "KEY"},
		{[]string{"recover", "--interval", "1ms"}, exitUsage, "at least 100ms"},
		{[]string{"drain", "box"}, exitUsage, "accepts 2 arg"},
		{[]string{"nonsense"}, exitUsage, "unknown command"},
		{[]string{"recover"}, exitFailed, "name one of box, crate"},
		{[]string{"status", "nowhere"}, exitFailed, "not found"},
	} {
		code, out, errs := h.run(test.arguments...)
		if code != test.code || !strings.Contains(errs, test.text) || out != "" {
			t.Errorf("%v: exit code %d, %s%s", test.arguments, code, out, errs)
		}
	}
}

func TestLocate(t *testing.T) {
	h := newHarness(t)
	const middle = 1 << 63
	tablets := []*adminv1.Tablet{
		{StartKeyHash: 0, EndKeyHash: middle - 1, ServerId: 1, Member: "box-master-0"},
		{
			StartKeyHash: middle, EndKeyHash: 1<<64 - 1, ServerId: 2, Member: "box-master-1",
			State: adminv1.TabletState_TABLET_STATE_RECOVERING,
		},
	}
	h.coordinator.SetTables(&adminv1.Table{TableId: 1, Name: "fruit", Tablets: tablets}, &adminv1.Table{TableId: 2, Name: "1"},
		&adminv1.Table{TableId: 3, Name: "third"})
	// The hashes are in keyhash's test.
	contains(t, h.must("locate", "box", "fruit", "0"), "0x360ba730dc0bd1ee", "box-master-0 (up)", "node-of-box-master-0", "10.0.0.1")
	contains(t, h.must("locate", "box", "fruit", "616263", "--hex"), "0x9c88be4e9a8a61f0", "box-master-1", "recovering")
	contains(t, h.must("locate", "box", "0x1", "abc", "-o", "json"), `"keyHash": "0x9c88be4e9a8a61f0"`, `"serverId": "2.0"`)
	for table, text := range map[string]string{"1": "has no tablet", "third": "has no tablet", "nothing": "there is no table"} {
		if code, _, errs := h.run("locate", "box", table, "abc"); code != exitFailed || !strings.Contains(errs, text) {
			t.Errorf("table %s: exit code %d, %s", table, code, errs)
		}
	}
}

func TestTop(t *testing.T) {
	h := newHarness(t)
	h.coordinator.SetTables(
		&adminv1.Table{TableId: 1, Name: "cold", Tablets: []*adminv1.Tablet{{Member: "box-master-0", OperationsPerSecond: 1}}},
		&adminv1.Table{TableId: 2, Name: "hot", Tablets: []*adminv1.Tablet{{Member: "box-master-1", OperationsPerSecond: 70_000}}})
	lines := strings.Split(h.must("top", "box"), "\n")
	for i, part := range map[int]string{1: "box-master-1", 2: "box-master-0", 5: "hot", 6: "cold"} {
		contains(t, lines[i], part)
	}
	contains(t, lines[1], "70.0k")
	if out := h.must("top", "box", "--tablets", "1"); strings.Contains(out, "cold") {
		t.Errorf("more tablets than asked for:\n%s", out)
	}
	contains(t, h.must("top", "box", "-o", "json"), `"operationsPerSecond": 70000`, `"cpuMillicores": null`)
}

func TestTrace(t *testing.T) {
	h := newHarness(t)
	all := h.must("trace", "box")
	contains(t, all, "box-master-0 shard 0, server 1.0: 3 events", "+0 ns", "+170 ns", "FrameIn", "message handed over, key 17",
		"+30.0 us", "1 of 2 shards did not answer")
	contains(t, h.must("trace", "box", "box-master-0", "--shard", "1"), "box-master-0 shard 1")

	var document view.Trace
	if err := json.Unmarshal([]byte(h.must("trace", "box", "box-master-0", "-o", "json")), &document); err != nil {
		t.Fatal(err)
	}
	if document.Asked != 1 || document.Shards[0].Events[2].SinceBeforeNanoseconds != 30_000 {
		t.Errorf("as JSON: %+v", document)
	}
	if code, _, errs := h.run("trace", "box", "nobody"); code != exitFailed || !strings.Contains(errs, `no member "nobody"`) {
		t.Errorf("a name that is no member: exit code %d, %s", code, errs)
	}
	if code, _, errs := h.run("trace", "box", "--last", "0"); code != exitUsage || !strings.Contains(errs, "--last") {
		t.Errorf("no events: exit code %d, %s", code, errs)
	}
}

func TestRecover(t *testing.T) {
	h := newHarness(t)
	contains(t, h.must("recover", "box", "--watch"), "No master was lost")
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		r.Recoveries = []*adminv1.Recovery{{ServerId: 1, Member: "box-master-0", TabletsLeft: 1, TabletCount: 4, LossToken: "t"}}
	})
	contains(t, h.must("recover", "box"), "75%", "accept-loss 1.0 --token t")
	contains(t, h.must("recover", "box", "-o", "json"), `"tabletsLeft": 1`, `"lossToken": "t"`)
}

// A drain stays ordered until it is taken back, and is ordered once.
func TestDrain(t *testing.T) {
	h := newHarness(t)
	contains(t, h.must("drain", "box", "1"), "is created")
	contains(t, h.must("drain", "box", "box-master-1"), "is created")
	orders := h.operations()
	if len(orders) != 1 || orders[0].Spec.Type != v1alpha1.OperationDrain || orders[0].Spec.Drain.Member != "box-master-1" {
		t.Fatalf("ordered: %+v", orders)
	}
	if code, _, errs := h.run("drain", "box", "crate-master-0"); code != exitFailed || !strings.Contains(errs, "is no master") {
		t.Errorf("another's member: exit code %d, %s", code, errs)
	}
	h.answerOperation(v1alpha1.OperationInForce)
	contains(t, h.must("drain", "box", "1", "--wait"), "InForce: said the operator")
	contains(t, h.must("drain", "box", "1", "--undo"), "box-master-1 stays")
	if left := h.operations(); len(left) > 0 {
		t.Errorf("taken back, and left: %+v", left)
	}
	contains(t, h.must("drain", "box", "1", "--undo"), "no StoreOperation orders")
	contains(t, h.must("drain", "box", "0"), "is created")
	h.answerOperation(v1alpha1.OperationFailed)
	contains(t, h.must("drain", "box", "0"), "is created")
	if orders := h.operations(); len(orders) != 2 {
		t.Errorf("after a refusal, it is not ordered again: %+v", orders)
	}
}

func TestIsolate(t *testing.T) {
	h := newHarness(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-7"}})
	contains(t, h.must("isolate", "box", "1"), "node-of-box-master-1 gets no more pods of box; box-master-1 stays there")
	contains(t, h.must("isolate", "box", "node-of-box-master-0"), "node-of-box-master-0 gets no more pods of box")
	contains(t, h.must("isolate", "box", "box-master-1"), "is isolated already")
	if code, _, errs := h.run("isolate", "box", "worker-8"); code != exitFailed || !strings.Contains(errs, "there is no node worker-8") {
		t.Errorf("a node that is not there: exit code %d, %s", code, errs)
	}
	contains(t, h.must("isolate", "box", "worker-7"), "worker-7 gets no more pods of box\n")
	var nodes []string
	for _, operation := range h.operations() {
		nodes = append(nodes, operation.Spec.Isolate.Node)
	}
	slices.Sort(nodes)
	if !slices.Equal(nodes, []string{"node-of-box-master-0", "node-of-box-master-1", "worker-7"}) {
		t.Errorf("ordered: %v", nodes)
	}
	for _, wrong := range []string{"Worker 7", "box-master-9", "9"} {
		if code, _, errs := h.run("isolate", "box", wrong); code != exitFailed || errs == "" {
			t.Errorf("%s: exit code %d, %s", wrong, code, errs)
		}
	}
	for _, name := range []string{"0", "worker-7", "node-of-box-master-1"} {
		contains(t, h.must("isolate", "box", name, "--undo"), "may have pods of box again")
	}
	contains(t, h.must("isolate", "box", "worker-7", "--undo"), "was not isolated")
	if left := h.operations(); len(left) > 0 {
		t.Errorf("taken back, and left: %+v", left)
	}
}

func TestDrill(t *testing.T) {
	h := newHarness(t)
	if code, _, errs := h.run("drill", "box"); code != exitUsage || !strings.Contains(errs, "say --yes") {
		t.Errorf("without --yes: exit code %d, %s", code, errs)
	}
	if code, _, errs := h.run("drill", "box", "--member", "crate-master-0", "--yes"); code != exitFailed ||
		!strings.Contains(errs, "is no master of Store team/box") {
		t.Errorf("another's member: exit code %d, %s", code, errs)
	}
	if orders := h.operations(); len(orders) > 0 {
		t.Errorf("ordered all the same: %+v", orders)
	}
	contains(t, h.must("drill", "box", "--member", "1", "--yes"), "is created", "kubectl get storeoperation")
	orders := h.operations()
	if len(orders) != 1 || orders[0].Spec.StoreRef.Name != "box" || orders[0].Spec.Type != v1alpha1.OperationDrill ||
		orders[0].Spec.Drill.Member != "box-master-1" {
		t.Fatalf("ordered: %+v", orders)
	}
	// What becomes of it, as an operator would say.
	for phase, said := range map[v1alpha1.OperationPhase]string{
		v1alpha1.OperationSucceeded: "Succeeded: said the operator", v1alpha1.OperationFailed: "Failed (Said): said the operator",
	} {
		ends := 0
		if phase == v1alpha1.OperationFailed {
			ends = exitFailed
		}
		h.deleteOperations()
		ended := make(chan string, 1)
		go func() {
			code, out, errs := h.run("drill", "box", "--yes", "--wait")
			ended <- fmt.Sprintf("%d %s%s", code, out, errs)
		}()
		h.answerOperation(phase)
		if got := <-ended; !strings.HasPrefix(got, strconv.Itoa(ends)) || !strings.Contains(got, said) {
			t.Errorf("%s: %s", phase, got)
		}
	}
}

func TestRestart(t *testing.T) {
	h := newHarness(t)
	if code, _, errs := h.run("restart", "box"); code != exitUsage || !strings.Contains(errs, "say --yes") {
		t.Errorf("without --yes: exit code %d, %s", code, errs)
	}
	contains(t, h.must("restart", "box", "--member", "1", "--member", "box-master-0", "--yes"), "is created")
	orders := h.operations()
	if len(orders) != 1 || !slices.Equal(orders[0].Spec.Restart.Members, []string{"box-master-1", "box-master-0"}) {
		t.Errorf("ordered: %+v", orders)
	}
}

// Without --format, the order is for what the operator has seen.
func TestFinalize(t *testing.T) {
	h := newHarness(t)
	if code, _, errs := h.run("finalize", "box"); code != exitUsage || !strings.Contains(errs, "say --yes") {
		t.Errorf("without --yes: exit code %d, %s", code, errs)
	}
	if code, _, errs := h.run("finalize", "box", "--yes"); code != exitFailed || !strings.Contains(errs, "reads no newer one") {
		t.Errorf("with nothing to finalize: exit code %d, %s", code, errs)
	}
	upgraded := h.storeNow()
	upgraded.Status.Format = v1alpha1.FormatStatus{Active: 1, Newest: 2}
	if err := h.client.Status().Update(t.Context(), upgraded); err != nil {
		t.Fatal(err)
	}
	contains(t, h.must("finalize", "box", "--yes"), "is created")
	if orders := h.operations(); len(orders) != 1 || orders[0].Spec.Finalize.Format != 2 {
		t.Errorf("ordered: %+v", orders)
	}
}

func TestSplit(t *testing.T) {
	h := newHarness(t)
	for _, parts := range []string{"1", "4097"} {
		code, _, errs := h.run("split", "box", "fruit", "--parts", parts)
		if code != exitUsage || !strings.Contains(errs, "say 2 to 4096") {
			t.Errorf("into %s parts: exit code %d, %s", parts, code, errs)
		}
	}
	if code, _, errs := h.run("split", "box", "fruit"); code != exitUsage || !strings.Contains(errs, "--parts is 0") {
		t.Errorf("without --parts: exit code %d, %s", code, errs)
	}
	contains(t, h.must("split", "box", "fruit", "--parts", "16"), "is created")
	orders := h.operations()
	if len(orders) != 1 || *orders[0].Spec.Split != (v1alpha1.SplitOperation{Table: "fruit", Parts: 16}) {
		t.Errorf("ordered: %+v", orders)
	}
}

// operations are those that there are.
func (h *harness) operations() []v1alpha1.StoreOperation {
	h.t.Helper()
	list := &v1alpha1.StoreOperationList{}
	if err := h.client.List(h.t.Context(), list); err != nil {
		h.t.Fatal(err)
	}
	return list.Items
}

func (h *harness) deleteOperations() {
	h.t.Helper()
	if err := h.client.DeleteAllOf(h.t.Context(), &v1alpha1.StoreOperation{}, client.InNamespace("team")); err != nil {
		h.t.Fatal(err)
	}
}

// answerOperation ends the one that is ordered next.
func (h *harness) answerOperation(phase v1alpha1.OperationPhase) {
	h.t.Helper()
	for {
		orders := h.operations()
		if len(orders) == 0 {
			runtime.Gosched()
			continue
		}
		complete := metav1.ConditionFalse
		if phase != v1alpha1.OperationFailed {
			complete = metav1.ConditionTrue
		}
		orders[0].Status = v1alpha1.StoreOperationStatus{Phase: phase, Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionOperationComplete, Status: complete, Reason: "Said", Message: "said the operator",
		}}}
		if err := h.client.Status().Update(h.t.Context(), &orders[0]); err != nil {
			h.t.Fatal(err)
		}
		return
	}
}

func TestHelpHasExamples(t *testing.T) {
	h := newHarness(t)
	for _, command := range rootCommand(nil).Commands() {
		out := h.must(command.Name(), "--help")
		contains(t, out, "Examples:", "kubectl rcbox "+command.Name())
	}
}

// The report has what could be read, says what could not, and no Secret.
func TestReport(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "box-secret"}, StringData: map[string]string{"a": "hunter2"},
	}
	h := newHarness(t, secret)
	h.coordinator.SetTables(&adminv1.Table{TableId: 1, Name: "orchard"})
	h.must("restart", "box", "--yes")
	path := filepath.Join(t.TempDir(), "report.tar.gz")
	contains(t, h.must("report", "box", "-f", path), path, "without metrics of box-master-0-bcdfg")
	files := unpack(t, path)
	contains(t, files["README.txt"], "Report of Store team/box", "metrics of box-master-0-bcdfg", "logs/box-master-0-bcdfg.log")
	contains(t, files["logs/box-master-0-bcdfg.log"], "a line", "Bearer REDACTED")
	contains(t, files["cluster-status.json"], "box-master-1")
	contains(t, files["operations.yaml"], "type: Restart")
	contains(t, files["tables.json"], "table-")
	for name, text := range files {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "orchard") {
			t.Errorf("%s has what it should not:\n%s", name, text)
		}
	}
	// Nothing is overwritten.
	if code, _, errs := h.run("report", "box", "-f", path); code != exitFailed || !strings.Contains(errs, "exists") {
		t.Errorf("the file is there: exit code %d, %s", code, errs)
	}
	if code, out, _ := h.run("report", "box", "-f", "-"); code != 0 || !strings.HasPrefix(out, "\x1f\x8b") {
		t.Errorf("to standard output: exit code %d, %.10q", code, out)
	}
}

// unpack gives the files of a report by their paths within its folder.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	archive := tar.NewReader(zip)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
}
