package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
)

// acknowledgeForOthers says, with leases of others, that all their requests have been answered. Leases are numbered one after the other.
func acknowledgeForOthers(_ context.Context, s *underAttack, from string, sent *atomic.Int64) error {
	const leases = 64
	tables, err := s.tables()
	if err != nil {
		return err
	}
	own, err := s.lease(from)
	if err != nil {
		return err
	}
	for _, served := range tables {
		c, err := dialFrom(from, served.target)
		if err != nil {
			return err
		}
		defer c.Close()
		for lease := own - leases; lease < own; lease++ {
			for _, request := range []uint64{1, math.MaxUint64} {
				answer, err := c.ask(removal(served.table, lease, request, math.MaxUint64))
				if err != nil {
					return err
				}
				if isOK(answer) {
					return mustNot("a request of lease %d that acknowledges itself was served", lease)
				}
			}
		}
	}
	sent.Add(leases)
	return nil
}

// lease is the number of a new one.
func (s *underAttack) lease(from string) (uint64, error) {
	c, err := dialFrom(from, s.addresses[0])
	if err != nil {
		return 0, err
	}
	defer c.Close()
	answer, err := c.ask(fields(opcodeRenewLease, serviceCoordinator, uint64(0)))
	if err != nil || !isOK(answer) || len(answer) < 12 {
		return 0, fmt.Errorf("no lease: %x, %w", answer, err)
	}
	return binary.LittleEndian.Uint64(answer[4:]), nil
}

// resetAndEnd opens sessions, says of many that there are none that they do not exist, and ends all of its own at once.
func resetAndEnd(ctx context.Context, s *underAttack, from string, sent *atomic.Int64) error {
	const sessions, resets = 200, 5000
	socket, err := newSocket(from, s.clientPorts[0])
	if err != nil {
		return err
	}
	defer socket.Close()
	for run := uint64(1); ctx.Err() == nil; run++ {
		// A new run of a program ends all sessions of the one before.
		for own := range uint64(sessions) {
			if _, _, err := socket.open(opening{own: 1 + own, incarnation: run}); err != nil || ctx.Err() != nil {
				return err
			}
		}
		for number := range uint64(resets) {
			err := socket.send(datagram{kind: packetReset, length: uint32(number), offset: uint32(run)})
			if err != nil {
				return err
			}
		}
		sent.Add(resets)
	}
	return nil
}

// guessSessions asks, with numbers near to its own sessions' and cookies near to its own, for what is others'.
func guessSessions(_ context.Context, s *underAttack, from string, sent *atomic.Int64) error {
	socket, err := newSocket(from, s.clientPorts[0])
	if err != nil {
		return err
	}
	defer socket.Close()
	victim, err := newSocket("127.0.0.1", s.clientPorts[0])
	if err != nil {
		return err
	}
	defer victim.Close()
	var own []uint64
	for number := range uint64(8) {
		session, kind, err := socket.open(opening{own: 1 + number, incarnation: 1})
		if err != nil || kind != packetOpened {
			return fmt.Errorf("a packet of kind %d: %w", kind, err)
		}
		own = append(own, session)
	}
	theirs, kind, err := victim.open(opening{own: 1, incarnation: 2})
	if err != nil || kind != packetOpened {
		return fmt.Errorf("a packet of kind %d: %w", kind, err)
	}
	for i, session := range own {
		step := session - own[max(i, 1)-1]
		for near := uint64(1); near <= 64; near++ {
			for _, guess := range []uint64{session + near, session - near, session + near*step, session + near<<20, session ^ near<<20} {
				if err := socket.send(datagram{kind: packetClose, session: guess}); err != nil {
					return err
				}
			}
		}
		// In the name of the right address, the number must be right, too; from another address even that is of no use.
		if err := socket.send(datagram{kind: packetClose, session: theirs}); err != nil {
			return err
		}
	}
	const noServer = uint64(0xffffffff) << 32
	ping := fields(uint16(7), uint16(3), noServer)
	if answer, err := victim.ask(theirs, 1, ping); err != nil || !isOK(answer) {
		return fmt.Errorf("another one's session after guesses at its number: %.20x, %w", answer, err)
	}
	return s.openWithoutCookie(from, sent)
}

// openWithoutCookie asks for a session with cookies that were made up, and is never given one.
func (s *underAttack) openWithoutCookie(from string, sent *atomic.Int64) error {
	socket, err := newSocket(from, s.clientPorts[0])
	if err != nil {
		return err
	}
	defer socket.Close()
	for cookie := range uint64(200) {
		if err := socket.send(opening{own: 9, incarnation: 9, cookie: cookie << (cookie % 57)}.packet()); err != nil {
			return err
		}
		switch answer, err := socket.receive(deadline); {
		case err != nil:
			return err
		case answer.kind != packetChallenge:
			return fmt.Errorf("a made-up cookie was answered with a packet of kind %d", answer.kind)
		}
	}
	sent.Add(1)
	return nil
}
