// Pins the Prometheus of the tests. go.sum pins the contents of the module; its own go.sum pins those of its dependencies.
module undercurrent/prometheus

go 1.26

require github.com/prometheus/prometheus v0.315.0
