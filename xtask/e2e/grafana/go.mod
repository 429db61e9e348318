// Pins the Grafana Foundation SDK, whose parser of dashboards is strict.
module undercurrent/grafana

go 1.21

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
