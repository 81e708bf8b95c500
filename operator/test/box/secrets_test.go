package box_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/testbed"
)

// canaries are all passwords of this test: they begin alike.
const (
	rotated  = canary + "-2"
	wrong    = canary + "-wrong"
	managers = 2
	// late BMCs do not answer before the controller is killed.
	late = 20
)

// watchArguments samples the arguments of all processes of this machine until the test ends, and fails it if a password is among them.
func watchArguments(t *testing.T) {
	t.Helper()
	// Each process is sampled only a few times: often enough to see a program that it starts by exec, and not too often on a machine with
	// many processes.
	const looks = 5
	samples := 0
	var sampling sync.WaitGroup
	sampling.Go(func() {
		looked := map[string]int{}
		for t.Context().Err() == nil {
			entries, err := os.ReadDir("/proc")
			if err != nil {
				t.Error(err)
				return
			}
			there := map[string]int{}
			for _, entry := range entries {
				id := entry.Name()
				if id[0] < '0' || id[0] > '9' {
					continue
				}
				if there[id] = looked[id] + 1; there[id] > looks {
					continue
				}
				text, err := os.ReadFile(filepath.Join("/proc", id, "cmdline"))
				if err == nil && bytes.Contains(text, []byte(canary)) {
					t.Errorf("a password is among the arguments of a process: %s", bytes.SplitN(text, []byte{0}, 2)[0])
					return
				}
				samples++
			}
			looked = there
			<-time.After(pause)
		}
	})
	t.Cleanup(func() {
		if sampling.Wait(); samples == 0 {
			t.Error("no process was looked at")
		}
	})
}

// secrecy: after all that was done with the rack, the password is in no object but its Secret, in no event, metric, and line that the
// controller wrote. Arguments are watched all the time.
func secrecy(b *bed) {
	b.makeStore()
	b.nowhere()
	b.bundleOf(boxStore)
}

// passwords: the Secret is missing, wrong and changed.
func passwords(b *bed) {
	b.secretIs(good())
	b.must(b.Client.Create(b.Context(), &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury1"}, Spec: v1alpha1.ChassisSpec{
		Model: "EmulatedRack", FirstServer: 1, Slots: fmt.Sprintf("1-%d", slots),
		Management: v1alpha1.ChassisManagement{
			CredentialsSecret: secret, CipherSuite: 3, MMC: fmt.Sprintf("%s+%d", b.site.blade(1), slots),
			CMM: []string{b.site.manager(0, 1), b.site.manager(0, managers)},
		},
	}}))
	b.allAnswer()
	b.makeStore()
	for _, test := range []struct {
		name string
		run  func(*bed)
	}{
		{"there is no Secret", noSecret},
		{"a wrong password", wrongPassword},
		{"the password is changed", rotation},
		{"no password is anywhere", func(b *bed) {
			b.nowhere()
			b.bundleOf(boxStore)
		}},
	} {
		if !b.Run(test.name, func(t *testing.T) {
			mine := b.of(t)
			test.run(mine)
			b.box = mine.box
		}) {
			return // what follows finds the rack as this one has left it
		}
	}
}

// boxStore is a Store whose support bundle is searched for passwords.
const boxStore = "box"

// makeStore makes the Store, and a Secret of somebody else.
func (b *bed) makeStore() {
	b.Helper()
	made, err := b.shell.run(b.Context(), `printf '{"apiVersion": "rcbox.dev/v1alpha1", "kind": "Store", "metadata": {"name": "`+boxStore+
		`"}, "spec": {"masters": {"replicas": 3}}}' | kubectl apply -n default -f -`)
	if err != nil {
		b.Fatalf("make a Store: %v\n%s", err, made)
	}
	b.must(b.Client.Create(b.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "of-others", Namespace: metav1.NamespaceDefault}, StringData: map[string]string{"of": "others"},
	}))
}

func (b *bed) nowhere() {
	b.Helper()
	texts := b.objects()
	texts["log"], texts["metrics"] = b.box.Log(), b.box.Metrics()
	for _, what := range []string{"log", "metrics", "chassis", "servers", "stores", "events", "leases", "configmaps", "secrets"} {
		if texts[what] == "" {
			b.Errorf("there is nothing that a password could be in: %s", what)
		}
	}
	for what, text := range texts {
		b.hides(what, text)
	}
}

// hides: a text has no password, neither in clear text nor in base64, at any offset in the encoded data.
func (b *bed) hides(what, text string) {
	b.Helper()
	const bitsOfByte, bitsOfDigit, places = 8, 6, 3
	forms := []string{canary}
	for before := range places {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + canary + "xx"))
		// The first and last digits also depend on the neighbouring bytes, and so are left out.
		forms = append(forms, encoded[(bitsOfByte*before+bitsOfDigit-1)/bitsOfDigit:bitsOfByte*(before+len(canary))/bitsOfDigit])
	}
	for _, form := range forms {
		if strings.Contains(text, form) {
			b.Errorf("a password is in %s, as %s", what, form)
		}
	}
}

