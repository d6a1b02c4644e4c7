//! Plots as SVG, which a page holds without any other file.
//!
//! What is drawn in [`INK`] becomes the colour of the page's text, so that one picture is good on
//! light and on dark pages; the series' colours can be distinguished on both, and by those who
//! see fewer colours (Okabe and Ito). A series is also identified by its mark.

use plotters::coord::ranged1d::AsRangedCoord;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use serde_json::Value;

use crate::ministat::general;
use crate::view::{Kind, Plot, Point};

/// Pixels.
const WIDTH: u32 = 720;
const HEIGHT: u32 = 360;
/// Stands for the colour of the text.
const INK: RGBColor = RGBColor(1, 2, 3);
const INK_AS_SVG: &str = "#010203";
/// Okabe and Ito's colours without black, and with the yellow last.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(153, 136, 60),
];
const FONT: (&str, u32) = ("sans-serif", 13);

type Error<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// Draws it; `None` if the results have nothing to draw.
pub fn svg(plot: &Plot, results: &Value) -> Option<String> {
    let mut out = String::new();
    let drawn = match plot.kind {
        Kind::Line | Kind::Points => {
            let series = named(plot, |name| plot.points(results, name));
            lines(plot, &series, &mut out)
        }
        Kind::Box => {
            let series = named(plot, |name| plot.samples(results, name));
            boxes(plot, &series, &mut out)
        }
        Kind::Histogram => {
            let series = named(plot, |name| plot.bars(results, name));
            bars(plot, &series, &mut out)
        }
    };
    // What cannot be drawn is not shown: its figures are still in the record below.
    drawn.ok().filter(|is_drawn| *is_drawn)?;
    Some(out.replace(&format!("\"{INK_AS_SVG}\""), "\"currentColor\""))
}

/// A series: its name, its place among all, what it has.
struct Series<T> {
    name: String,
    index: usize,
    values: Vec<T>,
}

fn named<T>(plot: &Plot, values: impl Fn(&str) -> Vec<T>) -> Vec<Series<T>> {
    let all = plot.series.iter().enumerate().map(|(index, name)| Series {
        name: name.clone(),
        index,
        values: values(name),
    });
    all.filter(|series| !series.values.is_empty()).collect()
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// From where to where an axis goes that shows all of these values.
#[derive(Clone, Copy)]
struct Span {
    from: f64,
    to: f64,
}

/// The span of an axis; `None` where nothing can be shown on it.
fn span(values: impl Iterator<Item = f64>, is_log: bool) -> Option<Span> {
    let shown = values.filter(|v| v.is_finite() && (!is_log || *v > 0.0));
    let (from, to) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), v| {
        (from.min(v), to.max(v))
    });
    if from > to {
        return None;
    }
    if is_log {
        return Some(Span {
            from: from / 1.3,
            to: to * 1.3,
        });
    }
    // Lines of figures begin at nothing: a difference must not look larger than it is.
    let from = from.min(0.0);
    let room = (to - from).max(1e-9) * 0.06;
    Some(Span {
        from,
        to: to + room,
    })
}

fn lines(plot: &Plot, series: &[Series<Point>], out: &mut String) -> Result<bool, String> {
    let all = || series.iter().flat_map(|series| &series.values);
    let spans = (
        span(all().map(|point| point.x), plot.log_x),
        span(all().map(|point| point.y), plot.log_y),
    );
    let (Some(x), Some(y)) = spans else {
        return Ok(false);
    };
    let (xs, ys) = (x.from..x.to, y.from..y.to);
    match (plot.log_x, plot.log_y) {
        (false, false) => line_chart(plot, series, xs, ys, out),
        (true, false) => line_chart(plot, series, xs.log_scale(), ys, out),
        (false, true) => line_chart(plot, series, xs, ys.log_scale(), out),
        (true, true) => line_chart(plot, series, xs.log_scale(), ys.log_scale(), out),
    }
    .map_err(|error| error.to_string())?;
    Ok(true)
}

