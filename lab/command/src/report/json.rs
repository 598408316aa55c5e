//! Reports as JSON.

/// The report as one JSON object, indented, with a newline at the end.
///
/// # Errors
/// Never in practice: a report has no keys that are not strings.
pub fn render(report: &impl serde::Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}
