// Package standin is a stand-in for a management controller: a controller in this process, by the server of go-ipmi, whose faults are set
// while it runs. It is for tests of what speaks with controllers. It is no evidence of how hardware behaves; ipmitool judges whether it
// speaks IPMI.
package standin

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/types"
)

// channel is the LAN channel of go-ipmi's server.
const channel = 1

// Config is what a stand-in is.
type Config struct {
	// Address is where it listens; zero: a free port of the loopback interface.
	Address  netip.AddrPort
	Username string
	Password string
	// MaxPrivilege is the most that the account may do; zero: Administrator.
	MaxPrivilege types.PrivilegeLevel
	// ConsolePrivilege is what the console needs; zero: Operator.
	ConsolePrivilege types.PrivilegeLevel
	// CipherSuites that it offers; none: 3 and 17.
	CipherSuites []types.CipherSuiteID
	// SystemGUID in the form of RFC 4122. It is stored as SMBIOS does.
	SystemGUID   string
	Manufacturer string
	Product      string
	Serial       string
	// Custom fields of the FRU's product area, such as SLOT=7.
	Custom  []string
	Sensors []Sensor
	// On says whether the server runs at the beginning.
	On bool
}

// Sensor is a sensor of a stand-in.
type Sensor struct {
	Name string
	Type types.SensorType
	Unit types.SensorUnitType
	// Step is the value of one count; 0: 1.
	Step int16
	// Exponent of ten of the step.
	Exponent int8
	// Signed says whether counts are in two's complement.
	Signed bool
	// Count is the reading.
	Count uint8
	// Unavailable says that there is no reading now.
	Unavailable bool
	// Broken lets the controller answer that it does not know the sensor, though it has a record of it.
	Broken bool
	// LowerCritical and UpperCritical are thresholds in counts; nil: there is none.
	LowerCritical, UpperCritical *uint8
	// States, where it is not nil, makes it a discrete sensor with these states.
	States *uint16
}

// Faults are what is wrong with a stand-in. The zero value is none of them.
type Faults struct {
	// Frozen: it takes every datagram and answers none.
	Frozen bool
	// Code, if it is not zero, is the completion code of all answers in a session.
	Code types.CompletionCode
	// Codes are the completion codes of the commands that it refuses in a session.
	Codes map[types.Command]types.CompletionCode
	// MissingRecord, if it is not zero, is a record that its event log refers to and does not have.
	MissingRecord int
	// KeepsPower: it says yes to orders, and does nothing.
	KeepsPower bool
	// KeepsBoot: it says yes to what the server is to boot from next, and forgets it.
	KeepsBoot bool
	// SaysOff and SaysOn: it says so whether or not it is true.
	SaysOff, SaysOn bool
	// RefusesWhatIsDone: it refuses to switch off what is off, and on what is on.
	RefusesWhatIsDone bool
	// ShortPasswords: it keeps the first 16 bytes of a longer password, and says yes.
	ShortPasswords bool
	// OnPassword, if it is not nil, is called after a password was changed and before that is answered.
	OnPassword func()
	// Delay of each answer.
	Delay time.Duration
	// Loss is the share of datagrams, in both directions, that gets lost.
	Loss float64
	// Forge, if it is not nil, changes each answer, or returns nil to lose it.
	Forge func([]byte) []byte
}

// BMC is a running stand-in.
type BMC struct {
	config Config
	socket *net.UDPConn
	store  *mock.HAL

	mu      sync.Mutex
	faults  Faults
	on      bool
	sensors []Sensor
	// recorded is when the sensors' records were changed last, in seconds of the controller's own clock.
	recorded uint32
	events   []*types.SEL
	seen     Seen
	random   uint64
	console  *mock.FakeConsoleConn
	stop     func()
	// taken are the sequence numbers of the accepted datagrams, each with its session.
	taken map[[8]byte]bool
}

// Seen is what a stand-in was asked for.
type Seen struct {
	// Logins are the attempts to prove a password: RAKP messages 1, with repetitions.
	Logins int
	// Datagrams that arrived.
	Datagrams int
	// Orders that arrived, by their names in IPMI, those that were refused included.
	Orders []string
	// Network says whether the network is what the server boots from next.
	Network bool
	// Disk says whether the disk is.
	Disk bool
	// SignsOfLife are the commands in sessions that do nothing.
	SignsOfLife int
	// IdentifySeconds is the last duration of the light.
	IdentifySeconds uint8
}

// Start starts a stand-in.
func Start(config Config) (*BMC, error) {
	if !config.Address.IsValid() {
		config.Address = netip.MustParseAddrPort("127.0.0.1:0")
	}
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(config.Address))
	if err != nil {
		return nil, fmt.Errorf("stand-in: %w", err)
	}
	b := &BMC{
		config: config, socket: socket, store: mock.New(), on: config.On, sensors: slices.Clone(config.Sensors), recorded: 1, random: 1,
		taken: map[[8]byte]bool{},
	}
	if err := b.fillStore(); err != nil {
		_ = socket.Close()
		return nil, err
	}
	if err := b.boot(); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return b, nil
}

