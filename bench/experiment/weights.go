package experiment

import "github.com/tensorcache/tensorcache/bench/workload"

// addWeights gives the graph the weights that the config asks for, unless its file has.
func (c *Config) addWeights(g *workload.Graph) error {
	switch {
	case !c.Weighted || g.Weights != nil:
	case c.Graph != "":
		return g.LoadWeights(c.Graph)
	default:
		g.SetWeights(c.dataSeed())
	}
	return nil
}
