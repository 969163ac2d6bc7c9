// Package telemetry_test tests telemetry with receivers of OTLP and with Prometheus's query parser. It is a module of its own, so that they are no
// dependencies of tensorcache.
package telemetry_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// receiver receives OTLP.
type receiver interface {
	// Endpoint returns an address as OTEL_EXPORTER_OTLP_ENDPOINT has it. The protocol is one of OTEL_EXPORTER_OTLP_PROTOCOL.
	Endpoint(protocol string) string
	// Stop ends the receiver and returns what it received.
	Stop(t testing.TB) *Received
}

type endpoints struct{ HTTP, GRPC string }

func (e endpoints) Endpoint(protocol string) string {
	if protocol == "grpc" {
		return e.GRPC
	}
	return e.HTTP
}

// server is a receiver in this process, made of the protocol's generated code. TestLong_Collector has a Collector in its place.
type server struct {
	endpoints
	close func()

	mu       sync.Mutex
	received Received
	err      error // of the first request that could not be read
}

func startServer(t *testing.T) receiver {
	t.Helper()
	s := &server{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer()
	tracepb.RegisterTraceServiceServer(rpc, traces{server: s})
	metricspb.RegisterMetricsServiceServer(rpc, metricPoints{server: s})
	go rpc.Serve(listener)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		s.post(w, r, &tracepb.ExportTraceServiceRequest{}, &tracepb.ExportTraceServiceResponse{})
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		s.post(w, r, &metricspb.ExportMetricsServiceRequest{}, &metricspb.ExportMetricsServiceResponse{})
	})
	web := httptest.NewServer(mux)
	s.endpoints = endpoints{HTTP: web.URL, GRPC: "http://" + listener.Addr().String()}
	s.close = sync.OnceFunc(func() {
		rpc.GracefulStop()
		web.Close()
	})
	t.Cleanup(s.close)
	return s
}

// add takes in a request. Its JSON is that of Collectors, but for IDs, which are Base64.
func (s *server) add(request proto.Message) error {
	line, err := protojson.Marshal(request)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.received.add(line)
	}
	if s.err == nil {
		s.err = err
	}
	return err
}

// post answers a request by HTTP.
func (s *server) post(w http.ResponseWriter, r *http.Request, request, response proto.Message) {
	if kind := r.Header.Get("Content-Type"); kind != "application/x-protobuf" {
		http.Error(w, "content type "+kind, http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err == nil {
		err = s.add(request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := proto.Marshal(response)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Write(answer)
}

// Stop ends the receiver and returns what it received.
func (s *server) Stop(t testing.TB) *Received {
	t.Helper()
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		t.Fatal(s.err)
	}
	return &s.received
}

type traces struct {
	tracepb.UnimplementedTraceServiceServer
	server *server
}

func (s traces) Export(_ context.Context, r *tracepb.ExportTraceServiceRequest) (*tracepb.ExportTraceServiceResponse, error) {
	return &tracepb.ExportTraceServiceResponse{}, s.server.add(r)
}

type metricPoints struct {
	metricspb.UnimplementedMetricsServiceServer
	server *server
}

func (s metricPoints) Export(_ context.Context, r *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	return &metricspb.ExportMetricsServiceResponse{}, s.server.add(r)
}
