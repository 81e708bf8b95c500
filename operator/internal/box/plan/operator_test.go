package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// stored is a Server in the API server, and what the simulation remembers of it.
type stored struct {
	object  *v1alpha1.Server
	version int
	// before is what an operator with an outdated cache sees.
	before        *v1alpha1.Server
	beforeVersion int
	// blockersSince is when members came to it; -1: there are none.
	blockersSince int
	// powerSince is when spec.power changed, and powerBefore what it was.
	powerSince  int
	powerBefore v1alpha1.WantedPower
	// provedAt is when status.lastOff was proved, by the simulation's clock, which is never set.
	provedAt int
	// ended are orders that have ended.
	ended map[string]bool
	// resetOf counts restarts by order.
	resetOf map[string]int
}

// memory is what an operator forgets when it is killed.
type memory struct {
	servers  [blades]plan.Server
	identify map[string]bool
	managers [2]plan.Manager
	// notGiven are the times of commands to chassis managers that were never given.
	notGiven []time.Time
	// jumpedAt is when its clock was set last.
	jumpedAt time.Time
}

// inFlight is a command that an operator gave just as it was killed.
type inFlight struct {
	at   int
	step plan.Step
	// isSent: the last check before the command was made before the operator was killed.
	isSent bool
}

// sim is a world, an API server, users and an operator.
type sim struct {
	*world

	bug      *bug
	chassis  *v1alpha1.Chassis
	layout   *layout.Layout
	servers  [blades]*stored
	requests []plan.FenceRequest
	// released is the last request that was taken back.
	released   plan.FenceRequest
	releasedAt int
	verdicts   []plan.FenceVerdict
	memory     *memory
	deadFor    int
	users      *rand.Rand
	kills      *rand.Rand
	hands      *rand.Rand
	twins      *twins
	clocks     *clocks
	trial      *trial
	// isolating is nil in worlds in which nobody isolates servers.
	isolating *isolating
	// shift is by how many slots the BMCs' addresses are wrong: a command to one server reaches the blade in another slot.
	shift    int
	kubelets *kubelets
	flying   []inFlight
	hasLinks bool
	// isFencing: Stores lose nodes.
	isFencing bool
	// queues is how long commands wait for sessions.
	queues *rand.Rand
	ids    int
	// isSent: the command was already on its way when the operator was killed.
	isSent  bool
	handing []handing
	// givesBitByBit: orders of all have one id, and come one after the other. It is so of seeds of its own.
	givesBitByBit bool
	counts        map[string]int
}

func at(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }

func second(t time.Time) int { return int(t.Sub(start) / time.Second) }

// observe is what the operator sees.
func (s *sim) observe(isOutdated bool) (*plan.Observed, [blades]int) {
	o := &plan.Observed{Times: times, Chassis: s.chassis, Layout: s.layout}
	o.ElsewhereGUIDs, o.JumpedAt = s.elsewhereGUIDs(), s.memory.jumpedAt
	var versions [blades]int
	var stores []v1alpha1.Store
	for i, b := range s.blades {
		of := s.memory.servers[i]
		of.Object, versions[i] = s.servers[i].object, s.servers[i].version
		if isOutdated {
			of.Object, versions[i] = s.servers[i].before, s.servers[i].beforeVersion
		}
		s.recall(&of)
		if s.servers[i].blockersSince >= 0 {
			stores = append(stores, storeOn(i, b.node))
		}
		o.Servers = append(o.Servers, of)
		o.Nodes = append(o.Nodes, s.nodeOf(i))
	}
	o.Members = plan.MembersByNode(stores)
	o.Managers = append(o.Managers, s.memory.managers[:]...)
	o.Requests, o.Switches = s.seenRequests(), s.seenSwitches(s.clock())
	return o, versions
}

