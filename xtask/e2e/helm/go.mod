// Pins the Helm of the tests. go.sum pins the contents of the module; its own go.sum pins those of its dependencies.
module undercurrent/helm

go 1.25

require helm.sh/helm/v3 v3.20.2
