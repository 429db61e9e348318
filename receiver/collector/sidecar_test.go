package undercurrentreceiver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// behaviour is the variable that makes this test binary play the sidecar.
const behaviour = "UNDERCURRENT_TEST_BEHAVIOUR"

const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if play := os.Getenv(behaviour); play != "" {
		os.Exit(sidecarOf(play))
	}
	os.Exit(m.Run())
}

// sidecarOf plays the sidecar, and returns its exit status.
func sidecarOf(play string) int {
	switch play {
	case "refuses":
		fmt.Fprintln(os.Stderr, "undercurrent: unknown key `intervall`")
		return invalid
	case "fails":
		return 3
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	if err := deliver("first"); err != nil {
		fmt.Fprintln(os.Stderr, "2026-01-01T00:00:00Z ERROR undercurrent:", err)
		return 1
	}
	if play == "ends" {
		return 0
	}
	<-stopped
	if deliver("last") != nil {
		return 1
	}
	return 0
}

// deliver sends a metric with a name, and a span and a record of the log unless they are disabled.
func deliver(name string) error {
	connection, err := grpc.NewClient(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m := pmetric.NewMetrics()
	metric := m.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	metric.SetName(name)
	metric.SetDescription(strings.Join(os.Args[1:], " "))
	metric.SetEmptyGauge().DataPoints().AppendEmpty().SetIntValue(1)
	if _, err := pmetricotlp.NewGRPCClient(connection).Export(ctx, pmetricotlp.NewExportRequestFromMetrics(m)); err != nil {
		return err
	}
	if os.Getenv("OTEL_TRACES_EXPORTER") != "none" {
		t := ptrace.NewTraces()
		t.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName(name)
		if _, err := ptraceotlp.NewGRPCClient(connection).Export(ctx, ptraceotlp.NewExportRequestFromTraces(t)); err != nil {
			return err
		}
	}
	if os.Getenv("OTEL_LOGS_EXPORTER") != "none" {
		l := plog.NewLogs()
		l.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr(os.Getenv("OTEL_SERVICE_NAME"))
		if _, err := plogotlp.NewGRPCClient(connection).Export(ctx, plogotlp.NewExportRequestFromLogs(l)); err != nil {
			return err
		}
	}
	return nil
}

// A host records the status events of the receiver.
type host struct {
	component.Host
	events chan *componentstatus.Event
}

func newHost() host {
	return host{componenttest.NewNopHost(), make(chan *componentstatus.Event, 100)}
}

// Report ignores the events of the OTLP receiver, which are those of its start and end.
func (h host) Report(event *componentstatus.Event) {
	switch event.Status() {
	case componentstatus.StatusStarting, componentstatus.StatusStopping, componentstatus.StatusStopped:
	default:
		h.events <- event
	}
}

// status waits for the next status event.
func (h host) status(t *testing.T) *componentstatus.Event {
	select {
	case event := <-h.events:
		return event
	case <-time.After(patience):
		require.Fail(t, "no status event")
		return nil
	}
}

// configured returns a configuration that plays the sidecar.
func configured(t *testing.T, play string) *Config {
	t.Setenv(behaviour, play)
	t.Setenv("OTEL_SERVICE_NAME", "of-the-collector")
	shortestWait = time.Millisecond
	config := NewFactory().CreateDefaultConfig().(*Config)
	var err error
	config.Binary, err = os.Executable()
	require.NoError(t, err)
	config.Settings = map[string]any{"interval": "1s", "signals": map[string]any{"latency": map[string]any{"enabled": false}}}
	require.NoError(t, config.Validate())
	return config
}

func TestEverySignalIsForwarded(t *testing.T) {
	config, factory, set := configured(t, "runs"), NewFactory(), receivertest.NewNopSettings(Type)
	metricsSink, tracesSink, logsSink := new(consumertest.MetricsSink), new(consumertest.TracesSink), new(consumertest.LogsSink)
	ctx, host := context.Background(), newHost()
	m, err := factory.CreateMetrics(ctx, set, config, metricsSink)
	require.NoError(t, err)
	tr, err := factory.CreateTraces(ctx, set, config, tracesSink)
	require.NoError(t, err)
	l, err := factory.CreateLogs(ctx, set, config, logsSink)
	require.NoError(t, err)
	all := []component.Component{m, tr, l}
	for _, one := range all {
		require.NoError(t, one.Start(ctx, host))
	}
	assert.Equal(t, componentstatus.StatusOK, host.status(t).Status())
	require.Eventually(t, func() bool { return logsSink.LogRecordCount() == 1 }, patience, time.Millisecond)
	assert.Equal(t, 1, tracesSink.SpanCount())
	body := logsSink.AllLogs()[0].ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().Str()
	assert.Empty(t, body, "variables of the collector are not those of the sidecar")

	first := metricsSink.AllMetrics()[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
	assert.Equal(t, "first", first.Name())
	arguments := strings.Fields(first.Description())
	assert.Equal(t, []string{"run", "--output", "otlp", "--config"}, arguments[:4])
	content, err := os.ReadFile(arguments[4])
	require.NoError(t, err)
	var settings map[string]any
	require.NoError(t, json.Unmarshal(content, &settings))
	assert.Equal(t, config.Settings, settings)

	for _, one := range all {
		require.NoError(t, one.Shutdown(ctx))
	}
	// The last delivery arrives, and nothing is left.
	assert.Equal(t, []int{2, 2, 2}, []int{metricsSink.DataPointCount(), tracesSink.SpanCount(), logsSink.LogRecordCount()})
	assert.NoDirExists(t, filepath.Dir(arguments[4]))
	close(host.events)
	for event := range host.events {
		assert.Equal(t, componentstatus.StatusOK, event.Status(), "the state of the other pipelines")
	}
}

func TestAnEndedSidecarStartsAgain(t *testing.T) {
	for _, play := range []string{"ends", "fails"} {
		config, sink, host := configured(t, play), new(consumertest.MetricsSink), newHost()
		m, err := NewFactory().CreateMetrics(context.Background(), receivertest.NewNopSettings(Type), config, sink)
		require.NoError(t, err)
		require.NoError(t, m.Start(context.Background(), host))
		for range 2 {
			assert.Equal(t, componentstatus.StatusOK, host.status(t).Status())
			event := host.status(t)
			assert.Equal(t, componentstatus.StatusRecoverableError, event.Status())
			assert.ErrorContains(t, event.Err(), "starting it again")
		}
		require.NoError(t, m.Shutdown(context.Background()))
		assert.Equal(t, play == "ends", sink.DataPointCount() > 1)
	}
}

func TestRefusedSettingsAndMissingProgramsAreReported(t *testing.T) {
	config, host := configured(t, "refuses"), newHost()
	start := func() receiver.Metrics {
		m, err := NewFactory().CreateMetrics(context.Background(), receivertest.NewNopSettings(Type), config, consumertest.NewNop())
		require.NoError(t, err)
		require.NoError(t, m.Start(context.Background(), host))
		return m
	}
	m := start()
	assert.Equal(t, componentstatus.StatusOK, host.status(t).Status())
	event := host.status(t)
	assert.Equal(t, componentstatus.StatusPermanentError, event.Status())
	assert.ErrorContains(t, event.Err(), "refuses its settings")
	require.NoError(t, m.Shutdown(context.Background()))

	config.Binary = filepath.Join(t.TempDir(), "missing")
	m = start()
	event = host.status(t)
	assert.Equal(t, componentstatus.StatusRecoverableError, event.Status())
	assert.ErrorContains(t, event.Err(), "no such file")
	require.NoError(t, m.Shutdown(context.Background()))
}

func TestMetricsAreRequired(t *testing.T) {
	tr, err := NewFactory().CreateTraces(context.Background(), receivertest.NewNopSettings(Type), configured(t, "runs"), consumertest.NewNop())
	require.NoError(t, err)
	assert.ErrorContains(t, tr.Start(context.Background(), newHost()), "no metrics pipeline")
	require.NoError(t, tr.Shutdown(context.Background()))
}

func TestConfigurationIsChecked(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(NewFactory().CreateDefaultConfig()))
	require.NoError(t, NewFactory().CreateDefaultConfig().(*Config).Validate())
	config := &Config{Binary: "undercurrent", Settings: map[string]any{"otlp": nil, "outputs": nil}}
	err := config.Validate()
	for _, problem := range []string{"binary:", "shutdown_timeout:", `remove "otlp"`, `remove "outputs"`} {
		assert.ErrorContains(t, err, problem)
	}
}

func TestLinesKeepTheirLevel(t *testing.T) {
	for line, expected := range map[string]string{
		"2026-01-01T00:00:00Z  WARN undercurrent: a": "warn", "2026-01-01T00:00:00Z ERROR x": "error",
		"2026-01-01T00:00:00Z DEBUG x": "debug", "undercurrent: no such file": "info", "": "info",
	} {
		assert.Equal(t, expected, level(line).String(), line)
	}
}
