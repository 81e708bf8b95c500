package planner

import (
	"math"
	"time"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

const (
	// trialValid is how long the API server's admission of a pod counts. The deletion mostly follows half a second later; but where another
	// step fails, the next reconcile comes up to 30 s later, and would find every shorter admission expired.
	trialValid = 45 * time.Second
	// trialAgain is after how long the API server is asked once more about a pod that it refused.
	trialAgain = 30 * time.Second
	// trialPatience is how long the API server is asked without an answer before that is said: mostly it answers within a second.
	trialPatience = time.Minute
	// maxTries bounds how many pods one plan asks about.
	maxTries = 4
)

// validity is how long an admission counts, and from when on the API server is asked once more while it does.
type validity struct{ counts, renewed time.Duration }

var (
	once = validity{counts: trialValid, renewed: trialValid}
	// forMove: where a move keeps failing, no reconcile finds that the admission has expired, as failed reconciles come 30 s apart at most.
	forMove = validity{counts: trialValid, renewed: 10 * time.Second}
	// forDrain: a drain can be cancelled, so the last answer counts until there is another one. Did it expire, a drain that the coordinator
	// refuses would be reported as refused and as under way by turns.
	forDrain = validity{counts: math.MaxInt64, renewed: trialAgain}
)

// unjudged is said, with a member's name, where the API server is asked for long, and gives no answer.
const unjudged = "the API server has not said yet whether it admits the next pod of "

// admission is what is known of whether the API server would admit a pod.
type admission int

const (
	// untried: it was not asked lately, and this plan asks.
	untried admission = iota
	admitted
	refused
)

// tryNext says whether the API server would admit the pod that takes the place of a member's present one, in which a process runs: if not,
// the process would end, and the Store would stay one member short. Each deletion has a trial of its own. The words are the API server's,
// or say that none came for long.
func (p *planning) tryNext(view *MemberView, why string) (verdict admission, words string) {
	return p.tryFor(once, view, why)
}

// tryFor is tryNext with another validity of an admission.
func (p *planning) tryFor(purpose validity, view *MemberView, why string) (verdict admission, words string) {
	o, pod := p.observed, view.Pod
	key, err := facts.TrialKey(pod, view.inputs)
	if err != nil {
		return refused, err.Error()
	}
	trial := o.Trials[key]
	isKnown, age := !trial.At.IsZero(), o.Now.Sub(trial.At)
	switch {
	case isKnown && trial.Refused != "":
		verdict, words = refused, trial.Refused
	case isKnown && age < purpose.counts:
		verdict = admitted
	case trial.UnansweredFor(o.Now) > trialPatience:
		words = unjudged + view.Name
	}
	switch {
	case verdict == refused && age < trialAgain:
		p.lookAgainIn(trialAgain - age)
		return verdict, words
	case verdict == admitted && age < purpose.renewed:
		return verdict, words
	}
	if p.tries < maxTries {
		p.tries++
		p.add(steps.TryPod{
			Key: key, Component: pod.Component, Member: view.Name, Number: view.PodNumber + 1, Inputs: view.inputs,
			Claim: view.claimOfNext(), Addresses: pod.Addresses, InPlaceOf: pod.Ref(), Why: why,
		})
	}
	if verdict != admitted {
		p.lookAgainIn(lockInterval)
	}
	return verdict, words
}

// claimOfNext is the name of the volume claim of the member's next pod; empty if that needs none.
func (v *MemberView) claimOfNext() string {
	if !v.inputs.InVolume() {
		return ""
	}
	return v.Claim
}

// refuse notes that a member keeps its pod. Of several such pods, the first is reported.
func (p *planning) refuse(view *MemberView, words, orElse string) {
	if p.plan.PodRefused != nil {
		return
	}
	message := view.Name + " keeps its pod, because the API server refuses the next one; it says: " + words + "; correct that"
	if orElse != "" {
		message += ", or " + orElse
	}
	p.plan.PodRefused = &PodRefusal{Member: view.Name, Message: message}
}

// replaceUnderLock plans the end of a process that serves and is to be replaced. That it is the next one to end may be put on record while
// the API server is asked about its next pod; it ends only when that would be admitted.
func (p *planning) replaceUnderLock(view *MemberView, why string, step func(facts.PodRef) steps.Step) {
	if p.requested != nil {
		return // another process ends first, and this one's trial would be too old by then
	}
	verdict, words := p.tryNext(view, view.whyOutdated())
	if verdict == refused {
		p.refuse(view, words, view.howToKeep())
		return
	}
	p.endAdmitted(view, verdict, why, step)
}

// endAdmitted plans the end of a process whose next pod is not refused.
func (p *planning) endAdmitted(view *MemberView, verdict admission, why string, step func(facts.PodRef) steps.Step) {
	if verdict == admitted {
		p.endUnderLock(view, why, step)
	} else {
		p.requestLock(view, why)
	}
}
