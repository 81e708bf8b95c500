package join_test

import (
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/join"
)

const (
	simSeeds = 200
	// bugSeeds is in how many worlds a bug is searched for.
	bugSeeds = 800
	simSteps = 250
)

// turn has something happen.
func (w *world) turn() {
	i := w.random.IntN(bladesInWorld)
	name := nameOf(i)
	w.now = w.now.Add(time.Duration(w.random.IntN(10_000)) * time.Millisecond)
	switch dice := w.random.IntN(100); {
	case dice < 4:
		w.order(name, v1alpha1.BootNetwork)
	case dice < 5:
		w.order(name, v1alpha1.BootDisk)
	case dice < 9:
		w.power(name, v1alpha1.PowerOff)
	case dice < 20:
		w.power(name, v1alpha1.PowerOn)
	case dice < 22:
		w.power(name, v1alpha1.PowerUnknown)
	case dice < 30:
		w.mounted[w.random.IntN(2)] = append([]join.Entry(nil), w.entries...)
	case dice < 42:
		w.fetch(i)
	case dice < 54:
		w.useToken(name)
	case dice < 64:
		w.boot(i)
	case dice < 65:
		w.now = w.now.Add(time.Duration(w.random.IntN(15)) * time.Minute)
	case dice < 66:
		w.nodes[name] = &join.Node{Name: name, SystemUUID: uuidOf(7), Ready: true}
	case dice < 68:
		delete(w.nodes, name)
	default:
		w.look()
	}
	w.check()
}

func (w *world) power(name string, state v1alpha1.PowerState) {
	w.write(name, func(s *v1alpha1.Server) { s.Status.Power.State = state })
	if node := w.nodes[name]; node != nil && state == v1alpha1.PowerOff && w.random.IntN(3) > 0 { // else nobody has noticed yet
		node.Ready = false
	}
}

func (w *world) order(name string, device v1alpha1.BootDevice) {
	w.nextID++
	id := "order-" + time.Duration(w.nextID).String()
	w.write(name, func(s *v1alpha1.Server) {
		s.Spec.Boot = &v1alpha1.BootOrder{ID: id, Device: device}
		s.Status.Boot = &v1alpha1.BootStatus{ID: id, Device: device, State: v1alpha1.OrderDone}
		s.Status.Boot.Since.Time = w.now.Truncate(time.Second)
	})
}

// fetch is what a box host answers to a blade, or to a stranger with the blade's address and UUID. Whoever has got a token gets it again.
func (w *world) fetch(i int) {
	host, who := w.random.IntN(2), nameOf(i)
	if w.random.IntN(3) == 0 {
		who = "stranger of " + who
	}
	for at := range w.mounted[host] {
		entry := &w.mounted[host][at]
		first := w.claimed[host][entry.TokenID]
		if entry.Node != nameOf(i) || entry.State != join.EntryOffered || first != "" && first != who || !w.now.Before(entry.ExpiresAt) {
			continue
		}
		w.claimed[host][entry.TokenID], w.held[who] = who, entry.TokenID
		return
	}
}

// useToken sends requests with what somebody has got: strangers ask for names at random.
func (w *world) useToken(name string) {
	if id := w.held[name]; id != "" {
		w.ask(id, name)
	}
	if id := w.held["stranger of "+name]; id != "" {
		w.ask(id, nameOf(w.random.IntN(bladesInWorld)))
	}
}

// boot: whoever has a certificate registers its node.
func (w *world) boot(i int) {
	name := nameOf(i)
	for _, request := range w.requests {
		if request.Decision == join.Approved && requestedNames[string(request.PEM)] == name &&
			w.servers[name].Status.Power.State == v1alpha1.PowerOn {
			w.nodes[name] = &join.Node{Name: name, SystemUUID: uuidOf(i), Ready: true}
		}
	}
}

func run(seed uint64, b bug) *world {
	w := newWorld(seed, b)
	for step := range simSteps {
		w.turn()
		if step%50 == 49 {
			w.settle()
		}
		if len(w.wrong) > 0 {
			break
		}
	}
	return w
}

func TestSimulation(t *testing.T) {
	approved, joined := 0, 0
	for seed := range uint64(simSeeds) {
		w := run(seed, bug{})
		report(t, w, seed)
		approved += len(w.approvedBy)
		for _, server := range w.servers {
			if server.Status.Join != nil && server.Status.Join.State == v1alpha1.JoinJoined {
				joined++
			}
		}
	}
	if approved < simSeeds/4 || joined < simSeeds/20 {
		t.Errorf("the simulation says little: %d certificates were approved, and %d servers are joined at the end", approved, joined)
	}
	t.Logf("%d certificates were approved, and %d servers are joined at the end", approved, joined)
}

func statuses(o *join.Observed, change func(*v1alpha1.Server)) {
	for i := range o.Servers {
		o.Servers[i] = o.Servers[i].DeepCopy()
		change(o.Servers[i])
	}
}