// recall finds that the command on record is an earlier one to all servers that was not given.
func (s *sim) recall(of *plan.Server) {
	change := of.Object.Status.Change
	if change == nil || change.By != v1alpha1.WitnessCMM || change.TriedAt == nil {
		return
	}
	if slices.ContainsFunc(s.memory.notGiven, change.TriedAt.Time.Equal) {
		of.Answer = &plan.Answer{TriedAt: change.TriedAt.Time, Err: &plan.NotGivenError{Err: errors.New("not given")}}
	}
}

// storeOn is a Store with a member on one node: every other blade has a coordinator, the others have masters.
func storeOn(i int, node string) v1alpha1.Store {
	store := v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}}
	if i%2 == 0 {
		store.Status.Coordinator = v1alpha1.CoordinatorStatus{Node: node, Pod: "db-coordinator", State: v1alpha1.StateMemory}
		return store
	}
	name := v1alpha1.MasterMember("db", i)
	store.Status.Masters.Members = []v1alpha1.MemberStatus{{Name: name, MemberFigures: v1alpha1.MemberFigures{Node: node, Pod: name}}}
	return store
}

// poll asks most controllers.
func (s *sim) poll() {
	for i := range s.blades {
		if s.kills.IntN(5) == 0 {
			continue
		}
		b, of := s.behind(i), &s.memory.servers[i]
		power, err := s.power(b)
		of.MMC.AskedAt, of.MMC.Err = s.clock(), err
		if err == nil {
			of.MMC.AnsweredAt, of.Power = s.clock(), plan.Sight{Power: power, At: s.clock()}
			s.identify(i, of)
		}
		if s.hasLinks {
			of.Link = plan.Sight{Power: s.link(s.blades[i]), At: s.clock()}
		}
	}
	for i := range s.managers {
		of := &s.memory.managers[i]
		sensors, err := s.sensors(i)
		of.Address, of.AskedAt, of.Err = s.chassis.Spec.Management.CMM[i], s.clock(), err
		if err == nil {
			of.AnsweredAt, of.Sensors, of.SensorsAt = s.clock(), sensors, s.clock()
		}
	}
}

// behind is the blade whose BMC has the address that the operator takes for the address of a server's BMC.
func (s *sim) behind(i int) *blade { return s.blades[(i+s.shift)%blades] }

// identify asks a BMC what it is, which is done seldom unless somebody waits for it.
func (s *sim) identify(i int, of *plan.Server) {
	b, name := s.behind(i), s.layout.Servers[i].Name
	if !s.memory.identify[name] && of.Identity != nil && s.clock().Sub(of.IdentityAt) < identityEvery {
		return
	}
	delete(s.memory.identify, name)
	of.IdentityAt = s.clock()
	of.Identity = s.identityOf(b)
}

// identityOf is the identity that the BMC of a blade reports.
func (*sim) identityOf(b *blade) *bmc.Identity {
	identity := &bmc.Identity{
		SystemGUID: b.guid, Serial: "S" + b.node, MACs: map[int]string{1: fmt.Sprintf("02:00:00:00:00:%02x", b.number)},
		Slot: b.number + 1,
	}
	if b.isSlotless {
		identity.Slot = 0
	}
	if b.isNameless {
		identity.SystemGUID = ""
	}
	return identity
}

// swapBlades is what somebody does who is in the room.
func (s *sim) swapBlades() {
	if s.hands.IntN(60) > 0 {
		return
	}
	i, j := s.hands.IntN(blades), s.hands.IntN(blades)
	if i == j {
		return
	}
	s.swap(s.blades[i], s.blades[j])
	a, b := s.servers[i], s.servers[j]
	a.blockersSince, b.blockersSince = b.blockersSince, a.blockersSince
	for _, of := range []*stored{a, b} {
		if of.blockersSince >= 0 {
			of.blockersSince = s.now
		}
	}
}

