//! A flame graph as SVG without scripts: titles show the figures of each function.
//!
//! The drawing follows Gregg: The flame graph, CACM 59(6), 2016. Crates that draw flame graphs have licences that `deny.toml`
//! excludes.

use std::{fmt::Write as _, time::Duration};

use super::tree::Frame;

/// The width of the picture in pixels.
const WIDTH: f64 = 1200.0;
/// The height of a function in pixels.
const ROW: usize = 17;
/// The space above the graph in pixels.
const HEAD: usize = 32;
/// The average width of a character in pixels.
const LETTER: f64 = 6.6;
/// The width below which a function is left out, in pixels.
const NARROWEST: f64 = 0.3;

/// Returns the picture of stacks. `period` is the time of one sample.
pub fn draw(root: &Frame, period: Duration) -> String {
    let height = HEAD + ROW * (root.depth() + 1);
    let mut drawing = Drawing { text: String::new(), bottom: height - ROW, total: root.samples(), period };
    drawing.frame("all", root, 0.0, 0);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">
<rect width="100%" height="100%" fill="#fff"/>
<text x="8" y="20" font-size="14">CPU time of the network stack: {} samples, {}</text>
{}</svg>
"##,
        root.samples(),
        drawing.time(root.samples()),
        drawing.text
    )
}

struct Drawing {
    text: String,
    bottom: usize,
    total: u64,
    period: Duration,
}

impl Drawing {
    /// Draws a function and the functions that it calls, from `left`, `depth` rows above the bottom.
    fn frame(&mut self, name: &str, frame: &Frame, left: f64, depth: usize) {
        let width = self.width(frame.samples());
        if width < NARROWEST {
            return;
        }
        let (top, name) = (self.bottom - depth * ROW, escaped(name));
        let share = frame.samples() as f64 / self.total as f64 * 100.0;
        let (red, green, blue) = colour(&name, depth);
        let _ = write!(
            self.text,
            r#"<g><title>{name}: {}, {} samples, {share:.1}%</title><rect x="{left:.1}" y="{top}" width="{width:.1}" height="{}" fill="rgb({red},{green},{blue})"/>"#,
            self.time(frame.samples()),
            frame.samples(),
            ROW - 1
        );
        let letters = (width / LETTER) as usize;
        if letters >= 3 {
            let _ = write!(
                self.text,
                r#"<text x="{:.1}" y="{}">{}</text>"#,
                left + 2.0,
                top + 12,
                shortened(&name, letters)
            );
        }
        self.text.push_str("</g>\n");
        let mut left = left;
        for (name, callee) in frame.callees() {
            self.frame(name, callee, left, depth + 1);
            left += self.width(callee.samples());
        }
    }

    fn width(&self, samples: u64) -> f64 {
        WIDTH * samples as f64 / self.total as f64
    }

    fn time(&self, samples: u64) -> String {
        format!("{:.0} ms", self.period.as_secs_f64() * samples as f64 * 1e3)
    }
}

/// Returns at most `letters` characters. An escaped character is kept whole.
fn shortened(name: &str, letters: usize) -> String {
    if name.len() <= letters || name.contains('&') { name.to_owned() } else { format!("{}..", &name[..letters - 2]) }
}

/// Escapes characters with a meaning in XML. Other characters outside of ASCII do not occur in names of functions.
fn escaped(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect();
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns a colour that depends on the name: grey for the root, blue for events, red to yellow for functions.
fn colour(name: &str, depth: usize) -> (u8, u8, u8) {
    let hash = name.bytes().fold(0_u8, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte));
    match depth {
        0 => (200, 200, 200),
        1 => (130, 170 + hash % 50, 230),
        _ => (205 + hash % 50, 90 + hash / 2, 55),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flamegraph::tree::tests::example;

    #[test]
    fn a_picture_has_a_rectangle_and_a_title_for_each_function() {
        insta::assert_snapshot!(draw(&example(), Duration::from_millis(2)));
    }

    #[test]
    fn narrow_functions_have_shortened_names_or_none() {
        assert_eq!(shortened("udp_queue_rcv_skb", 8), "udp_qu..");
        assert_eq!(shortened("udp_rcv", 8), "udp_rcv");
        assert_eq!(shortened("a&lt;b", 3), "a&lt;b");
    }
}
