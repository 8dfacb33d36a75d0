//! A picture of one metric: a row for each workload, a mark for each contestant, its interval as a line.
//!
//! The axis is logarithmic, because contestants differ by factors. Marks have shapes as well as
//! colours, so that a print without colours can be read. The colours are names for the style sheet,
//! which has others for dark screens.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::element::{Circle, PathElement, Polygon, Text};
use plotters::prelude::{
    Cartesian2d, ChartBuilder, ChartContext, Color, DrawingArea, IntoDrawingArea, IntoFont,
    Rectangle, SVGBackend, ShapeStyle,
};
use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use weir_state_api::{Error, ErrorKind, Result};

use crate::statistics::Median;

const WIDTH: u32 = 900;
const LEGEND_LINE: i32 = 20;
const AXIS: i32 = 52;
const TEXT: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// Colours that people with any kind of sight tell apart (Okabe and Ito, "Color universal design").
const COLORS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x6a, 0x51, 0xa3),
    RGBColor(0x77, 0x77, 0x77),
];

/// One contestant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) contestant: String,
    /// Chooses colour and shape: a contestant has the same in all pictures of a report.
    pub(crate) look: usize,
    /// Row and figure.
    pub(crate) points: Vec<(usize, Median)>,
}

/// One metric of all contestants.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chart {
    /// The metric, its unit, and which way is better.
    pub(crate) axis: String,
    pub(crate) rows: Vec<String>,
    pub(crate) series: Vec<Series>,
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// A linear axis with labels at given places.
struct Axis {
    from: f64,
    to: f64,
    labels: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.from) / (self.to - self.from);
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.labels.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl Chart {
    /// The picture, or nothing when there is nothing that a logarithmic axis could show.
    pub(crate) fn svg(&self) -> Result<Option<String>> {
        let Some((low, high)) = self.extent() else { return Ok(None) };
        let mut text = String::new();
        self.draw(&mut text, low, high).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("a chart cannot be drawn: {error}"))
        })?;
        Ok(Some(text))
    }

    /// The ends of the axis.
    fn extent(&self) -> Option<(f64, f64)> {
        let medians = || self.series.iter().flat_map(|series| series.points.iter().map(|p| p.1));
        let drawn = || medians().filter(|median| median.value > 0.0);
        let low = drawn().map(|median| lower_end(&median)).min_by(f64::total_cmp)?;
        let high = drawn().map(|median| median.high).max_by(f64::total_cmp)?;
        Some((low / 1.15, high * 1.15))
    }

    fn row_height(&self) -> i32 {
        12 + 9 * self.series.len() as i32
    }

    fn draw(
        &self,
        text: &mut String,
        low: f64,
        high: f64,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let longest = self.series.iter().map(|one| one.contestant.chars().count()).max();
        // A mark, the name, and space.
        let column = 40 + 7 * longest.unwrap_or(0) as i32;
        let columns = (WIDTH as i32 / column).max(1);
        let lines = (self.series.len() as i32 + columns - 1) / columns;
        let legend = LEGEND_LINE * lines + 4;
        let height = legend + self.row_height() * self.rows.len() as i32 + AXIS;
        let canvas = SVGBackend::with_string(text, (WIDTH, height as u32)).into_drawing_area();
        let (head, body) = canvas.split_vertically(legend);
        for (index, series) in self.series.iter().enumerate() {
            let (line, x) = (index as i32 / columns, index as i32 % columns * column);
            let y = LEGEND_LINE * line + LEGEND_LINE / 2;
            mark_at(&head, series.look, (x + 12, y))?;
            let style = ("sans-serif", 13).into_font().color(&TEXT);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            head.draw(&Text::new(series.contestant.clone(), (x + 24, y), style))?;
        }
        let longest = self.rows.iter().map(|row| row.chars().count()).max().unwrap_or(0);
        let rows = self.rows.len() as f64;
        let centres = (0..self.rows.len()).map(|row| row as f64 + 0.5).collect::<Vec<_>>();
        let mut chart = ChartBuilder::on(&body)
            .margin_right(24)
            .x_label_area_size(AXIS)
            .y_label_area_size((20 + 7 * longest as i32).min(WIDTH as i32 / 2))
            .build_cartesian_2d(
                Axis { from: low.log10(), to: high.log10(), labels: ticks(low, high) },
                // The first row is at the top.
                Axis { from: rows, to: 0.0, labels: centres },
            )?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .bold_line_style(GRID)
            .light_line_style(GRID)
            .axis_style(GRID)
            .label_style(("sans-serif", 12).into_font().color(&TEXT))
            .axis_desc_style(("sans-serif", 13).into_font().color(&TEXT))
            .x_desc(&self.axis)
            .x_label_formatter(&|x| number(10_f64.powf(*x)))
            .y_label_formatter(&|y| self.rows.get(*y as usize).cloned().unwrap_or_default())
            .draw()?;
        for row in 1..self.rows.len() {
            let y = row as f64;
            let line = [(low.log10(), y), (high.log10(), y)];
            chart.draw_series([PathElement::new(line, GRID)])?;
        }
        for (index, series) in self.series.iter().enumerate() {
            self.draw_series(&mut chart, index, series)?;
        }
        drop(chart);
        canvas.present()?;
        Ok(())
    }

    fn draw_series(
        &self,
        chart: &mut Plane<'_, '_>,
        index: usize,
        series: &Series,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let offset = (index as f64 + 1.0) / (self.series.len() as f64 + 1.0);
        let color = COLORS[series.look % COLORS.len()];
        for (row, median) in series.points.iter().filter(|(_, median)| median.value > 0.0) {
            let y = *row as f64 + offset;
            let ends = [(lower_end(median).log10(), y), (median.high.log10(), y)];
            let thin = ShapeStyle { color: color.to_rgba(), filled: false, stroke_width: 2 };
            chart.draw_series([PathElement::new(ends, thin)])?;
            let place = chart.backend_coord(&(median.value.log10(), y));
            let (x0, y0) = chart.plotting_area().get_base_pixel();
            let area = chart.plotting_area().strip_coord_spec();
            mark_at(&area, series.look, (place.0 - x0, place.1 - y0))?;
        }
        Ok(())
    }
}

