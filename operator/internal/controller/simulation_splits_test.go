package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
)

// Events of splits.
const (
	isSplit        = "a table is split"
	isSplitTwice   = "a split is ordered that was carried out already"
	isSplitLate    = "a table is split after the order's answer was given up"
	isSplitWaiting = "a split waits for a recovery or a migration"
	isSplitRefused = "a split is refused for good"
	isWithdrawn    = "a split is withdrawn"
)

// unmade is a table that there is not.
const unmade = "unmade"

// splits are what people order of tables, and what becomes of it. All chance is of a stream of their own: other things happen as without.
type splits struct {
	// boundaries of each table, in 5040ths of its key hashes; the coordinator's state, which outlives its processes.
	boundaries map[string]map[int]bool
	// late are orders whose answers were given up, and that are carried out all the same.
	late []func()
	// movesUntil: somebody's migration of a tablet of this table is under way.
	movesUntil map[string]int64
	ordered    int
}

// hashes that a table is cut by: each number of parts that is ordered here divides it.
const hashes = 5040

func newSplits() splits {
	return splits{
		boundaries: map[string]map[int]bool{"fruit": {}, "vegetables": {}, "counters": {hashes / 2: true}},
		movesUntil: map[string]int64{},
	}
}

// orderSplits is what people do until all is calm: they order splits, and withdraw some. And what was late happens.
func (s *simulation) orderSplits() {
	if s.splitting == nil || s.store() == nil || s.store().DeletionTimestamp != nil {
		return
	}
	for _, late := range s.splits.late {
		late()
	}
	s.splits.late = nil
	if s.isCalm {
		return
	}
	tables := append(slices.Sorted(maps.Keys(s.splits.boundaries)), unmade)
	table := tables[s.splitting.IntN(len(tables))]
	switch n := s.splitting.IntN(100); {
	case n < 4:
		s.splits.ordered++
		operation := &v1alpha1.StoreOperation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("split-%d", s.splits.ordered)},
			Spec: v1alpha1.StoreOperationSpec{
				StoreRef: v1alpha1.StoreReference{Name: "sim"}, Type: v1alpha1.OperationSplit,
				Split: &v1alpha1.SplitOperation{Table: table, Parts: []int32{2, 3, 4, 10, 16 * 9}[s.splitting.IntN(5)]},
			},
		}
		s.trace("somebody orders %s: %+v", operation.Name, *operation.Spec.Split)
		s.api.put(operation)
	case n < 6:
		s.splits.movesUntil[table] = s.now.Unix() + s.splitting.Int64N(20)
	case n < 8:
		s.withdrawSplit()
	}
}

func (s *simulation) withdrawSplit() {
	for _, operation := range all[*v1alpha1.StoreOperation](s.api.objects) {
		if operation.Spec.Split != nil && !operation.Status.HasEnded() {
			s.trace("somebody withdraws %s", operation.Name)
			s.counts[isWithdrawn]++
			s.api.tellToEnd(operation)
			return
		}
	}
}

// most boundaries that a table may have.
const mostBoundaries = 100

