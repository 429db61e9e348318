package undercurrentreceiver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

// A kind of telemetry.
type kind int

const (
	metrics kind = iota
	traces
	logs
	kinds
)

// A registry has one sidecar for each configured receiver, which all pipelines of the receiver share.
type registry struct {
	lock    sync.Mutex
	running map[component.ID]*sidecar
}

// A sidecar is the program with the OTLP receiver that it sends to.
type sidecar struct {
	config   *Config
	settings receiver.Settings
	// The OTLP receiver recognizes the pipelines of one server by this pointer.
	receiverConfig *otlpreceiver.Config
	receivers      [kinds]component.Component
	forget         func()

	hosts       hosts
	start, stop sync.Once
	failure     error
	folder      string
	process     *process
}

// receive returns the receiver of one signal.
func (r *registry) receive(
	set receiver.Settings,
	config component.Config,
	of kind,
	create func(receiver.Factory, *sidecar) (component.Component, error),
) (component.Component, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	s, found := r.running[set.ID]
	if !found {
		s = &sidecar{config: config.(*Config), settings: set, receiverConfig: otlpFactory.CreateDefaultConfig().(*otlpreceiver.Config)}
		s.forget = func() {
			r.lock.Lock()
			defer r.lock.Unlock()
			delete(r.running, set.ID)
		}
		r.running[set.ID] = s
	}
	inner, err := create(otlpFactory, s)
	s.receivers[of] = inner
	return s, err
}

// receiverSettings returns the settings of the OTLP receiver: those of this receiver, under another type.
func (s *sidecar) receiverSettings() receiver.Settings {
	set := s.settings
	set.ID = component.NewIDWithName(otlpFactory.Type(), set.ID.String())
	return set
}

// Start begins to listen and starts the program, once for all signals.
func (s *sidecar) Start(ctx context.Context, host component.Host) error {
	s.hosts.add(host)
	s.start.Do(func() { s.failure = s.run(ctx, host) })
	return s.failure
}

func (s *sidecar) run(ctx context.Context, host component.Host) (err error) {
	if s.receivers[metrics] == nil {
		return errors.New("the receiver is in no metrics pipeline; the sidecar always sends metrics")
	}
	if s.folder, err = os.MkdirTemp("", "undercurrent-"); err != nil {
		return fmt.Errorf("cannot create a folder for the socket: %w", err)
	}
	socket := filepath.Join(s.folder, "otlp.sock")
	s.receiverConfig.Protocols.GRPC.GetOrInsertDefault().NetAddr = confignet.AddrConfig{Endpoint: socket, Transport: confignet.TransportTypeUnix}
	for _, inner := range s.receivers {
		if inner == nil {
			continue
		}
		if err := inner.Start(ctx, host); err != nil {
			return err
		}
	}
	// JSON is YAML.
	content, err := json.Marshal(s.config.Settings)
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	file := filepath.Join(s.folder, "undercurrent.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("cannot write the settings: %w", err)
	}
	s.process = newProcess(s.config, s.settings.Logger, &s.hosts, file, environment(socket, s.receivers))
	go s.process.supervise()
	return nil
}

// Shutdown ends the program, and then the OTLP receiver, which gets the last delivery.
func (s *sidecar) Shutdown(ctx context.Context) (err error) {
	s.stop.Do(func() {
		s.forget()
		if s.process != nil {
			s.process.end(ctx)
		}
		for _, inner := range s.receivers {
			if inner != nil {
				err = errors.Join(err, inner.Shutdown(ctx))
			}
		}
		if s.folder != "" {
			err = errors.Join(err, os.RemoveAll(s.folder))
		}
	})
	return err
}
