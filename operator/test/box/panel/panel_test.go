// Package panel_test looks at the front panel with a browser. The rack is a stand-in: objects as Kubernetes would have them.
package panel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/panel"
	"rcbox.dev/rcbox/operator/internal/panel/front"
)

const (
	token = "a-token"
	// patience is at least ten times what anything here takes.
	patience = 60 * time.Second
)

// rack is a stand-in for what Kubernetes has on record.
type rack struct {
	mutex   sync.Mutex
	objects front.Objects
}

func (r *rack) Objects(context.Context) (front.Objects, []string, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	objects := r.objects
	objects.Servers = slices.Clone(objects.Servers)
	objects.Stores = slices.Clone(objects.Stores)
	return objects, nil, nil
}

func (r *rack) change(change func(*front.Objects)) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	change(&r.objects)
}

// clerk takes orders for all servers but atom003.
type clerk struct{ orders chan panel.Order }

func (c *clerk) Act(_ context.Context, order panel.Order) (string, error) {
	if order.Server == "atom003" {
		servers := schema.GroupResource{Group: "rcbox.dev", Resource: "servers"}
		return "", apierrors.NewForbidden(servers, order.Server, errors.New("not yours"))
	}
	c.orders <- order
	return order.Action + " is ordered", nil
}

const hostile = `<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>`

// cables: mercury2 is connected with mercury1 by two, mercury3 does not name the one to mercury1, and mercury10 is far away.
var cables = map[string][]v1alpha1.ChassisUplink{
	"mercury1": {
		{QSFP: 1, Mode: v1alpha1.Uplink1x40G, Peer: "mercury2"},
		{QSFP: 2, Mode: v1alpha1.Uplink4x10G, Peer: "gone"},
		{QSFP: 3, Mode: v1alpha1.Uplink1x40G, Peer: "mercury2"},
		{QSFP: 4, Mode: v1alpha1.Uplink1x40G, Peer: "mercury3"},
		{QSFP: 5, Mode: v1alpha1.Uplink1x40G, Peer: "mercury10"},
	},
	"mercury2":  {{QSFP: 1, Mode: v1alpha1.Uplink1x40G, Peer: "mercury1"}, {QSFP: 8, Mode: v1alpha1.Uplink1x40G, Peer: "mercury1"}},
	"mercury10": {{QSFP: 1, Mode: v1alpha1.Uplink1x40G, Peer: "mercury1"}},
}

// rackOf makes chassis with 44 servers each, of which the first are in each of the states.
func rackOf(chassis int) front.Objects {
	var objects front.Objects
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	for number := range chassis {
		one := v1alpha1.Chassis{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("mercury%d", number+1)},
			Spec: v1alpha1.ChassisSpec{
				Model: "MicroModularServer", NamePrefix: "atom", FirstServer: int32(44*number + 1), Slots: "1-44",
				Position:   v1alpha1.ChassisPosition{Rack: "r1", Unit: int32(2*number + 1)},
				Management: v1alpha1.ChassisManagement{CMM: []string{"192.168.5.201", "192.168.5.202"}},
			},
			Status: v1alpha1.ChassisStatus{
				Servers: v1alpha1.ServerCounts{Total: 44, On: 40}, Watts: new(int32(1230)), BudgetWatts: 2000,
				Manager: v1alpha1.ManagerStatus{Master: "192.168.5.201"},
			},
		}
		one.Spec.Chain = &v1alpha1.ChassisChain{Uplinks: cables[one.Name]}
		objects.Chassis = append(objects.Chassis, one)
		for slot := range 44 {
			objects.Servers = append(objects.Servers, serverOf(fmt.Sprintf("atom%03d", 44*number+slot+1), slot, long))
		}
	}
	store := v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "box"}}
	for i := range 6 {
		store.Status.Masters.Members = append(store.Status.Masters.Members, v1alpha1.MemberStatus{
			Name: fmt.Sprintf("box-master-%d", i),
			MemberFigures: v1alpha1.MemberFigures{
				Node: fmt.Sprintf("atom%03d", 10+3*i), State: v1alpha1.MemberUp, Tablets: int64(i + 1),
				UsedPercent: int32(20 + 10*i), Backup: &v1alpha1.BackupStatus{UsedPercent: 35},
			},
		})
	}
	store.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "all is as specified"},
	}
	objects.Stores = []v1alpha1.Store{store}
	return objects
}

