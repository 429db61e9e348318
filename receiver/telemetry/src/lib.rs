//! The measurements in terms of the OpenTelemetry metrics data model, independent of the kernel and of the wire format.

use undercurrent_base::{environment, node};

mod attributes;
mod delivery;
mod descriptor;
mod energy;
mod histogram;
mod readings;
mod resource;
mod scale;
mod snapshot;
mod span;
mod time;

pub use attributes::{Attributes, Value};
pub use delivery::{Delivery, ErrorType, Exporters};
pub use descriptor::{AttributeKey, Descriptor, Figure, FigureKind, Instrument, SCHEMA_URL, SCOPE, Side, View};
pub use energy::{Joules, Microjoules, Watts};
pub use histogram::ExponentialHistogram;
pub use readings::Readings;
pub use resource::{INSTANCE_NAMESPACE, NODE_ATTRIBUTES, RESOURCE_ATTRIBUTES, Resource, SERVICE_NAME};
pub use resource::{host_key, instance_id, listed};
pub use scale::Scale;
pub use snapshot::{Data, Metric, Point, ResourceMetrics, Snapshot};
pub use span::{
    Exemplar, ResourceSpans, SpanBatch, SpanContext, SpanData, SpanId, TraceId, finished_span, new_context,
};
pub use time::UnixNanos;