var plantedBugs = []bug{
	{name: "a step is taken though what it follows from was not written", blind: true},
	{name: "a token is deleted because an old cache does not have its status", unconfirmed: true, reported: "though it is on record"},
	{name: "a token is made before its entry is on record", tokenFirst: true, reported: "has no entry"},
	{
		name: "that the token has served is forgotten", reported: "has served 2 times",
		before: func(_ *world, o *join.Observed) {
			statuses(o, func(s *v1alpha1.Server) {
				if of := s.Status.Join; of != nil && (of.State == v1alpha1.JoinApproved || of.State == v1alpha1.JoinApproving) {
					of.State, of.Request, of.RequestUID = v1alpha1.JoinOffered, "", ""
				}
			})
			for i := range o.Requests {
				if o.Requests[i].Decision == join.Approved {
					o.Requests[i].Decision = join.Denied
				}
			}
		},
	},
	{
		name: "the name that is asked for is not compared", reported: "not on record as that of this Server",
		before: func(w *world, o *join.Observed) {
			for i := range o.Requests {
				for _, server := range w.servers {
					if of := server.Status.Join; of != nil && "system:bootstrap:"+of.TokenID == o.Requests[i].User {
						o.Requests[i].PEM = pemOf(server.Name)
					}
				}
			}
		},
	},
	{
		name: "nodes of that name are not looked at", reported: "a node of this name was ready",
		before: func(_ *world, o *join.Observed) {
			for i := range o.Nodes {
				if node := o.Nodes[i]; node.Ready {
					o.Nodes = append([]join.Node(nil), o.Nodes...)
					o.Nodes[i].Name, o.Nodes[i].SystemUUID = "other", ""
				}
			}
		},
		after: func(_ *world, o *join.Observed, _ *join.Plan) {
			for i := range o.Nodes {
				if o.Nodes[i].Name == "other" {
					o.Nodes[i].Name = o.Servers[i].Name
				}
			}
		},
	},
	{
		name: "the end of a token does not count", reported: "expired",
		before: func(w *world, o *join.Observed) {
			statuses(o, func(s *v1alpha1.Server) {
				if of := s.Status.Join; of != nil && of.ExpiresAt != nil {
					of.ExpiresAt.Time = w.now.Add(time.Minute)
				}
			})
		},
		after: func(w *world, o *join.Observed, made *join.Plan) {
			for name, next := range made.Servers {
				if before := w.servers[name].Status.Join; before != nil && next.Join != nil && before.TokenID == next.Join.TokenID {
					next.Join.ExpiresAt = before.ExpiresAt
				}
			}
		},
	},
	{
		name: "a server that is off is not noticed", reported: "does not boot from the network",
		before: func(_ *world, o *join.Observed) {
			statuses(o, func(s *v1alpha1.Server) {
				if s.Status.Power.State == v1alpha1.PowerOff {
					s.Status.Power.State = v1alpha1.PowerUnknown
				}
				if s.Status.Join != nil {
					s.Status.Join.SeenOff = true
				}
			})
		},
	},
	{
		name: "a token is not withheld when it has served", reported: "still offer its token",
		after: func(_ *world, _ *join.Observed, made *join.Plan) {
			made.Steps = without(made.Steps, join.StepWithhold)
		},
	},
	{
		name: "tokens are never deleted", reported: "left over",
		after: func(_ *world, _ *join.Observed, made *join.Plan) {
			made.Steps = without(made.Steps, join.StepDrop)
		},
	},
	{
		name: "nothing is denied", reported: "is not decided",
		after: func(_ *world, _ *join.Observed, made *join.Plan) {
			made.Steps = without(made.Steps, join.StepDeny)
		},
	},
	{
		name: "that a certificate was approved is forgotten when the server is off", reported: "got a certificate and is ready",
		before: func(_ *world, o *join.Observed) {
			statuses(o, func(s *v1alpha1.Server) {
				if s.Status.Join != nil {
					s.Status.Join.Certified = false
				}
			})
		},
	},
	{
		name: "an approval is not put on record first", reported: "is not on record",
		after: func(_ *world, _ *join.Observed, made *join.Plan) {
			for _, next := range made.Servers {
				if next.Join != nil && next.Join.State == v1alpha1.JoinApproving {
					next.Join.State, next.Join.RequestUID = v1alpha1.JoinOffered, ""
				}
			}
		},
	},
}

func without(steps []join.Step, kind join.StepKind) []join.Step {
	var left []join.Step
	for _, step := range steps {
		if step.Kind != kind {
			left = append(left, step)
		}
	}
	return left
}

// TestPlantedBugs: each bug is found.
func TestPlantedBugs(t *testing.T) {
	for _, b := range plantedBugs {
		t.Run(b.name, func(t *testing.T) {
			for seed := range uint64(bugSeeds) {
				for _, text := range run(seed, b).wrong {
					if strings.Contains(text, b.reported) {
						t.Logf("seed %d: %s", seed, text)
						return
					}
				}
			}
			t.Errorf("not found in %d worlds", bugSeeds)
		})
	}
}
