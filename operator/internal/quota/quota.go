// Package quota reads what an API server says of a ResourceQuota that is exceeded.
package quota

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
)

// exceeded is the sentence of the admission of quotas. The server gives the amounts in no other form.
var exceeded = regexp.MustCompile(`exceeded quota: [^ ,]+, requested: ([^ ]+), used: ([^ ]+), limited: ([^ ]+)$`)

// IsEnoughWithout says whether a pod that exceeds a quota, by the server's words, would not when another pod has gone. It is false for all
// words that are not understood: these say something else, or are those of a server that words it otherwise.
func IsEnoughWithout(message string, leaving *corev1.Pod) bool {
	parts := exceeded.FindStringSubmatch(message)
	if parts == nil || leaving == nil || hasEnded(leaving) {
		return false
	}
	requested, used, limited := amounts(parts[1]), amounts(parts[2]), amounts(parts[3])
	freed := usage(leaving)
	for name, request := range requested {
		sum, isUsed := used[name]
		limit, isLimited := limited[name]
		freedOfIt, isFreed := freed[name]
		if !isUsed || !isLimited || !isFreed {
			return false
		}
		sum.Add(request)
		sum.Sub(freedOfIt)
		if sum.Cmp(limit) > 0 {
			return false
		}
	}
	return len(requested) > 0
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// amounts reads a list such as "pods=1,requests.cpu=500m"; nil for any other text.
func amounts(text string) map[string]resource.Quantity {
	all := map[string]resource.Quantity{}
	for entry := range strings.SplitSeq(text, ",") {
		name, amount, found := strings.Cut(entry, "=")
		quantity, err := resource.ParseQuantity(amount)
		if !found || err != nil {
			return nil
		}
		all[name] = quantity
	}
	return all
}

// usage is what a quota counts of a pod, under the names that a quota has for that.
func usage(pod *corev1.Pod) map[string]resource.Quantity {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	all := map[string]resource.Quantity{"pods": one, "count/pods": one}
	for name, amount := range podresources.PodRequests(pod, podresources.PodResourcesOptions{}) {
		all[string(name)], all["requests."+string(name)] = amount, amount
	}
	for name, amount := range podresources.PodLimits(pod, podresources.PodResourcesOptions{}) {
		all["limits."+string(name)] = amount
	}
	return all
}
