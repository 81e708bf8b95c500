package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	disasterPage = "../docs/disaster.md"
	disasterSpec = `apiVersion: rcbox.dev/v1alpha1
kind: Store
metadata: {name: box}
spec:
  masters: {replicas: 2, memory: 256Mi, resources: {requests: {cpu: 100m}}}
  replication: {factor: 1}
  backups: {storage: {size: 512Mi}}
  coordinator: {replicas: 2, state: {type: Kubernetes}}
`
	// wideTables make the state too long for the root alone.
	wideTables, wideSpan = 12, 1000
	coordinators         = v1alpha1.LabelStore + "=" + storeName + "," + v1alpha1.LabelComponent + "=" + v1alpha1.ComponentCoordinator
)

// disasters is what one step leaves for the next.
type disasters struct {
	// folder is where the page's commands run.
	folder string
	// followed are the headings whose commands were run.
	followed map[string]bool
	// written is how many objects were.
	written int
}

// TestDisasters does the harm that the page on disasters is about, and runs the commands that the page has for it.
func TestDisasters(t *testing.T) {
	namespacesAreThere(t)
	d := &disasters{folder: t.TempDir(), followed: map[string]bool{}}
	inOrder(t, []step{
		{"OperatorRuns", operatorRuns},
		{"StoreHoldsSomething", d.storeHoldsSomething},
		{"RootIsDeleted", d.rootIsDeleted},
		{"NamespaceIsGone", d.namespaceIsGone},
		{"StateIsRolledBackAndTheNewerOneExists", d.rolledBackAndTheNewerExists},
		{"StateIsRolledBackAndTheNewerOneIsLost", d.rolledBackAndTheNewerIsLost},
		{"StateIsGone", d.stateIsGone},
		{"RootIsMissing", d.rootIsMissing},
		{"ChunkIsMissing", d.chunkIsMissing},
		{"StartingEmpty", d.startingEmpty},
		{"AllCommandsOfThePageWereRun", d.allWereRun},
		{"NothingOfTheStoreIsLeft", nothingOfTheStoreIsLeft},
	})
}

// pageOfCommands is what the page has to be run, by the heading that it stands under.
func pageOfCommands(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(disasterPage)
	if err != nil {
		t.Fatal(err)
	}
	heading, isCode := "", false
	commands := map[string]string{}
	for line := range strings.Lines(string(page)) {
		switch text := strings.TrimSpace(line); {
		case isCode && text == "```":
			isCode = false
		case isCode:
			commands[heading] += line
		case text == "```sh":
			isCode = true
		case strings.HasPrefix(text, "#"):
			heading = strings.TrimLeft(text, "# ")
		}
	}
	return commands
}

// follow runs what the page has under a heading, as somebody would whose kubectl is set to the Store's namespace.
func (d *disasters) follow(t *testing.T, heading string) {
	t.Helper()
	commands, isThere := pageOfCommands(t)[heading]
	if !isThere {
		t.Fatalf("%s has no commands under %q", disasterPage, heading)
	}
	d.followed[heading] = true
	d.shell(t, commands)
}

