//! The settings of `slow_packets`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use undercurrent_ebpf::abi::slow::uniform_mask;

use crate::{
    kernel::constant::{Constant, Feature},
    options::Span,
    traceparent::{self, Protocols, SpanContext},
};

/// Spans of slow packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// True if slow packets become spans.
    pub enabled: bool,
    /// The latency at `socket_read` above which a packet is slow: a duration, or `adaptive`: the 99.9th percentile of the workload's last
    /// interval.
    pub threshold: Threshold,
    /// The lowest adaptive threshold.
    pub minimum: Span,
    /// Most slow packets per second on the node that become spans, 1 to 1000. Workloads share them equally, and one has at most half while
    /// others wait.
    pub budget: Budget,
    /// The share of all packets that become spans regardless of their latency, one in a power of two: `1/2` to `1/16777216`, or
    /// `none`. At most a tenth of `budget`, but one per second; workloads share them too.
    pub uniform_share: UniformShare,
    /// Addresses and ports of the peers in spans: `full`; `shortened`, which keeps the network of a public address (24 bits for IPv4,
    /// 48 bits for IPv6) and other addresses as they are; or `none`, which also removes the local ones.
    pub addresses: Addresses,
    /// Inspection of the payload of selected TCP packets for a W3C `traceparent`: `none`, `http1`, or `http2`, which
    /// includes gRPC and HTTP/1. The span then belongs to the trace of the request. With `http1`, only the field's value leaves the
    /// kernel.
    pub payload: Payload,
    /// True if spans divide the wait for the reader into its states: asleep, waiting for a CPU and running. A program then runs at
    /// each wakeup and each context switch of the host.
    pub reader_states: bool,
    /// True if packets have spans although their `traceparent` is not sampled.
    pub unsampled: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            threshold: Threshold::Adaptive,
            minimum: span("10ms"),
            budget: Budget(2),
            uniform_share: UniformShare(Some(20)),
            addresses: Addresses::Shortened,
            payload: Payload::Http1,
            reader_states: false,
            unsampled: false,
        }
    }
}

fn span(text: &str) -> Span {
    text.parse().unwrap_or_else(|_| unreachable!("`{text}` is a duration"))
}

/// The latency above which a packet is slow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("title" = "`adaptive` or duration", "examples" = ["adaptive", "50ms"]))]
pub enum Threshold {
    /// The 99.9th percentile of the last interval.
    Adaptive,
    /// A duration.
    Fixed(Span),
}

impl TryFrom<String> for Threshold {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.trim() {
            "adaptive" => Ok(Self::Adaptive),
            text => text.parse().map(Self::Fixed).map_err(|error| format!("{error}, or `adaptive`")),
        }
    }
}

impl From<Threshold> for String {
    fn from(threshold: Threshold) -> Self {
        match threshold {
            Threshold::Adaptive => "adaptive".to_owned(),
            Threshold::Fixed(span) => span.to_string(),
        }
    }
}

/// The addresses in spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// All addresses as they are.
    Full,
    /// Public addresses of peers by their network.
    Shortened,
    /// No addresses.
    None,
}

impl Addresses {
    /// Returns the text for the address of a peer; `None` if spans have no addresses.
    #[must_use]
    pub fn peer(self, address: IpAddr) -> Option<String> {
        match (self, address.to_canonical()) {
            (Self::None, _) => None,
            (Self::Shortened, IpAddr::V4(public)) if !is_local_v4(public) => {
                let [a, b, c, _] = public.octets();
                Some(Ipv4Addr::new(a, b, c, 0).to_string())
            }
            (Self::Shortened, IpAddr::V6(public)) if !is_local_v6(public) => {
                let [a, b, c, ..] = public.segments();
                Some(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).to_string())
            }
            _ => Some(address.to_string()),
        }
    }
}

/// Returns true for an address that is no public one: private (RFC 1918), shared by a carrier (RFC 6598), link-local, loopback or
/// multicast.
fn is_local_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    address.is_private() || is_shared || address.is_link_local() || address.is_loopback() || address.is_multicast()
}

/// Returns true for an address that is no public one: unique local (RFC 4193), link-local, loopback or multicast.
const fn is_local_v6(address: Ipv6Addr) -> bool {
    address.is_unique_local() || address.is_unicast_link_local() || address.is_loopback() || address.is_multicast()
}

/// The protocols of payload that are inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// Payload is not inspected.
    None,
    /// HTTP/1.
    Http1,
    /// HTTP/1, and HTTP/2 without TLS.
    Http2,
}

impl Payload {
    /// Returns the context in the bytes that programs passed with an event: the value of `traceparent`, or the payload.
    #[must_use]
    pub fn parent(self, passed: &[u8]) -> Option<SpanContext> {
        match self {
            Self::None => None,
            Self::Http1 => traceparent::parse(passed),
            Self::Http2 => traceparent::find(passed, Protocols { http1: true, http2: true }),
        }
    }
}

/// Slow packets per second, 1 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u32", into = "u32")]
#[schemars(extend("title" = "number per second", "minimum" = 1, "maximum" = Budget::MOST))]
pub struct Budget(u32);

impl Budget {
    const MOST: u32 = 1000;

    /// Returns the number of slow packets per second.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Budget {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        if (1..=Self::MOST).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!("{number} slow packets per second are not possible: write 1 to {}", Self::MOST))
        }
    }
}

impl From<Budget> for u32 {
    fn from(budget: Budget) -> Self {
        budget.0
    }
}

/// The share of packets that become spans regardless of their latency; the exponent of a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("title" = "`1/n` or `none`", "examples" = ["1/65536", "none"]))]
pub struct UniformShare(Option<u32>);

impl UniformShare {
    /// log2 of the smallest share: programs use 24 bits of a hash.
    const MOST: u32 = 24;
}

