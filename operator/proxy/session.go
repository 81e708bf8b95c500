package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"rcbox.dev/rcbox/operator/proxy/wire"
)

const (
	bufferBytes = 32 << 10
	// maxWaitingBytes is what a client may send before its server is reached.
	maxWaitingBytes = 256 << 10
	// maxTracked is how many requests whose answers are to be rewritten a connection may have under way.
	maxTracked = 1024
)

// session is one connection of a client, and the one to the server that it is for. Messages go through as they come; only answers
// that carry locators are taken as a whole, and changed.
type session struct {
	client net.Conn
	// translate a list of locators for this client.
	translate func(locators string) string
	requests  requests

	mu sync.Mutex
	// asked are the requests under way whose answers carry locators, by nonce.
	asked map[uint64]wire.Operation
}

// run relays until one of the two sides ends its connection, or the server cannot be reached. The error is nil where one has just ended it.
func (s *session) run(ctx context.Context, dial func(context.Context) (net.Conn, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.asked = map[uint64]wire.Operation{}
	s.requests.init()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		server, err := dial(ctx)
		if err != nil {
			_ = s.client.Close() // it has to look for the server again
			s.requests.close()
			ended <- err
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		s.requests.connect(server)
		err = s.relayAnswers(server)
		_, _ = s.client.Close(), server.Close() // one without the other is of no use
		s.requests.close()
		ended <- err
	}()
	stop := context.AfterFunc(ctx, func() { _ = s.client.Close() })
	defer stop()
	err := s.relayRequests()
	cancel()
	return errors.Join(ignoreEnd(err), ignoreEnd(<-ended))
}

// isEnd: a connection was closed, by whichever side.
func isEnd(err error) bool {
	for _, end := range []error{io.EOF, net.ErrClosed, context.Canceled, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return err == nil
}

func ignoreEnd(err error) error {
	if isEnd(err) {
		return nil
	}
	return err
}

// relayRequests sends what the client asks to the server. Until that is reached, it answers pings itself: a client takes a connection
// on which nothing comes for half a second for a dead one.
func (s *session) relayRequests() error {
	reader := bufio.NewReaderSize(s.client, bufferBytes)
	for {
		header, err := wire.ReadHeader(reader)
		if err != nil {
			return err
		}
		beginning, err := reader.Peek(int(min(header.Length, wire.OperationBytes)))
		if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		asked := wire.OperationOf(beginning)
		if asked == wire.Ping && header.Length <= bufferBytes {
			answered, err := s.answerPing(header)
			if err != nil {
				return err
			}
			if answered {
				if _, err := reader.Discard(int(header.Length)); err != nil {
					return fmt.Errorf("read a ping: %w", err)
				}
				continue
			}
		}
		if err := s.track(header.Nonce, asked); err != nil {
			return err
		}
		if _, err := s.requests.Write(header.Append(nil)); err != nil {
			return err
		}
		if _, err := io.CopyN(&s.requests, reader, int64(header.Length)); err != nil {
			return fmt.Errorf("pass a request on: %w", err)
		}
		if err := s.requests.flush(); err != nil {
			return err
		}
	}
}

func (s *session) answerPing(header wire.Header) (answered bool, err error) {
	err = s.requests.whileWaiting(func() error {
		answered = true
		pong := wire.Pong()
		header.Length = uint32(len(pong)) //nolint:gosec // four bytes
		if _, err := s.client.Write(append(header.Append(nil), pong...)); err != nil {
			return fmt.Errorf("answer a ping: %w", err)
		}
		return nil
	})
	return answered, err
}

var errTooMany = errors.New("the client has too many requests for tables and servers under way")

func (s *session) track(nonce uint64, asked wire.Operation) error {
	if !wire.CarriesLocators(asked) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) >= maxTracked {
		return errTooMany
	}
	s.asked[nonce] = asked
	return nil
}

func (s *session) answered(nonce uint64) (asked wire.Operation, rewrite bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, rewrite = s.asked[nonce]
	delete(s.asked, nonce)
	return asked, rewrite
}

func (s *session) relayAnswers(server net.Conn) error {
	reader, writer := bufio.NewReaderSize(server, bufferBytes), bufio.NewWriterSize(s.client, bufferBytes)
	for {
		header, err := wire.ReadHeader(reader)
		if err != nil {
			return err
		}
		payload := io.LimitReader(reader, int64(header.Length))
		if asked, rewrite := s.answered(header.Nonce); rewrite {
			rewritten, err := s.rewrite(asked, header, payload)
			if err != nil {
				return err
			}
			header.Length = uint32(rewritten.Len()) //nolint:gosec // at most MaxPayloadBytes
			payload = rewritten
		}
		if _, err := writer.Write(header.Append(nil)); err != nil {
			return fmt.Errorf("pass an answer on: %w", err)
		}
		if _, err := io.CopyN(writer, payload, int64(header.Length)); err != nil {
			return fmt.Errorf("pass an answer on: %w", err)
		}
		if err := writer.Flush(); err != nil {
			return fmt.Errorf("pass an answer on: %w", err)
		}
	}
}

func (s *session) rewrite(asked wire.Operation, header wire.Header, from io.Reader) (*bytes.Reader, error) {
	if header.Length > wire.MaxPayloadBytes {
		return nil, fmt.Errorf("the server's answer has %d bytes, of which the protocol allows %d", header.Length, wire.MaxPayloadBytes)
	}
	payload := make([]byte, header.Length)
	if _, err := io.ReadFull(from, payload); err != nil {
		return nil, fmt.Errorf("read an answer: %w", err)
	}
	rewritten, err := wire.Rewrite(asked, payload, s.translate)
	if err != nil {
		return nil, fmt.Errorf("the server's answer with addresses cannot be read: %w", err)
	}
	return bytes.NewReader(rewritten), nil
}
