// Package probe finds management controllers: it asks each address of a list who is there, as everybody may who has no password. It logs in
// nowhere, and believes nothing but that somebody answers.
package probe

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bounds of a look at many addresses.
const (
	// between is the pause between two questions: a burst overflows the queues of switches and controllers.
	between = time.Millisecond
	// atOnce bounds the connections of Redfish.
	atOnce = 64
	// connectWithin is how long a Redfish service may take to accept a connection, and answerWithin how long it may take to answer in it.
	connectWithin, answerWithin = 2 * time.Second, 10 * time.Second
	// connectTries is how often a Redfish service that did not answer in time is asked.
	connectTries = 2
	// maxBody bounds an answer of Redfish.
	maxBody = 64 << 10
)

// request is IPMI's Get Channel Authentication Capabilities for this channel, as an administrator: IPMI 2.0, section 22.13, in the frame
// without a session of sections 13.1.3 and 13.6.
var request = []byte{
	0x06, 0x00, 0xff, 0x07, // RMCP, no acknowledgement, IPMI
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // no authentication, no session
	0x09, 0x20, 0x18, 0xc8, 0x81, 0x00, 0x38, 0x8e, 0x04, 0xb5,
}

// Places in an answer.
const (
	commandAt, codeAt, typesAt, capabilitiesAt = 19, 20, 22, 24

	capabilitiesCommand, isExtended, hasIPMI2 = 0x38, 0x80, 0x02
)

// IPMI asks addresses at a port, and gives what those that answer speak: IPMI 2.0 or IPMI 1.5.
func IPMI(ctx context.Context, addresses []netip.Addr, port uint16) (map[netip.Addr]string, error) {
	socket, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return nil, fmt.Errorf("look for BMCs: %w", err)
	}
	defer func() { _ = socket.Close() }()
	return lookFor(ctx, socket, addresses, port)
}

// version is what the sender of an answer speaks; empty if it is none.
func version(answer []byte) string {
	if len(answer) <= capabilitiesAt || answer[0] != request[0] || answer[3] != request[3] || answer[commandAt] != capabilitiesCommand ||
		answer[codeAt] != 0 {
		return ""
	}
	if answer[typesAt]&isExtended != 0 && answer[capabilitiesAt]&hasIPMI2 != 0 {
		return "IPMI 2.0"
	}
	return "IPMI 1.5"
}

// Redfish asks addresses at a port for the root of the service, which everybody may read, and gives the versions of those that answer. Who
// vouches for the certificate is not looked at: nothing is sent that is worth something.
func Redfish(ctx context.Context, addresses []netip.Addr, port uint16) (map[netip.Addr]string, error) {
	client := &http.Client{
		Timeout: connectWithin + answerWithin,
		Transport: &http.Transport{
			DialContext:       (&net.Dialer{Timeout: connectWithin}).DialContext,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
			DisableKeepAlives: true,
		},
		// A reference to another host is not followed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	found := map[netip.Addr]string{}
	var mutex sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, address := range addresses {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			for range connectTries {
				speaks, isLate := root(ctx, client, netip.AddrPortFrom(address, port))
				if speaks != "" {
					mutex.Lock()
					found[address] = speaks
					mutex.Unlock()
				}
				if !isLate {
					return
				}
			}
		})
	}
	asking.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("look for BMCs: %w", ctx.Err())
	}
	return found, nil
}

// root reads the version of the service at an address; empty if there is none. isLate says that nobody answered in time.
func root(ctx context.Context, client *http.Client, at netip.AddrPort) (speaks string, isLate bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+at.String()+"/redfish/v1/", http.NoBody)
	if err != nil {
		return "", false
	}
	answer, err := client.Do(request)
	if err != nil {
		late, is := errors.AsType[net.Error](err)
		return "", is && late.Timeout() && ctx.Err() == nil
	}
	defer func() { _ = answer.Body.Close() }()
	var service struct{ RedfishVersion string }
	err = json.NewDecoder(io.LimitReader(answer.Body, maxBody)).Decode(&service)
	if err != nil || answer.StatusCode != http.StatusOK || service.RedfishVersion == "" {
		return "", false
	}
	const longest = 16
	return "Redfish " + service.RedfishVersion[:min(len(service.RedfishVersion), longest)], false
}
