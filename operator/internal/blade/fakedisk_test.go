package blade

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
)

var errPower = errors.New("the power has failed")

// fakeDisk keeps writes in a cache until they are flushed. When its power fails, any of the sectors in the cache may be on it, and the
// others are not: the order of writes means nothing.
type fakeDisk struct {
	size    int64
	durable map[int64][]byte // by number of chunk
	cache   []cached
	random  *rand.Rand
	// operations are writes and flushes so far. The power fails in the middle of number failsAt, counted from 1.
	operations, failsAt int
	isDead              bool
	// fullFrom is the byte from which on there is no room; 0: there is.
	fullFrom int64
	// shortens and flips concern the write that covers a byte, and lies has reads come from what was written, until Forget.
	shortens, flips int64
	bug             *bug
}

type cached struct {
	at      int64
	content []byte
}

func newDisk(seed uint64) *fakeDisk {
	return &fakeDisk{size: diskBytes, durable: map[int64][]byte{}, random: rand.New(rand.NewPCG(seed, 1))}
}

func (d *fakeDisk) Size() int64   { return d.size }
func (d *fakeDisk) Forget() error { return nil }

func (d *fakeDisk) chunk(number int64) []byte {
	if d.durable[number] == nil {
		d.durable[number] = make([]byte, chunkBytes)
	}
	return d.durable[number]
}

func (d *fakeDisk) put(content []byte, at int64) {
	for len(content) > 0 {
		n := copy(d.chunk(at / chunkBytes)[at%chunkBytes:], content)
		content, at = content[n:], at+int64(n)
	}
}

// ReadAt sees the cache, as programs do.
func (d *fakeDisk) ReadAt(into []byte, at int64) (int, error) {
	if d.isDead {
		return 0, errPower
	}
	d.readDurable(into, at)
	for _, written := range d.cache {
		from, to := max(at, written.at), min(at+int64(len(into)), written.at+int64(len(written.content)))
		if from < to {
			copy(into[from-at:to-at], written.content[from-written.at:])
		}
	}
	return len(into), nil
}

func (d *fakeDisk) readDurable(into []byte, at int64) {
	for n := 0; n < len(into); {
		part := into[n:min(len(into), n+int(chunkBytes-(at+int64(n))%chunkBytes))]
		clear(part)
		if chunk := d.durable[(at+int64(n))/chunkBytes]; chunk != nil {
			copy(part, chunk[(at+int64(n))%chunkBytes:])
		}
		n += len(part)
	}
}

func (d *fakeDisk) WriteAt(content []byte, at int64) (int, error) {
	if d.isDead {
		return 0, errPower
	}
	if d.bug != nil && d.bug.write != nil {
		var isDone bool
		if content, isDone = d.bug.write(d, content, at); isDone {
			return len(content), nil
		}
	}
	d.operations++
	if d.fullFrom > 0 && at+int64(len(content)) > d.fullFrom {
		n := max(0, d.fullFrom-at)
		d.keep(content[:n], at)
		return int(n), syscall.ENOSPC
	}
	covers := func(place int64) bool { return place > 0 && at <= place && place < at+int64(len(content)) }
	if covers(d.shortens) {
		d.keep(content[:d.shortens-at], at)
		return int(d.shortens - at), nil
	}
	d.keep(content, at)
	if covers(d.flips) {
		d.cache[len(d.cache)-1].content[d.flips-at] ^= 4
	}
	return len(content), d.powerHolds()
}

func (d *fakeDisk) keep(content []byte, at int64) {
	d.cache = append(d.cache, cached{at, bytes.Clone(content)})
}

func (d *fakeDisk) Sync() error {
	if d.isDead {
		return errPower
	}
	if d.bug != nil && d.bug.sync != nil && d.bug.sync(d) {
		return nil
	}
	d.operations++
	if err := d.powerHolds(); err != nil {
		return err
	}
	for _, written := range d.cache {
		d.put(written.content, written.at)
	}
	d.cache = nil
	return nil
}

// powerHolds ends the disk's life if this is the operation: of what is in the cache, a part is on it.
func (d *fakeDisk) powerHolds() error {
	if d.operations != d.failsAt {
		return nil
	}
	d.isDead = true
	share := d.random.IntN(5) // of four: none to all
	for _, written := range d.cache {
		for at := 0; at < len(written.content); at += sectorBytes {
			if d.random.IntN(4) < share {
				d.put(written.content[at:min(at+sectorBytes, len(written.content))], written.at+int64(at))
			}
		}
	}
	d.cache = nil
	return errPower
}

// restart gives the power back.
func (d *fakeDisk) restart() {
	d.isDead, d.failsAt, d.operations, d.cache = false, 0, 0, nil
}
