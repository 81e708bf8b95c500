package status

import (
	"fmt"
	"strconv"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/record"
)

const (
	maxLosses     = 10
	maxLossTables = 10
	// maxMissing is how many bytes say what was given up.
	maxMissing = 512
)

// recordLosses adds to the status what the coordinator tells of that was not there before, and the loss of the coordinator itself: another
// cluster id is another coordinator's process, and the tables of the one before are gone.
func recordLosses(o facts.Observed, next *v1alpha1.StoreStatus) {
	cluster := o.Cluster
	if cluster == nil {
		return
	}
	old := &o.Store.Status
	if old.ClusterID != cluster.ID {
		next.LossesSeen = 0
		if old.ClusterID != "" && old.Tables > 0 {
			addLoss(o, next, v1alpha1.Loss{
				Cause:      v1alpha1.LossOfCoordinator,
				Member:     v1alpha1.CoordinatorMember(o.Store.Name),
				TableCount: old.Tables,
				Tablets:    allTablets(old),
			})
		}
	}
	told := int64(len(cluster.Losses))
	total := cluster.LossesDropped + told
	unseen := min(total-next.LossesSeen, told)
	for _, loss := range cluster.Losses[told-max(unseen, 0):] {
		if isFormers(o, loss) {
			continue
		}
		cause := v1alpha1.LossOfMember
		if loss.Missing != "" {
			cause = v1alpha1.LossAccepted
		}
		addLoss(o, next, v1alpha1.Loss{
			Cause:      cause,
			Member:     loss.Member,
			ServerIDs:  loss.ServerIDs,
			Tables:     loss.Tables[:min(len(loss.Tables), maxLossTables)],
			TableCount: loss.TableCount,
			Tablets:    loss.Tablets,
			Objects:    loss.Objects,
			Bytes:      loss.Bytes,
			Uncounted:  loss.Uncounted,
			Missing:    strings.ToValidUTF8(loss.Missing[:min(len(loss.Missing), maxMissing)], ""),
		})
	}
	next.LossesSeen = max(next.LossesSeen, total)
}

// isFormers says whether the process that ended was of another Store: one of this name that was deleted, whose tables were kept. This
// Store's member has had no pod yet, or only the one that is there, and the process did not run in that.
func isFormers(o facts.Observed, loss facts.Loss) bool {
	if loss.Instance == "" {
		return false
	}
	masters := &o.Store.Status.Masters
	highest, uid := masters.RetiredPodNumber, ""
	if record.IsMissing(o.Store, loss.Member) {
		highest = max(highest, o.Store.Status.Record.HighestPodNumber)
	}
	for i := range masters.Members {
		if masters.Members[i].Name == loss.Member {
			highest = max(highest, masters.Members[i].PodNumber)
		}
	}
	for i := range o.Pods {
		if o.Pods[i].Member == loss.Member && o.Pods[i].Number >= highest {
			highest, uid = o.Pods[i].Number, o.Pods[i].UID
		}
	}
	return highest == 0 || highest == 1 && uid != "" && uid != loss.Instance
}

func addLoss(o facts.Observed, next *v1alpha1.StoreStatus, loss v1alpha1.Loss) {
	next.LossCount++
	loss.Number = next.LossCount
	loss.Time = now(o)
	next.Losses = append(next.Losses, loss)
	if surplus := len(next.Losses) - maxLosses; surplus > 0 {
		next.Losses = next.Losses[surplus:]
	}
}

func allTablets(status *v1alpha1.StoreStatus) int64 {
	var sum int64
	for i := range status.Masters.Members {
		sum += status.Masters.Members[i].Tablets
	}
	return sum
}

// DescribeLoss says in one sentence what was lost.
func DescribeLoss(loss v1alpha1.Loss) string {
	if loss.Cause == v1alpha1.LossOfCoordinator {
		return fmt.Sprintf("the process of %s ended and took all %s with it", loss.Member, count(loss.TableCount, "table"))
	}
	text := fmt.Sprintf("the process of %s ended and took %s (%d bytes in %s) with it, of %s",
		loss.Member, count(loss.Objects, "object"), loss.Bytes, count(loss.Tablets, "tablet"), count(loss.TableCount, "table"))
	if loss.Uncounted {
		text = fmt.Sprintf("the process of %s ended and took %s with it, with an unknown number of objects, of %s",
			loss.Member, count(loss.Tablets, "tablet"), count(loss.TableCount, "table"))
	}
	if loss.Cause == v1alpha1.LossAccepted {
		text = fmt.Sprintf("a user gave up copies (rcbox recovery accept-loss), so that %s of %s may lack objects; given up: %s; of %s",
			count(loss.Tablets, "tablet"), loss.Member, loss.Missing, count(loss.TableCount, "table"))
	}
	if len(loss.Tables) > 0 {
		text += " " + strings.Join(loss.Tables, ", ")
		if more := loss.TableCount - int64(len(loss.Tables)); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	return text
}

// acknowledged is the number of the newest loss that the user has taken note of.
func acknowledged(store *v1alpha1.Store) int64 {
	number, err := strconv.ParseInt(store.Annotations[v1alpha1.AnnotationAcknowledgedLosses], 10, 64)
	if err != nil {
		return 0
	}
	return number
}

func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