// objects returns all objects of each kind in the API server, except the Secrets of BMCs and switches.
func (b *bed) objects() map[string]string {
	b.Helper()
	lists, err := b.Clientset.Discovery().ServerPreferredResources()
	if len(lists) == 0 || err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // an API that is not available has no objects
		b.Fatal(err)
	}
	all, err := dynamic.NewForConfig(b.Config)
	b.must(err)
	texts := map[string]string{}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		b.must(err)
		for i := range list.APIResources {
			kind := list.APIResources[i].Name
			if !slices.Contains(list.APIResources[i].Verbs, "list") {
				continue
			}
			objects, err := all.Resource(group.WithResource(kind)).List(b.Context(), metav1.ListOptions{})
			b.must(err)
			for _, object := range objects.Items {
				of, _, _ := unstructured.NestedString(object.Object, "type")
				if kind == "secrets" && (of == string(v1alpha1.SecretTypeBMC) || of == string(v1alpha1.SecretTypeSwitch)) {
					continue
				}
				text, err := object.MarshalJSON()
				b.must(err)
				texts[kind] += string(text)
			}
		}
	}
	return texts
}

// bundleOf writes a support bundle and checks that it has no password. The bundle's Store shares only the namespace of events with the
// rack.
func (b *bed) bundleOf(store string) {
	b.Helper()
	packed := filepath.Join(b.TempDir(), "report.tar.gz")
	if output, err := b.shell.run(b.Context(), "kubectl rcbox report "+store+" -f "+packed); err != nil {
		b.Fatalf("report: %v\n%s", err, output)
	}
	file, err := os.Open(packed)
	b.must(err)
	defer func() { _ = file.Close() }()
	plain, err := gzip.NewReader(file)
	b.must(err)
	files := 0
	for archive := tar.NewReader(plain); ; files++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		b.must(err)
		text, err := io.ReadAll(archive)
		b.must(err)
		b.hides("the support bundle's "+header.Name, string(text))
	}
	if files == 0 {
		b.Error("the support bundle is empty")
	}
}

// secretIs changes what is in the Secret.
func (b *bed) secretIs(data map[string]string) {
	b.Helper()
	object := &corev1.Secret{}
	if !b.Get(object, testbed.OperatorNamespace, secret) {
		object.Name, object.Namespace, object.Type = secret, testbed.OperatorNamespace, v1alpha1.SecretTypeBMC
		b.must(b.Client.Create(b.Context(), object))
	}
	object.Data, object.StringData = nil, data
	b.must(b.Client.Update(b.Context(), object))
}

func good() map[string]string { return map[string]string{"username": username, "password": canary} }

// allAnswer waits until each BMC lets the controller in.
func (b *bed) allAnswer() {
	b.Helper()
	for n := range b.site.chassis {
		b.chassisHas(fmt.Sprintf("mercury%d", n+1), v1alpha1.ConditionManagementReady, metav1.ConditionTrue, "AllAnswer", "")
	}
}

// wrongPassword is not tried again once a BMC has refused it, until the Secret changes; the text says what is wrong without saying the
// password.
func wrongPassword(b *bed) {
	b.filter.logins()
	b.secretIs(map[string]string{"username": username, "password": wrong})
	b.has(1, v1alpha1.ConditionReachable, metav1.ConditionFalse, "Refused")
	for n := range b.site.chassis {
		b.chassisHas(fmt.Sprintf("mercury%d", n+1), v1alpha1.ConditionManagementReady, metav1.ConditionFalse, "Refused", secret)
	}
	b.nowhere()
	// A login is sent again if the emulator, one process for all, does not answer in time. After the refusal nothing is sent: not in
	// another round of questions, and not by the next controller.
	b.areRefused()
	if tried := len(b.filter.logins()); tried != b.site.chassis*(slots+managers) {
		b.Errorf("%d BMCs were tried", tried)
	}
	asked := time.Now()
	b.Eventually(patience, func() string {
		if time.Since(asked) < roundOfQuestions+time.Second {
			return "another round has not passed"
		}
		return ""
	})
	b.restart(roundOfQuestions + time.Second)
	for address, times := range b.filter.logins() {
		b.Errorf("a wrong password that was refused was tried %d times more with %s", times, address)
	}
	b.has(1, v1alpha1.ConditionReachable, metav1.ConditionFalse, "Refused")
	b.secretIs(good())
	b.allAnswer()
}

