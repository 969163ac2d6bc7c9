//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
)

// slogLevels are the levels of tc_log_level, from 1 on.
var slogLevels = []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

// logRecord is an element of tc_logs_json's array.
type logRecord struct {
	Time       float64        `json:"time"`
	Level      int            `json:"level"`
	Message    string         `json:"message"`
	Cache      string         `json:"cache"`
	Attributes map[string]any `json:"attributes"`
}

// maxLogs is the number of records that are kept until tc_logs_json takes them.
const maxLogs = 1000

// logs are the records of all caches that were not taken yet.
var logs struct {
	sync.Mutex
	records []logRecord
}

// logHandler is the slog.Handler of a cache.
type logHandler struct {
	level      slog.Level
	cache      string
	attributes []slog.Attr
	group      string
}

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	level := 1
	for level < len(slogLevels) && r.Level >= slogLevels[level] {
		level++
	}
	record := logRecord{
		Time: float64(r.Time.UnixNano()) / 1e9, Level: level, Message: r.Message, Cache: h.cache, Attributes: map[string]any{},
	}
	for _, a := range h.attributes {
		record.Attributes[a.Key] = plain(a.Value)
	}
	r.Attrs(func(a slog.Attr) bool {
		record.Attributes[h.group+a.Key] = plain(a.Value)
		return true
	})
	logs.Lock()
	defer logs.Unlock()
	if len(logs.records) >= maxLogs {
		logs.records = slices.Delete(logs.records, 0, len(logs.records)-maxLogs+1)
	}
	logs.records = append(logs.records, record)
	return nil
}

// plain returns a value as JSON has it: numbers, booleans and texts as such, everything else as a text.
func plain(v slog.Value) any {
	switch v = v.Resolve(); v.Kind() {
	case slog.KindBool, slog.KindInt64, slog.KindUint64:
		return v.Any()
	}
	return v.String()
}

func (h *logHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	c := *h
	c.attributes = slices.Clone(h.attributes)
	for _, a := range attributes {
		c.attributes = append(c.attributes, slog.Attr{Key: h.group + a.Key, Value: a.Value})
	}
	return &c
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.group += name + "."
	return &c
}

//export tcgo_logs_json
func tcgo_logs_json(to **C.char) status {
	return call(func() error {
		logs.Lock()
		records := logs.records
		logs.records = nil
		logs.Unlock()
		if records == nil {
			records = []logRecord{}
		}
		return giveJSON(records, to)
	})
}

// giveJSON returns a value to C code as JSON, in memory of C's malloc.
func giveJSON(v any, to **C.char) error {
	b, err := json.Marshal(v)
	if err != nil {
		return failure{C.TC_ERROR_INTERNAL, err}
	}
	*to = C.CString(string(b))
	return nil
}
