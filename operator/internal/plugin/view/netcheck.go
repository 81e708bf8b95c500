package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
)

// Answer to a question of the checklist.
type Answer string

// What is known, and what only somebody on the node can find out.
const (
	AnswerOK       Answer = "ok"
	AnswerNo       Answer = "no"
	AnswerNotKnown Answer = "not known"
)

// Check is an item of the list that a Store with ports has to pass on a real cluster.
type Check struct {
	What   string `json:"what"`
	Answer Answer `json:"answer"`
	// Detail is what was seen, and Do what to do about it, or how to find out.
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"`
}

// Checks is the whole list.
type Checks struct {
	Checks []Check `json:"checks"`
}

// Failed says whether something is not as it must be.
func (c Checks) Failed() bool {
	return slices.ContainsFunc(c.Checks, func(check Check) bool { return check.Answer == AnswerNo })
}

// NetChecks goes through what must hold. Definitions are the NetworkAttachmentDefinitions that could be read, by namespace/name, with their
// annotation and configuration; nil where none may be read.
func (s *Snapshot) NetChecks(definitions map[string]Definition) Checks {
	if !s.Store.Spec.HasPorts() {
		return Checks{[]Check{{
			What: "the Store has ports of its own", Answer: AnswerNo, Detail: "network.provider is not DevicePlugin",
			Do: "docs/network.md",
		}}}
	}
	checks := []Check{s.checkDefinitions(definitions)}
	checks = append(checks, s.checkNodes()...)
	checks = append(checks, s.checkPods()...)
	checks = append(checks, s.checkAddresses(), s.checkTold("every link is up", func(p *Port) string { return p.Link },
		func(link string) bool { return strings.HasPrefix(link, "up") }, "on the node: ip link show, or the switch"),
		s.checkTold("every port is on the NUMA node of its master's cores", func(p *Port) string { return p.NUMA },
			func(numa string) bool { return !strings.Contains(numa, "cores") },
			"on the node: cat /sys/bus/pci/devices/PCI/numa_node, and the pod's /sys/fs/cgroup/cpuset.cpus.effective"),
		s.checkPings())
	for _, manual := range manualChecks {
		checks = append(checks, Check{What: manual.what, Answer: AnswerNotKnown, Detail: "only the node can tell", Do: manual.do})
	}
	return Checks{checks}
}

// manualChecks are what no API tells.
var manualChecks = []struct{ what, do string }{
	{"the IOMMU is on (profile VF)", "on the node: ls /sys/kernel/iommu_groups | wc -l gives more than 0"},
	{"each virtual function is alone in its IOMMU group", "on the node: ls /sys/kernel/iommu_groups/*/devices"},
	{"an address moves with its member", "kubectl delete pod of a master; then kubectl rcbox net: the same IP, MAC and the pings again"},
	{
		"a node that is cut off keeps nobody's address",
		"pull a node's management cable: the member gets a fresh address, the former is in quarantine until the node is back",
	},
	{"the plugin is back after a reboot", "reboot a node: its master's pod comes back; kubectl rcbox why, meanwhile"},
	{"the fast protocol is fast", "a ClusterPerf against this Store and one with transport: TCP on the same nodes"},
}

// Definition is a NetworkAttachmentDefinition.
type Definition struct {
	ResourceName string
	Config       string
}

func (s *Snapshot) checkDefinitions(definitions map[string]Definition) Check {
	check := Check{What: "NetworkAttachmentDefinitions fit", Answer: AnswerOK}
	if definitions == nil {
		check.Answer, check.Detail = AnswerNotKnown, "they may not be read, or there are none of that kind"
		check.Do = "kubectl get network-attachment-definitions -A"
		return check
	}
	var wrong []string
	for i := range s.Store.Spec.Network.Attachments {
		attachment := &s.Store.Spec.Network.Attachments[i]
		name := network.Qualified(attachment.NetworkAttachmentDefinition, s.Store.Namespace)
		definition, found := definitions[name]
		compact := strings.Join(strings.Fields(definition.Config), "")
		switch {
		case !found:
			wrong = append(wrong, "there is no "+name)
		case attachment.ResourceName != "" && definition.ResourceName != attachment.ResourceName:
			wrong = append(wrong, fmt.Sprintf("%s is for %q, not for %s", name, definition.ResourceName, attachment.ResourceName))
		case !strings.Contains(compact, `"mac":true`) || !strings.Contains(compact, `"ips":true`):
			wrong = append(wrong, name+" has not the capabilities mac and ips")
		case !strings.Contains(compact, `"type":"static"`):
			wrong = append(wrong, name+" has not the IPAM plugin static")
		}
	}
	check.Detail = "name, resource, capabilities and IPAM plugin"
	if len(wrong) > 0 {
		check.Answer, check.Detail, check.Do = AnswerNo, strings.Join(wrong, "; "), "config/network/attachments.yaml"
	}
	return check
}

