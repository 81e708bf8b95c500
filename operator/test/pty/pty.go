//go:build linux

// Package pty gives tests a terminal of their own: what a program does with its terminal can be seen, and keys can be typed.
package pty

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is far beyond what a program takes to answer.
const patience = time.Minute

// Terminal is a pseudo terminal: a program has one end, and a test the other.
type Terminal struct {
	*testing.T

	// Program is the end that a program has.
	Program *os.File
	mine    *os.File

	mutex   sync.Mutex
	changed chan struct{}
	shown   bytes.Buffer
	// seen is how much of it was expected.
	seen int
}

// Open makes a terminal.
func Open(t *testing.T) *Terminal {
	t.Helper()
	mine, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(mine.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(mine.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &Terminal{T: t, Program: program, mine: mine, changed: make(chan struct{})}
	go p.watch()
	t.Cleanup(func() {
		if t.Failed() {
			p.mutex.Lock()
			t.Logf("the terminal shows:\n%q", p.shown.String())
			p.mutex.Unlock()
		}
		_ = program.Close()
		_ = mine.Close()
	})
	return p
}

// Start starts a program whose terminal it is.
func (p *Terminal) Start(command *exec.Cmd) {
	p.Helper()
	command.Stdin, command.Stdout, command.Stderr = p.Program, p.Program, p.Program
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = command.Process.Kill() })
}

func (p *Terminal) watch() {
	buffer := make([]byte, 4096)
	for {
		n, err := p.mine.Read(buffer)
		p.mutex.Lock()
		p.shown.Write(buffer[:n])
		close(p.changed)
		p.changed = make(chan struct{})
		p.mutex.Unlock()
		if err != nil {
			return
		}
	}
}

// Type presses keys.
func (p *Terminal) Type(keys string) {
	p.Helper()
	if _, err := p.mine.WriteString(keys); err != nil {
		p.Fatal(err)
	}
}

// Expect waits until a text is shown, behind what was expected before.
func (p *Terminal) Expect(text string) {
	p.Helper()
	late := time.After(patience)
	for {
		p.mutex.Lock()
		rest, changed := p.shown.String()[p.seen:], p.changed
		at := strings.Index(rest, text)
		if at >= 0 {
			p.seen += at + len(text)
		}
		p.mutex.Unlock()
		if at >= 0 {
			return
		}
		select {
		case <-changed:
		case <-late:
			p.Fatalf("%q is not shown, but %q", text, rest)
		}
	}
}

// Shown is all that was shown.
func (p *Terminal) Shown() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.shown.String()
}

// Mode is how the terminal is set.
func (p *Terminal) Mode() unix.Termios {
	p.Helper()
	mode, err := unix.IoctlGetTermios(int(p.Program.Fd()), unix.TCGETS)
	if err != nil {
		p.Fatal(err)
	}
	return *mode
}

// IsRaw says whether all keys go to the program.
func (p *Terminal) IsRaw() bool {
	p.Helper()
	return p.Mode().Lflag&(unix.ICANON|unix.ISIG|unix.ECHO) == 0
}