// operate is one round of the operator, which may be killed in the middle of it.
func (s *sim) operate(isCalm bool) {
	for len(s.flying) > 0 && s.flying[0].at <= s.now {
		s.give(s.flying[0].step, s.flying[0].isSent)
		s.flying = s.flying[1:]
	}
	if s.deadFor > 0 {
		s.deadFor--
		return
	}
	if s.memory == nil {
		s.memory = &memory{identify: map[string]bool{}}
	}
	s.poll()
	o, versions := s.observe(!isCalm && s.kills.IntN(6) == 0)
	if s.bug != nil && s.bug.before != nil {
		s.bug.before(s, o)
	}
	made := plan.Make(s.clock(), o)
	if s.bug != nil && s.bug.after != nil {
		s.bug.after(s, o, &made)
	}
	s.verdicts = made.Fences
	s.acceptAnew(made.Fences)
	s.clocks.decidedAt = maps.Clone(s.clocks.askedAt)
	for _, name := range made.Identify {
		s.memory.identify[name] = true
	}
	dies := -1
	if !isCalm && s.kills.IntN(25) == 0 {
		dies = s.kills.IntN(2*blades + 2)
	}
	s.carryOut(o, versions, &made, dies)
	s.checkMessages(&made)
}

// carryOut writes the statuses and then gives the commands, or dies before the diesAt-th of these.
func (s *sim) carryOut(o *plan.Observed, versions [blades]int, made *plan.Plan, diesAt int) {
	current := map[string]bool{}
	done := 0
	dies := func() bool {
		done++
		if done-1 != diesAt {
			return false
		}
		s.memory, s.deadFor = nil, 1+s.kills.IntN(12)
		if s.kills.IntN(5) == 0 {
			s.deadFor += 60
		}
		s.say("the operator is killed for %d s", s.deadFor)
		return true
	}
	if s.bug != nil && s.bug.stepsFirst {
		for _, step := range made.Steps {
			s.give(step, false)
		}
		made.Steps = nil
	}
	s.meddle(made.Steps)
	for i := range o.Servers {
		name := s.layout.Servers[i].Name
		status := made.Servers[name]
		if reflect.DeepEqual(*status, o.Servers[i].Object.Status) {
			current[name] = versions[i] == s.servers[i].version
			continue
		}
		if dies() {
			return
		}
		if versions[i] != s.servers[i].version {
			continue // conflict
		}
		s.write(i, func(object *v1alpha1.Server) { object.Status = *status.DeepCopy() })
		current[name] = true
	}
	s.chassis.Status = *made.Chassis
	s.setCordons(made, current)
	for _, step := range made.Steps {
		isOnRecord := true
		for _, name := range step.Servers {
			isOnRecord = isOnRecord && current[name]
		}
		if !isOnRecord {
			s.notWritten(&step)
			continue
		}
		if dies() {
			if s.kills.IntN(2) == 0 { // it was on its way
				s.flying = append(s.flying, inFlight{s.now + 1, step, true})
			}
			return
		}
		if step.IsCut() && s.queues.IntN(3) == 0 {
			s.flying = append(s.flying, inFlight{s.now + 1, step, false})
			continue
		}
		s.give(step, false)
	}
}

// write changes a Server in the API server.
func (s *sim) write(i int, change func(*v1alpha1.Server)) {
	of := s.servers[i]
	of.before, of.beforeVersion = of.object, of.version
	of.object = of.object.DeepCopy()
	change(of.object)
	of.version++
	if order := of.object.Status.Order; order != nil {
		switch order.State {
		case v1alpha1.OrderDone, v1alpha1.OrderRefused, v1alpha1.OrderFailed:
			if !of.ended[order.ID] {
				s.say("order %s of atom%03d: %s %s: %s", order.ID, i+1, order.Action, order.State, order.Message)
				s.counts[string(order.State)]++
				s.checkDone(i, order)
			}
			of.ended[order.ID] = true
		case v1alpha1.OrderWaiting, v1alpha1.OrderRunning:
			if of.ended[order.ID] {
				s.violate("order %s of atom%03d is %s though it has ended", order.ID, i+1, order.State)
			}
		}
	}
	s.checkProof(i)
}

