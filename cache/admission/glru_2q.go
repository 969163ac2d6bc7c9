package admission

import lru "github.com/hashicorp/golang-lru/v2"

var _ = register(Spec{Name: "glru-2q", Online: true, New: simple(New2Q)})

// New2Q returns the policy that ranks the content of golang-lru's 2Q, with one entry for each row of mean slot bytes that fits:
// rows accessed once, then rows accessed again, the latest first. This differs from the 2Q of the paper.
func New2Q() Policy {
	return &recency{name: "glru-2q", make: func(rows int) (keeper, error) {
		c, err := lru.New2Q[uint64, struct{}](rows)
		return twoQueues{c}, err
	}}
}

type twoQueues struct {
	*lru.TwoQueueCache[uint64, struct{}]
}

func (k twoQueues) resized(rows int) (keeper, error) {
	k.Resize(rows)
	return k, nil
}
