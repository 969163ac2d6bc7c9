package main

// #include "bridge.h"
import "C"

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
)

// slogLevels are the levels of tc_log_level, from 1 on.
var slogLevels = []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

// loggerOf returns the logger of a cache for the tc_log_level of its config, nil for none.
func loggerOf(level C.int32_t, name string) (*slog.Logger, error) {
	switch {
	case level < 0 || level > C.TC_LOG_OFF:
		return nil, argument("config.log_level (%d) must be one of tc_log_level", level)
	case level == C.TC_LOG_OFF:
		return nil, nil
	case level == 0:
		level = C.TC_LOG_WARNING
	}
	h := slog.NewJSONHandler(&logs, &slog.HandlerOptions{Level: slogLevels[level-1], ReplaceAttr: logged})
	return slog.New(h.WithAttrs([]slog.Attr{slog.String("cache", name)}).WithGroup("attributes")), nil
}

// logged gives time, level and message the form that tc_logs_json says. Attributes are numbers, booleans and texts.
func logged(groups []string, a slog.Attr) slog.Attr {
	switch kind := a.Value.Kind(); {
	case len(groups) == 0 && a.Key == slog.TimeKey:
		return slog.Float64(a.Key, float64(a.Value.Time().UnixNano())/1e9)
	case len(groups) == 0 && a.Key == slog.LevelKey:
		level := 1
		for level < len(slogLevels) && a.Value.Any().(slog.Level) >= slogLevels[level] {
			level++
		}
		return slog.Int(a.Key, level)
	case len(groups) == 0 && a.Key == slog.MessageKey:
		a.Key = "message"
	case kind != slog.KindBool && kind != slog.KindInt64 && kind != slog.KindUint64:
		return slog.String(a.Key, a.Value.String())
	}
	return a
}

// maxLogs is the number of records that are kept until tc_logs_json takes them.
const maxLogs = 1000

// records are the records of all caches that were not taken yet, as JSON.
type records struct {
	mu  sync.Mutex
	all []json.RawMessage
}

var logs records

// Write takes one record.
func (r *records) Write(record []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= maxLogs {
		r.all = slices.Delete(r.all, 0, len(r.all)-maxLogs+1)
	}
	r.all = append(r.all, bytes.Clone(record))
	return len(record), nil
}

// take returns the records, and keeps them no longer.
func (r *records) take() []json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return append([]json.RawMessage{}, all...)
}

//export tcgo_logs_json
func tcgo_logs_json(to **C.char) status {
	return call(func() error { return giveJSON(logs.take(), to) })
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
