package switches

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gosnmp/gosnmp"
)

// Columns of IF-MIB, and values of ifAdminStatus and ifOperStatus.
const (
	ifAdminStatus = ".1.3.6.1.2.1.2.2.1.7"
	ifOperStatus  = ".1.3.6.1.2.1.2.2.1.8"
	ifName        = ".1.3.6.1.2.1.31.1.1.1.1"
	statusUp      = 1
	statusDown    = 2
)

const (
	// answerTime is for one answer, and retries how often a question is repeated: UDP loses some.
	answerTime = time.Second
	retries    = 2
	// maxPorts bounds what is read of a switch, and maxName the name of a port.
	maxPorts = 2048
	maxName  = 72
	// maxRepetitions of a question keep its answer within an Ethernet frame.
	maxRepetitions = 20
)

var (
	errTooMany = fmt.Errorf("the switch has more than %d ports", maxPorts)
	errRefused = errors.New("the switch refuses")
	errAsIt    = errors.New("the switch says yes, and the port is as it was")
)

// snmp is a session with a switch.
type snmp struct{ agent *gosnmp.GoSNMP }

// Dial makes a session; the switch is not asked yet.
func Dial(ctx context.Context, target *Target) (Session, error) {
	agent := &gosnmp.GoSNMP{
		Target: target.Address.Addr().String(), Port: target.Address.Port(), Transport: "udp", Context: ctx,
		Version: gosnmp.Version3, SecurityModel: gosnmp.UserSecurityModel, MsgFlags: gosnmp.AuthPriv,
		Timeout: answerTime, Retries: retries, MaxRepetitions: maxRepetitions, MaxOids: gosnmp.MaxOids,
		SecurityParameters: &gosnmp.UsmSecurityParameters{
			UserName:               target.Username,
			AuthenticationProtocol: gosnmp.SHA256, AuthenticationPassphrase: target.Password.Reveal(),
			PrivacyProtocol: gosnmp.AES, PrivacyPassphrase: target.Privacy.Reveal(),
		},
	}
	if err := agent.Connect(); err != nil {
		return nil, fmt.Errorf("reach switch %s: %w", target.Address, err)
	}
	return &snmp{agent}, nil
}

func (s *snmp) Close() error {
	if err := s.agent.Conn.Close(); err != nil {
		return fmt.Errorf("close the session with a switch: %w", err)
	}
	return nil
}

// Ports reads three columns. A port that one of these does not have is left out.
func (s *snmp) Ports(ctx context.Context) (map[string]Port, error) {
	s.agent.Context = ctx
	names, enabled, up := map[int]string{}, map[int]int{}, map[int]int{}
	for _, column := range []struct {
		oid  string
		take func(index int, value any)
	}{
		{ifName, func(index int, value any) {
			if text, isText := value.([]byte); isText && len(text) <= maxName {
				names[index] = string(text)
			}
		}},
		{ifAdminStatus, func(index int, value any) { enabled[index], _ = value.(int) }},
		{ifOperStatus, func(index int, value any) { up[index], _ = value.(int) }},
	} {
		rows := 0
		err := s.agent.BulkWalk(column.oid, func(found gosnmp.SnmpPDU) error {
			if rows++; rows > maxPorts {
				return errTooMany
			}
			if index, err := strconv.Atoi(strings.TrimPrefix(found.Name, column.oid+".")); err == nil {
				column.take(index, found.Value)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", column.oid, err)
		}
	}
	ports := make(map[string]Port, len(names))
	for index, name := range names {
		if _, isTwice := ports[name]; isTwice || name == "" || enabled[index] == 0 {
			continue
		}
		ports[name] = Port{Index: index, Enabled: enabled[index] == statusUp, Up: up[index] == statusUp}
	}
	return ports, nil
}

// Enable sets ifAdminStatus, and reads it back.
func (s *snmp) Enable(ctx context.Context, index int, enabled bool) error {
	s.agent.Context = ctx
	oid, wanted := ifAdminStatus+"."+strconv.Itoa(index), statusDown
	if enabled {
		wanted = statusUp
	}
	answer, err := s.agent.Set([]gosnmp.SnmpPDU{{Name: oid, Type: gosnmp.Integer, Value: wanted}})
	if err != nil {
		return fmt.Errorf("set %s: %w", oid, err)
	}
	if answer.Error != gosnmp.NoError {
		return fmt.Errorf("%w: set %s: %s", errRefused, oid, answer.Error)
	}
	read, err := s.agent.Get([]string{oid})
	if err != nil {
		return fmt.Errorf("read %s back: %w", oid, err)
	}
	if len(read.Variables) != 1 || read.Variables[0].Value != wanted {
		return fmt.Errorf("%w: %s", errAsIt, oid)
	}
	return nil
}