func (d *disasters) shell(t *testing.T, script string) {
	t.Helper()
	config := filepath.Join(d.folder, "kubeconfig")
	if _, err := os.Stat(config); err != nil {
		original, err := os.ReadFile(os.Getenv("KUBECONFIG"))
		if err == nil {
			err = os.WriteFile(config, original, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		kubectl(t, "--kubeconfig", config, "config", "set-context", "--current", "--namespace", namespaceOf(t))
	}
	command := exec.Command("bash", "-euxo", "pipefail", "-c", script)
	command.Dir = d.folder
	command.Env = append(os.Environ(), "KUBECONFIG="+config, "PATH="+filepath.Dir(settings.kubectl)+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

func (d *disasters) storeHoldsSomething(t *testing.T) {
	apply(t, disasterSpec)
	waitUntilSafeWithStandby(t)
	client := openSession(t, t, "make", patience)
	for number := range wideTables {
		client.mustAsk(t, 1, fmt.Sprintf("create-table wide-%d --span %d", number, wideSpan))
	}
	client.mustAsk(t, 1, "create-table kept --span 2")
	d.write(t, client)
	if chunks := kubectl(t, "get", "configmaps", "-n", namespaceOf(t), "-l", v1alpha1.LabelState+"=chunk", "-o", "name"); chunks == "" {
		t.Error("the state has no chunk, so none can be lost")
	}
}

// write adds objects to the table that is kept.
func (d *disasters) write(t *testing.T, client *session) {
	t.Helper()
	for range 20 {
		client.mustAsk(t, 1, fmt.Sprintf("put kept k%d v%d", d.written, d.written))
		d.written++
	}
}

// isBack: the same store is safe again, with all that was written, and these tables and no others beside those that were made first.
func (d *disasters) isBack(t *testing.T, clusterID string, tables ...string) {
	t.Helper()
	store := waitUntilSafeWithStandby(t)
	if store.Status.ClusterID != clusterID || store.Status.LossCount != 0 {
		t.Errorf("store %s became %s, losses %+v", clusterID, store.Status.ClusterID, store.Status.Losses)
	}
	client := openSession(t, t, "read-"+strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:]), patience)
	for line, text := range client.mustAsk(t, d.written, joined("get kept", 0, d.written)) {
		if want := fmt.Sprintf("k%d\tv%d", line, line); text != want {
			t.Fatalf("of %d objects, one reads %q, not %q", d.written, text, want)
		}
	}
	tables = append(tables, "kept")
	for number := range wideTables {
		tables = append(tables, fmt.Sprintf("wide-%d", number))
	}
	slices.Sort(tables)
	if there := tablesOf(t); !slices.Equal(there, tables) {
		t.Errorf("the tables are %v, want %v", there, tables)
	}
}

// inLeader carries out a command of the command line client.
func inLeader(t *testing.T, arguments ...string) string {
	t.Helper()
	text, err := inCoordinator(t, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// tablesOf are the names of the Store's tables.
func tablesOf(t *testing.T) []string {
	t.Helper()
	text := inLeader(t, "tables", "--json")
	var tables []struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal([]byte(text), &tables); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
	}
	slices.Sort(names)
	return names
}

// isRefused waits until the operator tells why nobody leads.
func isRefused(t *testing.T, why string) {
	t.Helper()
	waitForStore(t, "nobody leads: "+why, startDeadline, func(store v1alpha1.Store) error {
		if !strings.Contains(store.Status.Coordinator.StateTrouble, why) {
			return fmt.Errorf("the coordinator's trouble is %q", store.Status.Coordinator.StateTrouble)
		}
		return conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonStateUnusable)
	})
}

// rootIsDeleted: only marked, so that tables can be made until the coordinators end for the commands, and nothing is taken back.
func (d *disasters) rootIsDeleted(t *testing.T) {
	before := readStore(t).Status.ClusterID
	kubectl(t, "delete", "configmap", "-n", namespaceOf(t), storeName+"-state-root", "--wait=false")
	inLeader(t, "create-table", "marked")
	d.follow(t, "The root was deleted")
	root, _ := get[podObject](t, "configmap", namespaceOf(t), storeName+"-state-root")
	if root.Metadata.UID == "" || root.Metadata.DeletionTimestamp != "" {
		t.Errorf("the root is %+v", root.Metadata)
	}
	d.isBack(t, before, "marked")
	inLeader(t, "drop-table", "marked")
}

// rollBack keeps a copy, makes a table, and puts the copy back over what is there; the newer state is in newer.yaml.
func (d *disasters) rollBack(t *testing.T) {
	t.Helper()
	d.follow(t, "Keeping a copy of the state")
	d.shell(t, "mv box-state.yaml older.yaml")
	inLeader(t, "create-table", "newer")
	d.follow(t, "Keeping a copy of the state")
	d.shell(t, "mv box-state.yaml newer.yaml; kubectl apply --server-side --force-conflicts -f older.yaml")
	// It notices when it is to change something, and that must not be done.
	if answer, err := inCoordinator(t, "--timeout", "5", "create-table", "on-an-old-state"); err == nil {
		t.Errorf("a table was made on a state that was put back: %s", answer)
	}
	isRefused(t, "StateRolledBack")
}

func (d *disasters) rolledBackAndTheNewerExists(t *testing.T) {
	before := readStore(t).Status.ClusterID
	d.rollBack(t)
	d.shell(t, "mv newer.yaml box-state.yaml")
	d.follow(t, "The newer objects exist somewhere")
	d.isBack(t, before, "newer")
	inLeader(t, "drop-table", "newer")
}

func (d *disasters) rolledBackAndTheNewerIsLost(t *testing.T) {
	before := readStore(t).Status.ClusterID
	d.rollBack(t)
	d.follow(t, "The newer objects are lost")
	d.isBack(t, before)
}

// stateIsGone: what was written after the copy is not, as the servers that wrote it are in the copy.
func (d *disasters) stateIsGone(t *testing.T) {
	before := readStore(t).Status.ClusterID
	d.follow(t, "Keeping a copy of the state")
	d.write(t, openSession(t, t, "after-the-copy", patience))
	d.shell(t, "kubectl delete configmaps -l rcbox.dev/store=box,rcbox.dev/state --wait=false")
	d.takeFinalizerOff(t)
	d.follow(t, "The state is gone, and there is a copy")
	d.isBack(t, before)
}

// takeFinalizerOff a root that is being deleted. Before that, the leader would put it on again with its next commit.
func (d *disasters) takeFinalizerOff(t *testing.T) {
	t.Helper()
	eventually(t, "the root is being deleted", changeDeadline, func() error {
		root, found := get[podObject](t, "configmap", namespaceOf(t), storeName+"-state-root")
		if found && root.Metadata.DeletionTimestamp == "" {
			return errors.New("it is not")
		}
		return nil
	})
	d.shell(t, `kubectl patch configmap box-state-root --type merge -p '{"metadata":{"finalizers":null}}'`)
}

func (d *disasters) rootIsMissing(t *testing.T) {
	before := readStore(t).Status.ClusterID
	d.follow(t, "Keeping a copy of the state")
	d.shell(t, "kubectl delete configmap box-state-root --wait=false")
	d.takeFinalizerOff(t)
	d.shell(t, "kubectl delete pods -l "+coordinators)
	isRefused(t, "StateIncomplete")
	d.follow(t, "StateIncomplete, StateUnreadable")
	d.isBack(t, before)
}

func (d *disasters) chunkIsMissing(t *testing.T) {
	before := readStore(t).Status.ClusterID
	d.follow(t, "Keeping a copy of the state")
	d.shell(t, `kubectl delete configmaps -l rcbox.dev/store=box,rcbox.dev/state=chunk
		kubectl delete pods -l `+coordinators)
	isRefused(t, "StateIncomplete")
	d.follow(t, "StateIncomplete, StateUnreadable")
	d.isBack(t, before)
}

// namespaceIsGone, and everything in it but the volumes: the store is made again from what lies in these, to the last object.
func (d *disasters) namespaceIsGone(t *testing.T) {
	before := readStore(t).Status.ClusterID
	d.write(t, openSession(t, t, "before-the-end", patience))
	d.follow(t, "Volumes that outlive their claims")
	eventually(t, "the volumes have the newest checkpoint", changeDeadline, func() error {
		text, err := inCoordinator(t, "status")
		if err == nil && !strings.Contains(text, "Checkpoint in volumes: current") {
			err = errors.New(text)
		}
		return err
	})
	kubectl(t, "delete", "namespace", namespaceOf(t), "--wait=false")
	// Nobody takes a finalizer off: the operator does, once the Store's pods have ended.
	kubectl(t, "wait", "--for=delete", "namespace/"+namespaceOf(t), "--timeout=150s")
	manifest := strings.Replace(disasterSpec, "coordinator: {", "coordinator: {rebuild: FromVolumes, ", 1)
	if err := os.WriteFile(filepath.Join(d.folder, "store.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	d.follow(t, "The store from its volumes")
	d.isBack(t, before)
}

func (d *disasters) startingEmpty(t *testing.T) {
	before := readStore(t).Status.ClusterID
	d.follow(t, "Starting empty")
	// They were to outlive their claims.
	d.shell(t, "kubectl get pv -o name | xargs -r kubectl delete")
	apply(t, strings.Replace(disasterSpec, "spec:\n", "spec:\n  reclaimPolicy: Delete\n", 1))
	store := waitUntilSafeWithStandby(t)
	if tables := tablesOf(t); store.Status.ClusterID == before || len(tables) != 0 {
		t.Errorf("store %s became %s, with the tables %v", before, store.Status.ClusterID, tables)
	}
}

func (d *disasters) allWereRun(t *testing.T) {
	for heading := range pageOfCommands(t) {
		if !d.followed[heading] {
			t.Errorf("nobody has tried what %s has under %q", disasterPage, heading)
		}
	}
}