impl TryFrom<String> for UniformShare {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let text = text.trim();
        if text == "none" {
            return Ok(Self(None));
        }
        let number = text.strip_prefix("1/").and_then(|number| number.parse::<u32>().ok());
        match number.filter(|number| number.is_power_of_two()).map(u32::ilog2) {
            Some(exponent @ 1..=Self::MOST) => Ok(Self(Some(exponent))),
            _ => Err(format!("`{text}` is no share: write `none`, or `1/2`, `1/4` and so on up to `1/16777216`")),
        }
    }
}

impl From<UniformShare> for String {
    fn from(share: UniformShare) -> Self {
        share.0.map_or_else(|| "none".to_owned(), |exponent| format!("1/{}", 1_u64 << exponent))
    }
}

/// Events per span: of a long stall, spans link to more packets than have spans.
const EVENTS: u32 = 16;
const SECOND: u32 = 1_000_000_000;

impl Settings {
    /// Returns the constants of the programs.
    pub(super) fn constants(&self) -> Vec<Constant> {
        let (budget, inspects) = (self.budget.get(), self.payload != Payload::None);
        vec![
            Constant::flag("signal.slow_packets", self.enabled),
            Constant::number("slow.interval", SECOND / (EVENTS * budget)),
            Constant::number("slow.uniform_interval", SECOND / (budget / 10).max(1)),
            Constant::number("slow.uniform_mask", self.uniform_share.0.map_or(u32::MAX, uniform_mask)),
            Constant::flag("slow.reader_states", self.reader_states),
            Constant::flag("payload.inspected", inspects),
            Constant::flag("payload.searched", self.enabled && self.payload == Payload::Http1),
            Constant::flag("payload.packets", inspects).requires(Feature::PacketPayload),
        ]
    }

    /// Returns the threshold if `quantile` is the 99.9th percentile of a workload's last interval; `None` without a measurement.
    #[must_use]
    pub fn threshold(&self, quantile: Option<Duration>) -> Duration {
        match &self.threshold {
            Threshold::Fixed(span) => span.get(),
            Threshold::Adaptive => quantile.unwrap_or_default().max(self.minimum.get()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn parse(settings: serde_json::Value) -> Result<Settings, String> {
        serde_json::from_value(settings).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_become_constants_of_the_programs() {
        let constants = |settings| -> BTreeMap<_, _> {
            let constants = parse(settings).expect("settings").constants().into_iter();
            constants.map(|constant| (constant.symbol, constant.value)).collect()
        };
        let defaults = BTreeMap::from([
            ("signal.slow_packets", 1),
            ("slow.interval", 31_250_000),
            ("slow.uniform_interval", SECOND),
            ("slow.uniform_mask", 0x0fff_ff00),
            ("slow.reader_states", 0),
            ("payload.inspected", 1),
            ("payload.searched", 1),
            ("payload.packets", 1),
        ]);
        assert_eq!(constants(serde_json::json!({})), defaults);
        let changed = serde_json::json!({
            "budget": 1000, "uniform_share": "1/2", "payload": "none", "reader_states": true,
        });
        let expected = BTreeMap::from([
            ("signal.slow_packets", 1),
            ("slow.interval", 62_500),
            ("slow.uniform_interval", 10_000_000),
            ("slow.uniform_mask", 0x100),
            ("slow.reader_states", 1),
            ("payload.inspected", 0),
            ("payload.searched", 0),
            ("payload.packets", 0),
        ]);
        assert_eq!(constants(changed), expected);
        assert_eq!(constants(serde_json::json!({ "uniform_share": "none" }))["slow.uniform_mask"], u32::MAX);
    }

    #[test]
    fn only_public_addresses_of_peers_are_shortened() {
        let of = |addresses: Addresses, text: &str| addresses.peer(text.parse().expect("an address"));
        for (address, shortened) in [
            ("203.0.114.77", "203.0.114.0"),
            ("2001:470:1:2::3", "2001:470:1::"),
            ("::ffff:8.8.4.4", "8.8.4.0"),
            ("100.128.0.1", "100.128.0.0"),
            ("10.1.2.3", "10.1.2.3"),
            ("100.64.0.1", "100.64.0.1"),
            ("192.168.7.9", "192.168.7.9"),
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("fd00::7", "fd00::7"),
            ("fe80::7", "fe80::7"),
        ] {
            assert_eq!(of(Addresses::Shortened, address).as_deref(), Some(shortened), "{address}");
            assert_eq!(of(Addresses::Full, address).as_deref(), Some(address));
            assert_eq!(of(Addresses::None, address), None);
        }
    }

    #[test]
    fn an_adaptive_threshold_has_a_minimum() {
        let adaptive = Settings::default();
        let milliseconds = Duration::from_millis;
        let measured = [None, Some(milliseconds(3)), Some(milliseconds(30))];
        assert_eq!(measured.map(|quantile| adaptive.threshold(quantile)), [10, 10, 30].map(milliseconds));
        let fixed = parse(serde_json::json!({ "threshold": "5ms" })).expect("settings");
        assert_eq!(fixed.threshold(Some(milliseconds(30))), milliseconds(5));
    }

    #[test]
    fn invalid_settings_are_errors_with_a_remedy() {
        let error = |settings| parse(settings).expect_err("an invalid setting");
        let errors = [
            error(serde_json::json!({ "threshold": "fast" })),
            error(serde_json::json!({ "budget": 0 })),
            error(serde_json::json!({ "budget": 1001 })),
            error(serde_json::json!({ "uniform_share": "1/3" })),
            error(serde_json::json!({ "uniform_share": "1/33554432" })),
        ];
        insta::assert_snapshot!(errors.join("\n"));
    }
}
