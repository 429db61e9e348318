package undercurrentreceiver

import (
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
)

// hosts are those of all pipelines of the receiver. Each reports a state of its own.
type hosts struct {
	lock sync.Mutex
	all  []component.Host
}

func (h *hosts) add(host component.Host) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.all = append(h.all, host)
}

func (h *hosts) report(event *componentstatus.Event) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, host := range h.all {
		componentstatus.ReportStatus(host, event)
	}
}
