package facts

import "slices"

// ResolveImage gives the image of new pods: the spec's, else the one that was resolved before, else the operator's default. An operator
// with another default thus changes no Store that it finds; but a Store whose coordinator never answered gets the new one, for the old may
// be an image that is nowhere.
func ResolveImage(o *Observed) string {
	if o.Store.Spec.Image != "" {
		return o.Store.Spec.Image
	}
	if o.Store.Status.ClusterID == "" && o.Cluster == nil && !slices.ContainsFunc(o.Pods, hasRun) {
		return o.DefaultImage
	}
	if o.Store.Status.Image != "" {
		return o.Store.Status.Image
	}
	// The status was not written, or lost: the pods know.
	var newest *Pod
	for i := range o.Pods {
		if pod := &o.Pods[i]; newest == nil || pod.CreatedAt.After(newest.CreatedAt) {
			newest = pod
		}
	}
	if newest != nil && newest.Inputs.Image != "" {
		return newest.Inputs.Image
	}
	return o.DefaultImage
}

// hasRun: a process was seen in the pod, so that its image is one that runs.
func hasRun(pod Pod) bool { return pod.Process != ProcessAbsent }
