package capacity

import (
	"fmt"
	"time"
)

// Describe is the arithmetic in a line, and what to do about it.
func (c *Check) Describe() string {
	switch c.Verdict {
	case NoRoomForData:
		if c.Now.Cores == 0 {
			return fmt.Sprintf("all that could take over is in one failure domain, %s: have masters in others", c.Now.Domain)
		}
		return fmt.Sprintf("without %s there is no memory for everything: objects take %d MiB, and the logs of the others hold %d MiB "+
			"(%d%% of their size). Set masters.replicas or masters.memory higher",
			c.Data.Domain, c.Data.NeededMiB, c.Data.ThereMiB, usablePercent)
	case NoRoomForCopies:
		return c.describeCopies()
	case TooSlow:
		return fmt.Sprintf("%s, more than the target, %s. On target are %s, or %d MiB in the logs of what fails together, or "+
			"recovery.target: %s", c.arithmetic(c.Now), c.target(), masters(c.MastersFor(c.Now)), c.MiBOnTarget(), atLeast(c.Now.Ms))
	case OnTargetSoFar:
		return fmt.Sprintf("%s; target %s. With full logs, %d MiB: %d ms, on target up to %d MiB, or with %s%s", c.arithmetic(c.Now),
			c.target(), c.Full.MiB, c.Full.Ms, c.MiBOnTarget(), masters(c.MastersFor(c.Full)), c.fewerCopies())
	default:
		return fmt.Sprintf("%s; target %s. With full logs, %d MiB: %d ms%s", c.arithmetic(c.Now), c.target(), c.Full.MiB, c.Full.Ms,
			c.fewerCopies())
	}
}

func (c *Check) describeCopies() string {
	if c.Copies.spare() >= 0 {
		return fmt.Sprintf("without %s each object can have copies: %d, fewer than replication.min, so that writes would wait. "+
			"Set masters.replicas higher, or replication.min lower", c.Copies.Domain, c.CopiesLeft)
	}
	return fmt.Sprintf("without %s there is no room for the copies: they take %d MiB, and the others have room for %d MiB. "+
		"Set masters.replicas or backups.storage.size higher", c.Copies.Domain, c.Copies.NeededMiB, c.Copies.ThereMiB)
}

// arithmetic is "loss of X: 325 MiB / (2 cores x 150 MiB/s, a default ...) + 250 ms = 1334 ms".
func (c *Check) arithmetic(loss Loss) string {
	return fmt.Sprintf("loss of %s: %d MiB of log / (%d cores x %d MiB/s, %s) + %d ms = %d ms",
		loss.Domain, loss.MiB, loss.Cores, c.MiBPerSecond, c.source(), BeforeReplayMs, loss.Ms)
}

func (c *Check) source() string {
	if c.Measured == nil {
		return fmt.Sprintf("a default until a recovery of at least %d MiB is measured", LeastMeasuredBytes/mib)
	}
	return fmt.Sprintf("measured: %d MiB of %s in %d ms by %d cores", c.Measured.Bytes/mib, c.Measured.Member, c.Measured.Ms,
		c.Measured.Cores)
}

// fewerCopies says where copies are missing until the domain is back; writes go on.
func (c *Check) fewerCopies() string {
	if c.CopiesLeft >= c.CopiesWanted {
		return ""
	}
	return fmt.Sprintf(". Until what is lost is back, each object can have copies: %d of %d", c.CopiesLeft, c.CopiesWanted)
}

func (c *Check) target() string { return (time.Duration(c.TargetMs) * time.Millisecond).String() }

func masters(n int64) string { return fmt.Sprintf("masters.replicas: %d", n) }

// atLeast is a target that this meets, in whole tenths of a second.
func atLeast(ms int64) string {
	const tenth = 100
	return (time.Duration(ceil(ms, tenth)*tenth) * time.Millisecond).String()
}
