package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/probe"
	"rcbox.dev/rcbox/operator/internal/box/confirm"
	"rcbox.dev/rcbox/operator/internal/box/model"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/box/poll"
	"rcbox.dev/rcbox/operator/internal/box/ranges"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/plain"
)

// Ports that BMCs listen at, unless a Chassis says another.
const (
	portOfIPMI    = 623
	portOfRedfish = 443
	// scanTries is how often a chassis manager that does not answer is asked for its sensors.
	scanTries = 3
)

type scanOptions struct {
	check              bool
	user, passwordFile string
}

func (p *plugin) scanCommand() *cobra.Command {
	var options scanOptions
	command := &cobra.Command{
		Use:   "scan [ADDRESSES]",
		Short: "Find BMCs, and compare with what Chassis declare",
		Long: `Asks addresses from this machine, which must reach the network of the BMCs, whether a BMC answers there, by IPMI or
Redfish, and compares with what Chassis declare. It logs in nowhere. ADDRESSES is a list such as 192.168.5.1+254; left out, it is all that
Chassis declare. It fails if a declared BMC is silent, or one answers that no Chassis declares.

With --check it prints what real hardware must still confirm of the model of each Chassis, and what of that is seen already by
reading. With --password-file it also logs in to the chassis manager in charge, by IPMI, reads its sensors, and says how long that takes.
Of each figure it says which field of spec.modelOverrides of the Chassis has it.`,
		Example: `  kubectl rcbox scan
  kubectl rcbox scan 192.168.5.1+254
  kubectl rcbox scan --check --password-file ~/.atom/ipmi_password.txt`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if options.check && len(arguments) > 0 {
				return usage(command, errors.New("--check looks at Chassis, and takes no addresses"))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			if options.check {
				return checkModels(command.Context(), cluster, command.OutOrStdout(), options)
			}
			return scan(command.Context(), cluster, command.OutOrStdout(), argument(arguments, 0))
		},
	}
	flags := command.Flags()
	flags.BoolVar(&options.check, "check", false, "print what real hardware must confirm, and check what can be read")
	flags.StringVar(&options.user, "user", "admin", "user name at the BMCs, for --check")
	flags.StringVar(&options.passwordFile, "password-file", "", "file with the password, which only you may read, for --check")
	return command
}

// declared is a BMC that a Chassis declares.
type declared struct {
	name     string
	protocol v1alpha1.ManagementProtocol
	port     uint16
}

