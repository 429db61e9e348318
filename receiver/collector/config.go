package undercurrentreceiver

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.opentelemetry.io/collector/component"
)

// Config configures the receiver.
type Config struct {
	// Binary is the absolute path of the program undercurrent.
	Binary string `mapstructure:"binary"`
	// Settings is the configuration of the sidecar, with the keys of its configuration file.
	Settings map[string]any `mapstructure:"settings"`
	// ShutdownTimeout limits the time from the end of the receiver to the end of the sidecar, which then is killed.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

var _ component.Config = (*Config)(nil)

// delivery lists the settings that the receiver determines.
var delivery = []string{"outputs", "otlp"}

// Validate checks the configuration. The sidecar checks its settings when it starts.
func (c *Config) Validate() error {
	var problems []error
	if !filepath.IsAbs(c.Binary) {
		problems = append(problems, fmt.Errorf("binary: %q is no absolute path; write the path of the program undercurrent", c.Binary))
	}
	if c.ShutdownTimeout <= 0 {
		problems = append(problems, errors.New("shutdown_timeout: must be longer than zero"))
	}
	for _, key := range delivery {
		if _, found := c.Settings[key]; found {
			problems = append(problems, fmt.Errorf("settings: remove %q, because the sidecar delivers to this receiver", key))
		}
	}
	return errors.Join(problems...)
}
