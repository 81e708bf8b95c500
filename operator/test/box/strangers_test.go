package box_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// strangers: only the API server may make requests. All others lack its certificate, and so cannot claim to be a user.
func strangers(u *users) {
	certificate, key := u.FrontProxyFiles()
	proxy, err := tls.LoadX509KeyPair(certificate, key)
	u.must(err)
	certificate, key = u.OtherClientFiles()
	other, err := tls.LoadX509KeyPair(certificate, key)
	u.must(err)
	admin, err := tls.X509KeyPair(u.Config.CertData, u.Config.KeyData)
	u.must(err)
	for who, test := range map[string]struct {
		certificates []tls.Certificate
		isLetIn      bool
	}{
		"nobody": {nil, false}, "an administrator": {[]tls.Certificate{admin}, false},
		"another client of the same authority": {[]tls.Certificate{other}, false}, "the API server": {[]tls.Certificate{proxy}, true},
	} {
		if err := u.asks(patience, test.certificates); (err == nil) != test.isLetIn {
			u.Errorf("%s: %v", who, err)
		}
	}
	// Silent connections do not keep the API server out, although they come from the API server's own address.
	silent := u.besiege(600)
	for range 10 {
		if err := u.asks(availability, []tls.Certificate{proxy}); err != nil {
			u.Fatalf("the API server, among silent connections: %v", err)
		}
	}
	u.free(consoleBlade)
	terminal, command := u.at("alice", "console", name(consoleBlade))
	u.typed(terminal, "among silent connections")
	terminal.Type("~.")
	u.ends(command, 0)
	silent()
}

// availability is the time after which the API server reports an aggregated API without an answer as unavailable.
const availability = 5 * time.Second

// asks makes a request directly to the box controller, in a new connection. It returns no error if the request was answered with 200.
func (u *users) asks(within time.Duration, certificates []tls.Certificate) error {
	u.Helper()
	client := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		Certificates: certificates, InsecureSkipVerify: true, // the other side is what is tested
	}}}
	request, err := http.NewRequestWithContext(u.Context(), http.MethodGet, "https://"+u.site.subresources+"/apis", http.NoBody)
	u.must(err)
	request.Header.Set("X-Remote-User", "alice")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// besiege keeps silent connections to the box controller open until end is called.
func (u *users) besiege(connections int) (end func()) {
	u.Helper()
	ctx, cancel := context.WithCancel(u.Context())
	var up, running sync.WaitGroup
	for range connections {
		up.Add(1)
		running.Go(func() {
			isUp := sync.OnceFunc(up.Done)
			defer isUp()
			for ctx.Err() == nil {
				connection, err := new(net.Dialer).DialContext(ctx, "tcp", u.site.subresources)
				if err == nil {
					isUp()
					stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
					_, _ = io.Copy(io.Discard, connection)
					stop()
					_ = connection.Close()
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second): // then connect again
				}
			}
		})
	}
	up.Wait()
	return func() {
		cancel()
		running.Wait()
	}
}
