package flagfile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// ReadYAML reads one YAML mapping, or one JSON object, of strings, numbers, booleans, lists of them, and lists of mappings of them. Keys must not
// occur twice. Anchors, aliases, tags and further documents are refused. Errors have the line.
func ReadYAML(b []byte) (settings []Setting, err error) {
	defer func() {
		// The parser is fuzzed by its makers and by us, but what it makes of every text is not proven.
		if p := recover(); p != nil {
			settings, err = nil, fmt.Errorf("must hold one YAML mapping: %v", p)
		}
	}()
	file, err := parser.ParseBytes(b, 0)
	if err != nil {
		return nil, yamlSyntax(err)
	}
	if len(file.Docs) > 1 {
		return nil, fmt.Errorf("must hold one YAML mapping, not %d documents", len(file.Docs))
	}
	if len(file.Docs) == 0 || empty(file.Docs[0].Body) {
		return nil, errors.New("must hold one YAML mapping: it is empty, or has comments only")
	}
	entries, ok := mapping(file.Docs[0].Body)
	if !ok {
		return nil, errors.New("must hold one YAML mapping")
	}
	seen := map[string]bool{}
	for _, e := range entries {
		s, err := yamlSetting(e)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line(e.Key), err)
		}
		if seen[s.Key] {
			return nil, fmt.Errorf("line %d: key %q occurs twice", s.Line, s.Key)
		}
		seen[s.Key] = true
		settings = append(settings, s)
	}
	return settings, nil
}

// empty reports whether a document has nothing but comments.
func empty(n ast.Node) bool {
	if n == nil {
		return true
	}
	_, comments := n.(*ast.CommentGroupNode)
	return comments
}

// yamlSyntax returns the parser's error without its picture of the text.
func yamlSyntax(err error) error {
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
		return fmt.Errorf("line %d: must hold one YAML mapping: %s", at.GetToken().Position.Line, at.GetMessage())
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("must hold one YAML mapping: %s", text)
}

func line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// mapping returns the entries of a mapping. A mapping of one entry may be that entry.
func mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

func yamlSetting(e *ast.MappingValueNode) (s Setting, err error) {
	key, ok := scalar(e.Key)
	if !ok || key == "" {
		return s, fmt.Errorf("key (%s) must be a name", one(e.Key))
	}
	s = Setting{Key: key, Line: line(e.Key)}
	list, isList := e.Value.(*ast.SequenceNode)
	if !isList {
		if s.Value, ok = scalar(e.Value); !ok {
			return s, fmt.Errorf("key %q: value (%s) must be a string, number, boolean or list", key, one(e.Value))
		}
		return s, nil
	}
	s.List = true
	if len(list.Values) == 0 {
		return s, fmt.Errorf("key %q: list ([]) must not be empty", key)
	}
	var parts []string
	for i, v := range list.Values {
		if entries, ok := mapping(v); ok {
			r, err := record(entries)
			if err != nil {
				return s, fmt.Errorf("key %q: element %d: %w", key, i, err)
			}
			s.Records = append(s.Records, r)
			continue
		}
		part, ok := scalar(v)
		if !ok {
			return s, fmt.Errorf("key %q: element %d: value (%s) must be a string, number, boolean or mapping", key, i, one(v))
		}
		parts = append(parts, part)
	}
	if s.Value = strings.Join(parts, ","); len(parts) > 0 && len(s.Records) > 0 {
		return s, fmt.Errorf("key %q: elements must be all mappings or all values", key)
	}
	return s, nil
}

// record returns a mapping of scalars as one line of CSV.
func record(entries []*ast.MappingValueNode) (string, error) {
	var fields []string
	for _, e := range entries {
		key, ok := scalar(e.Key)
		value, ok2 := scalar(e.Value)
		if !ok || !ok2 || key == "" {
			return "", fmt.Errorf("line %d: %s must be a key and a string, number or boolean", line(e.Key), one(e))
		}
		fields = append(fields, key+"="+value)
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	err := w.Write(fields)
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n"), err
}

// scalar returns the text of a string, number or boolean.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode:
		return fmt.Sprint(n.Value), true
	case *ast.FloatNode:
		return n.Token.Value, true
	case *ast.BoolNode:
		return fmt.Sprint(n.Value), true
	}
	return "", false
}

// one returns a node's text in one line, for errors.
func one(n ast.Node) string {
	text := ""
	if n != nil {
		text = strings.Join(strings.Fields(n.String()), " ")
	}
	if text == "" || text == "null" {
		return "nothing"
	}
	if len(text) > 80 {
		text = text[:80] + "…"
	}
	return text
}
