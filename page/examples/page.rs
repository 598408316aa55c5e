//! Draws results without the command: `cargo run -p vellum-page --example page RESULT... > page.html`.

use vellum_page::{Loaded, Overview, render};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut results = Vec::new();
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path)?;
        results.push(Loaded::parse(path, &text)?);
    }
    print!("{}", render(&results, &Overview::default()));
    Ok(())
}
