package predict

import (
	"strings"
	"testing"
)

func TestParse_BadInput(t *testing.T) {
	t.Parallel()
	const good = `{"device":"d","driver":"v","commit":"c","results":[{"case":"lookup","row_bytes":8,"value":1}]}`
	for text, want := range map[string]string{
		good[:60]:                              "must hold one JSON object as lab bench writes it: unexpected end of JSON input",
		"":                                     "must hold one JSON object as lab bench writes it: unexpected end of JSON input",
		"[]":                                   "must hold one JSON object as lab bench writes it: json: cannot unmarshal array into Go value of type predict.Report",
		good + good:                            "must hold one JSON object as lab bench writes it: invalid character '{' after top-level value",
		`{"device":"d"}`:                       "results (none) must be at least one",
		strings.Replace(good, "lookup", "", 1): "result 0: case must have a name",
		strings.Replace(good, `:8`, `:-8`, 1):  "result 0: row_bytes (-8) must not be negative",
		strings.Replace(good, `"value":1`, `"value":-1`, 1):             "result 0: value (-1) and baseline_value (0) must not be negative, nor larger than a float32",
		strings.Replace(good, `"value":1`, `"baseline_value":1e300`, 1): "result 0: value (0) and baseline_value (1e+300) must not be negative, nor larger than a float32",
		strings.Replace(good, `"value":1`, `"goal_of":"x"`, 1):          `result 0: goal_of ("x") must be "ratio at least", "value at least" or "value at most"`,
	} {
		if _, err := Parse([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", text, err, want)
		}
	}
	r, err := Parse([]byte(good))
	if err != nil || len(r.Results) != 1 || r.Results[0].Case != "lookup" || r.Results[0].Value != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
