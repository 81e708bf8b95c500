package panel_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/panel"
	"rcbox.dev/rcbox/operator/internal/panel/front"
)

const token = "the-token"

// rack is a Source that the test changes.
type rack struct {
	mutex   sync.Mutex
	objects front.Objects
	err     error
}

func (r *rack) Objects(context.Context) (front.Objects, []string, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.objects, []string{"a note"}, r.err
}

func (r *rack) set(objects front.Objects, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.objects, r.err = objects, err
}

// clerk is an Actor that notes what it is asked.
type clerk struct {
	orders []panel.Order
	err    error
}

func (c *clerk) Act(_ context.Context, order panel.Order) (string, error) {
	c.orders = append(c.orders, order)
	return "done", c.err
}

func chassis() front.Objects {
	return front.Objects{Chassis: []v1alpha1.Chassis{{
		ObjectMeta: metav1.ObjectMeta{Name: "mercury1"},
		Spec:       v1alpha1.ChassisSpec{Model: "MicroModularServer", NamePrefix: "atom", FirstServer: 1, Slots: "1-44"},
	}}}
}

func start(t *testing.T, server *panel.Server) string {
	t.Helper()
	server.Feed.Now = time.Now
	server.Feed.Look(t.Context())
	listening := httptest.NewServer(server.Handler())
	t.Cleanup(listening.Close)
	return listening.URL
}

type answer struct {
	status int
	header http.Header
	text   string
}

func ask(t *testing.T, method, url, body string, header map[string]string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	if host := header["Host"]; host != "" {
		request.Host = host
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if strings.HasSuffix(url, "/events") && response.StatusCode == http.StatusOK {
		return answer{response.StatusCode, response.Header, ""} // it goes on
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	url := start(t, &panel.Server{Feed: &panel.Feed{Source: &rack{objects: chassis()}}})
	for _, path := range []string{"/", "/panel.js", "/panel.css", "/events", "/order", "/nowhere"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			if got := ask(t, method, url+path, "{}", nil); got.status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d %s", method, path, got.status, got.text)
			}
		}
	}
	got := ask(t, http.MethodGet, url+"/", "", nil)
	if got.status != http.StatusOK || !strings.Contains(got.text, "panel.js") {
		t.Errorf("the page: %d %s", got.status, got.text)
	}
	policy := got.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %q", policy)
	}
	if got := ask(t, http.MethodGet, url+"/events", "", nil); got.status != http.StatusOK {
		t.Errorf("events: %d", got.status)
	}
}

