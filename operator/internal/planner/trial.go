package planner

import (
	"time"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

const (
	// trialValid is how long it counts that the API server would admit a pod. Quotas and policies change meanwhile.
	trialValid = time.Minute
	// trialAgain is after how long it is asked once more about a pod that it refused.
	trialAgain = 30 * time.Second
)

// admission is what is known of whether the API server would admit a pod.
type admission int

const (
	// untried: it was not asked lately, and is asked by this plan.
	untried admission = iota
	admitted
	refused
)

// admissionOf says whether the API server would admit the pod that is to take the place of a member's present one, which runs: if not, that
// one would end, and nothing would come after it.
func (p *planning) admissionOf(view *MemberView) admission {
	o, pod := p.observed, view.Pod
	key, err := facts.TrialKey(pod.Component, view.inputs)
	if err != nil {
		p.plan.PodRefused = err.Error()
		return refused
	}
	trial, isKnown := o.Trials[key]
	age := o.Now.Sub(trial.At)
	verdict := untried
	switch {
	case isKnown && trial.Refused != "":
		verdict = refused
		p.plan.PodRefused = view.Name + " keeps its pod, because the API server refuses the next one; it says: " + trial.Refused +
			"; correct that, or revert the spec"
	case isKnown && age < trialValid:
		return admitted
	}
	if verdict == refused && age < trialAgain {
		p.lookAgainIn(trialAgain - age)
		return verdict
	}
	p.add(steps.TryPod{
		Key: key, Component: pod.Component, Member: view.Name, Number: view.PodNumber + 1, Inputs: view.inputs,
		Claim: view.claimOfNext(), Addresses: pod.Addresses, InPlaceOf: pod.Ref(), Why: view.whyOutdated(),
	})
	p.lookAgainIn(turnInterval)
	return verdict
}

// claimOfNext is the name of the volume claim of the member's next pod; empty if that needs none.
func (v *MemberView) claimOfNext() string {
	if !v.inputs.InVolume() {
		return ""
	}
	return v.Claim
}

// replaceInTurn plans the end of a process whose pod is outdated. That it is the next one to end may be put on record while the API server
// is asked about its next pod; it ends only when that would be admitted.
func (p *planning) replaceInTurn(view *MemberView, why string, step func(facts.PodRef) steps.Step) {
	switch p.admissionOf(view) {
	case admitted:
		p.endInTurn(view, why, step)
	case untried:
		p.askTurn(view, why)
	case refused:
	}
}