// serverOf: those in the first slots are in one state each.
func serverOf(name string, slot int, long metav1.Time) v1alpha1.Server {
	server := v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: name}}
	status := &server.Status
	status.Node = name
	status.Power = v1alpha1.ServerPower{State: v1alpha1.PowerOn, Since: &long, Source: v1alpha1.WitnessMMC}
	status.MMC.Address = "192.168.5.1"
	status.Sensors = []v1alpha1.SensorStatus{{Name: "CPU", Value: fmt.Sprintf("%d C", 38+slot%7)}}
	add := func(kind string, state metav1.ConditionStatus, message string) {
		status.Conditions = append(status.Conditions, metav1.Condition{Type: kind, Status: state, Message: message})
	}
	switch slot {
	case 0:
		status.Change = &v1alpha1.PowerChange{Stage: v1alpha1.StageSwitchingOn, Since: long}
	case 1:
		status.Power.State = v1alpha1.PowerOff
	case 2:
		add(v1alpha1.ConditionHealthy, metav1.ConditionFalse, "sensor CPU is beyond its limit "+hostile)
	case 3:
		add(v1alpha1.ConditionAsRecorded, metav1.ConditionFalse, "another blade is in this slot")
	case 4:
		status.Power.State, status.MMC.SilentSince = v1alpha1.PowerUnknown, &long
	case 5:
		status.Change = &v1alpha1.PowerChange{Stage: v1alpha1.StageShuttingDown, Since: long}
	}
	return server
}

// browser opens a page in Debian's Chromium; complaints are what the browser has said of it.
type browser struct {
	*testing.T
	ctx        context.Context //nolint:containedctx // it is the browser
	mutex      sync.Mutex
	complaints []string
}

func open(t *testing.T, url string, width, height int64) *browser {
	t.Helper()
	program := os.Getenv("RCBOX_CHROMIUM")
	if program == "" {
		t.Skip("SKIPPED: hack/box.sh says where Chromium is (RCBOX_CHROMIUM)")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.WindowSize(int(width), int(height)))
	allocated, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	b := &browser{T: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		var text string
		switch event := event.(type) {
		case *log.EventEntryAdded: // also of what the policy forbids
			text = event.Entry.Text
		case *runtime.EventExceptionThrown:
			text = event.ExceptionDetails.Error()
		default:
			return
		}
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.complaints = append(b.complaints, text)
	})
	if err := chromedp.Run(ctx); err != nil { // the browser ends with this context, so it is none with a deadline
		t.Fatalf("start %s: %v", program, err)
	}
	b.do(log.Enable(), runtime.Enable(), chromedp.EmulateViewport(width, height), chromedp.Navigate(url))
	return b
}

func (b *browser) do(actions ...chromedp.Action) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.Fatalf("%v", err)
	}
}

// eval gives what an expression says.
func (b *browser) eval(expression string) string {
	b.Helper()
	var value string
	b.do(chromedp.Evaluate("String("+expression+")", &value))
	return value
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.Helper()
	b.do(chromedp.Poll(expression, nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience)))
}

// picture keeps what the page looks like, for eyes.
func (b *browser) picture(name string) {
	b.Helper()
	folder := os.Getenv("RCBOX_PICTURES")
	if folder == "" {
		return
	}
	var image []byte
	b.do(chromedp.FullScreenshot(&image, 100))
	if err := errors.Join(os.MkdirAll(folder, 0o750), os.WriteFile(filepath.Join(folder, name), image, 0o600)); err != nil {
		b.Error(err)
	}
}