// boot starts the controller's firmware.
func (b *BMC) boot() error {
	guid, err := smbios(b.config.SystemGUID)
	if err != nil {
		return err
	}
	info := bmc.DeviceInfo{
		DeviceID: 0x20, DeviceRevision: 1, FirmwareMajor: 2, FirmwareMinor: 0x07, IPMIVersion: 0x02,
		AdditionalDeviceSupport: 0x8f, // chassis, FRU, SEL, SDR, sensors
	}
	state := bmc.New(info, guid, hardware{HAL: b.store, bmc: b}, bmc.WithV15Disabled(), bmc.WithCipherSuites(b.config.CipherSuites))
	user, err := state.Users.Add(2, b.config.Username)
	if err != nil {
		return fmt.Errorf("stand-in: %w", err)
	}
	user.SetPassword([]byte(b.config.Password))
	user.Enabled = true
	privilege := bmc.PrivilegeLevelAdministrator
	if b.config.MaxPrivilege != 0 {
		privilege = bmc.PrivilegeLevel(b.config.MaxPrivilege)
	}
	user.ChannelAccess[channel] = bmc.UserChannelAccess{MaxPrivilege: privilege, Enabled: true}
	user.SetPayloadAccess(channel, true, 0x02, 0)
	const authentication, secured = 2, 0xc0 // SOL: encrypted and authenticated
	console := byte(types.PrivilegeLevelOperator)
	if b.config.ConsolePrivilege != 0 {
		console = byte(b.config.ConsolePrivilege)
	}
	if code := state.SOL.Config().SetParam(authentication, []byte{secured | console}); code != types.CodeOK {
		return fmt.Errorf("stand-in: console: completion code %#02x", uint8(code))
	}

	_ = b.socket.SetReadDeadline(time.Time{})
	wire := &wire{UDPConn: b.socket, bmc: b, closed: make(chan struct{})}
	served := server.NewServer(state, wire, server.WithHandlerRegistry(b.registry()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = served.Serve(ctx)
	}()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop = func() {
		cancel()
		_ = served.Close()
		<-done
	}
	return nil
}

// smbios returns the bytes of a GUID as SMBIOS stores them.
func smbios(text string) (guid [16]byte, err error) {
	if text == "" {
		return guid, nil
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != len(guid) {
		return guid, errors.New("stand-in: SystemGUID must be in the form of RFC 4122")
	}
	for to, from := range []int{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15} {
		guid[to] = raw[from]
	}
	return guid, nil
}

// Close ends the stand-in.
func (b *BMC) Close() {
	b.mu.Lock()
	stop := b.stop
	b.mu.Unlock()
	stop()
	_ = b.socket.Close()
}

// Restart restarts the controller, not its server: sessions are forgotten, and nobody is told.
func (b *BMC) Restart() error {
	b.mu.Lock()
	stop := b.stop
	b.mu.Unlock()
	stop()
	return b.boot()
}

// Swap puts another blade, of that system GUID, behind the controller's address: it restarts as one of that blade.
func (b *BMC) Swap(systemGUID string) error {
	b.mu.Lock()
	b.config.SystemGUID = systemGUID
	b.mu.Unlock()
	return b.Restart()
}

// Address is where it listens.
func (b *BMC) Address() netip.AddrPort {
	address, _ := b.socket.LocalAddr().(*net.UDPAddr)
	return address.AddrPort()
}

// Fault changes what is wrong with it.
func (b *BMC) Fault(change func(*Faults)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.faults)
}

// On says whether the server really runs.
func (b *BMC) On() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.on
}

// SetPower switches the server, as somebody does who pulls its plug or pushes its button.
func (b *BMC) SetPower(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on = on
}

// Seen returns what it was asked for.
func (b *BMC) Seen() Seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := b.seen
	seen.Orders = append([]string(nil), seen.Orders...)
	return seen
}

// SetSensor changes the sensor of that name.
func (b *BMC) SetSensor(name string, change func(*Sensor)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.sensors {
		if b.sensors[i].Name == name {
			change(&b.sensors[i])
		}
	}
}

// SetRecords changes sensors and their records; there are as many as before.
func (b *BMC) SetRecords(sensors []Sensor) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sensors = slices.Clone(sensors)
	b.recorded++
	return b.writeRecords(sensors)
}

// Record adds an event of a sensor to the event log. Sensors have the numbers 1 and up, in the order of the configuration.
func (b *BMC) Record(event types.SELStandard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	event.GeneratorID = types.GeneratorBMC
	event.EvMRev = 4
	id := uint16(len(b.events) + 1) //nolint:gosec // a test does not record so many
	b.events = append(b.events, &types.SEL{RecordID: id, RecordType: 0x02, Standard: &event})
}

// ClearLog empties the event log.
func (b *BMC) ClearLog() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = nil
}

// Print prints text on the server's serial console, if somebody has opened it.
func (b *BMC) Print(text string) {
	b.mu.Lock()
	console := b.console
	b.mu.Unlock()
	if console != nil {
		console.FeedRX([]byte(text))
	}
}

// Typed returns what was typed on the console.
func (b *BMC) Typed() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.console == nil {
		return ""
	}
	return b.console.TXString()
}
