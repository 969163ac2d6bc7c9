package cache

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/slab"
)

// Keys of attributes: docs/tracing.md says what they mean.
const (
	keyCache  = attribute.Key("tensorcache.cache.name")
	keyTable  = attribute.Key("tensorcache.table.name")
	keyDevice = attribute.Key("tensorcache.device.index")
	keyError  = attribute.Key("error.type")

	// Of a batch.
	keyRows         = attribute.Key("tensorcache.batch.rows")
	keyHits         = attribute.Key("tensorcache.batch.hits")
	keyMisses       = attribute.Key("tensorcache.batch.misses")
	keyOutputBytes  = attribute.Key("tensorcache.batch.output_bytes")
	keyMissBytes    = attribute.Key("tensorcache.batch.miss_bytes")
	keyHostBytes    = attribute.Key("tensorcache.batch.host_bytes")
	keyPlanned      = attribute.Key("tensorcache.strategy.planned")
	keyRun          = attribute.Key("tensorcache.strategy.run")
	keyFetch        = attribute.Key("tensorcache.strategy.fetch")
	keyHostShare    = attribute.Key("tensorcache.strategy.host_share")
	keySampledCount = attribute.Key("tensorcache.miss.events")
	keyPart         = attribute.Key("tensorcache.batch.part")

	// Of a sampled miss.
	keySampled      = attribute.Key("tensorcache.miss.sampled")
	keyRow          = attribute.Key("tensorcache.row")
	keyReason       = attribute.Key("tensorcache.miss.reason")
	keyStored       = attribute.Key("tensorcache.row.stored_bytes")
	keyFrequency    = attribute.Key("tensorcache.policy.frequency")
	keyScore        = attribute.Key("tensorcache.policy.score")
	keyVictim       = attribute.Key("tensorcache.policy.victim_score")
	keyEvictedAge   = attribute.Key("tensorcache.eviction.age")
	keyEvictedSince = attribute.Key("tensorcache.eviction.elapsed")
	keyEvictedTime  = attribute.Key("tensorcache.eviction.time")
	keyEvictedBy    = attribute.Key("tensorcache.eviction.by")
	keyLinkRows     = attribute.Key("tensorcache.eviction.rows")

	// Of changes.
	keyAdmitted     = attribute.Key("tensorcache.refresh.admitted")
	keyEvicted      = attribute.Key("tensorcache.refresh.evicted")
	keyMoved        = attribute.Key("tensorcache.refresh.moved")
	keyRefused      = attribute.Key("tensorcache.refresh.refused")
	keyWritten      = attribute.Key("tensorcache.refresh.written_bytes")
	keyBudget       = attribute.Key("tensorcache.budget")
	keyChangedRows  = attribute.Key("tensorcache.change.rows")
	keyChangedBytes = attribute.Key("tensorcache.change.bytes")
	keyTables       = attribute.Key("tensorcache.tables")
	keyTableRows    = attribute.Key("tensorcache.table.rows")
	keyTableRaw     = attribute.Key("tensorcache.table.raw_bytes")
	keyTableStored  = attribute.Key("tensorcache.table.stored_bytes")
	keyCodec        = attribute.Key("tensorcache.codec")
	keyCached       = attribute.Key("tensorcache.rows.cached")
	keyRestored     = attribute.Key("tensorcache.rows.restored")

	// Of metrics only.
	keyStage     = attribute.Key("tensorcache.stage")
	keyOperation = attribute.Key("tensorcache.operation")
	keyPath      = attribute.Key("tensorcache.io.path")
	keyDirection = attribute.Key("tensorcache.io.direction")
	keyAction    = attribute.Key("tensorcache.refresh.action")
	keySource    = attribute.Key("tensorcache.hit.slab")
	keyState     = attribute.Key("tensorcache.slab.state")
	keyKind      = attribute.Key("tensorcache.metadata.kind")
	keyMultiple  = attribute.Key("tensorcache.budget.multiple")
)

// keyReasons are a batch's misses by reason.
var keyReasons = [slab.NumReasons]attribute.Key{
	"tensorcache.batch.misses_cold", "tensorcache.batch.misses_rejected", "tensorcache.batch.misses_evicted",
	"tensorcache.batch.misses_invalidated", "tensorcache.batch.misses_oversize",
}

// Names of stages, of a batch's child spans and of attribute tensorcache.stage.
const (
	stageLookup = "lookup"
	stageHits   = "hits"
	stageMisses = "misses"
)

// String returns the strategy's name as spans have it.
func (s strategy) String() string {
	switch s {
	case oneLaunch:
		return "one_launch"
	case hitsFirst:
		return "hits_first"
	}
	return "side_by_side"
}

// errorKinds are the values of attribute error.type; other errors are "_OTHER".
var errorKinds = []struct {
	err  error
	kind string
}{
	{ErrClosed, "closed"}, {ErrOptions, "options"}, {ErrPolicy, "policy"}, {ErrBudget, "budget"}, {ErrRows, "rows"},
	{ErrOutput, "output"}, {ErrDevice, "device"}, {ErrCapturing, "capturing"}, {ErrCorrupt, "corrupt"},
	{context.Canceled, "canceled"}, {context.DeadlineExceeded, "deadline_exceeded"},
}

func errorKind(err error) string {
	for _, k := range errorKinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return "_OTHER"
}

// recordError gives a span the status of a call that failed.
func recordError(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(keyError.String(errorKind(err)))
}