// mustBeQuiet fails if the browser has complained of anything.
func (b *browser) mustBeQuiet() {
	b.Helper()
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if len(b.complaints) > 0 {
		b.Errorf("the browser complains: %s", strings.Join(b.complaints, "\n"))
	}
}

func serve(t *testing.T, source *rack, actor panel.Actor) string {
	t.Helper()
	feed := &panel.Feed{Source: source, Now: time.Now, CanAct: actor != nil}
	go feed.Run(t.Context())
	server := &panel.Server{Feed: feed, Token: token, Actor: actor}
	listening := httptest.NewServer(server.Handler())
	t.Cleanup(listening.Close)
	return listening.URL + "/#" + token
}

func slot(chassis, number int) string {
	return fmt.Sprintf(`[data-name="slot/mercury%d/%d"]`, chassis, number)
}

func query(selector string) string { return fmt.Sprintf("document.querySelector('%s')", selector) }

const allThere = "document.querySelectorAll('.slot').length === %d"

// TestStates: 132 slots; each state has a light and a word of its own, and names are no markup.
func TestStates(t *testing.T) {
	t.Parallel()
	b := open(t, serve(t, &rack{objects: rackOf(3)}, nil), 1600, 1000)
	b.until(fmt.Sprintf(allThere, 3*46))
	seen := map[string]string{}
	for number, word := range map[int]string{1: "start", 2: "off", 3: "fail", 4: "isol", 5: "?", 6: "stop", 7: "up", 46: ""} {
		said := b.eval(query(slot(1, number)+" .word") + ".textContent")
		if said != word {
			t.Errorf("slot %d says %q, not %q", number, said, word)
		}
		light := b.eval(fmt.Sprintf("(({backgroundColor: c, borderStyle: b, visibility: v}) => [c, b, v].join())(getComputedStyle(%s))",
			query(slot(1, number)+" .led")))
		if other := seen[light]; other != "" {
			t.Errorf("%q and %q look the same: %s", word, other, light)
		}
		seen[light] = word
	}
	if text := b.eval(query("#summary") + ".textContent"); text != "3 chassis, 120 of 132 servers are on" {
		t.Errorf("the summary says %q", text)
	}
	checkCables(b)
	b.do(chromedp.Click(slot(1, 3)))
	b.until("!document.getElementById('card').hidden")
	if b.eval("document.images.length + document.scripts.length") != "1" || b.eval("document.title") != "rcbox: front panel" {
		t.Error("a text of a condition has become markup")
	}
	if card := b.eval(query("#card") + ".textContent"); !strings.Contains(card, "<img src=x") {
		t.Errorf("the card lacks the text as it was written: %s", card)
	}
	if buttons := b.eval("document.querySelectorAll('#card button').length"); buttons != "0" {
		t.Errorf("a page that can do nothing has %s buttons", buttons)
	}
	b.picture("132-light-1600.png")
	dark := emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}})
	before := b.eval("getComputedStyle(document.body).backgroundColor")
	b.do(dark)
	if after := b.eval("getComputedStyle(document.body).backgroundColor"); after == before {
		t.Errorf("the page is the same in the dark: %s", after)
	}
	b.picture("132-dark-1600.png")
	b.do(chromedp.EmulateViewport(600, 900))
	b.until("innerWidth === 600")
	checkCables(b)
	b.picture("132-dark-600.png")
	if b.eval("document.documentElement.scrollWidth <= innerWidth") != "true" {
		t.Error("a narrow page has to be scrolled sideways")
	}
	b.mustBeQuiet()
}

