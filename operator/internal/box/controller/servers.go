package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// Ports that BMCs listen at.
const (
	portIPMI    = 623
	portRedfish = 443
)

// makeServers makes the Servers of a layout, deletes those that have no slot any more, and gives them in the order of the layout. A layout
// with problems makes none and deletes none: somebody may correct it. Its own are those that the Chassis owns, whatever their labels say. A
// name that a Server of somebody else has is taken: it is left out of the layout, and the others are looked after.
func (r *Reconciler) makeServers(ctx context.Context, seen *round, chassis *v1alpha1.Chassis, laid *layout.Layout) (
	servers []*v1alpha1.Server, taken []string, err error,
) {
	there, others := map[string]*v1alpha1.Server{}, map[string]bool{}
	for i := range seen.servers {
		if server := &seen.servers[i]; metav1.IsControlledBy(server, chassis) {
			there[server.Name] = server
		} else {
			others[server.Name] = true
		}
	}
	if len(laid.Problems) > 0 {
		laid.Servers = slices.DeleteFunc(laid.Servers, func(s layout.Server) bool { return there[s.Name] == nil })
	}
	for i := range laid.Servers {
		name := laid.Servers[i].Name
		if there[name] == nil && !others[name] {
			made, err := r.makeServer(ctx, chassis, &laid.Servers[i])
			if err != nil {
				return nil, nil, err
			}
			there[name] = made
		}
		if there[name] == nil {
			taken = append(taken, name)
			continue
		}
		servers = append(servers, there[name])
		delete(there, name)
	}
	laid.Servers = slices.DeleteFunc(laid.Servers, func(s layout.Server) bool { return slices.Contains(taken, s.Name) })
	if len(laid.Problems) > 0 {
		return servers, taken, nil
	}
	for name, server := range there {
		if err := r.Client.Delete(ctx, server); client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("delete Server %s, which has no slot in Chassis %s any more: %w", name, chassis.Name, err)
		}
	}
	return servers, taken, nil
}

// makeServer gives nil if there is a Server of this name that the Chassis does not own.
func (r *Reconciler) makeServer(ctx context.Context, chassis *v1alpha1.Chassis, of *layout.Server) (*v1alpha1.Server, error) {
	server := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{
			Name: of.Name,
			Labels: map[string]string{
				v1alpha1.LabelChassis: chassis.Name, v1alpha1.LabelSlot: strconv.Itoa(int(of.Slot)),
				v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue,
				// Its node will have the same. Whoever wants another class writes it here: the label is not put back.
				v1alpha1.LabelNodeClass: chassis.Spec.Model,
			},
			OwnerReferences: []metav1.OwnerReference{ownedBy(chassis)},
		},
		Spec: v1alpha1.ServerSpec{Power: v1alpha1.WantUnmanaged},
	}
	err := r.Client.Create(ctx, server)
	if apierrors.IsAlreadyExists(err) {
		// Of somebody else, or the cache is behind.
		err = r.Live.Get(ctx, client.ObjectKeyFromObject(server), server)
		if err == nil && !metav1.IsControlledBy(server, chassis) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make Server %s of Chassis %s: %w", of.Name, chassis.Name, err)
	}
	return server, nil
}

// chassisOf is the Chassis that owns a Server; empty if none does.
func chassisOf(server client.Object) string {
	if owner := metav1.GetControllerOf(server); owner != nil && owner.Kind == "Chassis" {
		return owner.Name
	}
	return ""
}

// ownedBy has Servers go with their Chassis, which does not wait for them.
func ownedBy(chassis *v1alpha1.Chassis) metav1.OwnerReference {
	reference := metav1.NewControllerRef(chassis, v1alpha1.GroupVersion.WithKind("Chassis"))
	reference.BlockOwnerDeletion = nil
	return *reference
}