// isDropped: the last check before the command says that power must not be taken away any more. An operator that was killed gives no
// command.
func (s *sim) isDropped(step *plan.Step) bool {
	if s.memory == nil || s.deadFor > 0 || s.clocks.jumpedAt == s.now {
		return true
	}
	if step.Action == bmc.ActionOn || s.bug != nil && s.bug.looksOnce {
		return false
	}
	o, _ := s.observe(false)
	for i := range o.Servers {
		isAsked := step.IsCut() || step.Manager == "" && step.For == v1alpha1.ForIsolation
		if isAsked && o.Servers[i].Object.Name == step.Servers[0] {
			b := s.behind(i)
			if _, err := s.power(b); err != nil {
				return true
			}
			o.Servers[i].Identity, o.Servers[i].IdentityAt = s.identityOf(b), s.clock()
		}
	}
	if s.bug != nil && s.bug.before != nil {
		s.bug.before(s, o)
	}
	why := plan.WhyNotGiven(s.clock(), o, step)
	if why != "" {
		s.say("%s is not told %s: %s", step.Servers[0], step.Action, why)
		s.counts["dropped"]++
	}
	return why != ""
}

// give gives a command, and remembers the answer.
func (s *sim) give(step plan.Step, isSent bool) {
	if s.clock().After(step.Until) || s.isHindered(&step) || !isSent && s.isDropped(&step) {
		s.answer(&step, &plan.NotGivenError{Err: errors.New("not given")})
		return
	}
	s.isSent = isSent
	isFor := map[int]bool{}
	for i := range s.servers {
		for _, name := range step.Servers {
			if change := s.servers[i].object.Status.Change; s.layout.Servers[i].Name == name {
				isFor[i] = step.Manager == "" || change != nil && change.By == v1alpha1.WitnessCMM
				if isFor[i] {
					s.checkStep(i, step)
				}
			}
		}
	}
	var err error
	if step.Manager != "" {
		s.counts["whole"]++
		s.checkWhole(step, isFor)
		for i := range s.managers {
			if s.chassis.Spec.Management.CMM[i] == step.Manager {
				err = s.tellAll(i, step.Action)
			}
		}
	}
	for i := range s.servers {
		if !isFor[i] {
			continue
		}
		s.counts[step.Action.String()]++
		if step.Manager == "" {
			err = s.tell(s.behind(i), step.Action)
		}
		if change := s.servers[i].object.Status.Change; s.memory != nil && change != nil && change.TriedAt != nil {
			s.memory.servers[i].Answer = &plan.Answer{TriedAt: change.TriedAt.Time, Err: err}
		}
	}
}

// answer lets the operator see that a step was not given.
func (s *sim) answer(step *plan.Step, err error) {
	for i := range s.servers {
		change := s.servers[i].object.Status.Change
		if s.memory != nil && change != nil && change.TriedAt != nil && slices.Contains(step.Servers, s.layout.Servers[i].Name) {
			s.memory.servers[i].Answer = &plan.Answer{TriedAt: step.TriedAt, Err: err}
		}
	}
	if s.memory == nil || step.Manager == "" {
		return
	}
	s.memory.notGiven = append(s.memory.notGiven, step.TriedAt)
	for i := range s.managers {
		if step.IsOnlyStart && step.Manager == s.chassis.Spec.Management.CMM[i] {
			s.memory.managers[i].NotGiven = append(s.memory.managers[i].NotGiven, step.TriedAt)
		}
	}
}