fn line_chart<'a, X, Y>(
    plot: &Plot,
    series: &[Series<Point>],
    xs: X,
    ys: Y,
    out: &'a mut String,
) -> Result<(), Error<'a>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let root = SVGBackend::with_string(out, (WIDTH, HEIGHT)).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(xs, ys)?;
    chart
        .configure_mesh()
        .bold_line_style(INK.mix(0.18))
        .light_line_style(INK.mix(0.0))
        .axis_style(INK)
        .label_style(FONT.into_font().color(&INK))
        .x_desc(&plot.x)
        .y_desc(&plot.y)
        .x_label_formatter(&|value| general(*value, 4))
        .y_label_formatter(&|value| general(*value, 4))
        .draw()?;
    for one in series {
        let colour = colour(one.index);
        let points = one.values.iter().map(|point| (point.x, point.y));
        // Marks and no line where there are few points and no order; a line alone where many.
        if plot.kind == Kind::Line {
            chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
        }
        let radius = if one.values.len() > 60 { 0 } else { 4 };
        let marks = points.map(|point| mark(one.index, radius, point));
        chart
            .draw_series(marks)?
            .label(&one.name)
            .legend(move |(x, y)| mark(one.index, 4, (x + 8, y)));
    }
    chart
        .configure_series_labels()
        .label_font(FONT.into_font().color(&INK))
        .border_style(INK.mix(0.0))
        .draw()?;
    root.present()
}

/// The mark of a series: each has another form, too.
fn mark<C, B>(index: usize, size: i32, at: C) -> DynElement<'static, B, C>
where
    C: Clone + 'static,
    B: DrawingBackend,
    Circle<C, i32>: IntoDynElement<'static, B, C>,
    TriangleMarker<C, i32>: IntoDynElement<'static, B, C>,
    Cross<C, i32>: IntoDynElement<'static, B, C>,
{
    let colour = colour(index);
    match index % 3 {
        0 => Circle::new(at, size, colour.filled()).into_dyn(),
        1 => TriangleMarker::new(at, size + 1, colour.filled()).into_dyn(),
        _ => Cross::new(at, size, colour.stroke_width(2)).into_dyn(),
    }
}

fn boxes(plot: &Plot, series: &[Series<f64>], out: &mut String) -> Result<bool, String> {
    let all = series
        .iter()
        .flat_map(|series| series.values.iter().copied());
    let Some(y) = span(all, false) else {
        return Ok(false);
    };
    box_chart(plot, series, y, out).map_err(|error| error.to_string())?;
    Ok(true)
}

fn box_chart<'a>(
    plot: &Plot,
    series: &[Series<f64>],
    y: Span,
    out: &'a mut String,
) -> Result<(), Error<'a>> {
    let root = SVGBackend::with_string(out, (WIDTH, HEIGHT)).into_drawing_area();
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(names[..].into_segmented(), y.from as f32..y.to as f32)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(INK.mix(0.18))
        .light_line_style(INK.mix(0.0))
        .axis_style(INK)
        .label_style(FONT.into_font().color(&INK))
        .x_desc(&plot.x)
        .y_desc(&plot.y)
        .draw()?;
    for (one, name) in series.iter().zip(&names) {
        let quartiles = Quartiles::new(&one.values);
        let element = Boxplot::new_vertical(SegmentValue::CenterOf(name), &quartiles);
        let style = colour(one.index).stroke_width(2);
        chart.draw_series([element.width(28).style(style)])?;
    }
    root.present()
}

fn bars(
    plot: &Plot,
    series: &[Series<crate::view::Bar>],
    out: &mut String,
) -> Result<bool, String> {
    let counts = series.iter().flat_map(|series| &series.values);
    let Some(y) = span(counts.map(|bar| bar.count), false) else {
        return Ok(false);
    };
    let mut names: Vec<&str> = Vec::new();
    for bar in series.iter().flat_map(|series| &series.values) {
        if !names.contains(&bar.name.as_str()) {
            names.push(&bar.name);
        }
    }
    // Names of orders begin with a number, as `07 512K-`, and sort as numbers do.
    names.sort_by(|a, b| {
        let numbers = a.parse::<f64>().ok().zip(b.parse::<f64>().ok());
        numbers.map_or_else(|| a.cmp(b), |(a, b)| a.total_cmp(&b))
    });
    bar_chart(plot, series, &names, y, out).map_err(|error| error.to_string())?;
    Ok(true)
}