// checkCables: each has its line from socket to socket, which crosses no slot.
func checkCables(b *browser) {
	b.Helper()
	const named = `[...document.querySelectorAll('[data-chassis="mercury1"] .cables li')].map((li) => li.textContent).join("; ")`
	if got := b.eval(named); got != "QSFP 1 1x40G → mercury2 QSFP 1; QSFP 2 4x10G → gone (no such Chassis); "+
		"QSFP 3 1x40G → mercury2 QSFP 8; QSFP 4 1x40G → mercury3 (mercury3 does not name it); QSFP 5 1x40G → mercury10 (no such Chassis)" {
		b.Errorf("the cables are %q", got)
	}
	const drawn = `[...document.querySelectorAll('#cables path')]
		.map((path) => path.dataset.cable + (path.matches('.one-end') ? ' red' : '')).join("; ")`
	if got := b.eval(drawn); got != "mercury1/1 mercury2/1; mercury1/3 mercury2/8; mercury1/4 mercury3/ red" {
		b.Errorf("the lines are %q", got)
	}
	const crossesNothing = `!document.elementsAlong.some((element) => element.matches('.slot, h2'))`
	const along = `document.elementsAlong = [...document.querySelectorAll('#cables path')].flatMap((path) => {
		const at = document.getElementById('cables').getBoundingClientRect(), hit = []
		for (let i = 0; i < path.getTotalLength(); i += 3) {
			const point = path.getPointAtLength(i)
			hit.push(...document.elementsFromPoint(point.x + at.left, point.y + at.top))
		}
		return hit
	})`
	const fromSocketToSocket = `[...document.querySelectorAll('#cables path:not(.one-end)')].every((path) => {
		const at = document.getElementById('cables').getBoundingClientRect()
		return [0, path.getTotalLength()].every((length) => {
			const point = path.getPointAtLength(length)
			return document.elementsFromPoint(point.x + at.left, point.y + at.top + 1).some((element) => element.matches('.socket'))
		})
	})`
	// Lines are drawn again in the frame after the chassis have moved.
	b.until(fmt.Sprintf("(%s).length > 0 && %s && %s", along, crossesNothing, fromSocketToSocket))
}

