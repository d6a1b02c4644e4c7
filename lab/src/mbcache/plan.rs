//! What the processes of a model do: how many they are, and what they draw.

use uext4_testkit::SplitMix64;

/// What is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Values to draw from.
    pub values: u64,
    /// Files of each process, which have one to begin with.
    pub files: u64,
    /// Processes.
    pub tasks: u64,
    /// Sets of each.
    pub sets: u64,
    /// The exponent of how often a value is drawn, by its rank; 0: all the same.
    pub zipf: f64,
    /// Entries for which there is memory.
    pub cap: Option<u64>,
}

/// Which value is drawn.
#[derive(Debug)]
pub struct Draw {
    values: u64,
    /// Sums of weights by rank; empty if all are the same.
    sums: Vec<f64>,
}

impl Draw {
    /// As a plan says.
    pub fn new(plan: &Plan) -> Self {
        let mut sums = Vec::new();
        let mut sum = 0.0;
        if plan.zipf > 0.0 {
            for rank in 1..=plan.values {
                sum += (rank as f64).powf(-plan.zipf);
                sums.push(sum);
            }
        }
        Self {
            values: plan.values,
            sums,
        }
    }

    /// The next value.
    pub fn one(&self, random: &mut SplitMix64) -> u64 {
        match self.sums.last() {
            None => random.below(self.values),
            Some(all) => {
                let at = random.unit() * all;
                (self.sums.partition_point(|&sum| sum <= at) as u64).min(self.values - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_frequent_or_all_alike() {
        let plan = |zipf| Plan {
            values: 100,
            files: 1,
            tasks: 1,
            sets: 1,
            zipf,
            cap: None,
        };
        let mut random = SplitMix64::new(3);
        let mut firsts = |zipf| {
            let draw = Draw::new(&plan(zipf));
            let drawn = (0..10_000).map(|_| draw.one(&mut random));
            drawn
                .inspect(|&value| assert!(value < 100))
                .filter(|&v| v == 0)
                .count()
        };
        assert!((60..140).contains(&firsts(0.0)));
        // 1 / (1 + 2^-1 + … + 100^-1) of them.
        assert!((1800..2050).contains(&firsts(1.0)));
    }
}