// SplitTable splits at once, or later, or says why not; and its answer may be lost.
func (c *coordinatorOf) SplitTable(_ context.Context, table string, parts int32) (*adminv1.SplitTableResponse, error) {
	s := c.s
	isIt := func(operation *v1alpha1.StoreOperation) bool {
		split := operation.Spec.Split
		return split != nil && split.Table == table && split.Parts == parts
	}
	if !slices.ContainsFunc(all[*v1alpha1.StoreOperation](s.api.objects), isIt) {
		s.violate("table %s is split into %d parts, and who ordered that has withdrawn it", table, parts)
	}
	if err := c.leads(); err != nil {
		return nil, err
	}
	boundaries, there := s.splits.boundaries[table]
	if !there {
		s.counts[isSplitRefused]++
		return nil, &admin.SplitRefusedError{Message: "there is no table " + table, NoTable: true, ForGood: true}
	}
	var lacking []int
	for part := 1; part < int(parts); part++ {
		if at := part * hashes / int(parts); !boundaries[at] {
			lacking = append(lacking, at)
		}
	}
	switch {
	case len(boundaries)+len(lacking) > mostBoundaries:
		s.counts[isSplitRefused]++
		return nil, &admin.SplitRefusedError{Message: "there would be too many tablets", ForGood: true}
	case len(lacking) > 0 && (s.cluster.lost() > 0 || s.splits.movesUntil[table] > s.now.Unix()):
		s.counts[isSplitWaiting]++
		return nil, &admin.SplitRefusedError{Message: "a tablet is recovered, or moved"}
	case len(lacking) == 0:
		s.counts[isSplitTwice]++
	}
	term := s.cluster.term
	split := func() {
		for _, at := range lacking {
			boundaries[at] = true
		}
		s.trace("table %s has %d boundaries", table, len(boundaries))
	}
	if s.faults.coordinator > 0 && s.splitting.Float64() < 0.2 {
		s.splits.late = append(s.splits.late, func() {
			if s.cluster.term == term { // another leader never got it
				s.counts[isSplitLate]++
				split()
			}
		})
		return nil, grpcstatus.Error(codes.DeadlineExceeded, "no answer in time")
	}
	split()
	s.counts[isSplit]++
	if s.faults.coordinator > 0 && s.splitting.Float64() < 0.1 {
		return nil, grpcstatus.Error(codes.DeadlineExceeded, "the answer was lost")
	}
	return &adminv1.SplitTableResponse{Tablets: uint32(len(boundaries) + 1), BoundariesMade: uint32(len(lacking))}, nil
}

// checkSplit holds what a StoreOperation says of itself against what the coordinator has on record.
func (s *simulation) checkSplit(operation *v1alpha1.StoreOperation) {
	order := operation.Spec.Split
	if order == nil {
		return
	}
	boundaries, there := s.splits.boundaries[order.Table]
	isDone := there
	for part := 1; part < int(order.Parts); part++ {
		isDone = isDone && boundaries[part*hashes/int(order.Parts)]
	}
	switch {
	case operation.Status.Phase == v1alpha1.OperationSucceeded && !isDone:
		s.violate("%s says that it is done, and table %s has the boundaries %v", operation.Name, order.Table, boundaries)
	case operation.Status.Phase == v1alpha1.OperationFailed && isDone:
		s.violate("%s says that it has failed, and table %s is split", operation.Name, order.Table)
	}
}

// openSplit is the name of one that has not ended; empty if all have.
func (s *simulation) openSplit() string {
	for _, operation := range all[*v1alpha1.StoreOperation](s.api.objects) {
		if operation.Spec.Split != nil && !operation.Status.HasEnded() {
			return operation.Name
		}
	}
	return ""
}

// Bugs: see plantedBug.

// credulous takes no answer to a split for a good one.
type credulous struct{ admin.Client }

func (c credulous) SplitTable(ctx context.Context, table string, parts int32) (*adminv1.SplitTableResponse, error) {
	response, err := c.Client.SplitTable(ctx, table, parts)
	var refused *admin.SplitRefusedError
	if err != nil && !errors.As(err, &refused) {
		return &adminv1.SplitTableResponse{Tablets: uint32(parts)}, nil
	}
	return response, err
}

// impatient takes a refusal for now for one for good.
type impatient struct{ admin.Client }

func (i impatient) SplitTable(ctx context.Context, table string, parts int32) (*adminv1.SplitTableResponse, error) {
	_, err := i.Client.SplitTable(ctx, table, parts)
	response, again := i.Client.SplitTable(ctx, table, parts)
	if err != nil {
		return nil, &admin.SplitRefusedError{Message: err.Error(), ForGood: true}
	}
	return response, again
}

// seesCachedOrders does not look whether what was ordered was withdrawn.
func seesCachedOrders(o *simulatedOperator, live client.Reader) client.Reader {
	return ordersReader{live, o}
}

type ordersReader struct {
	client.Reader

	o *simulatedOperator
}

func (r ordersReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ofOrders := list.(*v1alpha1.StoreOperationList); ofOrders {
		return r.o.cache.List(ctx, list, options...)
	}
	return r.Reader.List(ctx, list, options...)
}