// act lets users do something.
func (s *sim) act() {
	i := s.users.IntN(blades)
	of := s.servers[i]
	kind := s.users.IntN(14)
	if s.shift > 0 && kind < 5 { // an order has no defined effect with wrong addresses
		return
	}
	switch kind {
	case 0, 1:
		s.order(i, []v1alpha1.PowerAction{
			v1alpha1.ActionOn, v1alpha1.ActionOff, v1alpha1.ActionSoft, v1alpha1.ActionCycle, v1alpha1.ActionReset,
		}[s.users.IntN(5)])
	case 2:
		if s.users.IntN(2) == 0 { // up and down of a whole chassis
			action := []v1alpha1.PowerAction{v1alpha1.ActionOn, v1alpha1.ActionSoft}[s.users.IntN(2)]
			if s.givesBitByBit {
				s.orderAll(action)
				break
			}
			for i := range s.servers {
				s.order(i, action)
			}
		}
	case 3:
		power := []v1alpha1.WantedPower{
			v1alpha1.WantUnmanaged, v1alpha1.WantUnmanaged, v1alpha1.WantOn, v1alpha1.WantOff,
		}[s.users.IntN(4)]
		if s.users.IntN(3) == 0 && power != of.object.Spec.Power {
			of.powerBefore, of.powerSince = of.object.Spec.Power, s.now
			s.write(i, func(object *v1alpha1.Server) { object.Spec.Power = power })
			s.say("atom%03d: spec.power is %s", i+1, power)
		}
	case 4:
		if of.blockersSince >= 0 {
			of.blockersSince = -1
		} else if s.users.IntN(5) == 0 && !s.isCordoned(i) {
			of.blockersSince = s.now
		}
	case 5, 6:
		if s.isFencing {
			s.requestFence(i)
		}
	case 7, 8:
		if n := len(s.requests); n > 0 {
			s.released, s.releasedAt = s.requests[0], s.now
			s.requests = s.requests[1:]
		}
	}
}

func (s *sim) order(i int, action v1alpha1.PowerAction) {
	s.ids++
	order := &v1alpha1.PowerOrder{ID: strconv.Itoa(s.ids), Action: action, Force: s.users.IntN(4) == 0}
	s.write(i, func(object *v1alpha1.Server) { object.Spec.Order = order })
	s.say("atom%03d: order %s: %s, force %v", i+1, order.ID, action, order.Force)
}

// handing is an order that its user is about to give.
type handing struct {
	at, server int
	order      *v1alpha1.PowerOrder
}

// orderAll is kubectl rcbox up and down: it gives one order to all, at once or bit by bit, and may be killed half way.
func (s *sim) orderAll(action v1alpha1.PowerAction) {
	s.ids++
	for i := range s.servers {
		order := &v1alpha1.PowerOrder{
			ID: strconv.Itoa(s.ids), Action: action, Force: s.users.IntN(4) == 0, Servers: blades,
		}
		due := s.now
		if i > blades/2 {
			due += s.now % 3
		}
		if i > blades/2 && s.now%4 == 0 {
			continue
		}
		s.handing = append(s.handing, handing{due, i, order})
	}
	s.handOut()
}

// handOut gives the orders that are due.
func (s *sim) handOut() {
	s.handing = slices.DeleteFunc(s.handing, func(h handing) bool {
		if h.at > s.now {
			return false
		}
		s.write(h.server, func(object *v1alpha1.Server) { object.Spec.Order = h.order })
		s.say("atom%03d: order %s of all: %s, force %v", h.server+1, h.order.ID, h.order.Action, h.order.Force)
		return true
	})
}

// requestFence asks for a node that may or may not be lost, on behalf of somebody who may or may not ask for that.
func (s *sim) requestFence(i int) {
	b := s.blades[i]
	for _, request := range s.requests {
		if request.Node == b.node {
			return
		}
	}
	if s.isReady(b) && s.users.IntN(4) > 0 {
		return
	}
	request := plan.FenceRequest{Namespace: "default", Store: "db", Node: b.node, Since: s.clock()}
	if s.users.IntN(5) == 0 {
		request.Namespace = "stranger"
	}
	s.requests = append(s.requests, request)
	s.clocks.askedAt[b.node] = s.now
	s.say("%s asks for the node %s to be fenced, which is that of %s", request.Namespace, b.node, name(b))
}

func newServer(i int) *stored {
	object := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("atom%03d", i+1)}}
	object.Spec.Power = v1alpha1.WantUnmanaged
	return &stored{
		object:        object,
		before:        object,
		blockersSince: -1,
		powerSince:    -1000,
		ended:         map[string]bool{},
		resetOf:       map[string]int{},
	}
}
