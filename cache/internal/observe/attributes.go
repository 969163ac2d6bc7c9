package observe

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/slab"
)

// Keys of attributes. docs/tracing.md documents them.
const (
	KeyCache  = attribute.Key("tensorcache.cache.name")
	KeyTable  = attribute.Key("tensorcache.table.name")
	KeyDevice = attribute.Key("tensorcache.device.index")
	KeyError  = attribute.Key("error.type")
	// Attributes of an attached cache.
	KeyClient  = attribute.Key("tensorcache.client.name")
	KeyProcess = attribute.Key("process.pid") // OpenTelemetry's

	// Attributes of a batch.
	KeyRows         = attribute.Key("tensorcache.batch.rows")
	KeyHits         = attribute.Key("tensorcache.batch.hits")
	KeyMisses       = attribute.Key("tensorcache.batch.misses")
	KeyOutputBytes  = attribute.Key("tensorcache.batch.output_bytes")
	KeyMissBytes    = attribute.Key("tensorcache.batch.miss_bytes")
	KeyHostBytes    = attribute.Key("tensorcache.batch.host_bytes")
	KeyPlanned      = attribute.Key("tensorcache.strategy.planned")
	KeyRun          = attribute.Key("tensorcache.strategy.run")
	KeyFetch        = attribute.Key("tensorcache.strategy.fetch")
	KeyHostShare    = attribute.Key("tensorcache.strategy.host_share")
	KeySampledCount = attribute.Key("tensorcache.miss.events")
	KeyPart         = attribute.Key("tensorcache.batch.part")
	KeyAbsent       = attribute.Key("tensorcache.batch.misses_absent")
	KeyFailedRows   = attribute.Key("tensorcache.batch.rows_failed")
	KeyColdSeconds  = attribute.Key("tensorcache.cold.seconds")
	KeyUnexplained  = attribute.Key("tensorcache.miss.unexplained")

	// Attributes of a sampled miss.
	KeySampled      = attribute.Key("tensorcache.miss.sampled")
	KeyRow          = attribute.Key("tensorcache.row")
	KeyReason       = attribute.Key("tensorcache.miss.reason")
	KeyTier         = attribute.Key("tensorcache.tier")
	KeyStore        = attribute.Key("tensorcache.store.name")
	KeyStored       = attribute.Key("tensorcache.row.stored_bytes")
	KeyFrequency    = attribute.Key("tensorcache.policy.frequency")
	KeyScore        = attribute.Key("tensorcache.policy.score")
	KeyVictim       = attribute.Key("tensorcache.policy.victim_score")
	KeyEvictedAge   = attribute.Key("tensorcache.eviction.age")
	KeyEvictedSince = attribute.Key("tensorcache.eviction.elapsed")
	KeyEvictedTime  = attribute.Key("tensorcache.eviction.time")
	KeyEvictedBy    = attribute.Key("tensorcache.eviction.by")
	KeyLinkRows     = attribute.Key("tensorcache.eviction.rows")

	// Attributes of changes.
	KeyAdmitted     = attribute.Key("tensorcache.refresh.admitted")
	KeyEvicted      = attribute.Key("tensorcache.refresh.evicted")
	KeyMoved        = attribute.Key("tensorcache.refresh.moved")
	KeyRefused      = attribute.Key("tensorcache.refresh.refused")
	KeyWritten      = attribute.Key("tensorcache.refresh.written_bytes")
	KeyBudget       = attribute.Key("tensorcache.budget")
	KeyChangedRows  = attribute.Key("tensorcache.change.rows")
	KeyChangedBytes = attribute.Key("tensorcache.change.bytes")
	KeyTables       = attribute.Key("tensorcache.tables")
	KeyTableRows    = attribute.Key("tensorcache.table.rows")
	KeyTableRaw     = attribute.Key("tensorcache.table.raw_bytes")
	KeyTableStored  = attribute.Key("tensorcache.table.stored_bytes")
	KeyCodec        = attribute.Key("tensorcache.codec")
	KeyCached       = attribute.Key("tensorcache.rows.cached")
	KeyRestored     = attribute.Key("tensorcache.rows.restored")

	// Attributes of metrics only.
	KeyStage     = attribute.Key("tensorcache.stage")
	KeyOperation = attribute.Key("tensorcache.operation")
	KeyMultiple  = attribute.Key("tensorcache.budget.multiple")
)

// KeyReasons are the keys of a batch's numbers of misses, by slab.Reason.
var KeyReasons = [slab.NumReasons]attribute.Key{
	"tensorcache.batch.misses_cold", "tensorcache.batch.misses_rejected", "tensorcache.batch.misses_evicted",
	"tensorcache.batch.misses_invalidated", "tensorcache.batch.misses_oversize",
}

// Names of the stages of a batch: the names of its child spans and the values of attribute tensorcache.stage.
const (
	stageLookup = "lookup"
	stageHits   = "hits"
	stageMisses = "misses"
)

// ErrorKind is the value of attribute error.type for errors that wrap Err.
type ErrorKind struct {
	Err  error
	Kind string
}

// errorKind returns the value of attribute error.type, "_OTHER" for errors of no known kind.
func (t *Telemetry) errorKind(err error) string {
	for _, k := range t.kinds {
		if errors.Is(err, k.Err) {
			return k.Kind
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded"
	}
	return "_OTHER"
}

// recordError records the error on the span and sets the span's status to failed.
func (t *Telemetry) recordError(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(KeyError.String(t.errorKind(err)))
}
