//! The answer as a picture: what is left of low memory on machines of several sizes,
//! and, if there were replays, what windows cost with little low memory.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Plan;
use super::sweep::{Sweep, VALUES};

const PANEL: (u32, u32) = (520, 420);

/// One for each value of `userpte=`; they differ in brightness, too.
const COLOURS: [RGBColor; 3] = [
    RGBColor(200, 80, 0),
    RGBColor(0, 90, 160),
    RGBColor(0, 0, 0),
];
const GREY: RGBColor = RGBColor(130, 130, 130);

type Area<'t> = DrawingArea<SVGBackend<'t>, Shift>;

/// The answer as SVG.
///
/// # Errors
/// The picture could not be drawn.
pub fn svg(plan: &Plan) -> Result<String, String> {
    let mut text = String::new();
    draw(plan, &mut text).map_err(|error| format!("the picture could not be drawn: {error}"))?;
    Ok(text)
}

/// An error of the backend in words.
fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn draw(plan: &Plan, text: &mut String) -> Result<(), String> {
    let panels = 1 + u32::from(plan.measured.is_some());
    let size = (panels * PANEL.0, PANEL.1);
    let area = SVGBackend::with_string(text, size).into_drawing_area();
    area.fill(&WHITE).map_err(told)?;
    let areas = area.split_evenly((1, panels as usize));
    memories(plan, &areas[0])?;
    if let (Some(measured), Some(area)) = (&plan.measured, areas.get(1)) {
        costs(&measured.sweep, measured.demand.core_ns, area)?;
    }
    area.present().map_err(told)
}

/// Low memory that the frame table leaves, and what the copies need.
fn memories(plan: &Plan, area: &Area<'_>) -> Result<(), String> {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let rows = &plan.sizes.rows;
    let least = rows.first().map_or(1.0, |row| gib(row.ram_bytes));
    let most = rows.last().map_or(2.0, |row| gib(row.ram_bytes));
    let low = mib(plan.arithmetic.low_bytes);
    let mut chart = ChartBuilder::on(area)
        .caption("MiB of low memory", ("sans-serif", 15))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(
            (least..most.max(least * 2.0)).log_scale().base(2.0),
            0.0..low * 1.1,
        )
        .map_err(told)?;
    chart
        .configure_mesh()
        .x_desc("GiB of memory")
        .x_label_formatter(&|gib| format!("{gib:.0}"))
        .light_line_style(WHITE)
        .draw()
        .map_err(told)?;
    type Value = fn(&super::sizes::Size) -> u64;
    let series: [(&str, RGBColor, Value); 2] = [
        ("frame table", GREY, |row| row.frame_table_bytes),
        ("left for tables and all else", COLOURS[1], |row| {
            row.left_bytes
        }),
    ];
    for (name, colour, value) in series {
        let points = || rows.iter().map(|row| (gib(row.ram_bytes), mib(value(row))));
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(2)))
            .map_err(told)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        let marks = points().map(|place| Circle::new(place, 3, colour.filled()));
        chart.draw_series(marks).map_err(told)?;
    }
    if let Some(measured) = &plan.measured {
        let colour = COLOURS[0];
        let need = measured.demand.low_of_a_copy();
        let all = measured.demand.all_of_a_copy();
        // Memory that is full of copies, as far as it fits the picture.
        let full = rows.iter().map(|row| {
            let copies = row.ram_bytes as f64 / all as f64;
            (gib(row.ram_bytes), (copies * mib(need)).min(low * 1.1))
        });
        chart
            .draw_series(LineSeries::new(full, colour.stroke_width(2)))
            .map_err(told)?
            .label("needed if memory is full of copies")
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(told)
}

/// What windows cost against low memory; nothing where a value fails.
fn costs(sweep: &Sweep, core_ns: u64, area: &Area<'_>) -> Result<(), String> {
    let percent = |ns: f64| 100.0 * ns / (core_ns as f64).max(1.0);
    let places = |value: usize| -> Vec<(f64, f64)> {
        let rows = sweep.rows.iter();
        let whole = rows.filter(|row| row.cells[value].failed.is_none());
        whole
            .map(|row| (row.part, percent(row.cells[value].charged_ns)))
            .collect()
    };
    let least = sweep.rows.first().map_or(0.5, |row| row.part);
    let most = sweep.rows.last().map_or(1.0, |row| row.part);
    let all = (0..VALUES.len()).flat_map(places);
    let top = all.map(|place| place.1).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(
            "cost of windows, % of the time in the core; no mark: it fails",
            ("sans-serif", 15),
        )
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(
            (least..most.max(least * 2.0)).log_scale().base(2.0),
            0.0..top * 1.1,
        )
        .map_err(told)?;
    chart
        .configure_mesh()
        .x_desc("low memory, in parts of what the workload needs")
        .x_label_formatter(&|part| format!("{part:.2}"))
        .light_line_style(WHITE)
        .draw()
        .map_err(told)?;
    for (value, name) in VALUES.iter().enumerate() {
        let colour = COLOURS[value];
        // Lines on one another are told apart by their width.
        let style = colour.stroke_width(if *name == "auto" { 1 } else { 3 });
        chart
            .draw_series(LineSeries::new(places(value), style))
            .map_err(told)?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        let marks = places(value).into_iter();
        let marks = marks.map(|place| Circle::new(place, 4 - value as i32, colour.filled()));
        chart.draw_series(marks).map_err(told)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(told)
}
