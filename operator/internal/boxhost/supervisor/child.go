package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

const (
	// firstPause and longestPause bound the pause before a program that has ended is started again.
	firstPause, longestPause = 250 * time.Millisecond, 30 * time.Second
	// livedLong is after which time a program counts as one that works.
	livedLong = time.Minute
	// stopPatience is how long a program may take to end before it is killed.
	stopPatience = 5 * time.Second
	// maxLine bounds a line of a program's output; the rest of a longer one is another line.
	maxLine = 1024
)

// pauseAfter is how long to wait before a program is started again that has lived for some time; each short life doubles it.
func pauseAfter(before, lived time.Duration) time.Duration {
	if before == 0 || lived >= livedLong {
		return firstPause
	}
	return min(2*before, longestPause)
}

// child is a program that is started again whenever it ends.
type child struct {
	log      logr.Logger
	argv     []string
	restarts func() // counts
	before   func(context.Context)

	signals chan syscall.Signal
	cancel  context.CancelFunc
	ended   chan struct{}

	mutex sync.Mutex
	// problem is why it does not run; nil while it does.
	problem error
}

// startChild runs a program until it is stopped.
func startChild(ctx context.Context, log logr.Logger, argv []string, restarts func(), before func(context.Context)) *child {
	ctx, cancel := context.WithCancel(ctx)
	c := &child{
		log: log, argv: argv, restarts: restarts, before: before,
		signals: make(chan syscall.Signal, 1), cancel: cancel, ended: make(chan struct{}),
	}
	c.setProblem(errors.New("it is being started"))
	go c.keep(ctx)
	return c
}

// stop ends the program, and waits for that.
func (c *child) stop() {
	c.cancel()
	<-c.ended
}

// reload has the program read its files again; one that is just being started reads them anyway.
func (c *child) reload() {
	select {
	case c.signals <- syscall.SIGHUP:
	default: // one is on its way
	}
}

// end has the program end, and so start anew.
func (c *child) end() {
	for {
		select {
		case c.signals <- syscall.SIGTERM:
			return
		default:
		}
		select {
		case <-c.signals: // to read files again, which a start does anyway
		default:
		}
	}
}

func (c *child) setProblem(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.problem = err
}

// why says why it does not run.
func (c *child) why() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.problem
}

func (c *child) keep(ctx context.Context) {
	defer close(c.ended)
	pause := time.Duration(0)
	for {
		if c.before != nil {
			c.before(ctx)
		}
		begun := time.Now()
		err := c.run(ctx)
		if ctx.Err() != nil {
			return
		}
		pause = pauseAfter(pause, time.Since(begun))
		c.restarts()
		c.setProblem(fmt.Errorf("it has ended (%w), and is started again after %s", err, pause))
		c.log.Info("a program has ended", "program", c.argv[0], "why", err.Error(), "startedAgainAfter", pause.String())
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// run runs the program once; it always gives an error.
func (c *child) run(ctx context.Context) error {
	command := exec.Command(c.argv[0], c.argv[1:]...) //nolint:gosec,noctx // its end is by SIGTERM, below
	// It does not outlive the supervisor, and gets no signal that is meant for the supervisor's group.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	output, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	command.Stdout, command.Stderr = writer, writer
	// Its own children, such as sessions of SSH, may keep the output open.
	command.WaitDelay = time.Second
	go c.copyLines(output)
	// What was to be read again is read now.
	select {
	case <-c.signals:
	default:
	}
	ended, err := startOnThread(command)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.argv[0], err)
	}
	c.setProblem(nil)
	for {
		select {
		case <-ended.done:
			if ended.err == nil {
				return errors.New("exit status 0")
			}
			return ended.err
		case signal := <-c.signals:
			_ = command.Process.Signal(signal) // one that has ended is found ended
		case <-ctx.Done():
			_ = command.Process.Signal(syscall.SIGTERM)
			select {
			case <-ended.done:
			case <-time.After(stopPatience):
				_ = command.Process.Kill()
				<-ended.done
			}
			return errors.New("it was stopped")
		}
	}
}

// copyLines writes a program's output into the log.
func (c *child) copyLines(output io.Reader) {
	reader := bufio.NewReaderSize(output, maxLine)
	for {
		line, err := reader.ReadSlice('\n')
		if text := string(line); text != "" {
			c.log.Info("output", "program", c.argv[0], "line", trimmed(text))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
