//! The rule of BSD's `ministat` for whether two sets of measurements differ.
//!
//! Student's t for two samples with pooled standard deviation, at 95 %: the difference of the means
//! is proven if it is larger than `t · s · √(1/n₁ + 1/n₂)`. The lines are printed as `ministat`
//! prints them, to the last digit, so that figures of a thread that used it can be recomputed. It
//! assumes independent samples of about normal distribution, and says nothing about the size of a
//! difference it cannot prove.

use std::fmt;

/// Student's t for 1 to 100 degrees of freedom, two-sided at 95 %, as the tables print it.
const STUDENT_95: [f64; 100] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042, 2.040, 2.037, 2.035, 2.032, 2.030, 2.028, 2.026, 2.024, 2.023,
    2.021, 2.020, 2.018, 2.017, 2.015, 2.014, 2.013, 2.012, 2.011, 2.010, 2.009, 2.008, 2.007,
    2.006, 2.005, 2.004, 2.003, 2.002, 2.002, 2.001, 2.000, 2.000, 1.999, 1.998, 1.998, 1.997,
    1.997, 1.996, 1.995, 1.995, 1.994, 1.994, 1.993, 1.993, 1.993, 1.992, 1.992, 1.991, 1.991,
    1.990, 1.990, 1.990, 1.989, 1.989, 1.989, 1.988, 1.988, 1.988, 1.987, 1.987, 1.987, 1.986,
    1.986, 1.986, 1.986, 1.985, 1.985, 1.985, 1.984, 1.984, 1.984,
];
/// The same for more degrees of freedom.
const STUDENT_95_MANY: f64 = 1.960;

/// What `ministat` says of one set of measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many.
    pub n: usize,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The median: of an even number, the upper of the two in the middle, as `ministat` takes it.
    pub median: f64,
    /// The mean.
    pub avg: f64,
    /// The standard deviation of the sample (`n − 1`).
    pub stddev: f64,
}

/// Whether the second set differs from the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Difference {
    /// It does.
    Proven {
        /// Mean of the second less mean of the first.
        by: f64,
        /// Half the width of the confidence interval.
        error: f64,
        /// Both in percent of the first mean.
        percent: (f64, f64),
        /// The pooled standard deviation.
        pooled: f64,
    },
    /// Nothing is proven.
    NotProven,
}

impl Summary {
    /// Of at least three measurements, all finite; `None` for fewer.
    pub fn of(samples: &[f64]) -> Option<Self> {
        if samples.len() < 3 || !samples.iter().all(|s| s.is_finite()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let avg = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|s| (s - avg).powi(2)).sum();
        Some(Self {
            n,
            min: sorted[0],
            max: sorted[n - 1],
            median: sorted[n / 2],
            avg,
            stddev: (squares / (n - 1) as f64).sqrt(),
        })
    }

