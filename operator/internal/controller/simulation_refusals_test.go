package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// A policy that lets no pods of an image in.

// maybeRefuse has a policy refuse pods of a new image, from before any pod of it was tried.
func (s *simulation) maybeRefuse(image string) {
	if s.refusing.Float64() >= s.faults.refusal {
		return
	}
	s.refused, s.refusedSince = image, s.now
	s.refusedUntil = s.now.Add(time.Duration(10+s.refusing.IntN(40)) * second)
	s.trace("pods of %s are refused", image)
}

// refuses says whether pods of the image are refused now.
func (s *simulation) refuses(image string) bool {
	return image != "" && image == s.refused && s.now.Before(s.refusedUntil)
}

func errRefusedPod(name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, name, errors.New("a policy of this simulation"))
}

// try is what the API server says of a pod that it is not to keep.
func (s *simulation) try(by *simulatedOperator, text []byte) error {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		return fmt.Errorf("decode a pod: %w", err)
	}
	if s.refuses(podOf(pod).Inputs.Image) {
		s.counts[isPodRefused]++
		return errRefusedPod(pod.Name)
	}
	return s.tryInQuota(by, pod)
}

// checkReplaced: a pod that is outdated stays while its next one is refused, as far as its operator could know that.
func (s *simulation) checkReplaced(by *simulatedOperator, pod *corev1.Pod) {
	wanted := s.store().Spec.Image
	ordinal, _ := v1alpha1.MasterOrdinal("sim", memberName(pod))
	isStaying := int32(ordinal) < s.store().Spec.Masters.Replicas && !s.isLeft(pod.Spec.NodeName)
	if isStaying && s.refuses(wanted) && podOf(pod).Inputs.Image != wanted && s.refusedSince.Before(by.reconcilingSince) {
		s.violate("%s is ended, and pods of %s, from which the next one is to be made, are refused", pod.Name, wanted)
	}
}

// triesNothing takes each pod for one that is admitted.
func triesNothing(o facts.Observed) planner.Plan {
	trials := map[string]facts.Trial{}
	for key := range o.Trials {
		trials[key] = facts.Trial{At: o.Now}
	}
	for try := range steps.Of[steps.TryPod](planner.Make(o).Steps) {
		trials[try.Key] = facts.Trial{At: o.Now}
	}
	o.Trials = trials
	return planner.Make(o)
}
