package admission

import "github.com/hashicorp/golang-lru/arc/v2"

var _ = register(Spec{Name: "glru-arc", Online: true, New: simple(NewARC)})

// NewARC returns the policy that offers what golang-lru's ARC holds with a place for every row of mean slot bytes that
// fits: rows accessed again, then rows accessed once, the latest first. It is not the paper's ARC. After Resize it
// learns anew which rows are accessed again.
func NewARC() Policy {
	return &recency{name: "glru-arc", make: newARC}
}

func newARC(rows int) (keeper, error) {
	c, err := arc.NewARC[uint64, struct{}](rows)
	return adaptive{c}, err
}

type adaptive struct {
	*arc.ARCCache[uint64, struct{}]
}

func (k adaptive) resized(rows int) (keeper, error) {
	next, err := newARC(rows)
	if err != nil {
		return nil, err
	}
	for _, key := range k.Keys() {
		next.Add(key, struct{}{})
	}
	return next, nil
}