// checkNodes: enough nodes have what a master's pod asks for.
func (s *Snapshot) checkNodes() []Check {
	wanted := map[corev1.ResourceName]resource.Quantity{}
	for i := range s.Store.Spec.Network.Attachments {
		if name := corev1.ResourceName(s.Store.Spec.Network.Attachments[i].ResourceName); name != "" {
			quantity := wanted[name]
			quantity.Add(resource.MustParse("1"))
			wanted[name] = quantity
		}
	}
	if pages := s.Store.Spec.Network.Hugepages; pages != nil {
		wanted[corev1.ResourceName(corev1.ResourceHugePagesPrefix+pages.PageSize)] = pages.Size
	}
	var checks []Check
	for _, name := range slices.Sorted(keysOf(wanted)) {
		check := Check{What: fmt.Sprintf("enough nodes have %s", name), Answer: AnswerNotKnown, Detail: "nodes may not be read"}
		if s.Nodes != nil {
			quantity, have := wanted[name], 0
			for _, node := range s.Nodes {
				if has := node.Status.Allocatable[name]; has.Cmp(quantity) >= 0 {
					have++
				}
			}
			check.Answer = AnswerOK
			check.Detail = fmt.Sprintf("%d nodes have %s or more, and there are %d masters", have, quantity.String(),
				s.Store.Spec.Masters.Replicas)
			if have < int(s.Store.Spec.Masters.Replicas) {
				check.Answer, check.Do = AnswerNo, "docs/network.md: the machine, the cluster"
			}
		}
		checks = append(checks, check)
	}
	return checks
}

func keysOf(resources map[corev1.ResourceName]resource.Quantity) func(func(corev1.ResourceName) bool) {
	return func(yield func(corev1.ResourceName) bool) {
		for name := range resources {
			if !yield(name) {
				return
			}
		}
	}
}

// checkPods: of the class Guaranteed, and Multus has attached what was asked for.
func (s *Snapshot) checkPods() []Check {
	class := Check{
		What: "masters' pods are of the class Guaranteed", Answer: AnswerOK, Detail: "so that kubelets align CPUs, memory and devices",
	}
	attached := Check{What: "Multus has attached what was asked for", Answer: AnswerOK, Detail: "by each pod's network-status"}
	var others, wrong []string
	masters := 0
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Labels[v1alpha1.LabelComponent] != v1alpha1.ComponentMaster || pod.DeletionTimestamp != nil {
			continue
		}
		masters++
		if pod.Status.QOSClass != corev1.PodQOSGuaranteed {
			others = append(others, fmt.Sprintf("%s is %s", pod.Name, cmp.Or(pod.Status.QOSClass, "not classed")))
		}
		status, known := network.ParseStatus(pod.Annotations[network.AnnotationStatus])
		if !known {
			wrong = append(wrong, pod.Name+" has no network-status")
			continue
		}
		for port, ip := range network.Split(pod.Annotations[v1alpha1.AnnotationAddresses]) {
			attachment := s.Store.Spec.Network.Attachments[min(port, len(s.Store.Spec.Network.Attachments)-1)]
			asked := network.Asked{
				Definition: network.Qualified(attachment.NetworkAttachmentDefinition, s.Store.Namespace),
				IP:         ip, MAC: network.MACOf(s.Store.Spec.Network.Profile, ip),
			}
			if differs := network.Differs(status, port, asked); differs != "" {
				wrong = append(wrong, pod.Name+": "+differs)
			}
		}
	}
	if masters == 0 {
		class.Answer, class.Detail = AnswerNo, "there are none"
		attached.Answer, attached.Detail = AnswerNo, "there are no pods"
	}
	if len(others) > 0 {
		class.Answer, class.Detail, class.Do = AnswerNo, strings.Join(others, "; "), "masters.cpuPolicy: Exclusive"
		if s.Store.Spec.Network.Transport != v1alpha1.TransportDPDK {
			class.Answer = AnswerNotKnown // FastUDP does without
		}
	}
	if len(wrong) > 0 {
		attached.Answer, attached.Detail, attached.Do = AnswerNo, strings.Join(wrong, "; "), "docs/network.md: troubles"
	}
	return []Check{class, attached}
}

func (s *Snapshot) checkAddresses() Check {
	check := Check{What: "addresses are given, and some are left", Answer: AnswerOK}
	condition := s.condition(v1alpha1.ConditionNetworkReady)
	if condition == nil {
		check.Answer, check.Detail = AnswerNotKnown, "the operator has not said yet"
		return check
	}
	check.Detail = condition.Reason + ": " + condition.Message
	if condition.Reason != v1alpha1.ReasonAttached {
		check.Answer, check.Do = AnswerNo, "docs/runbooks.md"
	}
	return check
}

// checkTold is about what processes tell of their ports.
func (s *Snapshot) checkTold(what string, of func(*Port) string, isRight func(string) bool, how string) Check {
	check := Check{What: what, Answer: AnswerOK, Detail: "as the masters tell"}
	ports := s.PortsOf().Ports
	var wrong []string
	silent := len(ports) == 0
	for i := range ports {
		told := of(&ports[i])
		switch {
		case told == "":
			silent = true
		case !isRight(told):
			wrong = append(wrong, ports[i].Member+": "+told)
		}
	}
	switch {
	case len(wrong) > 0:
		check.Answer, check.Detail, check.Do = AnswerNo, strings.Join(wrong, "; "), how
	case silent:
		check.Answer, check.Detail, check.Do = AnswerNotKnown, "the masters do not tell", how
	}
	return check
}

func (s *Snapshot) checkPings() Check {
	return s.checkTold("every port reaches all of its peers'", func(p *Port) string {
		if len(p.Pings) == 0 {
			return ""
		}
		return pingText(p.Pings)
	}, func(text string) bool { return !strings.Contains(text, "no answer") && text != "none" },
		"clusterperf ping between two pods")
}

// Text is the list for people.
func (c Checks) Text(style Style) string {
	out := &strings.Builder{}
	lines := table{}
	for _, check := range c.Checks {
		colour := map[Answer]string{AnswerOK: green, AnswerNo: red, AnswerNotKnown: yellow}[check.Answer]
		text := check.Detail
		if check.Do != "" {
			text += " -> " + check.Do
		}
		lines.add(cell{text: string(check.Answer), colour: colour}, plain(check.What), plain(text))
	}
	lines.write(out, style, "")
	return out.String()
}
