package flagfile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestReadJSON_Values(t *testing.T) {
	got, err := ReadJSON([]byte(` {"budget": "1%", "batches": 12, "verify": true, "fanouts": [15, 10], "seed": 18446744073709551615, "x": ["a", false]} `))
	want := []Setting{
		{Key: "budget", Value: "1%"}, {Key: "batches", Value: "12"}, {Key: "verify", Value: "true"}, {Key: "fanouts", Value: "15,10", List: true},
		{Key: "seed", Value: "18446744073709551615"}, {Key: "x", Value: "a,false", List: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := ReadJSON([]byte("{}")); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestReadJSON_BadInput(t *testing.T) {
	const scalars = " must be a string, number or boolean"
	for text, want := range map[string]string{
		``:                                "must hold one JSON object",
		`null`:                            "must hold one JSON object",
		`[1]`:                             "must hold one JSON object",
		`"budget"`:                        "must hold one JSON object",
		`{`:                               "must hold one complete JSON object: truncated",
		`{"batches"`:                      `key "batches": must hold one complete JSON object: truncated`,
		`{"batches":`:                     `key "batches": must hold one complete JSON object: truncated`,
		`{"batches": 1`:                   "must hold one complete JSON object: truncated",
		`{"batches": 1,}`:                 "must hold one JSON object: invalid character '}' looking for beginning of object key string",
		`{"batches": 1} 2`:                "must hold nothing after its object",
		`{"batches": 1}}`:                 "must hold nothing after its object",
		`{"budget": "1%", "budget": 2}`:   `key "budget" occurs twice`,
		`{"budget": 1, "b\u0075dget": 2}`: `key "budget" occurs twice`,
		`{"batches": null}`:               `key "batches": value (null)` + scalars,
		`{"batches": {"a": 1}}`:           `key "batches": value ({"a":1})` + scalars,
		`{"fanouts": []}`:                 `key "fanouts": list ([]) must not be empty`,
		`{"fanouts": [1, [2]]}`:           `key "fanouts": element 1: value ([2])` + scalars,
		`{"fanouts": [null]}`:             `key "fanouts": element 0: value (null)` + scalars,
	} {
		if got, err := ReadJSON([]byte(text)); err == nil || err.Error() != want || got != nil {
			t.Errorf("%s:\n got %v, %v\nwant %s", text, got, err, want)
		}
	}
}

func FuzzReadJSON(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"budget":"1%","fanouts":[15,10],"verify":true,"seed":1e3}`, `{"a":null}`, `{"a":[[]]}`, `{"a":1,"a":2}`, `{"a":1}}`, `{1:2}`, `[{}]`, "{\"\xff\":\"\\ud800\"}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		settings, err := ReadJSON(b)
		if err != nil {
			if settings != nil || err.Error() == "" {
				t.Fatalf("%v beside error %v", settings, err)
			}
			return
		}
		var text []string
		for _, s := range settings {
			key, err := json.Marshal(s.Key)
			if err != nil {
				t.Fatal(err)
			}
			value, err := json.Marshal(s.Value)
			if err != nil {
				t.Fatal(err)
			}
			if s.List {
				value = fmt.Appendf(nil, "[%s]", value)
			}
			text = append(text, fmt.Sprintf("%s:%s", key, value))
		}
		again, err := ReadJSON([]byte("{" + strings.Join(text, ",") + "}"))
		if err != nil || !reflect.DeepEqual(again, settings) {
			t.Fatalf("%q gave %+v, then %+v, %v", b, settings, again, err)
		}
	})
}
