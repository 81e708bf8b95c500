package view

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Advice is one thing that a person should do, with the command that does it or shows more.
type Advice struct {
	Text    string `json:"text"`
	Command string `json:"command"`
}

func acknowledgedLosses(store *v1alpha1.Store) int64 {
	number, err := strconv.ParseInt(store.Annotations[v1alpha1.AnnotationAcknowledgedLosses], 10, 64)
	if err != nil {
		return 0 // none, or somebody has mistyped it; the operator says the same
	}
	return number
}

// Advice is what to do next, the most urgent first.
func (s *Snapshot) Advice() []Advice {
	list := append(s.urgentAdvice(), s.memberAdvice()...)
	return append(list, s.laterAdvice()...)
}

func (s *Snapshot) condition(name string) *metav1.Condition {
	if condition := meta.FindStatusCondition(s.Store.Status.Conditions, name); condition != nil {
		return condition
	}
	return &metav1.Condition{}
}

// with is the command of this plugin for the Store.
func (s *Snapshot) with(command string, arguments ...string) string {
	words := append([]string{"kubectl rcbox", command, "-n", s.Store.Namespace}, arguments...)
	return strings.Join(words, " ")
}

func (s *Snapshot) urgentAdvice() []Advice {
	var list []Advice
	if s.condition(v1alpha1.ConditionAvailable).Reason == v1alpha1.ReasonStateUnusable {
		list = append(list, Advice{
			"The coordinator found a state that it must not use. Change nothing before you have read docs/disaster.md; keep a report",
			s.with("report", s.Store.Name),
		})
	}
	for _, recovery := range s.Cluster.GetRecoveries() {
		if recovery.GetTabletsLeft() > 0 && recovery.GetLossToken() != "" {
			list = append(list, Advice{
				fmt.Sprintf("The recovery of %s misses what no disk has that answers. Bring the disks back, or see how to go on without",
					recovery.GetMember()),
				s.with("recover", s.Store.Name),
			})
			break
		}
	}
	if count := s.Store.Status.LossCount; count > acknowledgedLosses(s.Store) {
		list = append(list, Advice{
			"Data was lost. When you have taken note of it",
			fmt.Sprintf("kubectl annotate --overwrite -n %s store/%s %s=%d",
				s.Store.Namespace, s.Store.Name, v1alpha1.AnnotationAcknowledgedLosses, count),
		})
	}
	return list
}

func (s *Snapshot) memberAdvice() []Advice {
	var list []Advice
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentCoordinator && PodTrouble(pod) != "" && pod.DeletionTimestamp == nil {
			list = append(list, Advice{"A coordinator does not run: " + pod.Name, s.with("why", pod.Name)})
		}
	}
	members := s.Members()
	for i := range members {
		member := &members[i]
		switch member.State {
		case StateDown, StatePending, StateStarting, StateRecovering, StateNoPod:
		default:
			continue
		}
		target := member.Pod
		if target == "" {
			target = member.Name
		}
		list = append(list, Advice{member.Name + " is not up", s.with("why", target)})
		if len(list) == maxShown/2 {
			break // one reason is often that of many
		}
	}
	return list
}

func (s *Snapshot) laterAdvice() []Advice {
	var list []Advice
	if s.Store.Spec.Paused {
		list = append(list, Advice{"The operator changes nothing, for spec.paused is set. To have it go on", s.setFalse("paused")})
	}
	if s.Store.Spec.Hibernated {
		list = append(list, Advice{"The Store sleeps, for spec.hibernated is set. To wake it up", s.setFalse("hibernated")})
	}
	switch progressing := s.condition(v1alpha1.ConditionProgressing); progressing.Reason {
	case v1alpha1.ReasonRestartPending:
		// The message ends with the command; it has more reason than can be made up here.
		if _, command, found := strings.Cut(progressing.Message, ": kubectl "); found {
			list = append(list, Advice{
				"Pods are outdated, and to restart them is yours, one at a time, while DataSafe is True", "kubectl " + command,
			})
		}
	case v1alpha1.ReasonCanBeFinalized:
		list = append(list, Advice{
			"Every process reads a newer format. When you will not go back to the older version", s.with("finalize", s.Store.Name, "--yes"),
		})
	case v1alpha1.ReasonNameTaken, v1alpha1.ReasonNotAllowed, v1alpha1.ReasonApplyFailed, v1alpha1.ReasonScaleInBlocked,
		v1alpha1.ReasonStateFixed, v1alpha1.ReasonPodRefused:
		list = append(list, Advice{"The operator cannot go on: " + progressing.Message, ""})
	}
	return list
}

// setFalse is the command that takes a switch of the spec back.
func (s *Snapshot) setFalse(field string) string {
	return fmt.Sprintf(`kubectl patch -n %s store/%s --type merge -p '{"spec":{"%s":false}}'`, s.Store.Namespace, s.Store.Name, field)
}

// rcbox is the store's own command line, in the coordinator's pod.
func (s *Snapshot) rcbox(command string) string {
	pod := s.LeaderPod
	if pod == "" {
		pod = s.Store.Status.Coordinator.Pod
	}
	return fmt.Sprintf("kubectl exec -it -n %s %s -- rcbox -C tcp:host=127.0.0.1,port=11100 %s", s.Store.Namespace, pod, command)
}

func (s *Snapshot) drawAdvice(out *strings.Builder, style Style) {
	var lines []string
	for _, advice := range s.Advice() {
		text := advice.Text
		if advice.Command != "" {
			text += ":\n      " + style.paint(bold, advice.Command)
		}
		lines = append(lines, text)
	}
	writeList(out, style, "WHAT TO DO", lines)
}
