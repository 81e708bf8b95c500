package box_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// repository is the root of the tree.
const repository = "../../.."

// shell is where the commands of pages are run: with kubectl and its plugin, and with copies of the files that pages name.
type shell struct {
	dir         string
	environment []string
	// plugin is the path of kubectl-rcbox.
	plugin string
}

// emulated turns the sample, which is of hardware, into a description of the emulated rack: ipmi_sim has no cipher suite 17, and nothing
// says what the hardware's sensors are called, but in mercury2, which has the hardware's model and says so itself. All start together,
// which saves time.
var emulated = strings.NewReplacer("metadata: {name: mercury2}\nspec:\n  model: MicroModularServer",
	"metadata: {name: mercury2}\nspec:\n  model: MicroModularServer\n  modelOverrides: "+ownFigures, "model: MicroModularServer",
	"model: EmulatedRack", "cipherSuite: 17", "cipherSuite: 3",
	"startsAtOnce: 8", "startsAtOnce: 44", `storageSlots: "45"`, `storageSlots: ""`)

// ownFigures are those of model EmulatedRack.
const ownFigures = `{server: {watts: 22, startWatts: 22, startSeconds: 10}, manager: {staggersStarts: true, inCharge: In Charge,
    slotWatts: {sensor: Slot %02d Power, emptyBelow: 1, offBelow: 4, onFrom: 8},
    powerSupplies: {sensor: PSU %d, count: 2, worksFrom: 1}, fans: {sensor: Fan %d, count: 4, worksFrom: 5}}}`

func newShell(b *bed, plugin string) *shell {
	b.Helper()
	kubectl := os.Getenv("RCBOX_KUBECTL")
	if kubectl == "" {
		b.Fatal("RCBOX_KUBECTL does not say where kubectl is: hack/box.sh does")
	}
	s := &shell{dir: b.TempDir(), plugin: plugin}
	programs := filepath.Join(s.dir, "programs")
	sample, err := os.ReadFile(filepath.Join(repository, "config/samples/chassis.yaml"))
	b.must(err)
	for _, folder := range []string{programs, filepath.Join(s.dir, "config/samples"), filepath.Join(s.dir, ".atom")} {
		b.must(os.MkdirAll(folder, 0o700))
	}
	b.must(os.WriteFile(filepath.Join(s.dir, "config/samples/chassis.yaml"), []byte(emulated.Replace(string(sample))), 0o600))
	// As people write it: with the end of a line.
	for _, file := range []string{".atom/ipmi_password.txt", "authentication.txt", "privacy.txt"} {
		b.must(os.WriteFile(filepath.Join(s.dir, file), []byte(canary+"\n"), 0o600))
	}
	b.must(os.Symlink(kubectl, filepath.Join(programs, "kubectl")))
	b.must(os.Symlink(plugin, filepath.Join(programs, "kubectl-rcbox")))
	s.environment = append(os.Environ(), "HOME="+s.dir, "KUBECONFIG="+b.AdminKubeconfig(), "PATH="+programs+":"+os.Getenv("PATH"))
	return s
}

// run runs a line as somebody types it.
func (s *shell) run(ctx context.Context, line string) (string, error) {
	command := exec.CommandContext(ctx, "bash", "-euc", line)
	command.Dir, command.Env = s.dir, s.environment
	output, err := command.CombinedOutput()
	return string(output), err
}

// notHere are the beginnings of commands that need what this test does not have.
var notHere = map[string]string{"helm ": "the chart is installed by the tests of the whole: hack/e2e.sh"}

