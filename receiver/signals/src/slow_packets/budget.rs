//! The budget of spans.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket with room for the tokens of one second.
pub struct Tokens {
    /// Tokens per second.
    rate: u32,
    /// Time that pays for tokens; one token takes a second divided by the rate.
    credit: Duration,
    last: Instant,
}

impl Tokens {
    /// Returns a full bucket.
    pub fn new(rate: u32) -> Self {
        Self { rate, credit: Duration::from_secs(1), last: Instant::now() }
    }

    /// Takes a token; returns false if the bucket is empty.
    pub fn take(&mut self) -> bool {
        let now = Instant::now();
        self.credit = (self.credit + (now - self.last)).min(Duration::from_secs(1));
        self.last = now;
        match self.credit.checked_sub(Duration::from_secs(1) / self.rate) {
            Some(rest) => {
                self.credit = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_rate_bounds_the_tokens_of_any_second() {
        let mut tokens = Tokens::new(10);
        let mut taken = |attempts: usize| (0..attempts).filter(|_| tokens.take()).count();
        assert_eq!(taken(1000), 10);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(taken(1000), 2);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken(1000), 10);
    }
}
