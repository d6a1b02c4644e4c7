//! What of a claim's results is shown as a table or a plot: data, as the claim itself.
//!
//! A place is a JSON pointer into the results in which `{s}` stands for the name of a series (a
//! policy, a subject) and `{x}` for a value on the axis (a number of files, of writers).

use serde::Deserialize;
use serde_json::Value;

/// Figures of several policies or subjects side by side, and compared with the printed ones.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The columns: names of series.
    pub columns: Vec<String>,
    /// The rows.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What is shown, with its unit.
    pub what: String,
    /// What the source printed for it.
    #[serde(default)]
    pub printed: String,
    /// The place of the figure of the series `{s}`.
    pub at: String,
}

/// A plot.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Its kind.
    pub kind: Kind,
    /// What it shows.
    pub title: String,
    /// What the horizontal axis is, with its unit.
    pub x: String,
    /// What the vertical axis is, with its unit.
    pub y: String,
    /// Whether each axis is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// The vertical one.
    #[serde(default)]
    pub log_y: bool,
    /// The names of the series.
    pub series: Vec<String>,
    /// The values on the axis; empty where the place itself holds pairs.
    #[serde(default)]
    pub xs: Vec<String>,
    /// The place of the figure, of the samples, or of an array of pairs.
    pub at: String,
    /// For points: the place of the figure on the horizontal axis.
    #[serde(default)]
    pub x_at: String,
}

/// How a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A line a series, through one figure for each value on the axis, or through pairs.
    Line,
    /// A box a series, of its samples.
    Box,
    /// Bars: counts by name, `{"4K-8K": 3}`, or by number, `[[4, 3]]`.
    Histogram,
    /// A point for each series and value on the axis: two figures against each other.
    Points,
}

/// A point of a plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Upwards.
    pub y: f64,
}

/// The place of a series, at a value on the axis.
pub fn place(template: &str, series: &str, x: &str) -> String {
    let escaped = series.replace('~', "~0").replace('/', "~1");
    template.replace("{s}", &escaped).replace("{x}", x)
}

impl Plot {
    /// The points of a series; none where the results have no figures.
    pub fn points(&self, results: &Value, series: &str) -> Vec<Point> {
        let number = |template: &str, x: &str| {
            let place = place(template, series, x);
            results.pointer(&place).and_then(Value::as_f64)
        };
        if self.xs.is_empty() {
            let found = results.pointer(&place(&self.at, series, ""));
            return found.map(pairs).unwrap_or_default();
        }
        let point = |x: &String| {
            let y = number(&self.at, x)?;
            let x = match self.kind {
                Kind::Points => number(&self.x_at, x)?,
                _ => x.parse().ok()?,
            };
            Some(Point { x, y })
        };
        self.xs.iter().filter_map(point).collect()
    }

    /// The samples of a series.
    pub fn samples(&self, results: &Value, series: &str) -> Vec<f64> {
        let found = results.pointer(&place(&self.at, series, ""));
        let values = found.and_then(Value::as_array);
        let values = values.into_iter().flatten();
        values.filter_map(Value::as_f64).collect()
    }

    /// The bars of a series: their names and counts, in the order of the record.
    pub fn bars(&self, results: &Value, series: &str) -> Vec<Bar> {
        let count = |value: &Value| match value {
            Value::Array(values) => values.first().and_then(Value::as_f64),
            other => other.as_f64(),
        };
        match results.pointer(&place(&self.at, series, "")) {
            Some(Value::Object(map)) => {
                let bars = map.iter().filter_map(|(name, value)| {
                    Some(Bar {
                        name: name.clone(),
                        count: count(value)?,
                    })
                });
                bars.collect()
            }
            Some(list @ Value::Array(_)) => {
                let bars = pairs(list).into_iter().map(|point| Bar {
                    name: point.x.to_string(),
                    count: point.y,
                });
                bars.collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A bar of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What was counted.
    pub name: String,
    /// How many.
    pub count: f64,
}

/// An array of pairs of numbers.
fn pairs(value: &Value) -> Vec<Point> {
    let pair = |value: &Value| {
        let point = Point {
            x: value.get(0)?.as_f64()?,
            y: value.get(1)?.as_f64()?,
        };
        Some(point)
    };
    let values = value.as_array().into_iter().flatten();
    values.filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_found_by_series_and_axis() {
        let plot: Plot = toml::from_str(
            "kind = 'line'\ntitle = 't'\nx = 'x'\ny = 'y'\nseries = ['a']\nxs = ['1', '10', '2']\n\
             at = '/{s}/{x}/n'",
        )
        .unwrap();
        let results = json!({"a": {"1": {"n": 5}, "10": {"n": 7}}});
        let expected = [Point { x: 1.0, y: 5.0 }, Point { x: 10.0, y: 7.0 }];
        assert_eq!(plot.points(&results, "a"), expected);
        assert!(plot.points(&results, "b").is_empty());
    }

    #[test]
    fn bars_and_pairs_are_read() {
        let plot: Plot = toml::from_str(
            "kind = 'histogram'\ntitle = 't'\nx = 'x'\ny = 'y'\nseries = ['a/b']\nat = '/{s}'",
        )
        .unwrap();
        let results = json!({"a/b": {"4K": [3, 9], "8K": 4, "none": "x"}});
        let bars = plot.bars(&results, "a/b");
        assert_eq!(bars.len(), 2);
        assert_eq!((bars[0].count, bars[1].count), (3.0, 4.0));
        let results = json!({"a/b": [[1, 2], [3, 4], [5]]});
        assert_eq!(plot.points(&results, "a/b").len(), 2);
        assert_eq!(plot.bars(&results, "a/b")[1].name, "3");
    }
}