// TestKeys: the keyboard reaches each slot and its card.
func TestKeys(t *testing.T) {
	t.Parallel()
	b := open(t, serve(t, &rack{objects: rackOf(2)}, nil), 1600, 900)
	b.until(fmt.Sprintf(allThere, 2*46))
	focused := func() string { return b.eval("document.activeElement.dataset.name") }
	b.do(chromedp.Focus(slot(1, 1)))
	for _, step := range []struct{ key, name string }{
		{kb.ArrowRight, "slot/mercury1/2"},
		{kb.ArrowDown, "slot/mercury1/25"},
		{kb.ArrowDown, "slot/mercury2/2"},
		{kb.ArrowLeft, "slot/mercury2/1"},
		{kb.ArrowLeft, "slot/mercury1/46"},
		{kb.ArrowUp, "slot/mercury1/23"},
	} {
		b.do(chromedp.KeyEvent(step.key))
		if name := focused(); name != step.name {
			t.Fatalf("the focus is on %s, not on %s", name, step.name)
		}
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("!document.getElementById('card').hidden")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until("document.getElementById('card').hidden")
	if name := focused(); name != "slot/mercury1/23" {
		t.Errorf("after Escape the focus is on %s", name)
	}
	if stops := b.eval("document.querySelectorAll('.slot[tabindex=\"0\"]').length"); stops != "1" {
		t.Errorf("the Tab key stops at %s slots", stops)
	}
	b.mustBeQuiet()
}

// TestLife: what happens is seen without a look by hand, also while a recovery goes on.
func TestLife(t *testing.T) {
	t.Parallel()
	source := &rack{objects: rackOf(16)}
	b := open(t, serve(t, source, nil), 1920, 1200)
	b.until(fmt.Sprintf(allThere, 16*46))
	b.picture("736-light-1920.png")
	before := b.eval(query(slot(16, 10)) + ".outerHTML")
	began := time.Now()
	source.change(func(objects *front.Objects) {
		objects.Servers[15*44+9].Status.Power.State = v1alpha1.PowerOff
		store := &objects.Stores[0]
		store.Status.Recoveries = []v1alpha1.RecoveryStatus{{ServerID: "3.0", Member: "box-master-2", TabletsLeft: 5}}
	})
	b.until(query(slot(16, 10)) + ".classList.contains('state-Off')")
	t.Logf("a change is seen after %v, looked for every 50 ms; slot before: %.60s", time.Since(began).Round(time.Millisecond), before)
	b.until(query("#stores .bad") + "?.textContent === '3.0 of box-master-2 comes back: 5 of its tablets are left'")
	if lost := b.eval(query(slot(1, 16)+" .lost") + " !== null"); lost != "true" {
		t.Error("the slot of the member that is lost does not show it")
	}
	b.do(chromedp.Click("#stores button"))
	if dimmed := b.eval("document.querySelectorAll('.slot:not(.dimmed)').length"); dimmed != "6" {
		t.Errorf("a Store was chosen, and %s slots are shown as its own", dimmed)
	}
	if tablets := b.eval(query(slot(1, 13)+" .heat") + ".textContent"); tablets != "2 tab" {
		t.Errorf("box-master-1 has 2 tablets, and its slot says %q", tablets)
	}
	b.picture("736-recovery-1920.png")
	source.change(func(objects *front.Objects) { objects.Chassis, objects.Stores = objects.Chassis[:1], nil })
	b.until(fmt.Sprintf(allThere, 46))
	b.mustBeQuiet()
}

// TestButtons: orders go out after a question where they end something, and what is refused is said.
func TestButtons(t *testing.T) {
	t.Parallel()
	actor := &clerk{orders: make(chan panel.Order, 1)}
	b := open(t, serve(t, &rack{objects: rackOf(1)}, actor), 1400, 800)
	b.until(fmt.Sprintf(allThere, 46))
	b.do(chromedp.Click(slot(1, 7)), chromedp.Click(`#card [data-action="on"]`))
	b.until(query("#card .said") + ".textContent === 'on is ordered'")
	if order := <-actor.orders; order != (panel.Order{Action: "on", Server: "atom007"}) {
		t.Errorf("the order was %v", order)
	}
	b.do(chromedp.Click(`#card [data-action="soft"]`))
	b.until(query(`#card [data-action="soft-confirmed"]`) + "?.textContent === 'Shut down atom007'")
	select {
	case order := <-actor.orders:
		t.Errorf("%v was ordered without an answer", order)
	default:
	}
	b.do(chromedp.Click(`#card [data-action="soft-confirmed"]`))
	if order := <-actor.orders; order.Action != "soft" {
		t.Errorf("the order was %v", order)
	}
	b.picture("card-1400.png")
	b.do(chromedp.Click(slot(1, 3)), chromedp.Click(`#card [data-action="locate"]`))
	b.until(query("#card .said") + ".textContent.startsWith('403: ')")
	// The browser itself tells of answers such as 403.
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, text := range b.complaints {
		if !strings.Contains(text, "403") {
			t.Errorf("the browser complains: %s", text)
		}
	}
}

// TestAway: a page says when its program has ended, or does not know its token, and follows again once it can.
func TestAway(t *testing.T) {
	t.Parallel()
	source := &rack{objects: rackOf(1)}
	feed := &panel.Feed{Source: source, Now: time.Now}
	go feed.Run(t.Context())
	handler := (&panel.Server{Feed: feed, Token: token}).Handler()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	first := &http.Server{Handler: handler, ReadHeaderTimeout: patience}
	go func() { _ = first.Serve(listener) }()
	b := open(t, "http://"+address+"/#"+token, 1400, 800)
	b.until(fmt.Sprintf(allThere, 46))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	b.until(query("#notes li") + "?.textContent.includes('This is what was seen last')")
	source.change(func(objects *front.Objects) { objects.Servers[6].Status.Power.State = v1alpha1.PowerOff })
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	second := &http.Server{Handler: handler, ReadHeaderTimeout: patience}
	go func() { _ = second.Serve(again) }()
	t.Cleanup(func() { _ = second.Close() })
	b.until(query(slot(1, 7)) + ".classList.contains('state-Off')")
	b.until("document.querySelectorAll('#notes li').length === 0")

	stranger := open(t, "http://"+address+"/", 800, 600)
	stranger.until(query("#notes li") + "?.textContent.includes('lacks its end')")
}
