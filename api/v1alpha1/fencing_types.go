package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FencingType is how a node that is lost is kept from doing anything more.
//
// +kubebuilder:validation:Enum=None;OutOfServiceTaint;Remediation;BMC
type FencingType string

const (
	// FencingNone means that nothing is done: fresh volumes need none.
	FencingNone FencingType = "None"
	// FencingOutOfServiceTaint means that Kubernetes is told that the node is off.
	FencingOutOfServiceTaint FencingType = "OutOfServiceTaint"
	// FencingRemediation means that another operator is asked to restart it or cut it off.
	FencingRemediation FencingType = "Remediation"
	// FencingBMC means that the box controller takes the power away from the node's server, and proves that it is off.
	FencingBMC FencingType = "BMC"
)

// FencingSpec says what is done with a node that is lost, besides moving members away from it.
//
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Remediation') == has(self.remediationTemplate)",message="recovery.fencing.remediationTemplate is for type: Remediation, which needs it"
// +kubebuilder:validation:XValidation:rule="!has(self.after) || !self.after.matches('^([0-9]+(s|m|h))+$') || duration(self.after) >= duration('30s') || (has(self.type) && self.type == 'BMC')",message="recovery.fencing.after must be from 30s to 168h, such as 3m; only with type: BMC may it be shorter"
type FencingSpec struct {
	// None: nothing. OutOfServiceTaint: the node gets the taint node.kubernetes.io/out-of-service, so that Kubernetes removes all its
	// pods, also those of others, and detaches their volumes. It does not switch the node off: choose it only where a node that does not
	// answer for so long is off, or restarts itself. Remediation: an object is made from a template, by which an operator such as those
	// of medik8s restarts the node or cuts it off. BMC: the box controller takes the power away from the node's Server and proves by two
	// witnesses that it is off; then the member moves at once, and once it has, the Server is switched on again (spec.fencing of its
	// Chassis, which must name the Store's namespace). All three need rights that the operator does not have by default.
	//
	// +optional
	// +kubebuilder:default=None
	Type FencingType `json:"type,omitempty"`

	// How long a node has to be lost before it is fenced; only once it is proven that the Store's member there is dead. With type: BMC,
	// which proves that the node is off, it may be as short as 0s, and a node is lost as soon as its kubelet has missed a renewal of the
	// node's Lease and the coordinator has declared the member's process dead. Otherwise a node is lost when it is not ready.
	//
	// +optional
	// +kubebuilder:default="3m"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(s|m|h))+$') && duration(self) <= duration('168h')",message="recovery.fencing.after must be from 0s to 168h, such as 3m"
	After string `json:"after,omitempty"`

	// The template that a remediation is made from.
	//
	// +optional
	RemediationTemplate *RemediationTemplate `json:"remediationTemplate,omitempty"`
}

// RemediationTemplate names the template of a remediation. What is made from it has the template's kind without the word Template, its
// namespace, and the node's name.
type RemediationTemplate struct {
	// Such as self-node-remediation.medik8s.io/v1alpha1.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion"`
	// Such as SelfNodeRemediationTemplate.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]+Template$')",message="recovery.fencing.remediationTemplate.kind must end with Template, such as SelfNodeRemediationTemplate"
	Kind string `json:"kind"`
	// Its name.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Its namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// FenceStatus describes a node that is fenced by this Store's word, or is to be. It is on record before anything is done.
type FenceStatus struct {
	// The node.
	Node string `json:"node"`
	// How; it is taken back in the same way, whatever the spec says then.
	Type FencingType `json:"type"`
	// The member that was lost with it.
	Member string `json:"member"`
	// When that was decided.
	Since metav1.Time `json:"since"`
	// When it was asked for; absent before that.
	//
	// +optional
	RequestedAt *metav1.Time `json:"requestedAt,omitempty"`
	// Whether it is done.
	//
	// +optional
	Done bool `json:"done,omitempty"`
	// The words of the program that does it, or the reason for the wait.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// The template that the remediation was made from.
	//
	// +optional
	RemediationTemplate *RemediationTemplate `json:"remediationTemplate,omitempty"`
}
