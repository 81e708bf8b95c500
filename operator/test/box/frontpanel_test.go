package box_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"

	"rcbox.dev/rcbox/operator/internal/panel/front"
)

const (
	// panelAddress is where the box controller serves the front panel.
	panelAddress = "127.0.0.1:8090"
	panelBlade   = 129
)

// frontPanel: a user's page shows the rack, and its button lets a light blink; that of the box controller only shows.
func frontPanel(b *bed) {
	program := exec.CommandContext(b.Context(), "bash", "-euc", "exec kubectl rcbox panel --port 0")
	program.Dir, program.Env = b.shell.dir, b.shell.environment
	output, err := program.StdoutPipe()
	b.must(err)
	var errs bytes.Buffer
	program.Stderr = &errs
	b.must(program.Start())
	b.Cleanup(func() {
		_ = program.Process.Kill() // it may have ended
		_ = program.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		b.Fatalf("kubectl rcbox panel printed no address: %v\n%s", err, errs.String())
	}
	address, token, _ := strings.Cut(strings.TrimSpace(line), "#")
	of := fmt.Sprintf("slot/mercury3/%d", panelBlade-2*slots)
	page := b.openPanel(address, token)
	page.until(of, func(slot front.Slot) bool { return slot.Server == name(panelBlade) && slot.State != front.Unknown })
	status, text := b.orderOf(address, token, fmt.Sprintf(`{"action":"locate","server":%q}`, name(panelBlade)))
	if status != http.StatusOK {
		b.Fatalf("the button was answered %d: %s", status, text)
	}
	page.until(of, func(slot front.Slot) bool { return slot.Blinks })

	shown := b.openPanel("http://"+panelAddress+"/", "")
	shown.until(of, func(slot front.Slot) bool { return slot.Blinks })
	status, text = b.orderOf("http://"+panelAddress+"/", "", `{"action":"locate","server":"atom001"}`)
	if status != http.StatusMethodNotAllowed {
		b.Errorf("the box controller's panel answers an order with %d: %s", status, text)
	}
}

// panelPage is an open page, and what it shows.
type panelPage struct {
	*bed

	lines *bufio.Reader
	shown front.Picture
}

func (b *bed) openPanel(address, token string) *panelPage {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, address+"events", nil)
	b.must(err)
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	b.must(err)
	b.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		b.Fatalf("%s answers %s", address, answer.Status)
	}
	return &panelPage{bed: b, lines: bufio.NewReader(answer.Body), shown: front.Picture{}}
}

// until reads changes until a slot is as wanted.
func (p *panelPage) until(part string, isSo func(front.Slot) bool) {
	p.Helper()
	for {
		var slot front.Slot
		if text := p.shown[part]; text != nil {
			p.must(json.Unmarshal(text, &slot))
			if isSo(slot) {
				return
			}
		}
		line, err := p.lines.ReadBytes('\n')
		if err != nil {
			p.Fatalf("%s is %+v, and the page has ended: %v", part, slot, err)
		}
		var change front.Change
		p.must(json.Unmarshal(line, &change))
		p.shown = p.shown.With(change)
	}
}

func (b *bed) orderOf(address, token, order string) (status int, text string) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, address+"order", strings.NewReader(order))
	b.must(err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Origin", strings.TrimSuffix(address, "/"))
	answer, err := http.DefaultClient.Do(request)
	b.must(err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	b.must(err)
	return answer.StatusCode, string(body)
}
