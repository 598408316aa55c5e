//! Tables: figures aligned, units in the header, rows that scripts can sort.

use maud::{Markup, html};

/// A table.
#[derive(Clone, Debug)]
pub struct Grid {
    caption: String,
    columns: Vec<(Markup, Kind)>,
    rows: Vec<(String, Vec<Cell>)>,
}

/// What is in a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Words.
    Text,
    /// Figures.
    Number,
    /// Pictures.
    Picture,
}

/// A cell.
#[derive(Clone, Debug)]
pub struct Cell {
    shown: Markup,
    /// What the column is sorted by, if not the text.
    key: Option<f64>,
}

impl Cell {
    /// Words.
    pub fn text(text: impl AsRef<str>) -> Self {
        let text = text.as_ref();
        Self::markup(html! { (text) })
    }

    /// Anything.
    pub fn markup(shown: Markup) -> Self {
        Self { shown, key: None }
    }

    /// A figure, and how it is written.
    pub fn number(value: f64, shown: impl AsRef<str>) -> Self {
        let shown = shown.as_ref();
        Self {
            shown: html! { (shown) },
            key: value.is_finite().then_some(value),
        }
    }

    /// Nothing.
    pub fn empty() -> Self {
        Self::text("")
    }
}

impl Grid {
    /// A table without columns. The caption says what it is, with what a reader must know.
    pub fn new(caption: impl Into<String>) -> Self {
        Self {
            caption: caption.into(),
            columns: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// With one more column of words.
    #[must_use]
    pub fn text(self, title: impl AsRef<str>) -> Self {
        let title = title.as_ref();
        self.column(html! { (title) }, Kind::Text)
    }

    /// With one more column of figures, whose title has the unit.
    #[must_use]
    pub fn number(self, title: impl AsRef<str>) -> Self {
        let title = title.as_ref();
        self.column(html! { (title) }, Kind::Number)
    }

    /// With one more column of pictures.
    #[must_use]
    pub fn picture(self, head: Markup) -> Self {
        self.column(head, Kind::Picture)
    }

    /// With one more column.
    #[must_use]
    pub fn column(mut self, title: Markup, kind: Kind) -> Self {
        self.columns.push((title, kind));
        self
    }

    /// Adds a row; `class` says whose it is, or nothing.
    pub fn row(&mut self, class: impl Into<String>, cells: Vec<Cell>) {
        self.rows.push((class.into(), cells));
    }

    fn has_pictures(&self) -> bool {
        self.columns.iter().any(|(_, kind)| *kind == Kind::Picture)
    }

    /// The table.
    pub fn render(&self) -> Markup {
        html! {
            @if !self.caption.is_empty() { p.caption { (self.caption) } }
            div.scroll tabindex="0" role="region" aria-label=(self.caption) {
                table class=[self.has_pictures().then_some("wide")] aria-label=(self.caption) {
                    thead { tr {
                        @for (title, kind) in &self.columns {
                            th scope="col" class=(kind.class()) { (title) }
                        }
                    } }
                    tbody {
                        @for (class, cells) in &self.rows {
                            tr class=[(!class.is_empty()).then_some(class)] {
                                @for (number, (cell, (_, kind))) in cells.iter().zip(&self.columns).enumerate() {
                                    @if number == 0 && *kind == Kind::Text {
                                        th scope="row" { (cell.shown) }
                                    } @else {
                                        td class=(kind.class()) data-key=[cell.key] { (cell.shown) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Number => "number",
            Kind::Picture => "picture",
        }
    }
}
