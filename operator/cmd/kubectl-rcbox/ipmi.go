package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

type ipmiOptions struct {
	dryRun             bool
	user, passwordFile string
}

func (p *plugin) ipmiCommand() *cobra.Command {
	var options ipmiOptions
	command := &cobra.Command{
		Use:   "ipmi SERVERS WORD...",
		Short: "Run ipmitool for the BMC of each server of a list",
		Long: `Runs ipmitool on this machine, which must reach the network of the BMCs, once for the BMC of each server of a list, one after
the other. The password is read by ipmitool from a file that only you may read; it is never an argument. What you do so, the
box controller sees, and does not undo unless spec.power says otherwise.

It takes the right create on servers/ipmi in the API group subresources.rcbox.dev, which is asked for before anything is sent.
That keeps honest users from mistakes; who has the password and reaches the BMCs can run ipmitool without this program.

` + listHelp + ` A controller of a chassis, such as mercury1cmm, may be in the list, too.`,
		Example: `  kubectl rcbox ipmi -d 1,5-7,10+3,20 power status     # what would be run
  kubectl rcbox ipmi atom007 sel elist
  kubectl rcbox ipmi mercury1cmm sdr list`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return runIPMI(command, cluster, arguments[0], arguments[1:], options)
		},
	}
	flags := command.Flags()
	// What follows the list is ipmitool's.
	flags.SetInterspersed(false)
	flags.BoolVarP(&options.dryRun, "dry-run", "d", false, "print what would be run; send nothing")
	flags.StringVar(&options.user, "user", "admin", "user name at the BMCs")
	flags.StringVar(&options.passwordFile, "password-file", "~/.atom/ipmi_password.txt", "file with the password, which only you may read")
	return command
}

// runIPMI runs ipmitool for each controller of a list, or prints what it would run.
func runIPMI(command *cobra.Command, cluster *access.Cluster, list string, words []string, options ipmiOptions) error {
	lines, all, err := ipmiLines(command, cluster, list, words, &options)
	if err != nil {
		return err
	}
	out := command.OutOrStdout()
	if options.dryRun {
		for _, line := range lines {
			if err := writeText(out, quoted(line)+"\n"); err != nil {
				return err
			}
		}
		return nil
	}
	if err := cluster.MayIPMI(command.Context(), all); err != nil {
		return err
	}
	if err := mustBePrivate(options.passwordFile); err != nil {
		return err
	}
	failed := 0
	for _, line := range lines {
		if err := runLine(command, out, line); err != nil {
			failed++
			if err := writeText(command.ErrOrStderr(), fmt.Sprintf("%s: %v\n", line[hostAt], err)); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("ipmitool failed for %d of %d", failed, len(lines))
	}
	return nil
}

// hostAt is where the address is in a line.
const hostAt = 4

// ipmiLines are what is to be run, and the names of the servers and controllers.
func ipmiLines(command *cobra.Command, cluster *access.Cluster, list string, words []string, options *ipmiOptions) (
	lines [][]string, all []string, err error,
) {
	if options.passwordFile, err = fromHome(options.passwordFile); err != nil {
		return nil, nil, err
	}
	chassis := &v1alpha1.ChassisList{}
	if err := cluster.List(command.Context(), chassis); err != nil {
		return nil, nil, fmt.Errorf("list Chassis (list on chassis; is the box controller installed?): %w", err)
	}
	found, err := names.NewFleet(chassis.Items).Find(list)
	if err != nil {
		return nil, nil, fmt.Errorf("find the servers: %w", err)
	}
	suites := map[string]int32{}
	for i := range chassis.Items {
		management := &chassis.Items[i].Spec.Management
		if management.Protocol == v1alpha1.ManagementRedfish {
			suites[chassis.Items[i].Name] = -1
			continue
		}
		suites[chassis.Items[i].Name] = management.CipherSuite
	}
	add := func(name, of, host string) error {
		suite := suites[of]
		switch {
		case suite < 0:
			return fmt.Errorf("%s speaks Redfish: ipmitool is of no use there", name)
		case suite == 0:
			suite = 17
		}
		line := []string{
			"ipmitool", "-I", "lanplus", "-H", host, "-C", strconv.Itoa(int(suite)), "-U", options.user, "-f", options.passwordFile,
		}
		lines, all = append(lines, append(line, words...)), append(all, name)
		return nil
	}
	var errs []error
	for _, place := range found.Places {
		errs = append(errs, add(place.Name, place.Chassis, place.MMC.String()))
	}
	for _, controller := range found.Controllers {
		errs = append(errs, add(controller.Name, controller.Chassis, controller.Address.String()))
	}
	return lines, all, errors.Join(errs...)
}

// fromHome replaces ~/ at the beginning of a path: a shell does so only where it stands alone.
func fromHome(path string) (string, error) {
	rest, isHome := strings.CutPrefix(path, "~/")
	if !isHome {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find your home for --password-file: %w", err)
	}
	return filepath.Join(home, rest), nil
}

// mustBePrivate is an error for a file that others may read.
func mustBePrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read the password's file: %w; write the password into it, or name another by --password-file", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("others may read %s, which has the password: chmod 600 %s", path, path)
	}
	return nil
}

func runLine(command *cobra.Command, out io.Writer, line []string) error {
	program := exec.CommandContext(command.Context(), line[0], line[1:]...) //nolint:gosec // the user's own words, on the user's machine
	program.Stdout, program.Stderr = out, command.ErrOrStderr()
	if err := program.Run(); err != nil {
		return fmt.Errorf("run ipmitool: %w", err)
	}
	return nil
}

// quoted is a line as a shell takes it.
func quoted(line []string) string {
	words := make([]string, len(line))
	for i, word := range line {
		words[i] = word
		if word == "" || strings.ContainsAny(word, " \t\n'\"\\$`&|;<>()*?[]{}~#!") {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