func TestNamesThatPointHere(t *testing.T) {
	t.Parallel()
	url := start(t, &panel.Server{Feed: &panel.Feed{Source: &rack{}}})
	for host, status := range map[string]int{
		"evil.example": http.StatusMisdirectedRequest, "evil.example:80": http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example": http.StatusMisdirectedRequest,
		"localhost:1":            http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:9": http.StatusOK,
	} {
		if got := ask(t, http.MethodGet, url+"/", "", map[string]string{"Host": host}); got.status != status {
			t.Errorf("%s: %d %s", host, got.status, got.text)
		}
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	actor := &clerk{}
	url := start(t, &panel.Server{Feed: &panel.Feed{Source: &rack{}, CanAct: true}, Token: token, Actor: actor})
	right := func() map[string]string {
		return map[string]string{"Authorization": "Bearer " + token, "Origin": url, "Content-Type": "application/json"}
	}
	const good = `{"action":"on","server":"atom007"}`
	for name, test := range map[string]struct {
		change func(map[string]string)
		body   string
		status int
	}{
		"without a token":    {func(h map[string]string) { delete(h, "Authorization") }, good, http.StatusUnauthorized},
		"with another token": {func(h map[string]string) { h["Authorization"] = "Bearer " }, good, http.StatusUnauthorized},
		"from another page":  {func(h map[string]string) { h["Origin"] = "http://evil.example" }, good, http.StatusForbidden},
		"from nowhere":       {func(h map[string]string) { delete(h, "Origin") }, good, http.StatusForbidden},
		"as a form":          {func(h map[string]string) { h["Content-Type"] = "text/plain" }, good, http.StatusForbidden},
		"another action":     {func(map[string]string) {}, `{"action":"off","server":"atom007"}`, http.StatusBadRequest},
		"no server":          {func(map[string]string) {}, `{"action":"on"}`, http.StatusBadRequest},
		"too long": {
			func(map[string]string) {}, `{"action":"on","server":"` + strings.Repeat("a", 5000) + `"}`,
			http.StatusBadRequest,
		},
		"an unknown field": {func(map[string]string) {}, `{"action":"on","server":"atom007","force":true}`, http.StatusBadRequest},
	} {
		header := right()
		test.change(header)
		if got := ask(t, http.MethodPost, url+"/order", test.body, header); got.status != test.status {
			t.Errorf("%s: %d %s", name, got.status, got.text)
		}
	}
	if len(actor.orders) != 0 {
		t.Fatalf("orders were taken: %v", actor.orders)
	}
	if got := ask(t, http.MethodPost, url+"/order", good, right()); got.status != http.StatusOK || len(actor.orders) != 1 {
		t.Fatalf("%d %s, %v", got.status, got.text, actor.orders)
	}
	actor.err = apierrors.NewForbidden(schema.GroupResource{Resource: "servers"}, "atom007", errors.New("no"))
	if got := ask(t, http.MethodPost, url+"/order", good, right()); got.status != http.StatusForbidden {
		t.Errorf("forbidden by Kubernetes: %d %s", got.status, got.text)
	}
	if got := ask(t, http.MethodGet, url+"/events", "", nil); got.status != http.StatusUnauthorized {
		t.Errorf("events without a token: %d", got.status)
	}
}

// watch opens a page, and gives its lines.
func watch(t *testing.T, url string) (*bufio.Scanner, int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return lines, answer.StatusCode
}

func next(t *testing.T, lines *bufio.Scanner) front.Change {
	t.Helper()
	var change front.Change
	if !lines.Scan() {
		t.Fatalf("the connection has ended: %v", lines.Err())
	}
	if err := json.Unmarshal(lines.Bytes(), &change); err != nil {
		t.Fatal(err)
	}
	return change
}

func TestChanges(t *testing.T) {
	t.Parallel()
	source := &rack{objects: chassis()}
	feed := &panel.Feed{Source: source}
	lines, _ := watch(t, start(t, &panel.Server{Feed: feed}))
	if all := next(t, lines); len(all.Set) != 1+46+2 {
		t.Fatalf("at first come %d parts", len(all.Set))
	}
	objects := chassis()
	objects.Servers = []v1alpha1.Server{{ObjectMeta: metav1.ObjectMeta{Name: "atom007"}, Status: v1alpha1.ServerStatus{
		Power: v1alpha1.ServerPower{State: v1alpha1.PowerOn},
	}}}
	source.set(objects, nil)
	feed.Look(t.Context())
	if change := next(t, lines); len(change.Set) != 1 || change.Set["slot/mercury1/7"] == nil {
		t.Fatalf("one server was switched on, and told is %v", change)
	}
	source.set(objects, errors.New("the API server does not answer"))
	feed.Look(t.Context())
	if change := next(t, lines); len(change.Set) != 1 || !strings.Contains(string(change.Set["note/outdated"]), "does not answer") ||
		len(change.Gone) != 0 {
		t.Fatalf("the source has failed, and told is %v", change)
	}
	source.set(front.Objects{}, nil)
	feed.Look(t.Context())
	if change := next(t, lines); len(change.Gone) != 1+46+1 {
		t.Fatalf("the chassis was deleted, and told is %v", change)
	}
}

func TestManyPages(t *testing.T) {
	t.Parallel()
	url := start(t, &panel.Server{Feed: &panel.Feed{Source: &rack{}}})
	for range 32 {
		if _, status := watch(t, url); status != http.StatusOK {
			t.Fatalf("a page gets %d", status)
		}
	}
	if _, status := watch(t, url); status != http.StatusServiceUnavailable {
		t.Fatalf("one page too many gets %d", status)
	}
}