// areRefused waits until each refused login is on record.
func (b *bed) areRefused() {
	b.Helper()
	b.Eventually(patience, func() string {
		for _, server := range b.servers() {
			if server.Status.MMC.Refused == nil {
				return "the refused login is not on record: " + server.Name
			}
		}
		for n := range b.site.chassis {
			if one := b.chassis(fmt.Sprintf("mercury%d", n+1)); len(one.Status.Refused) < managers {
				return fmt.Sprintf("refused logins of managers of %s: %+v", one.Name, one.Status.Refused)
			}
		}
		return ""
	})
}

// restart restarts the box controller, and gives it time to ask its BMCs.
func (b *bed) restart(wait time.Duration) {
	b.Helper()
	b.killBox()
	b.box = b.startBox()
	one := b.chassis("mercury1")
	earlier := one.DeepCopy()
	one.Spec.Power.StartsAtOnce++
	b.must(b.Client.Patch(b.Context(), one, client.MergeFrom(earlier)))
	b.Eventually(patience, func() string {
		if now := b.chassis(one.Name); now.Status.ObservedGeneration != one.Generation {
			return "the controller that was started anew has not looked at its Chassis"
		}
		return ""
	})
	looked := time.Now()
	b.Eventually(patience, func() string {
		if time.Since(looked) < wait {
			return "another round of questions has not passed"
		}
		return ""
	})
}

// noSecret: without one nobody is asked, nothing is taken to be off, and the condition says what to do.
func noSecret(b *bed) {
	before := b.server(name(1)).Status.Power
	object := &corev1.Secret{}
	b.Get(object, testbed.OperatorNamespace, secret)
	b.must(b.Client.Delete(b.Context(), object))
	b.chassisHas("mercury1", v1alpha1.ConditionManagementReady, metav1.ConditionFalse, "SecretUnusable", "--type=rcbox.dev/bmc")
	b.secretIs(map[string]string{"username": username})
	b.chassisHas("mercury1", v1alpha1.ConditionManagementReady, metav1.ConditionFalse, "SecretUnusable", "password is missing or empty")
	if now := b.server(name(1)).Status.Power; now.State != before.State {
		b.Errorf("without a Secret it is %s, and was %s", now.State, before.State)
	}
}

// rotation gives 44 BMCs and their managers a new password. The controller is killed in the middle.
func rotation(b *bed) {
	const chassis = "mercury1"
	b.filter.logins()
	var silent []string
	for number := slots - late + 1; number <= slots; number++ {
		silent = append(silent, b.site.blade(number))
	}
	b.filter.put("silent", silent...)
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "rotated", Namespace: testbed.OperatorNamespace}, Type: v1alpha1.SecretTypeBMC,
	}
	object.StringData = map[string]string{"username": username, "password": rotated, v1alpha1.PreviousPasswordKey: canary}
	b.must(b.Client.Create(b.Context(), object))
	one := b.chassis(chassis)
	earlier := one.DeepCopy()
	one.Spec.Management.CredentialsSecret = object.Name
	b.must(b.Client.Patch(b.Context(), one, client.MergeFrom(earlier)))
	has := func() int { return strings.Count(b.box.Log(), "has the new one now") }
	b.Eventually(patience, func() string {
		if has() == 0 {
			return "no BMC has the new password"
		}
		return ""
	})
	b.killBox()
	before := has()
	b.Logf("%d of %d BMCs had the new password when the controller was killed", before, slots+managers)
	if strings.Contains(b.box.Log(), canary) {
		b.Error("a password is in the controller's log")
	}
	b.filter.take("silent", silent...)
	b.box = b.startBox()
	b.Eventually(patience, func() string {
		// Some that were told may not have said so before the controller was killed.
		if now := has(); now < late {
			return fmt.Sprintf("%d and then %d BMCs have the new password", before, now)
		}
		return ""
	})
	b.allAnswer()
	for address, times := range b.filter.logins() {
		// With the new one, the previous one, and the new one again; the same after the controller was killed.
		if times > 6 {
			b.Errorf("%d logins to %s", times, address)
		}
	}
	// ipmitool is the judge. Conditions may be those from before the controller was killed, so the last BMCs may still be told.
	b.must(os.WriteFile(b.password, []byte(rotated), 0o600))
	var asking sync.WaitGroup
	for _, address := range []string{
		b.site.manager(0, 1), b.site.manager(0, 2), b.site.blade(1), b.site.blade(slots / 2), b.site.blade(slots),
	} {
		asking.Go(func() {
			for begun := time.Now(); ; <-time.After(pause) {
				output, err := exec.CommandContext(b.Context(), "ipmitool", "-I", "lanplus", "-C", "3", "-N", "10", "-U", username, "-f",
					b.password, "-H", address, "power", "status").CombinedOutput()
				if err == nil {
					return
				}
				if time.Since(begun) > patience {
					b.Errorf("ipmitool with the new password at %s: %v\n%s", address, err, output)
					return
				}
			}
		})
	}
	asking.Wait()
}
