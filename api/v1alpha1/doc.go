// Package v1alpha1 holds the custom resources of group rcbox.dev.
//
// +kubebuilder:object:generate=true
// +groupName=rcbox.dev
package v1alpha1
