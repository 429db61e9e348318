// Pins the Jaeger of the tests. go.sum pins the contents of the module; its own go.sum pins those of its dependencies.
module undercurrent/jaeger

go 1.26

require github.com/jaegertracing/jaeger v1.76.0
