package gpu

// Report is what Run measured.
type Report struct {
	Device  string   `json:"device"`
	Driver  string   `json:"driver"`
	Commit  string   `json:"commit"`
	Results []Result `json:"results"`
}

// Result is one case.
type Result struct {
	Case       string  `json:"case"`
	RowBytes   int     `json:"row_bytes"`
	Codec      string  `json:"codec"`
	TableBytes int64   `json:"table_bytes"`
	Batch      int     `json:"batch"`
	Value      float64 `json:"value"`
	Unit       string  `json:"unit"`
	// Baseline is what the value is compared with; Ratio is how many times better the value is.
	Baseline      string  `json:"baseline"`
	BaselineValue float64 `json:"baseline_value"`
	Ratio         float64 `json:"ratio"`
}
