//! Rows of builds: a load and what GNU time says.

use super::{Error, Reader, Row, Wrong};
use crate::kolivas::{Load, Run};

impl Reader<'_> {
    /// The load and the figures of a row.
    pub(super) fn kernbench(
        &self,
        row: &Row<'_>,
        load: Option<Load>,
    ) -> Result<(Load, Run), Error> {
        const WHAT: [(&str, &str); 6] = [
            ("elapsed seconds", "175.39"),
            ("user seconds", "515.98"),
            ("system seconds", "59.73"),
            ("percent of a CPU", "331%"),
            ("a number of context switches", "39989"),
            ("a number of sleeps", "42617"),
        ];
        let begins_with_load = row.fields[0].parse::<f64>().is_err();
        let (load, begin) = match (load, begins_with_load) {
            (_, true) => {
                let load = row.fields[0].parse::<Load>();
                let load = load.map_err(|error| self.error(Some(row.line), error.into()));
                (load?, 1)
            }
            (Some(load), false) => (load, 0),
            (None, false) => return Err(self.error(Some(row.line), Wrong::LoadMissing)),
        };
        if row.fields.len() > begin + 6 {
            let what = Wrong::TooLong {
                columns: row.fields.len(),
                wanted: begin + 6,
                what: "the load, elapsed, user and system seconds, percent of a CPU, context \
                       switches, sleeps",
            };
            return Err(self.error(Some(row.line), what));
        }
        let mut run = Run::default();
        for (index, what) in WHAT.into_iter().enumerate() {
            let column = begin + index + 1;
            let field = self.field(row, column, what.0)?;
            let field = match index {
                3 => field.trim_end_matches('%'),
                _ => field,
            };
            run[index] = self.number_in(field, row, column, what)?;
            if run[index] < 0.0 {
                return Err(self.no_number(field, row, column, what));
            }
        }
        Ok((load, run))
    }
}
