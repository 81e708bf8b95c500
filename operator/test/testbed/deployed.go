package testbed

import (
	"net"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// boxName is what the box controller's objects are called.
const boxName = "rcbox-box"

// StartDeployedBox runs the box controller as a kubelet would run its Deployment, at the port to which its Service leads. Its pod has the
// address host. It gives the address at which the API server finds it.
func (c *Cluster) StartDeployedBox(program, host string) (box *Operator, address string) {
	c.t.Helper()
	deployment, service, policy := &appsv1.Deployment{}, &corev1.Service{}, &networkingv1.NetworkPolicy{}
	if !c.Get(deployment, OperatorNamespace, boxName) || !c.Get(service, OperatorNamespace, boxName) ||
		!c.Get(policy, OperatorNamespace, boxName) {
		c.t.Fatalf("in %s there is not each of Deployment, Service and NetworkPolicy %s", OperatorNamespace, boxName)
	}
	pod := &deployment.Spec.Template.Spec
	if pod.ServiceAccountName != boxName { // the user that the test bed runs it as
		c.t.Errorf("its ServiceAccount is %s", pod.ServiceAccountName)
	}
	container := &pod.Containers[0]
	port := service.Spec.Ports[0].TargetPort.IntVal
	for _, one := range container.Ports {
		isLetIn := false
		for _, rule := range policy.Spec.Ingress {
			for _, allowed := range rule.Ports {
				isLetIn = isLetIn || allowed.Port.IntVal == one.ContainerPort
			}
		}
		if !isLetIn {
			c.t.Errorf("its NetworkPolicy does not let its port %s in", one.Name)
		}
		if one.Name == "subresources" && one.ContainerPort != port {
			c.t.Errorf("its Service leads to port %d, and it listens at %d", port, one.ContainerPort)
		}
	}
	if len(service.Spec.Selector) > 0 {
		c.t.Errorf("its Service selects pods by %v, and the leader's address is not its own", service.Spec.Selector)
	}
	for label, value := range policy.Spec.PodSelector.MatchLabels {
		if deployment.Spec.Template.Labels[label] != value {
			c.t.Errorf("its NetworkPolicy is for pods with %s=%s", label, value)
		}
	}
	if container.Args[0] != "box" {
		c.t.Fatalf("its arguments are %v", container.Args)
	}
	address = net.JoinHostPort(host, strconv.Itoa(int(port)))
	// What follows a flag that is given twice counts: the host has many addresses here.
	arguments := append(slices.Clone(container.Args[1:]), "--subresources-bind-address="+address, "--advertise-address="+host)
	return c.StartBox(program, arguments...), address
}