// scan asks addresses, and says where what answers differs from what is declared.
func scan(ctx context.Context, cluster *access.Cluster, out io.Writer, list string) error {
	chassis := &v1alpha1.ChassisList{}
	if err := cluster.List(ctx, chassis); err != nil {
		return fmt.Errorf("list Chassis (list on chassis; is the box controller installed?): %w", err)
	}
	all := declaredBMCs(chassis.Items)
	addresses, err := addressesOf(list, chassis.Items, all)
	if err != nil {
		return err
	}
	answers, err := askAll(ctx, addresses, all)
	if err != nil {
		return err
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, columnGap, ' ', 0)
	_, _ = fmt.Fprintln(table, "ADDRESS\tANSWERS\tDECLARED AS\tNOTE")
	differences, answering := 0, 0
	for _, address := range addresses {
		speaks, is := answers[address], all[address]
		note := ""
		switch {
		case speaks == "" && is == nil:
			continue
		case speaks == "":
			note = "declared, and does not answer"
		case is == nil:
			note = "answers, and no Chassis declares it"
		}
		if speaks != "" {
			answering++
		}
		name := ""
		if is != nil {
			name = is.name
		}
		if note != "" {
			differences++
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", address, or(plain.Text(speaks)), or(name), note)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	fmt.Fprintf(&text, "%d of %d addresses answer\n", answering, len(addresses))
	if err := writeText(out, text.String()); err != nil {
		return err
	}
	if differences > 0 {
		return fmt.Errorf("%d BMCs are not as declared: see NOTE", differences)
	}
	return nil
}

// declaredBMCs are the BMCs of servers and chassis, by their address.
func declaredBMCs(all []v1alpha1.Chassis) map[netip.Addr]*declared {
	found := map[netip.Addr]*declared{}
	for i := range all {
		chassis := &all[i]
		management := &chassis.Spec.Management
		protocol := management.Protocol
		if of, err := model.Get(chassis.Spec.Model); protocol == "" && err == nil {
			protocol = of.Protocol
		}
		port := uint16(portOfIPMI)
		if protocol == v1alpha1.ManagementRedfish {
			port = portOfRedfish
		}
		if management.Port != 0 {
			port = uint16(management.Port) //nolint:gosec // the schema has bounds
		}
		for _, place := range names.Places(chassis) {
			if place.MMC.IsValid() {
				found[place.MMC] = &declared{names.MMC(place.Name), protocol, port}
			}
		}
		for _, controller := range names.Controllers(chassis) {
			if controller.Role == names.CMM || controller.Role == names.CMS {
				found[controller.Address] = &declared{controller.Name, protocol, port}
			}
		}
	}
	return found
}

// addressesOf are those of a list, or all that are declared.
func addressesOf(list string, chassis []v1alpha1.Chassis, all map[netip.Addr]*declared) ([]netip.Addr, error) {
	if list == "" {
		addresses := make([]netip.Addr, 0, len(all))
		for address := range all {
			addresses = append(addresses, address)
		}
		slices.SortFunc(addresses, netip.Addr.Compare)
		if len(addresses) == 0 {
			return nil, errors.New("no Chassis declares a BMC: name the addresses, such as 192.168.5.1+254")
		}
		return addresses, nil
	}
	parsed, err := ranges.ParseAddresses(list, names.NewFleet(chassis).Subnet())
	if err != nil {
		return nil, fmt.Errorf("read the addresses: %w", err)
	}
	return names.Addresses(parsed), nil
}

// askAll asks each address as it is declared, and one that is not in both ways.
func askAll(ctx context.Context, addresses []netip.Addr, all map[netip.Addr]*declared) (map[netip.Addr]string, error) {
	ports := map[v1alpha1.ManagementProtocol]map[uint16][]netip.Addr{v1alpha1.ManagementIPMI: {}, v1alpha1.ManagementRedfish: {}}
	for _, address := range addresses {
		if is := all[address]; is != nil {
			ports[is.protocol][is.port] = append(ports[is.protocol][is.port], address)
			continue
		}
		ports[v1alpha1.ManagementIPMI][portOfIPMI] = append(ports[v1alpha1.ManagementIPMI][portOfIPMI], address)
		ports[v1alpha1.ManagementRedfish][portOfRedfish] = append(ports[v1alpha1.ManagementRedfish][portOfRedfish], address)
	}
	answers := map[netip.Addr]string{}
	for protocol, by := range map[v1alpha1.ManagementProtocol]func(context.Context, []netip.Addr, uint16) (map[netip.Addr]string, error){
		v1alpha1.ManagementIPMI: probe.IPMI, v1alpha1.ManagementRedfish: probe.Redfish,
	} {
		for port, at := range ports[protocol] {
			found, err := by(ctx, at, port)
			if err != nil {
				return nil, fmt.Errorf("scan: %w", err)
			}
			for address, speaks := range found {
				answers[address] = strings.TrimPrefix(answers[address]+", "+speaks, ", ")
			}
		}
	}
	return answers, nil
}

// checkModels says what is open of the model of each Chassis.
func checkModels(ctx context.Context, cluster *access.Cluster, out io.Writer, options scanOptions) error {
	chassis, servers := &v1alpha1.ChassisList{}, &v1alpha1.ServerList{}
	if err := errors.Join(cluster.List(ctx, chassis), cluster.List(ctx, servers)); err != nil {
		return fmt.Errorf("list Chassis and Servers (list on chassis, servers; is the box controller installed?): %w", err)
	}
	var text strings.Builder
	differs := 0
	for i := range chassis.Items {
		of := &chassis.Items[i]
		found, err := model.Of(&of.Spec)
		if err != nil {
			return fmt.Errorf("look at Chassis %s: %w", of.Name, err)
		}
		read := confirm.Read{}
		for j := range servers.Items {
			if servers.Items[j].Status.Chassis == of.Name {
				read.Servers = append(read.Servers, &servers.Items[j])
			} else {
				read.Others = append(read.Others, &servers.Items[j])
			}
		}
		fmt.Fprintf(&text, "Chassis %s, model %s:\n", of.Name, found.Name)
		if options.passwordFile != "" {
			if err := readManager(ctx, of, found, options, &read); err != nil {
				fmt.Fprintf(&text, "  the sensors of its chassis manager cannot be read: %s\n", plain.Text(err.Error()))
				differs++
			}
		}
		for _, finding := range confirm.Of(found, read) {
			fmt.Fprintf(&text, "  %-8s %s: %s\n", finding.State, finding.Field, plain.Text(finding.What))
			if finding.State == confirm.Differs {
				differs++
			}
		}
	}
	if err := writeText(out, text.String()); err != nil {
		return err
	}
	if differs > 0 {
		return fmt.Errorf("%d findings differ from the models, or could not be read: see above what to do about each", differs)
	}
	return nil
}

// readManager logs in to the chassis manager in charge, and reads its sensors.
func readManager(ctx context.Context, chassis *v1alpha1.Chassis, of *model.Model, options scanOptions, read *confirm.Read) error {
	management := &chassis.Spec.Management
	text := cmp.Or(chassis.Status.Manager.Master, argument(management.CMM, 0))
	address, err := netip.ParseAddr(text)
	if err != nil {
		return errors.New("no chassis manager is declared")
	}
	is := declaredBMCs([]v1alpha1.Chassis{*chassis})[address]
	if is == nil || is.protocol != v1alpha1.ManagementIPMI {
		return errors.New("it speaks Redfish, which is not read here")
	}
	path, err := fromHome(options.passwordFile)
	if err != nil {
		return err
	}
	if err := mustBePrivate(path); err != nil {
		return err
	}
	password, err := os.ReadFile(path) //nolint:gosec // the user's own
	if err != nil {
		return fmt.Errorf("read the password's file: %w", err)
	}
	with := bmc.Access{
		Address: netip.AddrPortFrom(address, is.port), Protocol: bmc.IPMI, Username: options.user,
		Password: bmc.NewSecret(strings.TrimRight(string(password), "\r\n")), CipherSuite: int(management.CipherSuite),
	}
	slots := make([]int32, len(read.Servers))
	for i := range read.Servers {
		slots[i] = read.Servers[i].Status.Slot
	}
	named := of.ManagerSensors(slots)
	read.Limit = poll.DefaultIntervals.Timeout
	for range scanTries {
		// A refusal is final; silence may be that of a manager that is busy.
		if err = readSensors(ctx, with, named, read); !errors.Is(err, bmc.ErrSilent) {
			break
		}
	}
	return err
}

// readSensors reads the sensors of a BMC in a session of its own, and how long that takes.
func readSensors(ctx context.Context, with bmc.Access, named []string, read *confirm.Read) error {
	session, err := ipmi.Dial(ctx, with)
	if err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	defer func() { _ = session.Close() }() //nolint:contextcheck // it ends also when the context has ended
	begin := time.Now()
	sensors, err := session.Sensors(ctx, nil)
	if err != nil {
		return fmt.Errorf("read its sensors: %w", err)
	}
	read.First, begin = time.Since(begin), time.Now()
	if _, err := session.Sensors(ctx, func(name string) bool { return slices.Contains(named, name) }); err != nil {
		return fmt.Errorf("read its sensors again: %w", err)
	}
	read.Round = time.Since(begin)
	read.Sensors = append([]bmc.Sensor{}, sensors...)
	return nil
}