fn bar_chart<'a>(
    plot: &Plot,
    series: &[Series<crate::view::Bar>],
    names: &[&str],
    y: Span,
    out: &'a mut String,
) -> Result<(), Error<'a>> {
    let root = SVGBackend::with_string(out, (WIDTH, HEIGHT)).into_drawing_area();
    let all = names.len() as f64;
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .x_label_area_size(58)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..all, 0.0..y.to)?;
    let name_at = |x: f64| {
        names
            .get(x as usize)
            .map_or("", |name| short(name))
            .to_owned()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(names.len().min(12))
        .bold_line_style(INK.mix(0.18))
        .light_line_style(INK.mix(0.0))
        .axis_style(INK)
        .label_style(FONT.into_font().color(&INK))
        .x_desc(&plot.x)
        .y_desc(&plot.y)
        .x_label_formatter(&|x| name_at(*x))
        .draw()?;
    let width = 0.8 / series.len().max(1) as f64;
    for (place, one) in series.iter().enumerate() {
        let left = |bar: &crate::view::Bar| {
            let at = names.iter().position(|name| *name == bar.name);
            at.unwrap_or(0) as f64 + 0.1 + place as f64 * width
        };
        let style = colour(one.index).filled();
        let rectangles = one.values.iter().map(|bar| {
            let x = left(bar);
            Rectangle::new([(x, 0.0), (x + width, bar.count)], style)
        });
        chart
            .draw_series(rectangles)?
            .label(&one.name)
            .legend(move |(x, y)| Rectangle::new([(x + 4, y - 4), (x + 12, y + 4)], style));
    }
    chart
        .configure_series_labels()
        .label_font(FONT.into_font().color(&INK))
        .border_style(INK.mix(0.0))
        .draw()?;
    root.present()
}

/// `07 512K...1M-` as `512K`.
fn short(name: &str) -> &str {
    let name = name.split_once(' ').map_or(name, |(_, rest)| rest);
    name.split_once("...").map_or(name, |(from, _)| from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plot(kind: &str, more: &str) -> Plot {
        let text = format!(
            "kind = '{kind}'\ntitle = 't'\nx = 'files'\ny = 'steps'\nseries = ['a', 'b']\n{more}"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn every_kind_is_drawn_in_the_page_s_ink() {
        let line = "log_x = true\nlog_y = true\nxs = ['1', '10']\nat = '/{s}/{x}'";
        let results = json!({"a": {"1": 1, "10": 100}, "b": {"1": 2, "10": 4}});
        let samples = json!({"a": [1, 2, 3], "b": [2, 3, 9]});
        let counts = json!({"a": {"00 4K...8K-": [3, 1]}, "b": {"01 8K...16K-": 2}});
        for (plot, results) in [
            (plot("line", line), &results),
            (
                plot("points", &format!("{line}\nx_at = '/{{s}}/1'")),
                &results,
            ),
            (plot("box", "at = '/{s}'"), &samples),
            (plot("histogram", "at = '/{s}'"), &counts),
        ] {
            let svg = svg(&plot, results).unwrap();
            assert!(svg.starts_with("<svg") && svg.contains("currentColor"));
            assert!(!svg.contains(INK_AS_SVG));
            assert!(svg.contains("files") && svg.contains("steps"));
        }
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        let plot = plot("line", "xs = ['1']\nat = '/{s}/{x}'");
        assert_eq!(svg(&plot, &json!({})), None);
        assert_eq!(svg(&plot, &json!({"a": {"1": "text"}})), None);
    }
}
