//! Stacks with equal callers, merged.

use std::{collections::BTreeMap, fmt::Write as _, rc::Rc};

/// A function with the functions that it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    samples: u64,
    callees: BTreeMap<Rc<str>, Frame>,
}

impl Frame {
    /// Adds a stack: the event, and its functions with the innermost one first.
    pub fn add(&mut self, event: &str, functions: impl DoubleEndedIterator<Item = Rc<str>>) {
        self.samples += 1;
        let mut frame = self;
        for name in [Rc::from(event)].into_iter().chain(functions.rev()) {
            frame = frame.callees.entry(name).or_default();
            frame.samples += 1;
        }
    }

    /// Returns the number of stacks.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the called functions by name.
    pub fn callees(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.callees.iter().map(|(name, frame)| (&**name, frame))
    }

    /// Returns the length of the longest stack.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.callees.values().map(|callee| 1 + callee.depth()).max().unwrap_or(0)
    }

    /// Returns a line for each stack: the functions with semicolons between them, and the number of samples.
    #[must_use]
    pub fn folded(&self) -> String {
        let mut text = String::new();
        self.fold("", &mut text);
        text
    }

    fn fold(&self, callers: &str, text: &mut String) {
        let own = self.samples - self.callees.values().map(|callee| callee.samples).sum::<u64>();
        if own > 0 && !callers.is_empty() {
            let _ = writeln!(text, "{callers} {own}");
        }
        for (name, callee) in &self.callees {
            let path = if callers.is_empty() { name.to_string() } else { format!("{callers};{name}") };
            callee.fold(&path, text);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns four stacks.
    pub fn example() -> Frame {
        let mut root = Frame::default();
        for stack in ["memcpy udp_rcv net_rx_action", "memcpy udp_rcv net_rx_action", "net_rx_action"] {
            root.add("receive_softirq", stack.split(' ').map(Rc::from).collect::<Vec<_>>().into_iter());
        }
        root.add("socket_send", [Rc::from("udp_sendmsg<&>")].into_iter());
        root
    }

    #[test]
    fn stacks_are_folded() {
        insta::assert_snapshot!(example().folded(), @"
        receive_softirq;net_rx_action 1
        receive_softirq;net_rx_action;udp_rcv;memcpy 2
        socket_send;udp_sendmsg<&> 1
        ");
        assert_eq!((example().samples(), example().depth()), (4, 4));
    }
}
