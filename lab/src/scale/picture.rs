//! Findings as a picture: throughput and time against CPUs, one line a design.

use plotters::prelude::*;
use plotters::series::DashedLineSeries;

use super::findings::{Curve, Findings, Point};
use super::text::letter;

const SIZE: (u32, u32) = (1000, 460);

/// Dashes and gaps of the lines, in pixels, so that they differ without colour.
const DASHES: [(u32, u32); 6] = [(1000, 0), (8, 4), (2, 4), (14, 4), (5, 2), (1, 6)];
/// Colours that people who see few of them tell apart, and that differ in brightness.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 0, 0),
    RGBColor(0, 90, 160),
    RGBColor(200, 80, 0),
    RGBColor(0, 130, 90),
    RGBColor(150, 60, 120),
    RGBColor(110, 110, 110),
];

/// The findings as SVG.
///
/// # Errors
/// The picture could not be drawn.
pub fn svg(findings: &Findings) -> Result<String, String> {
    let mut text = String::new();
    draw(findings, &mut text)
        .map_err(|error| format!("the picture could not be drawn: {error}"))?;
    Ok(text)
}

fn draw(findings: &Findings, text: &mut String) -> Result<(), String> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(told)?;
    let title = format!("{} on {}", findings.workload, findings.machine);
    let area = area.titled(&title, ("sans-serif", 18)).map_err(told)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    let unit = findings.unit;
    panel(
        findings,
        &left,
        &format!("million {unit}/s of all CPUs; dotted: the machine's ceiling"),
        |point| point.rate.median / 1e6,
        |point| point.ceiling.map(|ceiling| ceiling / 1e6),
    )?;
    panel(
        findings,
        &right,
        &format!("CPU time of one of the {unit}, us"),
        |point| point.cpus as f64 * 1e6 / point.rate.median,
        |_| None,
    )?;
    area.present().map_err(told)?;
    Ok(())
}

/// An error of the backend in words.
fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

type Area<'t> = DrawingArea<SVGBackend<'t>, plotters::coord::Shift>;

fn panel(
    findings: &Findings,
    area: &Area<'_>,
    title: &str,
    value: impl Fn(&Point) -> f64,
    ceiling: impl Fn(&Point) -> Option<f64>,
) -> Result<(), String> {
    let points = || findings.curves.iter().flat_map(|curve| &curve.points);
    let cpus = points().map(|point| point.cpus as f64);
    let (least, most) = cpus.fold((f64::MAX, 1.0), |(least, most), cpus| {
        (f64::min(least, cpus), f64::max(most, cpus))
    });
    let top = points()
        .map(|point| ceiling(point).unwrap_or(0.0).max(value(point)))
        .fold(0.0, f64::max);
    // With one number of CPUs the axis still has a length.
    let most = most.max(least * 2.0);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d((least..most).log_scale().base(2.0), 0.0..top * 1.05)
        .map_err(told)?;
    chart
        .configure_mesh()
        .x_desc("CPUs")
        .x_label_formatter(&|cpus| format!("{cpus:.0}"))
        .light_line_style(WHITE)
        .draw()
        .map_err(told)?;
    for (number, curve) in findings.curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let (size, spacing) = DASHES[number % DASHES.len()];
        let places = places(curve, &value);
        let thick = colour.stroke_width(2);
        let series = DashedLineSeries::new(places.clone(), size, spacing, thick);
        chart.draw_series(series).map_err(told)?;
        // A mark of its own for each design, which the legend shows.
        let marks = places.into_iter();
        let name = format!("{} {}", letter(number), curve.design);
        let full = colour.filled();
        macro_rules! draw {
            ($shape:ident, $size:expr, $style:expr) => {
                chart
                    .draw_series(marks.map(|place| $shape::new(place, $size, $style)))
                    .map_err(told)?
                    .label(name)
                    .legend(move |(x, y)| $shape::new((x + 9, y), $size, $style))
            };
        }
        match number % 4 {
            0 => draw!(Circle, 4, full),
            1 => draw!(TriangleMarker, 5, full),
            2 => draw!(Cross, 4, thick),
            _ => draw!(Circle, 4, thick),
        };
        let limits = curve.points.iter();
        let limits = limits.filter_map(|point| Some((point.cpus as f64, ceiling(point)?)));
        chart
            .draw_series(DashedLineSeries::new(
                limits,
                2,
                5,
                colour.mix(0.6).stroke_width(1),
            ))
            .map_err(told)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(told)?;
    Ok(())
}

fn places(curve: &Curve, value: &impl Fn(&Point) -> f64) -> Vec<(f64, f64)> {
    let points = curve.points.iter();
    points
        .map(|point| (point.cpus as f64, value(point)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::findings::tests::{findings, point};
    use super::*;

    #[test]
    fn a_picture_has_a_line_and_a_mark_for_each_design() {
        let picture = svg(&findings(vec![
            vec![point(1, 1e6, 1e6), point(2, 2e6, 2e6)],
            vec![point(1, 1e6, 1e6), point(2, 1.5e6, 2e6)],
        ]));
        let picture = picture.expect("it can be drawn");
        assert!(picture.starts_with("<svg"), "{picture}");
        for wanted in [
            "A design 0",
            "B design 1",
            "<polyline",
            "<circle",
            "<polygon",
            "CPUs",
        ] {
            assert!(picture.contains(wanted), "{wanted}: {picture}");
        }
    }

    #[test]
    fn one_number_of_cpus_can_be_drawn() {
        svg(&findings(vec![vec![point(64, 1e6, 2e6)]])).expect("it can be drawn");
    }
}
