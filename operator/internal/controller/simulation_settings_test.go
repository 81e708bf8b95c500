package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
)

// What is changed while the store runs: settings, and the size of volumes.

// mostGrown is how large volumes become.
var mostGrown = resource.MustParse("7Gi")

func (s *simulation) changeSettings() {
	micros, rate := s.random.Int32N(1000), 1+s.random.Int32N(100)
	level := one[v1alpha1.LogLevel](s, "", "Debug", "Warn")
	s.trace("settings: pollMicros %d, repairMBps %d, logLevel %q", micros, rate, level)
	s.change(func(spec *v1alpha1.StoreSpec) {
		spec.Masters.PollMicros, spec.Replication.RepairMBps, spec.LogLevel = &micros, &rate, level
	})
}

// mostCopies leaves nodes to spare for as many masters as there may be with that many copies, two more than those need.
const mostCopies = 4

// moreCopies raises their number while the store runs, as far as there are members for them.
func (s *simulation) moreCopies() {
	spec := &s.store().Spec
	more := s.store().Copies() + 1
	if !s.isReplicated() || more >= spec.Masters.Replicas || more > mostCopies {
		return
	}
	s.change(func(spec *v1alpha1.StoreSpec) { spec.Replication.Factor = &more })
	s.trace("copies: %d", more)
}

// copiesOf are those that a process keeps of each object: what is in force, else what it was started with. Nobody knows of one that is
// away.
func (s *simulation) copiesOf(pod *corev1.Pod) uint32 {
	if pod == nil || podOf(pod).Inputs.Replication == nil {
		return 0
	}
	if settings := s.cluster.settings; settings != nil && settings.Replicas != nil {
		return settings.GetReplicas()
	}
	return uint32(podOf(pod).Inputs.Replication.Factor)
}

// fewestCopies are those of the member that runs and keeps the fewest; 0 if none runs.
func (s *simulation) fewestCopies() (fewest uint32) {
	for name := range s.cluster.members {
		if pod := s.enlisted(name); pod != nil && (fewest == 0 || s.copiesOf(pod) < fewest) {
			fewest = s.copiesOf(pod)
		}
	}
	return fewest
}

// growStorage asks for larger volumes, of a class that may refuse that for a while.
func (s *simulation) growStorage() {
	size := s.store().CopiesStorage()
	if !s.isReplicated() || size.Cmp(mostGrown) >= 0 {
		return
	}
	s.rigid = s.chance(0.5)
	size.Add(resource.MustParse("1Gi"))
	s.change(func(spec *v1alpha1.StoreSpec) { spec.Backups.Storage.Size = &size })
	s.trace("volumes of %s (refused: %v)", &size, s.rigid)
}

// grow applies a claim that is there: all that may be changed is that it asks for more.
func (a *simulatedAPI) grow(wanted *corev1.PersistentVolumeClaim) error {
	asked := wanted.Spec.Resources.Requests[corev1.ResourceStorage]
	there, isClaim := a.objects[keyOf(wanted)].(*corev1.PersistentVolumeClaim)
	if !isClaim {
		return notFound(wanted.Name)
	}
	before := there.Spec.Resources.Requests[corev1.ResourceStorage]
	if asked.Cmp(before) < 0 {
		// By a Store that is behind. What is there stays.
		return apierrors.NewForbidden(schema.GroupResource{}, wanted.Name, errors.New("it can not be less than what it was"))
	}
	if asked.Cmp(before) > 0 && a.s.rigid {
		a.s.counts[isRefused]++
		return apierrors.NewForbidden(schema.GroupResource{}, wanted.Name, errors.New("the class does not allow to resize it"))
	}
	edit(a, wanted.Name, func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests = wanted.Spec.Resources.Requests
	})
	return nil
}

// growVolumes gives claims that have a volume what they ask for, some time later.
func (s *simulation) growVolumes() {
	for _, claim := range all[*corev1.PersistentVolumeClaim](s.api.objects) {
		asked, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
		if claim.Spec.VolumeName != "" && asked.Cmp(has) > 0 && s.chance(0.3) {
			edit(s.api, claim.Name, func(claim *corev1.PersistentVolumeClaim) {
				claim.Status.Capacity = claim.Spec.Resources.Requests.DeepCopy()
			})
		}
	}
}

// notAsAsked says what of settings and volumes is not as the spec has it, when everything else is.
func (s *simulation) notAsAsked() string {
	spec := &s.store().Spec
	if have := s.cluster.settings; have != nil && spec.Masters.PollMicros != nil &&
		(have.PollMicros == nil || int32(have.GetPollMicros()) != *spec.Masters.PollMicros) {
		return fmt.Sprintf("pollMicros is %v, and the spec has %d", have.PollMicros, *spec.Masters.PollMicros)
	}
	if s.cluster.settings != nil && s.fewestCopies() != uint32(s.store().Copies()) {
		return fmt.Sprintf("there are %d copies, and the spec has %d", s.fewestCopies(), s.store().Copies())
	}
	for _, pod := range s.pods() {
		claim, isClaim := s.api.objects[objectKey{kindOf[*corev1.PersistentVolumeClaim](), claimOf(pod)}].(*corev1.PersistentVolumeClaim)
		if !isClaim || !isMaster(pod) || !s.isReplicated() {
			continue
		}
		wanted := s.store().CopiesStorage()
		if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; size.Cmp(wanted) != 0 {
			return fmt.Sprintf("%s asks for %s, and the spec for %s", claim.Name, &size, &wanted)
		}
	}
	return ""
}

// SetSettings changes those of a build that takes some.
func (c *coordinatorOf) SetSettings(_ context.Context, request *adminv1.SetSettingsRequest) error {
	return c.answer(func() error {
		if c.s.cluster.settings == nil {
			return errors.New("no settings are known")
		}
		before := c.s.fewestCopies()
		c.s.cluster.settings = request.GetSettings()
		// The spec is never lowered here: once there are as many copies as it has, there are no fewer.
		if after := c.s.fewestCopies(); after < before {
			c.s.violate("settings lower the number of copies from %d to %d, and the spec has %d",
				before, after, c.s.store().Copies())
		} else if after > before {
			c.s.counts[isMoreCopies]++
			c.s.cluster.short = 3
		}
		return nil
	})
}

// maybeKilled is the operator's end at a call that changes nothing: between its last look and its next write, too.
func (s *simulation) maybeKilled(at string) {
	if s.chance(s.faults.kill / 8) {
		s.trace("killed at: %s", at)
		s.counts[isKilledAtLook]++
		panic(errKilled)
	}
}
