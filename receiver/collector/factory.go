// Package undercurrentreceiver runs the sidecar Undercurrent inside a collector. The sidecar measures the network stack of the
// kernel, and sends OTLP through a Unix socket in a private directory.
package undercurrentreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

const stability = component.StabilityLevelDevelopment

// Type is the name of the receiver in the collector's configuration.
var Type = component.MustNewType("undercurrent")

// NewFactory returns the factory of the receiver.
func NewFactory() receiver.Factory {
	sidecars := &registry{running: map[component.ID]*sidecar{}}
	return receiver.NewFactory(
		Type,
		defaultConfig,
		receiver.WithMetrics(sidecars.metrics, stability),
		receiver.WithTraces(sidecars.traces, stability),
		receiver.WithLogs(sidecars.logs, stability),
	)
}

func defaultConfig() component.Config {
	return &Config{Binary: "/usr/local/bin/undercurrent", ShutdownTimeout: 5 * time.Second}
}

func (r *registry) metrics(
	ctx context.Context, set receiver.Settings, config component.Config, next consumer.Metrics,
) (receiver.Metrics, error) {
	return r.receive(set, config, metrics, func(otlp receiver.Factory, s *sidecar) (component.Component, error) {
		return otlp.CreateMetrics(ctx, s.receiverSettings(), s.receiverConfig, next)
	})
}

func (r *registry) traces(
	ctx context.Context, set receiver.Settings, config component.Config, next consumer.Traces,
) (receiver.Traces, error) {
	return r.receive(set, config, traces, func(otlp receiver.Factory, s *sidecar) (component.Component, error) {
		return otlp.CreateTraces(ctx, s.receiverSettings(), s.receiverConfig, next)
	})
}

func (r *registry) logs(
	ctx context.Context, set receiver.Settings, config component.Config, next consumer.Logs,
) (receiver.Logs, error) {
	return r.receive(set, config, logs, func(otlp receiver.Factory, s *sidecar) (component.Component, error) {
		return otlp.CreateLogs(ctx, s.receiverSettings(), s.receiverConfig, next)
	})
}

var otlpFactory = otlpreceiver.NewFactory()