/// A quantity that was 0 in some round has no place on the axis; its interval ends at a tenth.
fn lower_end(median: &Median) -> f64 {
    if median.low > 0.0 { median.low } else { median.value / 10.0 }
}

fn mark_at(
    area: &Canvas<'_>,
    look: usize,
    (x, y): (i32, i32),
) -> Result<(), Box<dyn std::error::Error>> {
    let fill = COLORS[look % COLORS.len()].filled();
    // A colour that comes again has another shape.
    match (look + look / COLORS.len()) % 4 {
        0 => area.draw(&Circle::new((x, y), 4, fill))?,
        1 => area.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], fill))?,
        2 => area.draw(&Polygon::new([(x, y - 5), (x + 5, y + 4), (x - 5, y + 4)], fill))?,
        _ => area.draw(&Polygon::new([(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)], fill))?,
    }
    Ok(())
}

/// Where the axis has labels, as logarithms: 1, 2 and 5 of each decade, or only the decades when
/// there are many, or finer where all lies close together.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let steps: &[f64] = if decades > 4.0 {
        &[1.0]
    } else if decades > 0.7 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    };
    (low.log10().floor() as i32..=high.log10().ceil() as i32)
        .flat_map(|decade| steps.iter().map(move |step| (step * 10_f64.powi(decade)).log10()))
        .filter(|tick| (low.log10()..=high.log10()).contains(tick))
        .collect()
}

/// A number with three significant digits, and a space between thousands.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.trim_end_matches('0');
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 && whole.len() > 4 {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(medians: &[f64]) -> Chart {
        let points = medians
            .iter()
            .enumerate()
            .map(|(row, &value)| (row, Median { value, low: value * 0.9, high: value * 1.2 }))
            .collect();
        Chart {
            axis: "time, ns/op".into(),
            rows: medians.iter().map(|value| format!("row {value}")).collect(),
            series: vec![Series { contestant: "weir <heap>".into(), look: 0, points }],
        }
    }

    #[test]
    fn a_chart_is_well_formed_and_names_its_parts() {
        let svg = chart(&[120.0, 7.0]).svg().unwrap().unwrap();
        for part in ["row 120", "row 7", "weir &lt;heap&gt;", "time, ns/op", "#0072B2", "</svg>"] {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
        // One mark a row, and one in the legend.
        assert_eq!(svg.matches("<circle").count(), 3);
    }

    #[test]
    fn what_a_logarithmic_axis_cannot_show_is_left_out() {
        assert_eq!(chart(&[0.0]).svg().unwrap(), None);
        assert_eq!(chart(&[]).svg().unwrap(), None);
        assert_eq!(chart(&[0.0, 3.0]).svg().unwrap().unwrap().matches("<circle").count(), 2);
    }

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.0, 0.01234, 1.5, 12.34, 123.4, 1_234.0, 12_345.6, 1_234_567.0].map(number);
        let expected = ["0", "0.0123", "1.5", "12.3", "123", "1234", "12\u{202f}346"];
        assert_eq!(texts[..7], expected);
        assert_eq!(texts[7], "1\u{202f}234\u{202f}567");
        assert_eq!(number(-2_000.0), "-2000");
    }

    #[test]
    fn an_axis_has_a_few_labels_however_long_it_is() {
        for (low, high) in [(1.0, 1.5), (1.0, 10.0), (0.01, 100.0), (1.0, 1e9)] {
            let count = ticks(low, high).len();
            assert!((3..=16).contains(&count), "{count} between {low} and {high}");
        }
    }
}