// commandsOf are the commands of a page.
func (b *bed) commandsOf(page string) []string {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs", page))
	b.must(err)
	var commands []string
	isOpen := false // the last one goes on in the next line
	for line := range strings.Lines(string(text)) {
		command, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		switch {
		case isOpen:
			commands[len(commands)-1] += "\n" + command
		case isCommand:
			commands = append(commands, command)
		default:
			continue
		}
		last := commands[len(commands)-1]
		isOpen = strings.HasSuffix(last, `\`) || strings.Count(last, "'")%2 != 0
	}
	if isOpen {
		b.Fatalf("docs/%s: its last command has no end", page)
	}
	return commands
}

// follow runs the commands of a page, one after the other; each must end well. Before one that begins so, something is done that is done by
// hand.
func (b *bed) follow(page string, byHand map[string]func()) {
	b.Helper()
	ran := 0
lines:
	for _, line := range b.commandsOf(page) {
		for beginning, why := range notHere {
			if strings.HasPrefix(line, beginning) {
				b.Logf("%s: NOT RUN: %s: %s", page, line, why)
				continue lines
			}
		}
		for beginning, act := range byHand {
			if strings.HasPrefix(line, beginning) {
				act()
				delete(byHand, beginning)
			}
		}
		output, err := b.shell.run(b.Context(), line)
		if err != nil {
			b.Fatalf("%s: %s: %v\n%s", page, line, err, output)
		}
		if strings.Contains(output, canary) {
			b.Errorf("%s: %s prints the password", page, line)
		}
		ran++
	}
	if ran == 0 || len(byHand) > 0 {
		b.Errorf("%s: %d commands were run, and these were not there: %v", page, ran, byHand)
	}
}

// pages are the tasks of docs, with the real programs.
func pages(b *bed) {
	b.Run("all", func(t *testing.T) { // they are about different servers
		t.Run("power-servers.md", func(t *testing.T) {
			t.Parallel()
			b.of(t).follow("power-servers.md", nil)
		})
		t.Run(name(pageBlade), func(t *testing.T) {
			t.Parallel()
			t.Run("replace-blade.md", func(t *testing.T) {
				mine := b.of(t)
				mine.follow("replace-blade.md", map[string]func(){"kubectl rcbox inventory": mine.replaceBlade})
				mine.has(pageBlade, v1alpha1.ConditionAsRecorded, metav1.ConditionTrue, "Accepted")
				if !mine.isOn(pageBlade) {
					t.Errorf("%s was replaced and booted, and is off", name(pageBlade))
				}
			})
			t.Run("isolate-server.md", func(t *testing.T) { b.of(t).isolatePage() })
		})
	})
}

// isolatePage isolates a server and brings it back, and then has servers isolated automatically, and names a switch.
func (b *bed) isolatePage() {
	b.Helper()
	b.follow("isolate-server.md", map[string]func(){
		"kubectl describe server": func() {
			b.has(pageBlade, v1alpha1.ConditionIsolated, metav1.ConditionTrue, "Isolated")
			if b.isOn(pageBlade) {
				b.Errorf("%s is isolated, and on", name(pageBlade))
			}
		},
		"kubectl patch chassis": func() {
			if !b.isOn(pageBlade) || b.server(name(pageBlade)).Status.Isolation != nil {
				b.Errorf("%s is back, and its status is %+v", name(pageBlade), b.server(name(pageBlade)).Status)
			}
		},
	})
	chassis := b.chassis("mercury1")
	if len(chassis.Spec.SwitchPorts) != 1 || len(chassis.Spec.Isolation.Automatic) != 3 {
		b.Errorf("the page's commands leave %+v", chassis.Spec)
	}
	// The tests after this one are about a chassis without a switch.
	earlier := chassis.DeepCopy()
	chassis.Spec.SwitchPorts, chassis.Spec.Isolation = nil, v1alpha1.ChassisIsolation{}
	b.must(b.Client.Patch(b.Context(), chassis, client.MergeFrom(earlier)))
}

// replaceBlade is what somebody does in front of the rack.
func (b *bed) replaceBlade() {
	b.Helper()
	const chassis = "mercury1"
	b.filter.put("silent", bladeAddress(pageBlade))
	b.must(b.rack.Pull(chassis, pageBlade))
	b.has(pageBlade, v1alpha1.ConditionAsRecorded, metav1.ConditionFalse, "SlotEmpty")
	other := blade(pageBlade)
	other.Serial = fmt.Sprintf("MMS9%03d", pageBlade)
	b.must(b.rack.Insert(chassis, pageBlade, other))
	b.filter.take("silent", bladeAddress(pageBlade))
	b.has(pageBlade, v1alpha1.ConditionAsRecorded, metav1.ConditionFalse, "BladeSwapped")
}

// freeIPMI is another judge. What it keeps of sensors is for this test alone.
func (b *bed) freeIPMI(address, program string, arguments ...string) string {
	b.Helper()
	config := filepath.Join(b.shell.dir, "freeipmi.conf")
	b.must(os.WriteFile(config, []byte("username "+username+"\npassword "+canary+"\ndriver-type LAN_2_0\ncipher-suite-id 3\n"+
		"privilege-level ADMIN\nworkaround-flags opensesspriv\n"), 0o600))
	output, err := exec.CommandContext(b.Context(), program, append([]string{
		"--config-file=" + config, "-h", address,
	}, arguments...)...).CombinedOutput()
	if err != nil {
		b.Fatalf("%s %v: %v\n%s", program, arguments, err, output)
	}
	return string(output)
}

// verbs: what kubectl rcbox says and does is what ipmitool and FreeIPMI say of the same BMC.
func verbs(b *bed) {
	server, address, cache := name(judgedBlade), bladeAddress(judgedBlade), "--sdr-cache-directory="+b.TempDir()
	chassis, slot := place(judgedBlade)
	run := func(line string) string {
		b.Helper()
		output, err := b.shell.run(b.Context(), "kubectl rcbox "+line)
		if err != nil {
			b.Fatalf("kubectl rcbox %s: %v\n%s", line, err, output)
		}
		return output
	}
	all := func(text string, says ...string) {
		b.Helper()
		for _, word := range says {
			if !strings.Contains(text, word) {
				b.Errorf("no %q in:\n%s", word, text)
			}
		}
	}
	// What it is, and its sensors.
	mac := blade(judgedBlade).MACs[0]
	b.Eventually(patience, func() string {
		if len(b.server(server).Status.Sensors) == 0 {
			return "its sensors were not read"
		}
		return ""
	})
	all(run("inventory "+server), "MMS0019", "stand-in blade", mac, "CPU Temp 33 C")
	all(b.ipmitool(judgedBlade, "fru", "print"), "MMS0019", "stand-in blade", "mac1="+mac)
	all(b.freeIPMI(address, "ipmi-fru", cache), "MMS0019", "stand-in blade", "mac1="+mac)
	all(b.ipmitool(judgedBlade, "sensor", "reading", "CPU Temp"), "| 33")
	// FreeIPMI reads sensors only of a BMC that is the first on its bus: the chassis manager.
	all(b.freeIPMI(managerAddress(0, 1), "ipmi-sensors", cache), "Slot 19 Power", "2.00", "PSU 2", "120.00")
	// The event log.
	// Add SEL Entry: sensor 1, a temperature, is above its upper critical threshold (IPMI 2.0, section 31.6 and table 32-1).
	b.ipmitool(judgedBlade, strings.Fields("raw 0x0a 0x44 0 0 2 0 0 0 0 0x20 0 4 1 1 1 9 0xff 0xff")...)
	all(run("ipmi --password-file "+b.password+" "+server+" sel list"), "Temperature", "Upper Critical going high")
	all(b.freeIPMI(address, "ipmi-sel", cache), "Temperature", "Upper Critical - going high")
	b.Eventually(patience, func() string {
		if events := b.server(server).Status.Events; len(events) == 0 || !strings.Contains(events[len(events)-1].Text, "going high") {
			return fmt.Sprintf("the event is not on record: %+v", events)
		}
		return ""
	})
	all(run("inventory "+server), "CPU Temp: Upper Critical - going high")
	// Boot device.
	all(run("pxeboot "+server), server+": done: its BMC says that the next start is from the network, and has that on record, but marked")
	if device, err := b.rack.Told(chassis, slot, "boot"); err != nil || device != "pxe" {
		b.Errorf("it boots from %q: %v", device, err)
	}
	all(b.ipmitool(judgedBlade, "chassis", "bootparam", "get", "5"), "Force PXE", "Boot Flag Invalid")
	all(run("boot "+server+" --from disk"), server+": done: the server is on")
	if device, err := b.rack.Told(chassis, slot, "boot"); err != nil || device == "pxe" {
		b.Errorf("it boots from %q: %v", device, err)
	}
	all(b.ipmitool(judgedBlade, "power", "status"), "is on")
	all(b.freeIPMI(address, "ipmipower", "--stat"), "on")
	// Light.
	all(run("led "+server+" on --for 1h"), "its light blinks until")
	if light, err := b.rack.Told(chassis, slot, "identify"); err != nil || !strings.HasPrefix(light, "240") {
		b.Errorf("the light was told %q: %v", light, err)
	}
	all(run("led "+server+" off"), "its light does not blink")
	if light, err := b.rack.Told(chassis, slot, "identify"); err != nil || !strings.HasPrefix(light, "0") {
		b.Errorf("the light was told %q: %v", light, err)
	}
	// A command that only prints sends nothing.
	typed := func(line string) string {
		b.Helper()
		output, err := b.shell.run(b.Context(), somebody+"kubectl rcbox ipmi "+line)
		if err != nil {
			b.Fatalf("%s: %v\n%s", line, err, output)
		}
		return output
	}
	if lines := strings.Count(typed("-d 1,5-7,10+3,20 power status"), "ipmitool -I lanplus"); lines != 8 || b.filter.typed() > 0 {
		b.Errorf("a dry run prints %d lines, and sends %d datagrams", lines, b.filter.typed())
	}
	typed("--password-file " + b.password + " " + server + " power status")
	if b.filter.typed() == 0 {
		b.Error("what is really run sends nothing: datagrams are not counted")
	}
	// The command of seeds.md that merges VLANs by hand: here for one BMC, and printed for the chassis and its switch boards.
	const untag = "lan set 1 vlan id off"
	for list, lines := range map[string]int{"mercury1": slots, "mercury1onm": 1, "mercury1ons": 1} {
		if text := typed("-d " + list + " " + untag); strings.Count(text, untag) != lines {
			b.Errorf("%s: not %d lines:\n%s", list, lines, text)
		}
	}
	b.ipmitool(judgedBlade, strings.Fields("lan set 1 vlan id 4092")...)
	all(b.ipmitool(judgedBlade, "lan", "print", "1"), "802.1q VLAN ID          : 4092")
	typed("--password-file " + b.password + " " + server + " " + untag)
	all(b.ipmitool(judgedBlade, "lan", "print", "1"), "802.1q VLAN ID          : Disabled")
	// Who is there.
	all(run("scan 192.168.5.19+1"), bladeAddress(judgedBlade), "IPMI 2.0", server+"m")
}
