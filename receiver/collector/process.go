package undercurrentreceiver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// invalid is the exit status of the program for a configuration that it refuses.
	invalid = 2
	// A program that ran for this time starts again after the shortest wait.
	stable      = time.Minute
	longestWait = time.Minute
)

// shortestWait is the wait before the first restart. Each further wait is twice as long.
var shortestWait = time.Second

// A process keeps the program running.
type process struct {
	config *Config
	logger *zap.Logger
	hosts  *hosts
	file   string
	env    []string
	ended  context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

func newProcess(config *Config, logger *zap.Logger, hosts *hosts, file string, env []string) *process {
	ended, cancel := context.WithCancel(context.Background())
	return &process{config, logger, hosts, file, env, ended, cancel, make(chan struct{})}
}

// environment returns the variables of the program. Those of OpenTelemetry configure the collector, not the sidecar.
func environment(socket string, receivers [kinds]component.Component) []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "OTEL_") {
			env = append(env, variable)
		}
	}
	env = append(env, "OTEL_EXPORTER_OTLP_ENDPOINT=unix://"+socket)
	if receivers[traces] == nil {
		env = append(env, "OTEL_TRACES_EXPORTER=none")
	}
	if receivers[logs] == nil {
		env = append(env, "OTEL_LOGS_EXPORTER=none")
	}
	return env
}

// supervise runs the program, and starts it again after a failure, until the receiver ends.
func (p *process) supervise() {
	defer close(p.done)
	// The kernel sends the signal of Pdeathsig when the thread that started the program ends.
	runtime.LockOSThread()
	wait := shortestWait
	for {
		started := time.Now()
		err := p.run()
		if p.ended.Err() != nil {
			return
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == invalid {
			err = fmt.Errorf("%s refuses its settings: %w; the log has the reason", p.config.Binary, err)
			p.hosts.report(componentstatus.NewPermanentErrorEvent(err))
			return
		}
		if err == nil {
			err = errors.New("it ended without an error")
		}
		if time.Since(started) >= stable {
			wait = shortestWait
		}
		err = fmt.Errorf("%s does not run: %w; starting it again in %v", p.config.Binary, err, wait)
		p.logger.Warn(err.Error())
		p.hosts.report(componentstatus.NewRecoverableErrorEvent(err))
		select {
		case <-p.ended.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, longestWait)
	}
}

// run runs the program once. After the end of the receiver, the program gets time for its last delivery.
func (p *process) run() error {
	command := exec.CommandContext(p.ended, p.config.Binary, "run", "--output", "otlp", "--config", p.file)
	command.Env = p.env
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = p.config.ShutdownTimeout
	read, write := io.Pipe()
	command.Stderr = write
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		p.log(read)
	}()
	err := command.Start()
	if err == nil {
		p.hosts.report(componentstatus.NewEvent(componentstatus.StatusOK))
		err = command.Wait()
	}
	write.Close()
	<-logged
	return err
}

// end stops the program, and waits until it has ended.
func (p *process) end(ctx context.Context) {
	p.cancel()
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}

// log passes the lines of the program to the log of the collector.
func (p *process) log(lines io.Reader) {
	reader := bufio.NewReader(lines)
	for {
		line, err := reader.ReadString('\n')
		if text := strings.TrimSpace(line); text != "" {
			p.logger.Log(level(text), text)
		}
		if err != nil {
			return
		}
	}
}

// level returns the level of a line, whose second word names it.
func level(line string) zapcore.Level {
	words := strings.Fields(line)
	if len(words) > 1 {
		switch words[1] {
		case "ERROR":
			return zapcore.ErrorLevel
		case "WARN":
			return zapcore.WarnLevel
		case "DEBUG", "TRACE":
			return zapcore.DebugLevel
		}
	}
	return zapcore.InfoLevel
}
