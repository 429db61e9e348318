//! Fewer packets measured, the same figures.

use std::fs;

use super::{
    latency::{seen, served_by},
    support::{
        line::Line,
        sidecar::Sidecar,
        surroundings::{alone, often, virtual_machine},
        talk::Talk,
        wire::{Version, Wire},
    },
};

const RATIO: &str = "undercurrent.sampling.ratio";
const ONE_IN: f64 = 8.0;
const LAYERS: [&str; 3] = ["transport", "socket_enqueued", "socket_read"];

#[test]
fn a_sample_is_the_same_packets_at_every_layer_and_counts_for_all() {
    let Some(_alone) = alone("a sample of packets") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undercurrent.yaml");
    fs::write(&file, format!("signals: {{latency: {{sampling: 1/{ONE_IN}}}}}\n")).unwrap();
    let sidecar = Sidecar::start_with(often(), &["--config", file.to_str().unwrap()], &[]);
    let wire = Wire::best(Version::Ipv4);
    let mut talk = Talk::open(&wire);
    let before = sidecar.snapshot();
    talk.udp(if virtual_machine().is_some() { 400 } else { 4000 }, 200);
    let after = sidecar.snapshot();
    let ratio = after.find(RATIO, &[]).next().expect("a ratio").value.clone();
    assert_eq!(ratio, super::support::line::Value::Number(1.0 / ONE_IN));
    let counted = |layer| {
        let seen = |line: &Line| seen(line, layer, Some("udp"), Version::Ipv4);
        seen(&after) - seen(&before)
    };
    let sent = talk.udp_reads as f64;
    // A binomial share, so many deviations off once in a million runs.
    let deviation = 5.0 * (sent * (ONE_IN - 1.0)).sqrt();
    for layer in LAYERS
        .into_iter()
        .filter(|layer| served_by(&after, layer).as_deref() == Some("fentry") || *layer == "transport")
    {
        let count = counted(layer);
        assert_eq!(count % ONE_IN, 0.0, "{layer}: {count} is no multiple of {ONE_IN}");
        assert!((count - sent).abs() < deviation, "{layer}: {count} of {sent}");
        if virtual_machine().is_some() {
            assert_eq!(count, counted("transport"), "{layer} measured other packets than transport");
        }
    }
}
