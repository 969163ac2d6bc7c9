package gpu

// setGoal gives a result the goal of its case. Goals were set for an H200 and the default options. REQUIRES: Case, RowBytes, Codec, Unit,
// Batch, HostThreads, Compression and BaselineValue are set.
func (x *Result) setGoal() {
	atLeast := func(of GoalOf, steps ...step) {
		for _, s := range steps {
			if x.RowBytes >= s.from {
				x.Goal, x.GoalOf = s.goal, of
				return
			}
		}
	}
	switch x.Case {
	case "hit-decode":
		if x.Codec == SparseCodec {
			atLeast(RatioAtLeast, step{0, 1})
			return
		}
		atLeast(RatioAtLeast, step{1024, 0.90}, step{400, 0.85}, step{256, 0.75})
	case "hit-codecs":
		if goal, ok := codecGoals[x.Codec]; ok {
			atLeast(RatioAtLeast, step{512, goal})
		}
	case "gather-hits":
		atLeast(RatioAtLeast, step{512, 0.70}, step{256, 0.55})
	case "gather-misses":
		atLeast(RatioAtLeast, step{2048, 0.95}, step{1024, 0.92}, step{400, 0.87})
	case "gather-misses-large":
		switch {
		case x.HostThreads >= 15:
			atLeast(RatioAtLeast, step{512, 1.9}, step{256, 3.0})
		case x.HostThreads >= 4:
			atLeast(RatioAtLeast, step{512, 1.3}, step{256, 2.2})
		}
	case "gather-80":
		atLeast(RatioAtLeast, step{0, 0.9})
	case "sampling":
		atLeast(RatioAtLeast, step{0, 0.99})
	case "refresh":
		if x.Unit == churnUnit {
			atLeast(ValueAtLeast, step{0, leastChurn})
		} else {
			atLeast(RatioAtLeast, step{0, 1 / 1.15})
		}
	case "lookup":
		atLeast(ValueAtLeast, step{0, 20})
	case "load":
		atLeast(RatioAtLeast, step{0, 0.8})
	case "small-batch", "small-batch-caller":
		if x.Batch == hitBatch && x.RowBytes == smallRow && x.Codec == "hits" {
			x.Goal, x.GoalOf = 30, ValueAtMost
			if x.Case == "small-batch-caller" {
				x.Goal = 60
			}
		}
	case "caller":
		x.Goal, x.GoalOf = 20, ValueAtMost
		if x.Unit == "allocations" {
			x.Goal = 0
		}
	case "peer-hits": // compression multiplies the link's bandwidth
		atLeast(RatioAtLeast, step{1024, 0.90 * x.Compression}, step{512, 0.87 * x.Compression})
	case "pair-throughput":
		if x.Unit == "points" {
			x.Goal, x.GoalOf = 1, ValueAtMost
		} else {
			x.Goal, x.GoalOf = 1.8, RatioAtLeast
		}
	case "pair-placement":
		if x.Unit == "%" {
			x.Goal, x.GoalOf = 15, ValueAtMost
		} else {
			x.Goal, x.GoalOf = 1, RatioAtLeast
		}
	case "pair-refresh":
		x.Goal, x.GoalOf = 1.2*x.BaselineValue, ValueAtMost
	case "memory":
		if x.Codec == oneBatch {
			x.Goal, x.GoalOf = x.BaselineValue, ValueAtMost
		}
	}
}

// codecGoals are the goals of hit-codecs, for rows of 512 bytes and more.
var codecGoals = map[string]float64{"rank": 0.6, "sleek": 0.8, "ndzip": 0.4, "zipnn": 0.25, "rank" + BFloat16Suffix: 0.5}

// step is a goal of rows of at least so many bytes.
type step struct {
	from int
	goal float64
}

const (
	// SparseCodec labels 0/1 rows; rows of other labels are N(0,1).
	SparseCodec = "ibp4 sparse"
	// BFloat16Suffix follows the codec's name in labels of bfloat16 rows of hit-codecs; others are float32.
	BFloat16Suffix = " bfloat16"
	// smallRow is the row length of small batches, and hitBatch the size of the batch of hits that has a goal.
	smallRow = 512
	hitBatch = 4096
	// churnUnit is the unit of how much refreshing replaces. That should be 1, and must be leastChurn for the times of refresh to count.
	churnUnit  = "% a second"
	leastChurn = 0.9
	// oneBatch labels the memory of a cache that served one batch at a time.
	oneBatch = "1 batch"
)
