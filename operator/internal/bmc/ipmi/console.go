package ipmi

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/transport"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

const (
	consoleInstance = 1
	consolePoll     = 100 * time.Millisecond
	// repeatConsole is the time after which an unanswered packet of the console is sent again.
	repeatConsole = 500 * time.Millisecond
	// silenceOfConsole is the time without an answer after which the console counts as lost. It is long, because keys and output are lost
	// with the console.
	silenceOfConsole = 10 * time.Second
)

// keepConsole is how often a command is sent in the session of a console: to some controllers the console itself is no sign of life, and
// they end sessions after 30 to 60 s without one.
var keepConsole = 15 * time.Second

// Console opens the serial console. The context bounds the opening alone.
func (c *Client) Console(ctx context.Context) (io.ReadWriteCloser, error) {
	err := c.exchange(ctx, "console", true, func(ctx context.Context) error {
		_, err := c.lib().ActivatePayload(ctx, &transport.ActivatePayloadRequest{
			PayloadType: types.PayloadTypeSOL, PayloadInstance: consoleInstance, EnableEncryption: true, EnableAuthentication: true,
		})
		return err
	})
	switch {
	case hasCode(err, types.CodeActivatePayloadAlreadyActive, types.CodeActivatePayloadActivationLimitReached):
		return nil, &bmc.BusyError{Address: c.address, What: "somebody else has the console"}
	case hasCode(err, types.CodeActivatePayloadTypeDisabled, types.CodeActivatePayloadCannotActivateWithEncryption):
		return nil, &bmc.UnsupportedError{Address: c.address, What: "console", Detail: "it is disabled, or not encrypted"}
	case err != nil:
		return nil, err
	}
	c.lib().WithTimeout(repeatConsole).WithRetry(int(silenceOfConsole/repeatConsole) - 1)
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	opened := &console{client: c, cancel: cancel, done: make(chan struct{})}
	var in *io.PipeReader
	var out *io.PipeWriter
	in, opened.keys = io.Pipe()
	opened.output, out = io.Pipe()
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		c.keep(streaming)
	}()
	go func() {
		defer close(opened.done)
		err := safely(func() error {
			return c.lib().SOLStream(streaming, in, out, &client.SOLStreamOptions{PollInterval: consolePoll})
		})
		if err == nil || streaming.Err() != nil {
			err = io.EOF
		} else if !c.conn.answered() {
			err = bmc.ErrSilent
		}
		cancel()
		<-kept
		_ = in.CloseWithError(io.ErrClosedPipe)
		_ = out.CloseWithError(err)
	}()
	return opened, nil
}

// keep sends commands while the console streams. Whether they are answered does not matter: the stream itself finds out.
func (c *Client) keep(ctx context.Context) {
	ticker := time.NewTicker(keepConsole)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			limited, cancel := context.WithTimeout(ctx, silence) // the stream waits meanwhile
			_ = safely(func() error {
				_, err := c.lib().GetDeviceID(limited)
				return err
			})
			cancel()
		}
	}
}

// DialConsole opens a session for the console alone, as an administrator where the controller asks for that. Closing the console ends it.
// With isForced, another session that has the console loses it.
func DialConsole(ctx context.Context, access bmc.Access, isForced bool) (io.ReadWriteCloser, error) {
	var opened io.ReadWriteCloser
	var err error
	for _, privilege := range []types.PrivilegeLevel{types.PrivilegeLevelOperator, types.PrivilegeLevelAdministrator} {
		var session *Client
		session, err = dial(ctx, access, privilege)
		if err != nil {
			return nil, err
		}
		opened, err = session.Console(ctx)
		if busy := (*bmc.BusyError)(nil); isForced && errors.As(err, &busy) {
			// The answer does not matter: a session that has ended meanwhile is what is wanted.
			_ = session.deactivate(ctx)
			opened, err = session.Console(ctx)
		}
		if err == nil {
			return ownSession{ReadWriteCloser: opened, session: session}, nil
		}
		_ = session.Close() //nolint:contextcheck // it ends also when the context has ended
		var refused *bmc.RefusedError
		if !errors.As(err, &refused) || refused.Reason != bmc.RefusedPrivilege {
			break
		}
	}
	return nil, err
}

// ownSession is a console that ends its session.
type ownSession struct {
	io.ReadWriteCloser
	session *Client
}

func (s ownSession) Close() error {
	err := s.ReadWriteCloser.Close()
	_ = s.session.Close()
	return err //nolint:wrapcheck // our own
}

// console is the stream of a serial console.
type console struct {
	client  *Client
	cancel  context.CancelFunc
	keys    *io.PipeWriter
	output  *io.PipeReader
	done    chan struct{}
	closing sync.Once
}

// Read returns what the server printed. It ends with bmc.ErrSilent when the controller does not answer any more.
func (s *console) Read(buffer []byte) (int, error) {
	n, err := s.output.Read(buffer)
	return n, err //nolint:wrapcheck // io.EOF is compared
}

// Write sends keys to the server.
func (s *console) Write(keys []byte) (int, error) {
	n, err := s.keys.Write(keys)
	return n, err //nolint:wrapcheck // io.ErrClosedPipe is compared
}

// Close gives the console back to the controller. The session can be used for other things afterwards.
func (s *console) Close() error {
	s.closing.Do(func() {
		s.cancel()
		_ = s.keys.Close()
		_ = s.output.Close()
		<-s.done
		s.client.sendOnce()
		ctx, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		_ = s.client.deactivate(ctx)
	})
	return nil
}

// deactivate ends the console, also that of another session.
func (c *Client) deactivate(ctx context.Context) error {
	return c.exchange(ctx, "console", true, func(ctx context.Context) error {
		_, err := c.lib().DeactivatePayload(ctx, &transport.DeactivatePayloadRequest{
			PayloadType: types.PayloadTypeSOL, PayloadInstance: consoleInstance,
		})
		return err
	})
}
