// Parses dashboards with the strict parser of the Grafana Foundation SDK, and validates them.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var board dashboard.Dashboard
	if err := board.UnmarshalJSONStrict(text); isFault(err) {
		return err
	}
	if err := board.Validate(); isFault(err) {
		return err
	}
	return nil
}

// isFault tells an error from an empty list of errors, which the parser returns for success.
func isFault(err error) bool {
	return err != nil && err.Error() != ""
}

func main() {
	plugins.RegisterDefaultPlugins()
	failed := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
		}
	}
	if failed {
		os.Exit(1)
	}
}