// setControllers has the controllers of a Chassis asked. Without a Secret, nobody is.
func (r *Reconciler) setControllers(
	ctx context.Context, chassis *v1alpha1.Chassis, laid *layout.Layout, servers []*v1alpha1.Server,
) error {
	if len(laid.Problems) > 0 || laid.Model == nil {
		r.Poller.Set(chassis.Name, nil) //nolint:contextcheck // sessions are closed after this look
		return nil
	}
	secret, err := r.credentials(ctx, chassis.Spec.Management.CredentialsSecret, v1alpha1.SecretTypeBMC, bmcKeys)
	if unusable := (*secretError)(nil); errors.As(err, &unusable) {
		r.Poller.Set(chassis.Name, nil) //nolint:contextcheck // sessions are closed after this look
	}
	if err != nil {
		return err // of one that could not be read just now, what was seen still counts
	}
	wanted := map[string]poll.Want{}
	refused := refusedLogins(chassis, servers)
	want := func(role poll.Role, key, name string, address netip.Addr) poll.Want {
		target := target(chassis, laid, name, address, secret)
		target.Refused = poll.OnRecord(&target, refused[key])
		return poll.Want{Role: role, Target: target}
	}
	for i := range laid.Servers {
		if server := &laid.Servers[i]; server.MMC.IsValid() {
			wanted[server.Name] = want(poll.Server, server.Name, names.MMC(server.Name), server.MMC)
		}
	}
	for _, text := range chassis.Spec.Management.CMM {
		if address, err := netip.ParseAddr(text); err == nil {
			// By its address: which of the two is in charge changes.
			manager := want(poll.Manager, text, chassis.Name+" "+text, address)
			manager.Named = laid.ManagerSensors()
			wanted[text] = manager
		}
	}
	for _, board := range switchBoards(laid) {
		text := board.Address.String()
		wanted[text] = want(poll.SwitchBoard, text, board.Name, board.Address)
	}
	r.Poller.Set(chassis.Name, wanted) //nolint:contextcheck // sessions are closed after this look
	return nil
}

// refusedLogins are the recorded refusals of logins, by the names that the poller uses for controllers.
func refusedLogins(chassis *v1alpha1.Chassis, servers []*v1alpha1.Server) map[string]*v1alpha1.RefusedLogin {
	refused := map[string]*v1alpha1.RefusedLogin{}
	for _, server := range servers {
		refused[server.Name] = server.Status.MMC.Refused
	}
	for i := range chassis.Status.Refused {
		refused[chassis.Status.Refused[i].Address] = &chassis.Status.Refused[i]
	}
	return refused
}

// switchBoards are the controllers of the switch boards of a Chassis.
func switchBoards(laid *layout.Layout) []names.Management {
	return slices.DeleteFunc(slices.Clone(laid.Controllers), func(c names.Management) bool {
		return c.Role != names.ONM && c.Role != names.ONS || !c.Address.IsValid()
	})
}

func target(chassis *v1alpha1.Chassis, laid *layout.Layout, name string, address netip.Addr, secret *corev1.Secret) pool.Target {
	management := &chassis.Spec.Management
	protocol := management.Protocol
	if protocol == "" {
		protocol = laid.Model.Protocol
	}
	access := bmc.Access{
		Protocol: bmc.IPMI, Username: string(secret.Data[corev1.BasicAuthUsernameKey]),
		Password:      password(secret, corev1.BasicAuthPasswordKey),
		Previous:      password(secret, v1alpha1.PreviousPasswordKey),
		PasswordBytes: int(laid.Model.PasswordBytes),
		CA:            string(secret.Data[corev1.ServiceAccountRootCAKey]),
		CipherSuite:   int(management.CipherSuite), InsecureSkipVerify: management.InsecureSkipVerify,
	}
	port := uint16(portIPMI)
	if protocol == v1alpha1.ManagementRedfish {
		access.Protocol, port = bmc.Redfish, portRedfish
	}
	if management.Port != 0 {
		port = uint16(management.Port) //nolint:gosec // the schema has bounds
	}
	access.Address = netip.AddrPortFrom(address.Unmap(), port)
	return pool.Target{Name: name, Access: access, SecretUID: string(secret.UID), SecretVersion: secret.ResourceVersion}
}

// password is a key of a Secret without the end of its line: a file that ipmitool reads may have one.
func password(secret *corev1.Secret, key string) bmc.Secret {
	return bmc.NewSecret(strings.TrimRight(string(secret.Data[key]), "\r\n"))
}