    /// Whether this set differs from `reference`.
    pub fn against(&self, reference: &Self) -> Difference {
        let (n, m) = (reference.n as f64, self.n as f64);
        let degrees = reference.n + self.n - 2;
        let t = STUDENT_95
            .get(degrees - 1)
            .copied()
            .unwrap_or(STUDENT_95_MANY);
        let squares = (n - 1.0) * reference.stddev.powi(2) + (m - 1.0) * self.stddev.powi(2);
        let pooled = (squares / degrees as f64).sqrt();
        let error = t * pooled * (1.0 / n + 1.0 / m).sqrt();
        let by = self.avg - reference.avg;
        if by.abs() <= error {
            return Difference::NotProven;
        }
        Difference::Proven {
            by,
            error,
            percent: (by * 100.0 / reference.avg, error * 100.0 / reference.avg),
            pooled,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.n)?;
        for value in [self.min, self.max, self.median, self.avg, self.stddev] {
            write!(f, " {}", general(value, 8))?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Proven {
            by,
            error,
            percent,
            pooled,
        } = self
        else {
            return write!(f, "No difference proven at 95.0% confidence");
        };
        let short = |value: f64| general(value, 6);
        writeln!(f, "Difference at 95.0% confidence")?;
        writeln!(f, "{} +/- {}", short(*by), short(*error))?;
        writeln!(f, "{}% +/- {}%", short(percent.0), short(percent.1))?;
        write!(f, "(Student's t, pooled s = {})", short(*pooled))
    }
}

/// As C's `%.<digits>g`: so many significant digits, no zeroes at the end, an exponent where the
/// number is very large or very small.
pub fn general(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let scientific = format!("{value:.*e}", digits.max(1) - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let bare = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", bare(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    bare(&format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three measurements are known whole from their printed line: smallest, median and largest.
    const MAX_A: [[f64; 3]; 3] = [
        [22230.0, 23532.0, 24607.0],
        [203.0, 301.0, 364.0],
        [165.0, 172.0, 248.0],
    ];
    const MAX_B: [[f64; 3]; 3] = [
        [390531.0, 393469.0, 481463.0],
        [106433.0, 130652.0, 170801.0],
        [72569.0, 113704.0, 156338.0],
    ];

    fn all(samples: &[[f64; 3]; 3]) -> Vec<Summary> {
        samples.iter().map(|s| Summary::of(s).unwrap()).collect()
    }

    /// The lines of Zheng Liu, linux-ext4 ("ext4: extents status tree shrinker improvement").
    #[test]
    fn the_thread_s_summaries_are_recomputed() {
        let printed = [
            "3 22230 24607 23532 23456.333 1190.3051",
            "3 203 364 301 289.33333 81.13158",
            "3 165 248 172 195 46.032597",
            "3 390531 481463 393469 421821 51672.373",
            "3 106433 170801 130652 135962 32510.874",
            "3 72569 156338 113704 114203.67 41886.735",
        ];
        let summaries = [all(&MAX_A), all(&MAX_B)].concat();
        for (summary, printed) in summaries.iter().zip(printed) {
            assert_eq!(summary.to_string(), printed);
        }
    }

    #[test]
    fn the_thread_s_differences_are_recomputed_from_its_samples() {
        let (a, b) = (all(&MAX_A), all(&MAX_B));
        for (set, reference, printed) in [
            (
                &a[1],
                &a[0],
                "-23167 +/- 1912.16\n-98.7665% +/- 8.15199%\n(Student's t, pooled s = 843.626)",
            ),
            (
                &a[2],
                &a[0],
                "-23261.3 +/- 1909.16\n-99.1687% +/- 8.1392%\n(Student's t, pooled s = 842.302)",
            ),
            (
                &b[1],
                &b[0],
                "-285859 +/- 97844.9\n-67.7678% +/- 23.1958%\n(Student's t, pooled s = 43168.2)",
            ),
            (
                &b[2],
                &b[0],
                "-307617 +/- 106609\n-72.926% +/- 25.2734%\n(Student's t, pooled s = 47034.7)",
            ),
        ] {
            let said = set.against(reference).to_string();
            assert_eq!(said, format!("Difference at 95.0% confidence\n{printed}"));
        }
    }

    /// The larger sets are known by their printed summaries only.
    #[test]
    fn the_thread_s_differences_are_recomputed_from_its_summaries() {
        let summary = |n, avg, stddev| Summary {
            n,
            min: 0.0,
            max: 0.0,
            median: 0.0,
            avg,
            stddev,
        };
        let a = summary(220, 5268.6773, 4121.2038);
        let b = summary(221, 24630.968, 22736.242);
        for (set, reference, printed) in [
            (
                summary(220, 132.65, 14.904881),
                a,
                "-5136.03 +/- 544.593\n-97.4823% +/- 10.3364%\n(Student's t, pooled s = 2914.15)",
            ),
            (
                summary(224, 97.834821, 27.811093),
                a,
                "-5170.84 +/- 539.706\n-98.1431% +/- 10.2437%\n(Student's t, pooled s = 2900.98)",
            ),
            (
                summary(207, 16167.768, 15087.729),
                b,
                "-8463.2 +/- 3681.22\n-34.36% +/- 14.9455%\n(Student's t, pooled s = 19417.6)",
            ),
            (
                summary(78, 808.85897, 2605.2387),
                b,
                "-23822.1 +/- 5062.86\n-96.7161% +/- 20.5548%\n(Student's t, pooled s = 19613.2)",
            ),
        ] {
            let said = set.against(&reference).to_string();
            assert_eq!(said, format!("Difference at 95.0% confidence\n{printed}"));
        }
    }

    #[test]
    fn little_is_not_proven() {
        let near = Summary::of(&[1.0, 2.0, 3.0]).unwrap();
        let far = Summary::of(&[1.1, 2.1, 3.1]).unwrap();
        assert_eq!(far.against(&near), Difference::NotProven);
        assert_eq!(near.against(&near), Difference::NotProven);
        assert_eq!(Summary::of(&[1.0, 2.0]), None);
        assert_eq!(Summary::of(&[1.0, 2.0, f64::NAN]), None);
    }

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        for (value, digits, printed) in [
            (100000.0, 6, "100000"),
            (1000000.0, 6, "1e+06"),
            (0.0001, 6, "0.0001"),
            (0.00001234, 6, "1.234e-05"),
            (999999.5, 6, "1e+06"),
            (-2.5, 6, "-2.5"),
            (0.0, 6, "0"),
        ] {
            assert_eq!(general(value, digits), printed);
        }
    }
}
